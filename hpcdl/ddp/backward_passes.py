"""Read the loss of each backward pass before it begins, and compare the losses of a step over the ranks."""

import contextlib
import functools
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge

from hpcdl.ddp.losses import Terms
from hpcdl.ddp.mixing import has_batch_norm

OF_INPUTS = "for the gradients of inputs call torch.autograd.grad(loss, x) instead of backward()"
NOT_SYNCHRONIZED = (
    "the last backward was not followed by synchronize(), so its gradients are of this rank alone; call "
    "synchronize() after each backward and before optimizer.step(), or put all but the last of several under "
    f"`with model.no_sync():`; {OF_INPUTS}"
)

BATCH_NORM = (
    "batch norm takes means over the samples of each rank, as in torch's DistributedDataParallel, so the weights will "
    "not be those of one process with the whole batch; take GroupNorm or LayerNorm, or call eval() on the layer, for "
    "equal ones"
)
LOOKS = 4  # backward passes after wrapping in which batch norm is looked for: a loop may begin with another model's
GOLDEN = 0.6180339887498949

_local = threading.local()  # of the thread that calls backward: `terms`, `inside`, `of_inputs`, `passes`
_lock = threading.Lock()


class OfInputs:
    """Whether a thread's pass computes gradients of inputs only, and whether it frees the graph."""

    runs = frees = False

    @contextlib.contextmanager
    def during(self, inputs: tuple | None, retain_graph: bool) -> Iterator[None]:
        """Note a pass to `inputs`; one inside another does not change what is noted."""
        if self.runs or not inputs or any(isinstance(x, nn.Parameter) for x in inputs):
            yield
            return
        self.runs, self.frees = True, not retain_graph
        try:
            yield
        finally:
            self.runs = False


def of_inputs() -> OfInputs:
    """Return this thread's `OfInputs`, which other threads of its passes read."""
    if not hasattr(_local, "of_inputs"):
        _local.of_inputs = OfInputs()
    return _local.of_inputs


def watch() -> None:
    """Read the losses of this thread's backward passes from now on."""
    _local.watches = True
    with _lock:
        original = torch.autograd.backward
        if getattr(original, "reads_losses", False):
            return

        @functools.wraps(original)
        def backward(tensors, grad_tensors=None, *args, **kwargs):
            if not getattr(_local, "watches", False) or getattr(_local, "inside", False):
                return original(tensors, grad_tensors, *args, **kwargs)
            _local.passes = _passes() + 1
            _local.inside, _local.terms = True, _read(tensors, grad_tensors)
            if kwargs.get("inputs") is not None:
                kwargs["inputs"] = _tuple(kwargs["inputs"])
            try:
                with of_inputs().during(kwargs.get("inputs"), bool(kwargs.get("retain_graph") or any(args[:2]))):
                    return original(tensors, grad_tensors, *args, **kwargs)
            finally:
                _local.inside, _local.terms = False, None

        backward.reads_losses = True  # type: ignore[attr-defined]
        torch.autograd.backward = backward
        _notice_nested()


def look_for_batch_norm(ranks: int) -> None:
    """Warn in this thread's next backward passes if a model on several ranks has batch norm."""
    if ranks > 1:
        _local.looks = LOOKS


def _notice_nested() -> None:
    """Note gradients of parameters that become part of a loss: a rank's are of its own samples."""
    original = torch.autograd.grad

    @functools.wraps(original)
    def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, *args, **kwargs):
        _local.passes, inputs = _passes() + 1, _tuple(inputs)
        if create_graph and getattr(_local, "watches", False):
            _local.nested = any(isinstance(x, nn.Parameter) for x in inputs) or getattr(_local, "nested", False)
        with of_inputs().during(inputs, bool(retain_graph or create_graph)):
            return original(outputs, inputs, grad_outputs, retain_graph, create_graph, *args, **kwargs)

    torch.autograd.grad = grad


def _tuple(inputs: Any) -> tuple:
    """Return the inputs that a caller gave: one, several, or a generator, which can be read once."""
    return (inputs,) if isinstance(inputs, (torch.Tensor, GradientEdge)) else tuple(inputs)


def _passes() -> int:
    """Return how many backward passes this thread has begun."""
    return getattr(_local, "passes", 0)


def current() -> Terms | None:
    """Return the terms of the backward pass that runs in this thread."""
    return getattr(_local, "terms", None)


def _read(tensors: Any, gradients: Any) -> Terms:
    roots = (tensors,) if isinstance(tensors, (torch.Tensor, GradientEdge)) else tuple(tensors)
    given = (gradients,) if gradients is None or isinstance(gradients, torch.Tensor) else tuple(gradients)
    nested, _local.nested = getattr(_local, "nested", False), False
    _local.looks = looks = getattr(_local, "looks", 0) - 1
    nodes = [root.node if isinstance(root, GradientEdge) else root.grad_fn for root in roots]
    if looks >= 0 and any(has_batch_norm(node) for node in nodes if node):
        _local.looks = 0
        warnings.warn(BATCH_NORM, stacklevel=4)
    return Terms(roots, given if len(given) == len(roots) else (None,) * len(roots), nested)


class Losses:
    """The terms of a step's backward passes that gave gradients to one wrapper."""

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Begin a step."""
        self._passes: list[Terms] = []
        self._counts: list[float] = []
        self._before = _passes()

    def begin(self, samples: float) -> None:
        """Note a forward pass with `samples`, in the thread that will call backward."""
        watch()
        if not self._counts:
            self._before = _passes()
        if samples:
            self._counts.append(samples)

    @property
    def had_pass(self) -> bool:
        """Return whether this thread has begun a backward pass since the first forward pass, of any loss."""
        return _passes() != self._before

    def note(self) -> None:
        """Note the current backward pass."""
        terms = current()
        if terms is not None and not (self._passes and self._passes[-1] is terms):
            terms.users.add(id(self))
            self._passes.append(terms)

    def weight(self, samples: float) -> float | None:
        """Return a number that must be the same on every rank with `samples`; None if a loss is not known."""
        if not self._passes or any(terms.coefficients is None or len(terms.users) > 1 for terms in self._passes):
            return None
        passes = [[each * samples for each in _runs(terms.coefficients or ())] for terms in self._passes]
        if all(_close(each, passes[0]) for each in passes):
            passes = passes[:1]  # then ranks may have different numbers of passes
        return sum(each * (1 + (i + 1) * GOLDEN % 1) for i, each in enumerate(chain.from_iterable(passes)))

    @property
    def no_mean(self) -> bool:
        """Return whether a loss is a sum, or compares samples with each other."""
        return bool(self._counts) and any(terms.is_no_mean(self._counts) for terms in self._passes)


def _runs(numbers: Sequence[float]) -> list[float]:
    """Return one of each run of equal numbers: a sum over samples by a loop has a term for each."""
    return [x for i, x in enumerate(numbers) if not i or not math.isclose(x, numbers[i - 1], rel_tol=1e-9)]


def _close(some: list[float], others: list[float]) -> bool:
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(math.isclose(x, y, rel_tol=1e-5) for x, y in pairs)
