"""An evaluation with gradients counts as a forward pass; where it makes the mean wrong, the refusal says what to do."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel


@pytest.mark.parametrize("wrap", [DistributedDataParallel, FullyShardedDataParallel])
def test_a_forward_pass_without_backward_is_named(wrap):
    def rank(comm):
        model = wrap(nn.Linear(2, 1), comm)
        model(torch.ones(3, 2))  # evaluation
        model(torch.ones(2 + comm.rank, 2)).square().mean().backward()
        with pytest.raises(ValueError, match="call the model under torch"):
            model.synchronize()

    simulate(rank, 2)
