"""Linear layers in eight bits: E4M3 for weights and activations, E5M2 for gradients, float32 for what is learnt.

Eight bits hold few numbers, so each tensor has a scale of its own: the power of two that brings its largest number just
below the format's. Products are summed in float32, and weights stay in float32 beside them, as `MasterWeights` are.
`hpcdl.numerics.rounding` says what rounding is; torch's own casts and products (`native`) do the same where there are
such, on a GPU with units for eight bits many times faster.

Source: Micikevicius et al. 2022, "FP8 formats for deep learning".
"""

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from hpcdl.numerics.rounding import FP8_E4M3, FP8_E5M2, Float, encode, round_nearest

MULTIPLE = 16  # what the sides of matrices are multiples of, where a GPU multiplies them in eight bits
CAPABILITY = (8, 9)  # of the first GPUs with units for eight bits


class Scaled(NamedTuple):
    """`values`, stored in eight bits, are `scale` times the numbers they stand for."""

    values: torch.Tensor
    scale: torch.Tensor

    def float(self) -> torch.Tensor:
        """The numbers themselves, in float32."""
        return self.values.float() / self.scale


def scale_for(x: torch.Tensor, fmt: Float) -> torch.Tensor:
    """The largest power of two with which no number of `x` lies beyond `fmt`; 1 where all are 0, or not finite."""
    largest = x.detach().abs().max().float() if x.numel() else torch.zeros((), device=x.device)
    power = torch.exp2(torch.floor(torch.log2(fmt.max / largest)).clamp(-126, 126))
    return torch.where((largest > 0) & largest.isfinite(), power, torch.ones_like(power))


def quantize(x: torch.Tensor, fmt: Float = FP8_E4M3, native: bool | None = None) -> Scaled:
    """`x` in eight bits, rounded to nearest, ties to even; `native` by torch's cast, which is the default on a GPU."""
    scale = scale_for(x, fmt)
    scaled = x.detach().float() * scale
    if native is None:
        native = x.is_cuda
    # torch's cast makes NaN of what is beyond a format without infinities; `round_nearest` saturates.
    values = fmt.bounded(scaled).to(fmt.dtype) if native else encode(round_nearest(scaled, fmt), fmt)
    return Scaled(values, scale)


def multiply(a: Scaled, b: Scaled, native: bool | None = None) -> torch.Tensor:
    """`a @ b.T` in float32; `native` by units for eight bits, the default where a GPU has them and the sides suit."""
    if native is None:
        native = has_units(a.values)
    if native and all(side % MULTIPLE == 0 for side in (*a.values.shape, *b.values.shape)):
        return torch._scaled_mm(
            a.values, b.values.t(), scale_a=1 / a.scale, scale_b=1 / b.scale, out_dtype=torch.float32
        )
    return (a.values.float() @ b.values.float().t()) / (a.scale * b.scale)


def has_units(x: torch.Tensor) -> bool:
    """Whether the device of `x` multiplies in eight bits."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device) >= CAPABILITY and hasattr(torch, "_scaled_mm")


class _Product(torch.autograd.Function):
    """y = x W^T of rows x; dx = g W and dW = g^T x, with g in E5M2."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.x, ctx.w = quantize(x), quantize(w)
        return multiply(ctx.x, ctx.w)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low = quantize(g, FP8_E5M2)
        return multiply(low, _turned(ctx.w)), multiply(_turned(low), _turned(ctx.x))


def _turned(scaled: Scaled) -> Scaled:
    return scaled._replace(values=scaled.values.t().contiguous())


class FP8Linear(nn.Linear):
    """A linear layer whose products are in eight bits; its parameters stay float32, and are what is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = _Product.apply(x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def to_fp8(module: nn.Module) -> nn.Module:
    """`module` with the products of its linear layers in eight bits, in place; returns it, or the layer it becomes.

    Parameters are the same objects as before, so that an optimizer that has them keeps them. Layers derived from
    `nn.Linear` are left as they are. Raises TypeError for a linear layer that is not float32.
    """
    for name, child in module.named_children():
        setattr(module, name, to_fp8(child))
    if type(module) is not nn.Linear:
        return module
    if module.weight.dtype != torch.float32:
        raise TypeError(f"a linear layer has {module.weight.dtype}; what is learnt stays in torch.float32: .float()")
    layer = FP8Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
    layer.weight, layer.bias = module.weight, module.bias
    return layer.train(module.training)


def vanished(x: torch.Tensor, fmt: Float, scale: float | None = None) -> float:
    """The share of the numbers of `x`, not 0 themselves, that are 0 in `fmt`; with its own scale, or with `scale`."""
    factor = scale_for(x, fmt).item() if scale is None else scale
    kept = round_nearest(x.detach().float() * factor, fmt) != 0
    return 1 - kept.sum().item() / max(1, int((x != 0).sum())) if x.numel() else math.nan
