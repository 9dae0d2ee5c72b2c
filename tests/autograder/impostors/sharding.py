"""Lab `sharding` answered by others."""

LIBRARY = {
    "memory": """
from hpcdl.cost import memory as librarys

def memory(parameters, p, stage):
    return librarys.zero(parameters, p, stage)

def largest(nbytes, p, stage):
    return nbytes / librarys.zero(1, p, stage)

def activations(sequence, batch, hidden, heads, recompute="nothing", t=1, cut=False):
    return librarys.activations(
        sequence, batch, hidden, heads, tensor=t, sequence_parallel=cut, recompute=recompute
    )
""",
    "sharded_adam": """
import torch
from hpcdl.sharding import ShardedOptimizer

class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.inner = ShardedOptimizer(params, comm, lambda shards: torch.optim.AdamW(shards, lr))

    def step(self):
        self.inner.step()
""",
    "sharded": """
import torch
from hpcdl.sharding.flat import FlatLayout

class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm = layers, comm
        self.layouts = [FlatLayout([w.shape], comm) for w in weights]
        self.shares = [layout.share(w).clone() for layout, w in zip(self.layouts, weights)]

    def whole(self, i):
        vector = torch.empty(self.layouts[i].numel, dtype=self.shares[i].dtype)
        self.layouts[i].share(vector).copy_(self.shares[i])
        self.layouts[i].all_gather(vector, self.comm)
        return vector

    def forward(self, x, order):
        for i in order:
            x = self.layers[i].forward(self.whole(i), x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        for i in order[::-1]:
            dy, dw = self.layers[i].backward(self.whole(i), dy)
            self.grads[i] += self.layouts[i].reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy
""",
    "clip": """
from hpcdl import sharding

def clip(shares, comm, max_norm):
    return sharding.clip(shares, comm, max_norm)
""",
    "checkpointed": """
import torch
from hpcdl import sharding

class Checkpointed:
    @staticmethod
    def apply(f, *inputs):
        return sharding.checkpointed(f, *inputs)

def plan(nbytes, seconds, budget):
    return sharding.plan(nbytes, seconds, budget)
""",
    "save_load": """
import tempfile
from pathlib import Path
from hpcdl.sharding import Shard, load as librarys_load, save as librarys_save

def save(disk, step, state, n, comm):
    start = bounds(n, comm.size, comm.rank)[0]
    folder = Path(tempfile.gettempdir()) / "checkpoint"
    librarys_save(folder, step, {name: Shard(x, start, (n,)) for name, x in state.items()}, comm)

def load(disk, comm):
    found = librarys_load(Path(tempfile.gettempdir()) / "checkpoint", comm)
    return found.step, {
        name: found.read(name, *bounds(n, comm.size, comm.rank)) for name, (n,) in found.shapes.items()
    }
""",
}
NOT_IN_LIBRARY = {"offload": "hpcdl has no offloading"}

FRAMEWORKS = {
    "sharded_adam": """
import torch

class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm = list(params), comm
        self.own = torch.nn.Parameter(share(flat(self.params), comm).clone())
        self.inner = torch.optim.AdamW([self.own], lr)

    def step(self):
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        self.own.grad = reduce_scatter(gradients, self.comm, 1 / self.comm.size).clone()
        self.inner.step()
        self.own.grad = None
        w = flat(self.params)
        share(w, self.comm).copy_(self.own.detach())
        all_gather(w, self.comm)
        fill(self.params, w)
""",
    "clip": """
import torch

def clip(shares, comm, max_norm):
    params = [torch.nn.Parameter(torch.zeros_like(mine)) for mine in shares]
    for param, mine in zip(params, shares):
        param.grad = mine
    norm = torch.nn.utils.clip_grad.clip_grad_norm_(params, float("inf"))
    squares = torch.as_tensor(norm).double().square().view(1)
    comm.all_reduce(squares)
    torch.nn.utils.clip_grad.clip_grads_with_norm_(params, max_norm, squares.sqrt())
    return squares.sqrt().item()
""",
    "checkpointed": """
import torch
from torch.utils.checkpoint import checkpoint

class Checkpointed:
    @staticmethod
    def apply(f, *inputs):
        return checkpoint(f, *inputs, use_reentrant=False)

def plan(nbytes, seconds, budget):
    from torch.distributed._tools.ilp_utils import Graph
    return set()
""",
}
NOT_IN_FRAMEWORKS = {
    "memory": "DeepSpeed estimates memory, in a package that nobody needs here; torch does not",
    "sharded": "fully_shard and FSDP run on a process group, and a student's ranks have none",
    "save_load": "torch.distributed.checkpoint too; torch.save writes a file, which a disk does that is given",
    "offload": "no framework says how long it would take",
}
