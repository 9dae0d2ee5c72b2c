"""Mixed precision: compute in 16 bits, keep weights in 32, and scale the loss so that gradients do not become zero.

FP16's smallest number is 6e-8, and most gradients of some networks are smaller: they would be 0. So the loss is
multiplied by a scale before backward, and the gradients are divided by it before the step (`LossScaler`). Updates are
small compared with weights: added in 16 bits they would be rounded away, so float32 copies accumulate them
(`MasterWeights`).

On a GPU one kernel divides all gradients and checks that they are finite. `hpcdl.training.fp8` goes down to 8 bits.

Source: Micikevicius et al. 2018, "Mixed precision training".
"""

import math
import warnings
from collections.abc import Iterable
from typing import Protocol

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.guarded import Gone, InStep, unguarded

SMALLEST, LARGEST = 2.0**-126, 2.0**127  # loss scales; both and their inverses are normal numbers of float32
PATIENCE = 50  # consecutive skipped steps until a warning: 2^16 reaches 1 after 16


class SteppedOptimizer(Protocol):
    """The interface of an optimizer, as in `torch.optim` and `hpcdl.training`."""

    def step(self) -> object: ...


class LossScaler:
    """A loss scale that halves when a gradient overflows on any rank, and doubles after `interval` steps without
    overflow.

    `scaler.scale(loss).backward()`, then `scaler.step(optimizer, params)`, where a model in FP16 passes the `params` of
    its `MasterWeights`. A power of two changes only a gradient's exponent. With `comm` all ranks take a step or none
    does, and their scales stay equal: they sum one number each. The rule is that of `torch.amp.GradScaler`, with
    limits: the scale stays within float32's normal numbers, SMALLEST to LARGEST, and `PATIENCE` consecutive skipped
    steps give a warning (and twice as many another, and so on). Gradients are divided by the scale that
    their loss had, also by the second of two `step`s. Raises ValueError for factors that would not grow or shrink the
    scale.
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
        self.comm, self.value = comm, _require_in_range(scale)
        self._used: float | None = None  # by the last loss: an update between two steps is for the next one
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good_steps = 0  # since the scale last changed
        self.skipped = 0  # consecutive steps with gradients that were not finite
        self._unscaled: dict[int, tuple[torch.Tensor, bool]] = {}  # parameters since the last update; were they finite?

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss; call its `backward()`."""
        self._used = self.value
        return loss * self.value

    def unscale(self, params: Iterable[torch.Tensor]) -> bool:
        """Divide the gradients of `params` by the scale in place; return whether all ranks' gradients are finite.

        Call it once per step, before clipping, because norms need true gradients. Raises RuntimeError if one of
        `params` was divided since the last `update`, and TypeError for gradients in FP16, which division would set to
        zero again: `MasterWeights` has them in float32.
        """
        params = list(params)
        if any(id(param) in self._unscaled for param in params):
            raise RuntimeError(
                "unscale was called already for these gradients, and would divide them twice; call it once per step, "
                "then step(optimizer, params) or update(finite)"
            )
        grads = [unguarded(param.grad) for param in params if param.grad is not None]
        if any(grad.dtype == torch.float16 for grad in grads):
            raise TypeError(
                "a gradient is in torch.float16, where what is small becomes 0 again when it is divided by the "
                "scale; call take_gradients() of MasterWeights first, and give its params"
            )
        on_gpu = [_numbers(grad) for grad in grads if grad.is_cuda]
        scale = self._used or self.value
        overflows = sum(divide(grad, scale) for grad in grads if not grad.is_cuda) + divide_all(on_gpu, scale)
        finite = not self._on_any_rank(overflows)
        self._unscaled |= {id(param): (param, finite) for param in params}
        return finite

    def step(self, optimizer: SteppedOptimizer, params: Iterable[torch.Tensor]) -> bool:
        """Call `unscale`, then `optimizer.step()` unless a gradient overflowed on any rank; return whether it stepped.

        If you have called `unscale` on all `params` yourself, to clip them, they are not divided again. Where ZeRO-2
        has sent the gradients, each rank divides its shares of the sums; to clip, call `optimizer.reduce()`, `unscale`
        the parameters in `optimizer.param_groups`, and `optimizer.clip`. Raises ValueError for these without `comm`.
        """
        params = self._shares(optimizer, list(params))
        known = [self._unscaled[id(param)][1] for param in params if id(param) in self._unscaled]
        finite = all(known) if known and len(known) == len(params) else self.unscale(params)
        if finite:
            optimizer.step()
        self._update(finite)
        return finite

    def _shares(self, optimizer: SteppedOptimizer, params: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return `params`, or a ShardedOptimizer's shares of their sums, which it has instead of gradients."""
        groups, reduce = getattr(optimizer, "param_groups", ()), getattr(optimizer, "reduce", None)
        if reduce is None or not any(isinstance(param.grad, Gone | InStep) for param in params):
            return params
        if self.comm is None:
            raise ValueError(
                "each rank has only its shares of the gradients, so an overflow elsewhere would not be found; make the "
                "LossScaler with comm, with which all ranks skip a step together"
            )
        reduce()
        return [param for group in groups for param in group["params"]]

    def update(self, finite: bool) -> None:
        """Set the scale of the next step, after a step that was taken (`finite`) or skipped."""
        self._update(finite)

    def _update(self, finite: bool) -> None:
        self._unscaled = {}
        self.good_steps = self.good_steps + 1 if finite else 0
        self.skipped = 0 if finite else self.skipped + 1
        if not finite:
            self.value = max(self.value * self.backoff, SMALLEST)
            self._warn()
        elif self.good_steps >= self.interval:  # more where a state of another interval was loaded
            grown = self.value * self.growth
            self.value, self.good_steps = grown if grown <= LARGEST else self.value, 0

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint, in the format of `torch.amp.GradScaler`, which can also load it."""
        return {
            "scale": self.value,
            "growth_factor": self.growth,
            "backoff_factor": self.backoff,
            "growth_interval": self.interval,
            "_growth_tracker": self.good_steps,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a `state_dict`, or from a GradScaler's; raise ValueError if something is missing.

        A state in the old format, {"scale", "good_steps"}, changes only these two numbers.
        """
        tracker = "good_steps" if "good_steps" in state else "_growth_tracker"
        if missing := sorted({"scale", tracker} - set(state)):
            raise ValueError(
                f"the state has no {' and no '.join(map(repr, missing))}; give what state_dict() of an enabled scaler "
                "returned"
            )
        self.value, self.good_steps = _require_in_range(state["scale"]), int(state[tracker])
        self.growth = float(state.get("growth_factor", self.growth))
        self.backoff = float(state.get("backoff_factor", self.backoff))
        self.interval = int(state.get("growth_interval", self.interval))
        self.skipped, self._unscaled, self._used = 0, {}, None

    def _warn(self) -> None:
        doubled, rest = divmod(self.skipped, PATIENCE)
        if rest or doubled & (doubled - 1) or (self.comm is not None and self.comm.rank):
            return
        warnings.warn(
            f"the gradients are not finite for {self.skipped} steps, and the loss scale is {self.value:g}: no step was "
            "taken; look for NaN in the input, the loss or the weights, or take a smaller learning rate",
            stacklevel=4,  # the caller of step or update
        )

    def _on_any_rank(self, overflows: float) -> bool:
        if self.comm is None or self.comm.size == 1:
            return overflows > 0
        votes = torch.tensor([overflows], dtype=torch.float64, device=self.comm.devices[0])
        recursive_doubling_all_reduce(votes, self.comm)
        return votes.item() > 0


def _require_in_range(scale: float) -> float:
    if not SMALLEST <= scale <= LARGEST:
        raise ValueError(f"scale is {scale!r}; it is a normal number of float32, {SMALLEST:.2g} to {LARGEST:.2g}")
    return float(scale)


def _numbers(grad: torch.Tensor) -> torch.Tensor:
    """Return a view of a gradient's real numbers: the values of a sparse one, both parts of a complex one."""
    grad = grad._values() if grad.is_sparse else grad
    return torch.view_as_real(grad) if grad.is_complex() else grad


def divide(grad: torch.Tensor, scale: float) -> bool:
    """Divide a gradient by the scale in place; return whether any number is infinite or NaN."""
    grad = _numbers(grad)
    grad.mul_(1 / scale)
    total = grad.sum(dtype=torch.promote_types(grad.dtype, torch.float32))
    return not math.isfinite(total) and not bool(grad.isfinite().all())


def divide_all(grads: list[torch.Tensor], scale: float) -> int:
    """Divide all gradients on GPUs, with one kernel for many tensors and one number to wait for; return how many GPUs
    had a number that is not finite.

    It uses the kernel of `torch.amp.GradScaler`.
    """
    overflows = 0
    for device in {grad.device for grad in grads}:
        found = torch.zeros(1, device=device)
        mine = [grad for grad in grads if grad.device == device]
        for dtype in {grad.dtype for grad in mine}:  # one call accepts tensors of one dtype
            alike = [grad for grad in mine if grad.dtype == dtype]
            torch._amp_foreach_non_finite_check_and_unscale_(alike, found, torch.tensor(1 / scale, device=device))
        overflows += found.item() > 0
    return overflows


class MasterWeights:
    """Float32 copies of 16-bit `params` for the optimizer; this object's `params` are the copies.

    Each step: `take_gradients()`, the optimizer's step on `masters.params`, `give_weights()`. A parameter with 32 or 64
    bits is its own copy. Frozen parameters have none: make it again when you let them train.
    """

    def __init__(self, params: Iterable[torch.Tensor]):
        params = list(params)
        self.low = [param for param in params if param.requires_grad]
        self.frozen = [param for param in params if not param.requires_grad]
        self.params = [param if param.element_size() >= 4 else param.detach().float() for param in self.low]
        self._written = [low._version for low, _ in self._pairs()]  # how often each has been written

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Move each parameter's gradient, in float32, to its copy: backward passes of the next step begin with none.

        Weights that were loaded or set since the last step come along. Raises RuntimeError where a parameter was frozen
        when the copies were made and is not now: no step would train it.
        """
        if thawed := sum(param.requires_grad for param in self.frozen):
            raise RuntimeError(
                f"{thawed} of the parameters had requires_grad False when MasterWeights was made, and has it True "
                "now; make MasterWeights and the optimizer again"
            )
        for (low, master), written in zip(self._pairs(), self._written, strict=True):
            master.grad, low.grad = None if low.grad is None else low.grad.float(), None
            if low._version != written:
                master.copy_(low)
        self._written = [low._version for low, _ in self._pairs()]

    @torch.no_grad()
    def give_weights(self) -> None:
        """Round each copy to its parameter, to nearest.

        Raises RuntimeError where weights were loaded or set after `take_gradients`: they would be lost.
        """
        if self._written != [low._version for low, _ in self._pairs()]:
            raise RuntimeError(
                "the model's weights were loaded or set since the last take_gradients(), and the copies would "
                "overwrite them; load before take_gradients()"
            )
        for low, master in self._pairs():
            low.copy_(master)
        self._written = [low._version for low, _ in self._pairs()]

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(low, master) for low, master in zip(self.low, self.params, strict=True) if low is not master]
