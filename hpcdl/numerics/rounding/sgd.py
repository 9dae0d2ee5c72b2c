"""One step of stochastic gradient descent for weights that are stored in few bits."""

import math

import torch
from torch import Tensor

from hpcdl.numerics.rounding.formats import Fixed, Float, Format, decode
from hpcdl.numerics.rounding.stochastic import check_place, fastest, stochastic_round

STORES = (torch.bfloat16, torch.int16)


def sgd_step(
    w: Tensor, g: Tensor, v: Tensor, fmt: Format, *, lr: float, momentum: float = 0.0, seed: int, offset: int = 0
) -> None:
    """v <- momentum v + g; w <- R(w - lr v), in place and in one pass over memory.

    `w` holds weights as `fmt` stores them: bfloat16, or the int16 words of a `Fixed` of 9 to 16 bits (`encode` makes
    them). Gradients `g` and velocities `v` are float32 of w's shape. R is `stochastic_round` with `seed` and `offset`;
    every product and sum before it is rounded to float32 once, so that the bits are the same everywhere.

    Raises ValueError for another format, dtype, shape or device, tensors that are not contiguous, a bad place, or an
    `lr` or `momentum` that is not finite.
    """
    _check(w, g, v, fmt)
    for name, number in (("lr", lr), ("momentum", momentum)):
        if number is None or not math.isfinite(number):
            raise ValueError(f"{name} is {number!r}, which would make every weight NaN; give a finite number")
    check_place(seed, offset, w.numel())
    kernels = fastest(w.device.type, w.numel())
    step = kernels.sgd_into if kernels else sgd_into
    step(w.view(-1), g.view(-1), v.view(-1), fmt, lr, momentum, seed, offset)


def sgd_into(w: Tensor, g: Tensor, v: Tensor, fmt: Format, lr: float, momentum: float, seed: int, offset: int) -> None:
    """Take the step on flat tensors, in plain torch."""
    v.mul_(momentum).add_(g)
    stochastic_round(decode(w, fmt) - v * lr, fmt, seed=seed, offset=offset, out=w)


def _check(w: Tensor, g: Tensor, v: Tensor, fmt: Format) -> None:
    if not isinstance(fmt, Fixed | Float) or fmt.dtype not in STORES:
        raise ValueError(f"fmt is {fmt!r}; weights are kept in BF16 or in a Fixed of 9 to 16 bits")
    for name, tensor, dtype in (("w", w, fmt.dtype), ("g", g, torch.float32), ("v", v, torch.float32)):
        if tensor.dtype != dtype or tensor.shape != w.shape or tensor.device != w.device:
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; for weights in {fmt} it is "
                f"{dtype} of w's shape {tuple(w.shape)} on {w.device}"
            )
        if not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {tensor.stride()}; it is changed in place and must be contiguous")
