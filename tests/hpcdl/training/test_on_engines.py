"""Training on live engines: one clear error for what goes wrong, and the engines train again."""

import os
import re
import sys

import cloudpickle
import pytest

from hpcdl.cluster import Cluster, ClusterError, publish
from hpcdl.training.train import train_on_devices

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def cluster():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Cluster(n=2) as cluster:
        yield cluster
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def one_epoch(comm, before_step=lambda step: None, **options):
    return train_on_devices(comm, publish, 1, before_step=before_step, **options)


def test_every_step_of_every_rank_is_published(cluster):
    training = cluster.stream(one_epoch, timeout=100)
    records = list(training)
    assert sorted((record.rank, record.value["step"]) for record in records) == [
        (rank, step + 1) for rank in range(2) for step in range(23)
    ]
    assert [trained.replicas for trained in training.results] == [2, 2]


def test_a_nan_loss_is_one_error_on_all_ranks_and_the_engines_train_again(cluster):
    with pytest.raises(ClusterError, match=r"rank 0 raised FloatingPointError: step 1: the mean loss .* is nan"):
        cluster.run(lambda comm: one_epoch(comm, lr=1e30), timeout=60)
    assert [trained.replicas for trained in cluster.run(one_epoch, timeout=60)] == [2, 2]


def test_a_rank_that_dies_in_a_step_is_named_and_the_engines_train_again(cluster):
    def dies(comm):
        return one_epoch(comm, lambda step: os._exit(3) if (step, comm.rank) == (5, 1) else None)

    with pytest.raises(ClusterError) as caught:
        cluster.run(dies, timeout=60)
    assert re.match(r"rank 1 died \(os\._exit\(3\)\)", str(caught.value))
    assert [trained.replicas for trained in cluster.run(one_epoch, timeout=100)] == [2, 2]
