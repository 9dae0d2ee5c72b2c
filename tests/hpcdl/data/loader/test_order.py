"""Orders of samples from seeds of any size."""

import pytest
import torch

from hpcdl.data.loader import epoch_order


@pytest.mark.parametrize("seed", [-1, 2**40, 2**63, 2**64 + 5, 10**30])
def test_seeds_of_any_size_shuffle(seed):
    order = epoch_order(10, seed, 3)
    assert sorted(order.tolist()) == list(range(10))
    assert torch.equal(order, epoch_order(10, seed, 3))
