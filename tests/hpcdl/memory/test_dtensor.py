"""Subclasses of tensors count by the plain tensors that they are made of."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor

from hpcdl.memory import meter


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_a_dtensor_counts_as_its_local_tensor(mesh):
    whole = torch.ones(64)
    with meter() as m:
        spread = distribute_tensor(whole, mesh, [Replicate()])
        doubled = spread + spread
        assert m.live.total == 2 * 64 * 4, "the tensor from outside, and the sum"
        del spread, doubled, whole
        assert m.live.total == 0
