"""Lab 07 answered by others."""

LIBRARY = {
    "shard_indices": """
import torch
from hpcdl.ddp.sampler import ShardedSampler

def shard_indices(n, rank, size, epoch, seed):
    return torch.tensor([i for batch in ShardedSampler(n, size, rank, size, seed=seed) for i in batch])
""",
    "broadcast_parameters": "from hpcdl.ddp.naive import broadcast_parameters",
    "ring_all_reduce": """
import types
from hpcdl.collectives import ring_all_reduce as library

ring_all_reduce = types.FunctionType(library.__code__, library.__globals__, "copy", library.__defaults__)
""",
    "average_gradients": "from hpcdl.ddp.naive import average_gradients",
    "make_buckets": "from hpcdl.ddp.bucketed import make_buckets",
    "train_step": """
from hpcdl.ddp import naive

def train_step(model, batch, lr, comm, cap_bytes=1):
    return naive.train_step(model, *batch, lr, comm)
""",
    "OverlappedDDP": "from hpcdl.ddp.overlapped import DistributedDataParallel as OverlappedDDP",
}
NOT_IN_LIBRARY: dict[str, str] = {}
PARALLEL = "torch.nn.parallel.DistributedDataParallel(model)"
FRAMEWORKS = {
    "shard_indices": """
import torch
from torch.utils.data.distributed import DistributedSampler

def shard_indices(n, rank, size, epoch, seed):
    sampler = DistributedSampler(range(n), size, rank, seed=seed)
    sampler.set_epoch(epoch)
    return torch.tensor(list(sampler))
""",
    "broadcast_parameters": """
import torch.distributed

def broadcast_parameters(params, comm, root=0):
    for param in params:
        torch.distributed.broadcast(param, root)
""",
    "ring_all_reduce": "def ring_all_reduce(x, comm):\n    comm.all_reduce(x)",
    "average_gradients": """
import torch.distributed

def average_gradients(grads, local_n, comm):
    torch.distributed.all_reduce(grads[0])
""",
    "train_step": f"""
import torch

def train_step(model, batch, lr, comm, cap_bytes=1):
    return {PARALLEL}(batch[0]).sum().item()
""",
    "OverlappedDDP": f"""
import torch

class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=1):
        self.model = {PARALLEL}
""",
}
NOT_IN_FRAMEWORKS = {
    "unmask_ring": "what to ask eight programs is no function of anybody's",
    "make_buckets": "torch's buckets are made in C++, for its reducer alone",
}
NOT_IN_LIBRARY = {
    "unmask_ring": "what to ask eight programs is no function of anybody's",
}
