"""Large batches: a learning rate that grows with the batch and warms up, and layers that each take their own step.

A batch k times as large gives a gradient of less noise and a kth of the steps: `linear_scaling` makes each step k times
as long, after a `warm_up` in which weights still change too fast for that (Goyal et al. 2017). Beyond some thousands of
samples single layers diverge, whose gradients are large beside their weights: `LARS` (You, Gitman and Ginsburg 2017)
and `LAMB` (You et al. 2019) give each tensor a step in proportion to its own norm, so that lr says by which share of
itself a tensor changes. Tensors of one axis (biases, normalization's scales) are left out of that, and of weight decay.

Written without `torch.optim`, whose import brings torch's compiler (see `hpcdl.training.momentum`).
"""

import math
from collections.abc import Iterable

import torch


def linear_scaling(lr: float, batch: int, base: int = 256) -> float:
    """`lr * batch / base`: a learning rate that was found for `base` samples, for `batch` (Goyal et al. 2017).

    >>> linear_scaling(0.1, 8192)
    3.2
    """
    if min(batch, base) < 1:
        raise ValueError(f"batch is {batch} and base is {base}; both are numbers of samples, at least 1")
    return lr * batch / base


def warm_up(step: int, lr: float, steps: int, start: float = 0.0) -> float:
    """The learning rate of step 0, 1, 2, ...: from `start` in equal parts to `lr`, which step `steps` has first.

    >>> [warm_up(step, lr=3.2, steps=4, start=0.0) for step in range(6)]
    [0.0, 0.8, 1.6, 2.4000000000000004, 3.2, 3.2]
    """
    if step < 0 or steps < 0:
        raise ValueError(f"step is {step} and steps is {steps}; both count from 0")
    return lr if step >= steps else start + (lr - start) * step / steps


class LARS:
    """SGD with momentum in which each tensor's step has a length of its own.

    `v <- momentum v + lr trust (g + weight_decay w)` and `w <- w - v`, with
    `trust = eta |w| / (|g| + weight_decay |w|)` (You, Gitman and Ginsburg 2017, algorithm 1). It is 1, and weight decay
    0, for tensors of at most one axis; 1 where a norm is 0. `lr` may be changed between steps.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        eta: float = 1e-3,
    ):
        self.params, self.lr, self.momentum = list(params), lr, momentum
        self.weight_decay, self.eta = weight_decay, eta
        self.velocities = [torch.zeros_like(param) for param in self.params]

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for w, v in zip(self.params, self.velocities, strict=True):
            if w.grad is not None:
                decay = _decay(w, self.weight_decay)
                lr = self.lr * self._trust(w, w.grad, decay)
                v.mul_(self.momentum).addcmul_(w.grad, lr)
                if decay:
                    v.addcmul_(w, lr, value=decay)
                w.sub_(v)

    def _trust(self, w, g, decay: float) -> torch.Tensor:
        if w.dim() < 2:
            return torch.ones((), dtype=w.dtype, device=w.device)
        size = torch.linalg.vector_norm(w)
        return _ratio(self.eta * size, torch.linalg.vector_norm(g) + decay * size)


class LAMB:
    """Adam in which each tensor's step is as long as lr times the tensor's norm.

    `m <- b1 m + (1 - b1) g`, `v <- b2 v + (1 - b2) g^2`, `u = m^ / (sqrt(v^) + eps) + weight_decay w` with m^ and v^
    freed of their start at 0, and `w <- w - lr |w| / |u| u` (You et al. 2019, algorithm 2). |w| / |u| is 1, and weight
    decay 0, for tensors of at most one axis; 1 where a norm is 0.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ):
        self.params, self.lr, self.betas = list(params), lr, betas
        self.eps, self.weight_decay, self.steps = eps, weight_decay, 0
        self.means = [torch.zeros_like(param) for param in self.params]
        self.squares = [torch.zeros_like(param) for param in self.params]

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        for w, m, v in zip(self.params, self.means, self.squares, strict=True):
            if w.grad is not None:
                u = self._direction(w, w.grad, m, v)
                if w.dim() > 1:
                    u.mul_(_ratio(torch.linalg.vector_norm(w), torch.linalg.vector_norm(u)))
                w.sub_(u, alpha=self.lr)

    def _direction(self, w, g, m, v) -> torch.Tensor:
        b1, b2 = self.betas
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        u = v.sqrt().mul_(1 / math.sqrt(1 - b2**self.steps)).add_(self.eps)
        torch.div(m, u, out=u).mul_(1 / (1 - b1**self.steps))
        return u.add_(w, alpha=decay) if (decay := _decay(w, self.weight_decay)) else u


def _decay(w: torch.Tensor, weight_decay: float) -> float:
    return weight_decay if w.dim() > 1 else 0.0


def _ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """above / below, 1 where either is 0; on a GPU nobody waits for it."""
    return torch.where((above > 0) & (below > 0), above / below, 1.0)
