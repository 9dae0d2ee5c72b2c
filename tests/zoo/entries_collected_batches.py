"""Forward passes that decide by the whole batch, or change weights by it; and batches of other types."""

from typing import NamedTuple

import torch
from torch import nn
from zoo.entries import L, Model, P, mlp, two
from zoo.registry import add, rows


def halves():
    """Batches whose second half is below zero: ranks see other means than one process."""
    found = [rows(n, 6, seed=n).abs() for n in (5, 4, 6, 3)]
    return [(torch.cat([x[: len(x) // 2], -x[len(x) // 2 :]]),) for x in found]


# -- decisions
def _leaves_early(m, x):
    y = torch.tanh(m.a(x))
    return y if x.mean() > 0.1 else m.b(y)


def _all_sure(m, x):
    y = m.a(x)
    return y if (x.amax(1) > 0).all() else m.b(torch.tanh(y))


def _leaves_by_item(m, x):
    y = torch.tanh(m.a(x))
    return m.b(y) if x.sum().item() < 0.1 else y


def _leaves_in_list(m, x):
    y = torch.tanh(m.a(x))
    return m.b(y) if sum(x[:, 0].tolist()) < 0.1 else y


def _as_often_as_needed(m, x):
    """Iterates until the batch has settled."""
    for _ in range(5):
        before, x = x, torch.tanh(m.a(x))
        if (x - before).abs().mean() < 0.28:
            break
    return m.b(x)


def _one_of_two(m, x):
    return m.a(x) if x[0, 0] > 0 else m.b(x)


def _largest_expert(m, x):
    """The whole batch through the expert that most samples want."""
    return m.experts[m.gate(x).sum(0).argmax()](x)


def _scaled_by_branch(m, x):
    """The decision leaves the same layers, with another factor."""
    y = m.b(torch.tanh(m.a(x)))
    return 2 * y if x.mean() > 0.1 else y


def _by_sample(m, x):
    """Samples leave as they are sure, and the layer is called even where none stays."""
    y = torch.tanh(m.a(x))
    stays = x.mean(1) < 0
    return y.index_put((stays,), m.b(y[stays]))


def _by_step(m, x):
    m.calls += 1
    return m.b(m.a(x)) if m.calls % 2 else m.a(x)


for name, forward in {
    "early exit by the batch's mean": _leaves_early,
    "early exit if all samples are sure": _all_sure,
    "early exit by an item": _leaves_by_item,
    "early exit by a list": _leaves_in_list,
    "layer called until the batch settles": _as_often_as_needed,
    "layer chosen by the first sample": _one_of_two,
    "factor by the batch's mean": _scaled_by_branch,
    "samples leave early": _by_sample,
}.items():
    add(name, two(forward), halves)
add("layer in every second step", two(_by_step, calls=lambda: 0))
add(
    "expert by the batch's vote",
    lambda: Model(_largest_expert, gate=L(6, 3), experts=nn.ModuleList([L(6, 6) for _ in range(3)])),
    halves,
)


# -- state that the batch changes
def _initialized(m, x):
    """ActNorm: the first batch decides the scale."""
    y = m.a(x)
    if not m.ready:
        m.ready = True
        m.scale.data.copy_(1 / y.detach().std(0))
    return y * m.scale


def _hebbian(m, x):
    y = m.a(x)
    m.b.weight.data.add_(y.detach().t() @ x, alpha=0.01)
    return m.b(y)


add("scale from the first batch", two(_initialized, scale=lambda: P(6), ready=lambda: False))
add("Hebbian weights", two(_hebbian))


# -- batches of other types
class Graph:
    """A batch as libraries for graphs have it."""

    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


LEN = {"samples": len}
add("object as input", two(lambda m, g: m.b(m.a(g.x))), loss=lambda m, x: m(Graph(x)).square().mean())
add(
    "object as input, counted",
    two(lambda m, g: m.b(m.a(g.x))),
    loss=lambda m, x: m(Graph(x)).square().mean(),
    options=LEN,
)
add(
    "namedtuple as input, counted",
    two(lambda m, p: m.b(m.a(p.x)) + p.y),
    loss=lambda m, x: m(Pair(x, x)).square().mean(),
    options={"samples": lambda p: len(p.x)},
)
add(
    "list of samples, counted",
    two(lambda m, xs: torch.stack([m.b(m.a(x)) for x in xs])),
    loss=lambda m, x: m(list(x)).square().mean(),
    options=LEN,
)
add(
    "sparse batch",
    two(lambda m, x: m.b(torch.sparse.mm(x, m.w)), w=lambda: P(6, 6)),
    loss=lambda m, x: m(x.relu().to_sparse()).square().mean(),
)
add(
    "nested tensor",
    mlp,
    loss=lambda m, x: m(torch.nested.nested_tensor(list(x[:, None]), layout=torch.jagged)).values().square().mean(),
)
add(
    "complex batch",
    lambda: L(6, 6, dtype=torch.complex128),
    lambda: [(rows(n, 6) + 1j * rows(n, 6, seed=1),) for n in (7, 6, 8)],
)
