"""Stochastic rounding: up with the probability that makes the rounded number right on average."""

import functools
import sys
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from hpcdl.numerics.rounding.formats import Format, checked, stored
from hpcdl.numerics.rounding.plain import round_into

COMPILED_FROM = 1 << 16  # elements: for fewer it is not worth while to load Numba; once there, it serves all
STORED = (torch.float32, torch.bfloat16, torch.int16)  # what kernels write at once
LAST = 1 << 63  # elements that one seed can number


def stochastic_round(x: Tensor, fmt: Format, *, seed: int, offset: int = 0, out: Tensor | None = None) -> Tensor:
    """Return each `x` rounded to one of its neighbours in `fmt`, at random, so that E[result] = x; float32.

    With the gap q, and n the integer nearest to 2^B x/q: result = q floor((n + r) / 2^B) in fixed point, and so for |x|
    in floating point, with the sign of x. r is B = `fmt.random_bits` bits of Philox4x32-10 that belong to (`seed`, the
    element's row-major index + `offset`), as `hpcdl.numerics.rounding.philox` says: the same on every machine, for any
    number of threads. x goes to the outer (in fixed point, the upper) neighbour with the probability f = x/q -
    floor(x/q) rounded to a multiple of 2^-B. Floating-point formats take as many bits as float32 has more than they: so
    there the probability is f exactly, except for their subnormal numbers. In fixed point B is 16. The bias is at most
    2^-(B+1) q.

    What belongs to the format stays. NaN stays NaN; beyond the range as `round_nearest` has it, where a number between
    the largest and the next that would be takes either. No gradient passes.

    `out`, if given, takes the result: of x's shape, in float32 (it may be x) or in `fmt.dtype`, the stored form; if it
    overlaps x otherwise, x is copied first.
    Raises ValueError for integers or float64 in `x`, a seed outside [0, 2^64), a negative offset, an unfit `out`.

    Source: Gupta et al. 2015, section 3; Croci et al. 2022, "Stochastic rounding: implementation, error analysis and
    applications".
    """
    values = checked(x, fmt).contiguous()
    check_place(seed, offset, values.numel())
    out = torch.empty_like(values) if out is None else _fit(out, values, fmt)
    target = out if out.is_contiguous() and out.dtype in STORED else torch.empty_like(values)
    if _overlap(values, target):
        values = values.clone()
    kernels = fastest(values.device.type, values.numel())
    round_all = kernels.round_into if kernels else round_into
    round_all(values.view(-1), target.view(-1), fmt, seed, offset)
    return out if target is out else out.copy_(target if out.dtype == torch.float32 else stored(target, fmt))


def fastest(device: str, n: int) -> ModuleType | None:
    """Return the compiled kernels for n elements there: Triton's, Numba's if they pay, or None for torch."""
    if device == "cuda" and _installed("triton"):
        from hpcdl.kernels.gpu import rounding as on_gpu

        return on_gpu
    if device == "cpu" and (n >= COMPILED_FROM or "numba" in sys.modules) and _installed("numba"):
        from hpcdl.kernels.cpu import rounding as on_cpu

        return on_cpu
    return None


@functools.cache
def _installed(module: str) -> bool:
    return find_spec(module) is not None


def check_place(seed: int, offset: int, n: int) -> None:
    """Raise ValueError for a seed or an offset that Philox has no bits for."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ValueError(f"seed is {seed!r}; it is an integer from 0 to 2^64 - 1")
    if not isinstance(offset, int) or not 0 <= offset <= LAST - n:
        raise ValueError(f"offset is {offset!r} for {n} elements; it is an integer from 0 to 2^63 - {n}")


def _overlap(x: Tensor, out: Tensor) -> bool:
    """Return whether writing `out` would overwrite elements of `x` other than those that it is made from."""
    one_storage = x.numel() > 0 and x.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()
    return one_storage and (x.data_ptr() != out.data_ptr() or x.dtype != out.dtype)


def _fit(out: Tensor, x: Tensor, fmt: Format) -> Tensor:
    if out.shape != x.shape or out.device != x.device or out.dtype not in (torch.float32, fmt.dtype):
        raise ValueError(
            f"out is {out.dtype} {tuple(out.shape)} on {out.device}; for this x it has shape {tuple(x.shape)}, lies on "
            f"{x.device}, and has dtype torch.float32 or {fmt.dtype}"
        )
    return out
