"""LeNet-5 with parameter servers: it learns at every staleness, and runs as a program."""

import re

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.training.asynchronous import train_asynchronously


def train(staleness, steps=60, folder=None, **options):
    def rank(comm):
        return train_asynchronously(
            comm, steps, 1, staleness, lr=0.1, snapshots=folder, every=5, before_step=lambda step: comm.compute(1.0)
        )

    with torch.random.fork_rng():
        return simulate(rank, 3, **options)


@pytest.mark.labs  # seconds each
@pytest.mark.timeout(100)
@pytest.mark.parametrize("staleness", [0, 3, float("inf")])
def test_it_learns_beside_a_straggler(staleness):
    served, slow, fast = train(staleness, 150, slow={1: 3.0}).results
    assert slow.accuracy > 0.7  # the last to end has seen everything; chance is 0.1
    assert len(served.served.log) == 300
    assert fast.waiting > 0.4 if staleness < 4 else fast.waiting < 0.01


def test_a_training_that_was_ended_goes_on_where_its_server_was(tmp_path):
    whole = train(0, 6).results[0].served
    train(0, 4, str(tmp_path))
    rest = train(0, 6, str(tmp_path)).results[0].served
    assert len(rest.log) < len(whole.log) == 12


@pytest.mark.mpi
@pytest.mark.labs  # processes of their own
@pytest.mark.timeout(120)
def test_it_runs_under_mpiexec(mpiexec):
    arguments = ["--steps", "5", "--servers", "2", "--staleness", "1"]
    code, printed = mpiexec(4, "-m", "hpcdl.training.asynchronous", *arguments, seconds=100)
    assert code == 0, printed
    assert len(re.findall(r"server \d: 10 gradients, \d\.\d\d updates old on average", printed)) == 2, printed
    assert len(re.findall(r"worker \d: accuracy \d+\.\d %, \d+ % of its time waiting", printed)) == 2, printed
