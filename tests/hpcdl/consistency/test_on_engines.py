"""Parameter servers on live engines: a server that dies is one ClusterError, and a restart continues from its
snapshot."""

import os
import signal
import sys

import cloudpickle
import pytest
import torch

from hpcdl.cluster import Cluster, ClusterError
from hpcdl.consistency import Server, work

pytestmark = [
    *(pytest.mark.mpi, pytest.mark.labs, pytest.mark.timeout(120)),  # engines of their own
    pytest.mark.filterwarnings("ignore::hpcdl.cluster.OversubscribedWarning"),  # nothing is timed
]


@pytest.fixture(scope="module")
def cluster():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Cluster(n=3) as cluster:
        yield cluster
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def train(comm, folder, dies=False):
    """Two workers' linear losses, twelve gradients in all."""
    if comm.rank > 0:
        return work(comm, torch.zeros(1000), lambda w, k: torch.full((1000,), float(comm.rank + k)), 6)

    def make(params):
        optimizer, steps = torch.optim.SGD(params, 0.5), []

        def count(*_):
            steps.append(1)
            if dies and len(steps) == 8:
                os.kill(os.getpid(), signal.SIGKILL)

        optimizer.register_step_post_hook(count)
        return optimizer

    served = Server(comm, torch.zeros(1000), make, 1, 1, folder, 3).serve()
    return len(served.log), served.w.unique().tolist()


RIGHT = [-0.5 * sum(rank + k for rank in (1, 2) for k in range(6))]


def test_a_server_that_is_killed_is_one_error_and_the_training_resumes(cluster, tmp_path):
    with pytest.raises(ClusterError, match="rank 0"):
        cluster.run(train, str(tmp_path), True, timeout=60)
    updates, w = cluster.run(train, str(tmp_path), timeout=60)[0]
    assert w == RIGHT
    assert updates == 12 - 6  # six were in the snapshot


def test_it_runs(cluster, tmp_path):
    assert cluster.run(train, str(tmp_path), timeout=60)[0] == (12, RIGHT)
