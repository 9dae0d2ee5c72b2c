"""Small networks with features that data parallelism easily gets wrong: shared, frozen and unused parameters.

All take `x (N, 4)` and give logits `(N, 3)`; each is built by name: `MODELS["tied"]()`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import relu

from hpcdl.comm import Communicator


class Plain(nn.Module):
    """Three linear layers: nothing awkward."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(relu(self.second(relu(self.first(x)))))


class Tied(nn.Module):
    """Two layers share one weight matrix: its gradient is the sum of both uses."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(relu(self.second(relu(self.first(x)))))


class Frozen(Plain):
    """The layer in the middle does not learn; gradients pass through it."""

    def __init__(self):
        super().__init__()
        self.second.requires_grad_(False)


class Unused(Plain):
    """A layer that no sample ever reaches: its parameters have no gradient, on any rank."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(5, 4)


class Routed(nn.Module):
    """Two experts, chosen by the sign of a sample's first number: an expert without samples has no gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.negative, self.positive = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, logits = relu(self.first(x)), x.new_zeros(len(x), 3)
        for expert, mine in ((self.negative, x[:, 0] < 0), (self.positive, x[:, 0] >= 0)):
            if mine.any():
                logits = logits.index_put((mine.nonzero()[:, 0],), expert(hidden[mine]))
        return logits


class Deep(nn.Module):
    """Twelve layers of one weight matrix each, for timelines: gradients come one by one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(11))
        self.last = nn.Linear(4, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(x)


MODELS = {"plain": Plain, "tied": Tied, "frozen": Frozen, "unused": Unused, "routed": Routed, "deep": Deep}


class TimedWork(torch.autograd.Function):
    """The identity, whose backward pass takes `seconds` of a rank's time by `work(seconds)`, its `comm.compute`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, work: Callable[[float], None], seconds: float) -> torch.Tensor:
        ctx.work, ctx.seconds = work, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.work(ctx.seconds)
        return gradient, None, None


def takes_time(model: nn.Module, comm: Communicator, seconds: float) -> nn.Module:
    """`model`, where each layer's backward pass takes `seconds` on the simulated machine."""
    work = comm.compute  # looked up now: code that gets `comm` later may replace it
    for layer in model.modules():
        if not list(layer.children()):
            layer.register_forward_hook(lambda _, __, out: TimedWork.apply(out, work, seconds))
    return model
