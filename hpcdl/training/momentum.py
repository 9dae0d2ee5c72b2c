"""Gradient descent with momentum, without `torch.optim`: importing that also imports torch's compiler, a second and 70
MB per rank."""

from collections.abc import Iterable

import torch


class Momentum:
    """`v <- beta v + g`, `w <- w - lr v`, like `torch.optim.SGD`; a parameter without a gradient does not change.

    Raises TypeError or ValueError for `params` that are no leaf tensors, each once.
    """

    def __init__(self, params: Iterable[torch.Tensor], lr: float, beta: float = 0.9):
        self.params, self.lr, self.beta = _each_once(params), lr, beta
        self.velocities = [torch.zeros_like(param) for param in self.params]

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for param, v in zip(self.params, self.velocities, strict=True):
            if param.grad is not None:
                v.mul_(self.beta).add_(param.grad)
                param.sub_(v, alpha=self.lr)


def _each_once(params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    if isinstance(params, torch.Tensor):
        raise TypeError(
            "params is a tensor, whose rows would get no gradients; give a list: [w], or model.parameters()"
        )
    found = list(params)
    for param in found:
        if not isinstance(param, torch.Tensor):
            raise TypeError(f"params has a {type(param).__name__}; give tensors, or take torch.optim.SGD for groups")
        if not param.is_leaf:
            raise ValueError(
                f"a parameter of shape {tuple(param.shape)} is computed from others; give those: only they train"
            )
    if len({id(param) for param in found}) < len(found):
        raise ValueError("params has a parameter twice, which would take two steps at once; give each once")
    return found
