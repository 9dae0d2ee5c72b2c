"""LeNet on the digits over p ranks: it learns, reports, and its replicas agree to the last bit."""

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.ddp.train import train


def test_ranks_learn_the_same_network_and_report_every_step():
    reports = {rank: [] for rank in range(2)}

    def rank(comm):
        with torch.random.fork_rng():
            return train(comm, reports[comm.rank].append, epochs=4, batch=64)

    first, second = simulate(rank, 2).results
    assert first.fingerprint == second.fingerprint
    assert first.replicas == second.replicas == 2
    assert first.accuracy > 0.7
    for records in reports.values():
        assert [record["epoch"] for record in records] == pytest.approx([(i + 1) / 23 for i in range(92)])
        assert all(record["loss"] > 0 and record["images_per_second"] > 0 for record in records)


@pytest.mark.mpi
def test_the_program_runs_under_mpiexec(mpiexec):
    code, printed = mpiexec(2, "-m", "hpcdl.ddp.train", "--epochs", "2", seconds=100)
    assert code == 0, printed
    assert "epoch 2: loss" in printed
    assert "2 of 2 replicas agree to the last bit" in printed
