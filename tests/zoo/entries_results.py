"""Results where one does not look for them, and tensors that are views: of each other, or conjugate."""

import torch
from torch import nn
from zoo.entries import Model, P, buffered, changed, two
from zoo.registry import add, rows


class Result:
    """An output of a type of its own."""

    def __init__(self, y):
        self.y, self.more = y, {"y": [y]}


class Aside(nn.Module):
    """A layer that also keeps a loss of its own, or nothing but what it keeps."""

    def __init__(self, returns):
        super().__init__()
        self.weight, self.returns, self.loss, self.hidden = P(6, 6), returns, None, {}

    def forward(self, x):
        y = torch.tanh(x @ self.weight)
        self.loss = (y @ self.weight).abs().mean()
        self.hidden["y"] = Result(y)
        return y if self.returns else None


def with_aside(model, x):
    y = model(x)
    inner = getattr(model, "module", model)
    return y.square().mean() + inner.kept.loss


def _hidden(m, x):
    m.kept(m.a(x))
    return m.b(m.kept.hidden["y"].y)


add(
    "layer that returns an object",
    two(lambda m, x: m.b(m.c(m.a(x)).y), c=lambda: Model(lambda m, x: Result(torch.tanh(x @ m.w)), w=P(6, 6))),
)
add("layer that keeps a loss", two(lambda m, x: m.b(m.kept(m.a(x))), kept=lambda: Aside(True)), loss=with_aside)
add("layer that returns nothing", two(_hidden, kept=lambda: Aside(False)))
add("layer whose output is detached", two(lambda m, x: m.b(x) + m.a(x).detach()))
add("layer that returns its input", two(lambda m, x: m.b(m.c(m.a(x))), c=lambda: Model(lambda m, x: x, w=P(3))))
add(
    "namedtuple between layers",
    two(lambda m, x: m.b(m.c((m.a(x), [x]))[0]), c=lambda: Model(lambda m, t: (t[0] * m.w, t[1]), w=P(6))),
)
add("conjugate buffer", buffered(lambda: torch.complex(rows(6), rows(6, seed=1)).conj()))
add(
    "conjugate parameter",
    two(
        lambda m, x: m.a(x).to(torch.complex128) @ m.w,
        w=lambda: nn.Parameter(torch.complex(rows(6, 6), rows(6, 6, seed=1)).conj()),
    ),
    loss=lambda m, x: m(x.to(torch.complex128).real).abs().mean(),
)
add(
    "buffers that share memory",
    lambda: changed(buffered(lambda: rows(6))(), lambda m: m.register_buffer("part", m.t[2:])),
)
