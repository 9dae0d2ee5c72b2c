"""Large batches: a learning rate that grows with the batch and warms up, and a separate step length for each layer.

A batch k times as large gives a less noisy gradient and 1/k of the steps: `linear_scaling` makes each step k times as
long, after a `warm_up` during which weights still change too fast for that (Goyal et al. 2017). Beyond some thousands
of samples, layers with gradients that are large compared with their weights diverge: `LARS` (You, Gitman and Ginsburg
2017) and `LAMB` (You et al. 2019) give each tensor a step in proportion to its own norm, so lr is the relative change
of a tensor. Tensors of one axis (biases, normalization's scales) keep plain steps and no weight decay.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]


def linear_scaling(lr: float, batch: int, base: int = 256) -> float:
    """Return `lr * batch / base`: scale a learning rate found for `base` samples to `batch` samples (Goyal et al.
    2017).

    >>> linear_scaling(0.1, 8192)
    3.2
    """
    if min(batch, base) < 1:
        raise ValueError(f"batch is {batch} and base is {base}; both are numbers of samples, at least 1")
    return lr * batch / base


def warm_up(step: int, lr: float, steps: int, start: float = 0.0) -> float:
    """Return the learning rate of a step: it grows linearly from `start` to `lr`, reached at step `steps`.

    >>> [warm_up(step, lr=3.2, steps=4, start=0.0) for step in range(6)]
    [0.0, 0.8, 1.6, 2.4000000000000004, 3.2, 3.2]
    """
    if step < 0 or steps < 0:
        raise ValueError(f"step is {step} and steps is {steps}; both count from 0")
    return lr if step >= steps else start + (lr - start) * step / steps


class LayerWise(torch.optim.Optimizer):
    """A torch optimizer in which a tensor's step depends on two norms: of the weights, and of a direction.

    `step_with` lets the caller measure the norms, so tensors may be shards with norms summed over ranks. A shard has
    the attribute `whole_shape`, the shape of the whole tensor.
    """

    @property
    def lr(self) -> float:
        """Return the first group's learning rate; setting it changes all groups."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.param_groups:
            group["lr"] = value

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else _evaluate(closure)
        for group, w in self._ready():
            u = self._direction(group, w)
            norms = (_norm(w), _norm(u)) if _axes(w) > 1 else None
            self._apply(group, w, u, norms)
        return loss

    @torch.no_grad()
    def step_with(self, measure: Callable[[dict[torch.Tensor, torch.Tensor]], dict[torch.Tensor, Any]]) -> None:
        """Step with norms from `measure`: it gets the direction of each tensor, and returns (|w|, |u|) of each."""
        ready = [(group, w, self._direction(group, w)) for group, w in self._ready()]
        norms = measure({w: u for _, w, u in ready})
        for group, w, u in ready:
            self._apply(group, w, u, norms[w] if _axes(w) > 1 else None)

    def _ready(self) -> list[tuple[dict[str, Any], torch.Tensor]]:
        found = [(group, w) for group in self.param_groups for w in group["params"] if w.grad is not None]
        for _, w in found:
            if w.grad.is_sparse:
                raise RuntimeError(
                    f"{type(self).__name__} got a sparse gradient, for a parameter of shape {tuple(w.shape)}; it needs "
                    "dense gradients, such as nn.Embedding(..., sparse=False) makes"
                )
        return found

    def _direction(self, group: dict[str, Any], w: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _apply(self, group: dict[str, Any], w: torch.Tensor, u: torch.Tensor, norms: Any) -> None:
        raise NotImplementedError


class LARS(LayerWise):
    """SGD with momentum and a separate step length for each tensor.

    `v <- momentum v + lr trust (g + weight_decay w)` and `w <- w - v`, with
    `trust = eta |w| / (|g| + weight_decay |w|)` (You, Gitman and Ginsburg 2017, algorithm 1). The trust is 1 and weight
    decay 0 for tensors of at most one axis; the trust is also 1 if a norm is 0. It is a torch optimizer: groups may
    have their own `lr`, `momentum`, `weight_decay` and `eta`.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        eta: float = 1e-3,
    ):
        _require_at_least_0(lr=lr, momentum=momentum, weight_decay=weight_decay, eta=eta)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta})

    def _direction(self, group, w):
        return w.grad

    def _apply(self, group, w, u, norms):
        decay = _decay(w, group["weight_decay"])
        trust = torch.ones((), dtype=w.dtype, device=w.device)
        if norms:
            size, slope = norms
            trust = _ratio(group["eta"] * size, slope + decay * size)
        lr = group["lr"] * trust
        state = self.state[w]
        if not state:
            state["velocity"] = torch.zeros_like(w)
        v = state["velocity"].mul_(group["momentum"]).addcmul_(u, lr)
        if decay:
            v.addcmul_(w, lr, value=decay)
        w.sub_(v)


class LAMB(LayerWise):
    """Adam with each tensor's step scaled to lr times the tensor's norm.

    `m <- b1 m + (1 - b1) g`, `v <- b2 v + (1 - b2) g^2`, `u = m^ / (sqrt(v^) + eps) + weight_decay w` with
    bias-corrected m^ and v^, and `w <- w - lr |w| / |u| u` (You et al. 2019, algorithm 2). |w| / |u| is 1 and weight
    decay 0 for tensors of at most one axis; the ratio is also 1 if a norm is 0. It is a torch optimizer: groups may
    have their own `lr`, `betas`, `eps` and `weight_decay`; each tensor counts its own steps, and complex numbers are
    pairs of real ones, as in torch's Adam.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ):
        _require_at_least_0(lr=lr, eps=eps, weight_decay=weight_decay)
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"betas is {tuple(betas)}; each of the two is at least 0 and below 1, such as (0.9, 0.999)"
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _direction(self, group, w):
        state = self.state[w]
        if not state:
            state.update(step=torch.zeros(()), mean=torch.zeros_like(w), square=torch.zeros_like(w))
        state["step"] += 1
        t, (b1, b2) = int(state["step"]), group["betas"]
        grad, mean, square = (_real(x) for x in (w.grad, state["mean"], state["square"]))
        m = mean.lerp_(grad, 1 - b1)
        v = square.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        u = v.sqrt().mul_(1 / math.sqrt(1 - b2**t)).add_(group["eps"])
        torch.div(m, u, out=u).mul_(1 / (1 - b1**t))
        u = torch.view_as_complex(u) if w.is_complex() else u
        return u.add_(w, alpha=decay) if (decay := _decay(w, group["weight_decay"])) else u

    def _apply(self, group, w, u, norms):
        if norms:
            u.mul_(_ratio(*norms))
        w.sub_(u, alpha=float(group["lr"]))


def _evaluate(closure: Callable[[], Any]) -> Any:
    with torch.enable_grad():
        return closure()


def _real(x: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs of real ones, as torch's Adam counts them."""
    return torch.view_as_real(x) if x.is_complex() else x


def _axes(w: torch.Tensor) -> int:
    return len(getattr(w, "whole_shape", w.shape))


def _decay(w: torch.Tensor, weight_decay: float) -> float:
    return weight_decay if _axes(w) > 1 else 0.0


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Return the norm, in float32 for numbers of 16 bits: float16 ends at 65,504."""
    return torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))


def _ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """Return above / below, or 1 if either is 0, without a synchronization on a GPU."""
    return torch.where((above > 0) & (below > 0), above / below, 1.0)


def _require_at_least_0(**numbers: float) -> None:
    for name, value in numbers.items():
        if not float(value) >= 0:
            raise ValueError(f"{name} is {value!r}; it is a number that is at least 0")
