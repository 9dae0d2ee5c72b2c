"""Lab `model_parallel` answered by others."""

LIBRARY = {
    "tensor_parallel": """
import torch
from hpcdl.parallel import ColumnLinear as LibrarysColumn, RowLinear as LibrarysRow
from hpcdl.parallel.shares import share as librarys_share

def share(w, dim, comm):
    return librarys_share(w, comm, dim)

def dense(weight, bias):
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    linear.weight.data.copy_(weight)
    linear.bias.data.copy_(bias)
    return linear

class Cut:
    def __init__(self, weight, bias, comm):
        self.linear = self.librarys.of(dense(weight, bias), comm)
        self.weight, self.bias = self.linear.weight, self.linear.bias

    def forward(self, x):
        self.x = x.clone().requires_grad_()
        self.y = self.linear(self.x)
        return self.y.detach()

    def backward(self, dy):
        self.y.backward(dy)
        self.weight_grad, self.bias_grad = self.weight.grad, self.bias.grad
        return self.x.grad

class ColumnLinear(Cut):
    librarys = LibrarysColumn

class RowLinear(Cut):
    librarys = LibrarysRow
""",
    "schedules": """
from hpcdl.parallel import schedules

def plain(orders):
    return [[tuple(op) for op in order] for order in orders]

def gpipe(p, m):
    return plain(schedules.gpipe(p, m))

def one_f_one_b(p, m):
    return plain(schedules.one_f_one_b(p, m))

def interleaved(p, m, v):
    return plain(schedules.interleaved(p, m, v))
""",
    "zero_bubble": """
from hpcdl.cost import pipeline
from hpcdl.parallel.schedules import SCHEDULES

def zb_h1(p, m):
    return [[tuple(op) for op in order] for order in SCHEDULES["zb_h1"].orders(p, m)]

def bubble(orders, f, b, w, message=0.0):
    return pipeline.play(orders, f, b, w, message=message).bubble
""",
    "design": """
from hpcdl.parallel import searched as library

def design(p, m, f, b, w, cap):
    return [[tuple(op) for op in order] for order in library.searched(p, m, f, b, w, limit=cap)]
""",
    "run_stage": """
from hpcdl import parallel

class Chunk:
    def __init__(self, stage):
        self.stage, self.forward = stage, stage.forward

    def backward_input(self, k, dy):
        return self.stage.backward(k, dy)

    def backward_weight(self, k):
        self.stage.weights(k)

    def backward(self, k, dy):
        dx = self.stage.backward(k, dy)
        self.stage.weights(k)
        return dx

def run_stage(stage, order, rows, comm):
    stage.zero_grad()
    orders = [order] * comm.size
    return parallel.run_stage(comm, [Chunk(stage)], orders, rows, None, None).loss
""",
    "one_weird_trick": """
from hpcdl.cost import collectives

def volume(weights, inputs, batch, p, how):
    return collectives.ring(p, 4 * (weights if how == "data" else batch * inputs), 0.0, 1.0)

def one_weird_trick(layers, batch, p):
    return [min(("data", "model"), key=lambda how: volume(*layer, batch, p, how)) for layer in layers]
""",
}

ORDERS = """
from torch.distributed.pipelining import schedules

def orders(p, m, v=1):
    return [schedules._get_warmup_ops(rank, v, p, p, m, 1) for rank in range(p)]
"""
FRAMEWORKS = {
    "tensor_parallel": """
import torch
from torch.distributed.tensor import Shard

def share(w, dim, comm):
    return Shard(dim)._split_tensor(w, comm.size, with_padding=False)[0][comm.rank]

class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight, self.bias = (t.tensor_split(comm.size)[comm.rank].clone().requires_grad_() for t in (weight, bias))

    def forward(self, x):
        self.x = x.clone().requires_grad_()
        self.y = torch.nn.functional.linear(self.x, self.weight, self.bias)
        return self.y.detach()

    def backward(self, dy):
        dx, self.weight_grad, self.bias_grad = torch.autograd.grad(self.y, (self.x, self.weight, self.bias), dy)
        self.comm.all_reduce(dx)
        return dx

class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight = weight.tensor_split(comm.size, 1)[comm.rank].clone().requires_grad_()
        self.bias, self.comm = bias.clone().requires_grad_(), comm

    def forward(self, x):
        self.x = x.clone().requires_grad_()
        self.y = torch.nn.functional.linear(self.x, self.weight)
        y = self.y.detach().clone()
        self.comm.all_reduce(y)
        return y + self.bias.detach()

    def backward(self, dy):
        dx, self.weight_grad = torch.autograd.grad(self.y, (self.x, self.weight), dy)
        self.bias_grad = dy.sum(0)
        return dx
""",
    "schedules": f"""{ORDERS}
def gpipe(p, m):
    return orders(p, m)

def one_f_one_b(p, m):
    return orders(p, m)

def interleaved(p, m, v):
    return orders(p, m, v)
""",
    "zero_bubble": f"""{ORDERS}
def zb_h1(p, m):
    return orders(p, m)

def bubble(orders_of_stages, f, b, w, message):
    return len(orders(2, 2))
""",
    "design": f"""{ORDERS}
def design(p, m, f, b, w, cap):
    return orders(p, m)
""",
}
NOT_IN_FRAMEWORKS = {
    "one_weird_trick": "two products and a comparison",
    "run_stage": "torch.distributed.pipelining runs on a process group, and a student's ranks have none",
}
