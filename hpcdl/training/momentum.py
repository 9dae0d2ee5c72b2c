"""Gradient descent with momentum, without `torch.optim`: importing that also imports torch's compiler, a second and 70
MB per rank."""

from collections.abc import Iterable

import torch


class Momentum:
    """`v <- beta v + g`, `w <- w - lr v`, like `torch.optim.SGD`; a parameter without a gradient does not change."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float, beta: float = 0.9):
        self.params, self.lr, self.beta = list(params), lr, beta
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
