"""Models with parameters and modules arranged in unusual ways: shared, tied, frozen, in lists, in buffers."""

import torch
from torch import nn
from zoo.registry import add

L = nn.Linear


class Model(nn.Module):
    """A module from its parts and a forward pass: `Model(lambda m, x: m.a(x), a=nn.Linear(6, 6))`."""

    def __init__(self, forward, **parts):
        super().__init__()
        self._call = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self._call(self, *args, **kwargs)


def mlp():
    return nn.Sequential(L(6, 8), nn.Tanh(), L(8, 6))


add("linear", lambda: L(6, 6))
add("MLP", mlp)
add("scalar parameter", lambda: Model(lambda m, x: m.a(x) * m.s, a=L(6, 6), s=nn.Parameter(torch.tensor(1.5))))
