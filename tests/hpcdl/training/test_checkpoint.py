"""A checkpoint of the training keeps what a schedule changed."""

import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.training import Momentum, checkpoint


def test_a_changed_rate_is_kept_on_every_rank(tmp_path):
    file = tmp_path / "state.pt"

    def rank(comm):
        torch.manual_seed(0)
        found = []
        for lr in (0.1, 0.3):
            ddp = DistributedDataParallel(nn.Linear(2, 2), comm)
            optimizer = Momentum(ddp.module.parameters(), lr)
            found.append((checkpoint.resume(file, ddp, optimizer, {}), optimizer.lr))
            optimizer.lr = lr / 3
            checkpoint.save(file, 7, ddp, optimizer, {})
        return found

    assert simulate(rank, 2).results == [[(0, 0.1), (7, 0.1 / 3)]] * 2
