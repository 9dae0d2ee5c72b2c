"""Linear layers in eight bits: E4M3 for weights and activations, E5M2 for gradients, float32 for the weights that are
learnt.

Eight bits hold few numbers, so each tensor has its own scale: the power of two that brings its largest number just
below the format's largest. Products are summed in float32, and weights are also kept in float32, like `MasterWeights`.
`hpcdl.numerics.rounding` defines rounding; torch's own casts and products (`native`) do the same where they exist, many
times faster on a GPU with 8-bit units.

Source: Micikevicius et al. 2022, "FP8 formats for deep learning".
"""

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from hpcdl.first_derivative import first_only
from hpcdl.numerics.rounding import FP8_E4M3, FP8_E5M2, Float, encode, round_nearest

MULTIPLE = 16  # a GPU's 8-bit products need matrix sides that are multiples of this
CAPABILITY = (8, 9)  # of the first GPUs with 8-bit units


class Scaled(NamedTuple):
    """A tensor in eight bits: `values` are `scale` times the numbers they represent."""

    values: torch.Tensor
    scale: torch.Tensor

    def float(self) -> torch.Tensor:
        """Return the represented numbers, in float32."""
        return self.values.float() / self.scale


def scale_for(x: torch.Tensor, fmt: Float) -> torch.Tensor:
    """Return the largest power of two that keeps all of `x` within `fmt`; 1 if all are 0 or not finite."""
    largest = x.detach().abs().max().float() if x.numel() else torch.zeros((), device=x.device)
    power = torch.exp2(torch.floor(torch.log2(fmt.max / largest)).clamp(-126, 126))
    return torch.where((largest > 0) & largest.isfinite(), power, torch.ones_like(power))


def quantize(x: torch.Tensor, fmt: Float = FP8_E4M3, native: bool | None = None) -> Scaled:
    """Convert `x` to eight bits, rounding to nearest, ties to even; `native` uses torch's cast, the default on a
    GPU."""
    scale = scale_for(x, fmt)
    scaled = x.detach().float() * scale
    if native is None:
        native = x.is_cuda
    # torch's cast turns overflow into NaN in a format without infinities; `round_nearest` saturates.
    values = fmt.bounded(scaled).to(fmt.dtype) if native else encode(round_nearest(scaled, fmt), fmt)
    return Scaled(values, scale)


def multiply(a: Scaled, b: Scaled, native: bool | None = None) -> torch.Tensor:
    """Compute `a @ b.T` in float32; `native` uses 8-bit units, the default if a GPU has them and the sides fit.

    Such units sum with about 14 bits on an H100 or H200 (DeepSeek-AI 2024, "DeepSeek-V3", section 3.3.2), not with 24.
    """
    if native is None:
        native = has_units(a.values)
    if native and all(side % MULTIPLE == 0 for side in (*a.values.shape, *b.values.shape)):
        return torch._scaled_mm(
            a.values, b.values.t(), scale_a=1 / a.scale, scale_b=1 / b.scale, out_dtype=torch.float32
        )
    return (a.values.float() @ b.values.float().t()) / (a.scale * b.scale)


def has_units(x: torch.Tensor) -> bool:
    """Return whether the device of `x` multiplies in eight bits."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device) >= CAPABILITY and hasattr(torch, "_scaled_mm")


class _Product(torch.autograd.Function):
    """y = x W^T for rows x; dx = g W and dW = g^T x, with g in E5M2."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.x, ctx.w = quantize(x), quantize(w)
        return multiply(ctx.x, ctx.w)

    @staticmethod
    @first_only("a layer in eight bits")
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low = quantize(g, FP8_E5M2)
        return multiply(low, _turned(ctx.w)), multiply(_turned(low), _turned(ctx.x))


def _turned(scaled: Scaled) -> Scaled:
    return scaled._replace(values=scaled.values.t().contiguous())


class FP8Linear(nn.Linear):
    """A linear layer whose products are in eight bits; its parameters stay in float32 and are trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = _Product.apply(x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


def to_fp8(module: nn.Module) -> nn.Module:
    """Convert the products of all linear layers in `module` to eight bits in place; return it, or the layer it becomes.

    Parameters stay the same objects, so an optimizer that has them remains valid, and a layer in several places stays
    one layer. Subclasses of `nn.Linear` are not changed. Raises TypeError for a linear layer that is not float32.
    """
    return _converted(module, {})


def _converted(module: nn.Module, known: dict[nn.Module, nn.Module]) -> nn.Module:
    if module not in known:
        known[module] = _in_fp8(module) if type(module) is nn.Linear else module
        for name, child in module._modules.items():
            if child is not None:
                setattr(module, name, _converted(child, known))
    return known[module]


def _in_fp8(module: nn.Linear) -> nn.Module:
    if module.weight.dtype != torch.float32:
        raise TypeError(f"a linear layer has {module.weight.dtype}; what is learnt stays in torch.float32: .float()")
    layer = FP8Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
    layer.weight, layer.bias = module.weight, module.bias
    return layer.train(module.training)


def vanished(x: torch.Tensor, fmt: Float, scale: float | None = None) -> float:
    """Return the share of nonzero numbers in `x` that become 0 in `fmt`, with its own scale or with `scale`."""
    factor = scale_for(x, fmt).item() if scale is None else scale
    kept = round_nearest(x.detach().float() * factor, fmt) != 0
    return 1 - kept.sum().item() / max(1, int((x != 0).sum())) if x.numel() else math.nan
