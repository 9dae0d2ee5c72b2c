"""The precision of a trainer: float64, float32, or 16 bits by torch's autocast; in fp16 with a loss scale."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from hpcdl.sharding import Shard
from hpcdl.training.hybrid.gradients import Replicas
from hpcdl.training.mixed_precision import LossScaler

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}  # in which layers compute, with weights in float32


def dtype_of(precision: str) -> torch.dtype:
    """The dtype of weights, gradients and states, and of what stages send."""
    return torch.float64 if precision == "fp64" else torch.float32


def autocast(precision: str, device: str) -> AbstractContextManager:
    """In it layers compute in the precision's 16 bits, if it has those."""
    low = LOW.get(precision)
    return torch.autocast(torch.device(device).type, low, cache_enabled=False) if low else nullcontext()


class Wide(nn.Module):
    """Back to float32, in which stages talk, after a layer under autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


class Scale:
    """What the loss is multiplied by: 1, and in fp16 a `LossScaler`'s value, which all ranks learn from one norm."""

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
        """Take the step, or skip it in fp16 if a gradient overflowed on any rank; the scale that it had, in fp16."""
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
        """Its value and the steps since it changed, (2,) float64; None where there is nothing to keep."""
        return torch.tensor([self.value, self.scaler.good_steps], dtype=torch.float64) if self.scaler else None

    def load(self, state: torch.Tensor) -> None:
        """Go on from a `state`."""
        if self.scaler:
            self.scaler.load_state_dict({"scale": state[0].item(), "good_steps": int(state[1])})
