"""The precision of a trainer: float64, float32, or 16 bits by torch's autocast; in fp16 with a loss scale."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from hpcdl.sharding import Shard
from hpcdl.training.hybrid.gradients import Replicas
from hpcdl.training.mixed_precision import LossScaler

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}  # layers compute in these, with weights in float32


def dtype_of(precision: str) -> torch.dtype:
    """Return the dtype of weights, gradients, states and messages between stages."""
    return torch.float64 if precision == "fp64" else torch.float32


def autocast(precision: str, device: str) -> AbstractContextManager:
    """Let layers compute in the precision's 16 bits inside the block, if it has them."""
    low = LOW.get(precision)
    return torch.autocast(torch.device(device).type, low, cache_enabled=False) if low else nullcontext()


class Wide(nn.Module):
    """Convert back to float32, which stages exchange, after a layer under autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


class Scale:
    """The factor on the loss: 1, or in fp16 a `LossScaler`'s value, which all ranks derive from one norm."""

    def __init__(self, precision: str):
        self.scaler = LossScaler() if precision == "fp16" else None

    @property
    def value(self) -> float:
        return self.scaler.value if self.scaler else 1.0

    def unscale(self, shards: Sequence[Shard]) -> None:
        """Divide the gradients by it."""
        for shard in shards if self.scaler else ():
            if shard.piece.grad is not None:
                shard.piece.grad /= self.value

    def require_finite(self, step: int, loss: float, norm: float) -> None:
        """Raise FloatingPointError for a loss or a norm that is not finite; in fp16 a norm may overflow."""
        if not math.isfinite(loss if self.scaler else loss + norm):
            raise FloatingPointError(
                f"step {step + 1}: the loss is {loss} and the gradient's norm {norm}; the weights are still those of "
                "the step before: try a smaller learning rate"
            )

    def update(self, replicas: Replicas, norm: float) -> dict[str, float]:
        """Take the step, or skip it in fp16 if a gradient overflowed on any rank; in fp16 return the scale used."""
        if not self.scaler:
            replicas.step()
            return {}
        scale, finite = self.value, math.isfinite(norm)
        if finite:
            replicas.step()
        else:
            replicas.skip()
        self.scaler.update(finite)
        return {"loss_scale": scale, "skipped": not finite}

    # A checkpoint keeps it as two numbers.

    def state(self) -> torch.Tensor | None:
        """Return its value and the steps since it changed, (2,) float64; None if there is nothing to keep."""
        return torch.tensor([self.value, self.scaler.good_steps], dtype=torch.float64) if self.scaler else None

    def load(self, state: torch.Tensor) -> None:
        """Continue from a `state`."""
        if self.scaler:
            self.scaler.load_state_dict({"scale": state[0].item(), "good_steps": int(state[1])})
