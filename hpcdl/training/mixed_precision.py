"""Mixed precision: 16 bits to compute with, 32 to remember what was learnt, and a scale that keeps gradients from zero.

FP16's smallest number is 6e-8, and most gradients of some networks are smaller: they would be 0. So the loss is
multiplied by a scale before backward, and the gradients are divided by it before the step (`LossScaler`). Updates are
small beside weights: added in 16 bits they would be rounded away, which float32 copies take in (`MasterWeights`).

On a GPU one kernel divides all gradients and looks for what is not finite. `hpcdl.training.fp8` goes down to 8 bits.

Source: Micikevicius et al. 2018, "Mixed precision training".
"""

import math
from collections.abc import Iterable
from typing import Protocol

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator


class Optimizer(Protocol):
    """What a step is asked of: `torch.optim`'s and `hpcdl.training`'s optimizers are such."""

    def step(self) -> object: ...


class LossScaler:
    """A loss scale that halves when a gradient overflows on any rank, and doubles after `interval` steps without.

    `scaler.scale(loss).backward()`, then `scaler.step(optimizer, params)`, where a model in FP16 gives the `params` of
    its `MasterWeights`. A power of two changes no bit of a gradient
    but its exponent. With `comm` all ranks take a step or none does, and their scales stay equal: one number each is
    summed. The rule of `torch.amp.GradScaler`. Raises ValueError for numbers that would not grow or shrink.
    """

    def __init__(
        self,
        comm: Communicator | None = None,
        scale: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ):
        if not (scale > 0 and growth > 1 and 0 < backoff < 1 and interval >= 1):
            raise ValueError(
                f"scale is {scale}, growth {growth}, backoff {backoff}, interval {interval}; they are above 0, above 1,"
                " between 0 and 1, and at least 1 step"
            )
        self.comm, self.value = comm, float(scale)
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good_steps = 0  # since the scale last changed

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of which to call `backward()`."""
        return loss * self.value

    def unscale(self, params: Iterable[torch.Tensor]) -> bool:
        """Divide the gradients of `params` by the scale, in place, and say whether those of all ranks are finite.

        Once per step, and before they are clipped: a norm is one of true gradients. Raises TypeError for those in FP16,
        which division would bring back to zero: `MasterWeights` has them in float32.
        """
        grads = [param.grad for param in params if param.grad is not None]
        if any(grad.dtype == torch.float16 for grad in grads):
            raise TypeError(
                "a gradient is in torch.float16, where what is small becomes 0 again when it is divided by the "
                "scale; call take_gradients() of MasterWeights first, and give its params"
            )
        on_gpu = [grad for grad in grads if grad.is_cuda]
        overflows = sum(divide(grad, self.value) for grad in grads if not grad.is_cuda) + divide_all(on_gpu, self.value)
        return not self._on_any_rank(overflows)

    def step(self, optimizer: Optimizer, params: Iterable[torch.Tensor]) -> bool:
        """`unscale`, then `optimizer.step()` unless a gradient overflowed anywhere; whether there was a step."""
        finite = self.unscale(params)
        if finite:
            optimizer.step()
        self.update(finite)
        return finite

    def update(self, finite: bool) -> None:
        """After a step that was taken (`finite`) or left out: the scale of the next one."""
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.value *= self.backoff
        elif self.good_steps == self.interval:
            self.value, self.good_steps = self.value * self.growth, 0

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"scale": self.value, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from `state_dict`'s."""
        self.value, self.good_steps = float(state["scale"]), int(state["good_steps"])

    def _on_any_rank(self, overflows: float) -> bool:
        if self.comm is None or self.comm.size == 1:
            return overflows > 0
        votes = torch.tensor([overflows], dtype=torch.float64, device=self.comm.devices[0])
        recursive_doubling_all_reduce(votes, self.comm)
        return votes.item() > 0


def divide(grad: torch.Tensor, scale: float) -> bool:
    """Divide a gradient by the scale, in place; whether a number of it is infinite or none."""
    grad.mul_(1 / scale)
    return not math.isfinite(grad.sum(dtype=torch.float32)) and not bool(grad.isfinite().all())


def divide_all(grads: list[torch.Tensor], scale: float) -> int:
    """The same of all gradients of a GPU: a kernel for many tensors, and one number to wait for; how many GPUs had one.

    torch's own, which `torch.amp.GradScaler` is made of.
    """
    overflows = 0
    for device in {grad.device for grad in grads}:
        found = torch.zeros(1, device=device)
        mine = [grad for grad in grads if grad.device == device]
        for dtype in {grad.dtype for grad in mine}:  # one call takes tensors of one dtype
            alike = [grad for grad in mine if grad.dtype == dtype]
            torch._amp_foreach_non_finite_check_and_unscale_(alike, found, torch.tensor(1 / scale, device=device))
        overflows += found.item() > 0
    return overflows


class MasterWeights:
    """Float32 copies of 16-bit `params`, for the optimizer to work on: `params` of this are those copies.

    Each step: `take_gradients()`, the optimizer's step on `masters.params`, `give_weights()`. A parameter that has 32
    or 64 bits is its own copy.
    """

    def __init__(self, params: Iterable[torch.Tensor]):
        self.low = [param for param in params if param.requires_grad]
        self.params = [param if param.element_size() >= 4 else param.detach().float() for param in self.low]

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Give each copy the gradient of its parameter in float32, None where it has none."""
        for low, master in self._pairs():
            master.grad = None if low.grad is None else low.grad.float()

    @torch.no_grad()
    def give_weights(self) -> None:
        """Round each copy to its parameter, to nearest."""
        for low, master in self._pairs():
            low.copy_(master)

    def _pairs(self):
        return [(low, master) for low, master in zip(self.low, self.params, strict=True) if low is not master]
