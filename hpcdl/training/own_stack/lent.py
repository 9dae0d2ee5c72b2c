"""Bricks that the library lends: momentum, noise and rounding, a tape, a convolution with its gradients, a step.

These are plain functions of tensors. In a notebook they call the notebook's functions of the same names: see `loans`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional, grad

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.bucketed import make_buckets

CAP = 8192  # bytes of a bucket
HELPERS = {"_parents_first": "tape"}  # helpers without a brick of their own -> the brick they belong to


def momentum_step(w: Tensor, g: Tensor, v: Tensor, lr: float, beta: float) -> tuple[Tensor, Tensor]:
    """Take one step of descent with momentum, `v <- beta v + g` and `w <- w - lr v`; return the new (w, v) (Polyak
    1964)."""
    v = beta * v + g
    return w - lr * v, v


def random16(seed: int, n: int) -> Tensor:
    """Return the n numbers mix(mix(seed) ^ i) >> 16, i = 0 to n-1: int32 in 0 to 65535, the same on every machine.

    mix is a hash of 32-bit words, held in int64; source: C. Wellons, "Prospecting for Hash Functions", 2018.
    """

    def mix(x: Tensor) -> Tensor:
        x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16).to(torch.int32)


def bf16_round_bits(x: Tensor, rand16: Tensor) -> Tensor:
    """Stochastic rounding to bfloat16: add `rand16`, uniform in 0 to 65535, to the bits of x and drop the low 16."""
    rounded = ((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)


class Node:
    """A tensor on the tape: `data`, its parent nodes, and for each parent a function that propagates a gradient
    back."""

    def __init__(self, data: Tensor, parents: Sequence["Node"] = (), pulls: Sequence[Callable[[Tensor], Tensor]] = ()):
        self.data, self.parents, self.pulls = data, parents, pulls
        self.grad = torch.zeros_like(data)

    def __add__(self, other: "Node") -> "Node":
        """Add (n, k) to the same shape, or (k,) to every row."""
        rows = self.data.dim() - other.data.dim()
        return Node(self.data + other.data, (self, other), (lambda g: g, lambda g: g.sum(0) if rows else g))

    def __matmul__(self, other: "Node") -> "Node":
        """Multiply (n, m) by (m, k)."""
        pulls = (lambda g: g @ other.data.T, lambda g: self.data.T @ g)
        return Node(self.data @ other.data, (self, other), pulls)

    def relu(self) -> "Node":
        """Return max(x, 0); its slope at 0 is 0."""
        return Node(self.data.clamp(min=0), (self,), (lambda g: g * (self.data > 0),))

    def flat(self) -> "Node":
        """Reshape (n, ...) to a matrix (n, k)."""
        return Node(self.data.flatten(1), (self,), (lambda g: g.view_as(self.data),))

    def cross_entropy(self, y: Tensor) -> "Node":
        """Return the mean over samples of -log softmax(z)[y] for the logits z (n, classes), y (n,) int64."""
        rows = torch.arange(len(y))
        logs = self.data - self.data.logsumexp(1, keepdim=True)
        error = logs.exp()
        error[rows, y] -= 1
        return Node(-logs[rows, y].mean(), (self,), (lambda g: g * error / len(y),))

    def backward(self) -> None:
        """Set `grad` of this node (to ones) and of all its ancestors: children before parents, each node once."""
        order = _parents_first(self)
        for node in order:
            node.grad = torch.zeros_like(node.data)
        self.grad = torch.ones_like(self.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls, strict=True):
                parent.grad = parent.grad + pull(node.grad)


def _parents_first(root: Node) -> list[Node]:
    """Return `root` and all its ancestors, each once, parents before children."""
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting += [(node, True), *((parent, False) for parent in node.parents)]
    return order


def conv2d(x: Tensor, w: Tensor) -> Tensor:
    """Convolve x (N, C, H, W) with w (K, C, R, S), stride 1, no padding, to y (N, K, P, Q), by torch."""
    return functional.conv2d(x, w)


def conv2d_input_grad(g: Tensor, w: Tensor) -> Tensor:
    """Return the gradient of x (N, C, H, W) from the gradient of y (N, K, P, Q), by torch."""
    return functional.conv_transpose2d(g, w)


def conv2d_weight_grad(g: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of w (K, C, R, S) from the gradient of y (N, K, P, Q) and x (N, C, H, W), by torch."""
    window = x.shape[2] - g.shape[2] + 1, x.shape[3] - g.shape[3] + 1
    return grad.conv2d_weight(x, (g.shape[1], x.shape[1], *window), g)


def network(x: Node, weights: Sequence[Node]) -> Node:
    """Apply two convolutions with ReLU, and a linear layer: images (n, 1, 8, 8) to logits (n, 10)."""

    def conv(x: Node, w: Node) -> Node:
        pulls = (lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data))
        return Node(conv2d(x.data, w.data), (x, w), pulls)

    w1, w2, w3, b3 = weights
    return conv(conv(x, w1).relu(), w2).relu().flat() @ w3 + b3


def train_step(
    weights: list[Tensor],
    velocities: list[Tensor],
    x: Tensor,
    y: Tensor,
    lr: float,
    seed: int,
    comm: Communicator,
    cap_bytes: int = CAP,
) -> float:
    """Take a step with momentum (0.9) on all ranks' images, with weights rounded stochastically to bfloat16; return
    this rank's loss.

    `weights` and `velocities` change in place; weight tensor i draws its noise from `seed + i`.
    """
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        message = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(message, comm)
        means = message[:-1] / message[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket]), strict=True):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads, strict=True)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()
