"""Stochastic rounding as others have it: plain torch, torchao, qtorch."""

from collections.abc import Callable

import torch

from hpcdl.numerics.rounding import Fixed


def plain_torch(x: torch.Tensor) -> torch.Tensor:
    """Return what one writes first: torch's own random integers, added below the cut."""
    r = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32)
    return ((x.view(torch.int32) + r) & -0x10000).view(torch.float32)


def frugal_torch(x: torch.Tensor) -> torch.Tensor:
    """Return what one writes last: four elements share a draw of 64 bits, and every step is done in place."""
    draws = torch.empty(x.numel() // 4, dtype=torch.int64).random_(-(1 << 63), None)
    r = draws.view(torch.uint16).to(torch.int32)
    return r.add_(x.view(torch.int32)).bitwise_and_(-0x10000).view(torch.float32)


def find_peers(x: torch.Tensor, word: Fixed) -> tuple[dict[str, Callable[[], object]], list[str]]:
    """Calls of the libraries that are installed, and a sentence for each that is not; `word` is the fixed point's."""
    peers, absent = {}, []
    try:
        from torchao.optim.quant_utils import _fp32_to_bf16_sr

        peers["torchao BF16"] = lambda: _fp32_to_bf16_sr(x)
    except Exception as error:  # a peer may fail in any way when it is imported, compiled or new
        absent.append(f"torchao was not measured: {_first_line(error)}")
    try:
        from qtorch.quant import fixed_point_quantize, float_quantize

        peers["qtorch BF16"] = lambda: float_quantize(x, exp=8, man=7, rounding="stochastic")
        peers["qtorch fixed"] = lambda: fixed_point_quantize(x, wl=word.wl, fl=word.fl, rounding="stochastic")
    except Exception as error:
        absent.append(f"qtorch was not measured: {_first_line(error)}")
    return peers, absent


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
