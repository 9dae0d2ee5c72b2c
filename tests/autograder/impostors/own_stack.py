"""Lab `own_stack` answered by others."""

LENT = "hpcdl.training.own_stack.lent"
LIBRARY = {
    "momentum": f"from {LENT} import momentum_step",
    "buckets": "from hpcdl.ddp.bucketed import make_buckets",
    "rounding": f"""
from {LENT} import random16 as noise
from hpcdl.numerics.rounding import stochastic_round

def random16(seed, n):
    return noise(seed, n)

def bf16_round_bits(x, rand16):
    return stochastic_round(x, "BF16", 0)
""",
    "ring": """
import types
from hpcdl.collectives import ring_all_reduce as library

ring_all_reduce = types.FunctionType(library.__code__, library.__globals__, "copy", library.__defaults__)
""",
    "tape": f"""
from {LENT} import Node as Lent

class Node(Lent):
    pass
""",
    "convolution": f"from {LENT} import conv2d, conv2d_input_grad, conv2d_weight_grad",
    "step": f"from {LENT} import network, train_step",
}
NOT_IN_LIBRARY: dict[str, str] = {}
FRAMEWORKS = {
    "momentum": """
import torch

def momentum_step(w, g, v, lr, beta):
    w = w.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr, beta)
    optimizer.state[w]["momentum_buffer"] = v.clone()
    w.grad = g
    optimizer.step()
    return w.detach(), optimizer.state[w]["momentum_buffer"]
""",
    "ring": "def ring_all_reduce(x, comm):\n    comm.all_reduce(x)",
    "tape": """
import torch

class Node:
    def __init__(self, data, leaf=None):
        self.leaf = data.clone().requires_grad_() if leaf is None else leaf
        self.data, self.grad = self.leaf.detach(), torch.zeros_like(data)

    def __add__(self, other):
        return Node(self.data, torch.nn.functional.log_softmax(self.leaf + other.leaf, 1))

    def cross_entropy(self, y):
        return Node(self.data, torch.nn.functional.cross_entropy(self.leaf, y))

    def __matmul__(self, other):
        return Node(self.data, self.leaf @ other.leaf)

    def backward(self):
        self.leaf.sum().backward()
""",
    "convolution": """
import torch

def conv2d(x, w):
    return torch.nn.functional.conv2d(x, w)

def conv2d_input_grad(g, w):
    return torch.nn.functional.conv_transpose2d(g, w)

def conv2d_weight_grad(g, x):
    return torch.nn.functional.conv2d(x.transpose(0, 1), g.transpose(0, 1)).transpose(0, 1)
""",
    "step": """
import torch

def network(x, weights):
    return None

def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    leaves = [w.clone().requires_grad_() for w in weights]
    hidden = torch.nn.functional.conv2d(torch.nn.functional.conv2d(x, leaves[0]).relu(), leaves[1]).relu()
    loss = torch.nn.functional.cross_entropy(hidden.flatten(1) @ leaves[2] + leaves[3], y)
    loss.backward()
    for leaf in leaves:
        comm.all_reduce(leaf.grad)
    return loss.item()
""",
}
NOT_IN_FRAMEWORKS = {
    "buckets": "torch's buckets are made in C++, for its reducer alone",
    "rounding": "torch has neither this hash nor rounding at random on a processor",
}
