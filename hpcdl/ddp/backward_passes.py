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
TWICE = (
    "a parameter's gradient came twice in one backward pass: recomputed layers that share weights have passes of their "
    "own; recompute them by torch.utils.checkpoint.checkpoint(..., use_reentrant=False), which has one for all"
)
GOLDEN = 0.6180339887498949

_local = threading.local()
_lock = threading.Lock()


class Thread:
    """What is noted of a thread that calls backward; a GPU's own threads, in which hooks run, read it, too."""

    def __init__(self):
        self.watches = self.inside = self.nested = False
        self.passes = self.looks = 0  # backward passes begun; passes in which batch norm is still looked for
        self.terms: Terms | None = None  # of the pass that runs
        self.of_inputs = OfInputs()


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


def this_thread() -> Thread:
    """Return what is noted of the thread that calls this."""
    if not hasattr(_local, "thread"):
        _local.thread = Thread()
    return _local.thread


def of_inputs() -> OfInputs:
    """Return this thread's `OfInputs`, which other threads of its passes read."""
    return this_thread().of_inputs


def watch() -> None:
    """Read the losses of this thread's backward passes from now on."""
    this_thread().watches = True
    with _lock:
        original = torch.autograd.backward
        if getattr(original, "reads_losses", False):
            return

        @functools.wraps(original)
        def backward(tensors, grad_tensors=None, *args, **kwargs):
            thread = this_thread()
            if reads := getattr(torch._C._current_autograd_node(), "reads_loss", None):  # of a checkpoint
                reads(*_pairs(tensors, grad_tensors))
            if not thread.watches or thread.inside:
                return original(tensors, grad_tensors, *args, **kwargs)
            thread.passes += 1
            thread.terms = terms = _read(tensors, grad_tensors, thread)
            thread.inside = True
            terms.expect()
            if kwargs.get("inputs") is not None:
                kwargs["inputs"] = _tuple(kwargs["inputs"])
            try:
                with thread.of_inputs.during(kwargs.get("inputs"), bool(kwargs.get("retain_graph") or any(args[:2]))):
                    return original(tensors, grad_tensors, *args, **kwargs)
            finally:
                terms.end()
                thread.inside, thread.terms = False, None

        backward.reads_losses = True  # type: ignore[attr-defined]
        torch.autograd.backward = backward
        _notice_nested()


def look_for_batch_norm(ranks: int) -> None:
    """Warn in this thread's next backward passes if a model on several ranks has batch norm."""
    if ranks > 1:
        this_thread().looks = LOOKS


def _notice_nested() -> None:
    """Note gradients of parameters that become part of a loss: a rank's are of its own samples."""
    original = torch.autograd.grad

    @functools.wraps(original)
    def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, *args, **kwargs):
        thread, inputs = this_thread(), _tuple(inputs)
        thread.passes += 1
        if create_graph and thread.watches:
            thread.nested = thread.nested or any(isinstance(x, nn.Parameter) for x in inputs)
        with thread.of_inputs.during(inputs, bool(retain_graph or create_graph)):
            return original(outputs, inputs, grad_outputs, retain_graph, create_graph, *args, **kwargs)

    torch.autograd.grad = grad


def _tuple(inputs: Any) -> tuple:
    """Return the inputs that a caller gave: one, several, or a generator, which can be read once."""
    return (inputs,) if isinstance(inputs, (torch.Tensor, GradientEdge)) else tuple(inputs)


def _pairs(tensors: Any, gradients: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the tensors at which a pass begins, and the gradient of each, or None."""
    roots = (tensors,) if isinstance(tensors, (torch.Tensor, GradientEdge)) else tuple(tensors)
    given = (gradients,) if gradients is None or isinstance(gradients, torch.Tensor) else tuple(gradients)
    return roots, given if len(given) == len(roots) else (None,) * len(roots)


def _read(tensors: Any, gradients: Any, thread: Thread) -> Terms:
    roots, given = _pairs(tensors, gradients)
    nested, thread.nested = thread.nested, False
    thread.looks -= 1
    nodes = [root.node if isinstance(root, GradientEdge) else root.grad_fn for root in roots]
    if thread.looks >= 0 and any(has_batch_norm(node) for node in nodes if node):
        thread.looks = 0
        warnings.warn(BATCH_NORM, stacklevel=4)
    return Terms(roots, given, nested)


class Losses:
    """The terms of a step's backward passes that gave gradients to one wrapper."""

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Begin a step."""
        self._passes: list[Terms] = []
        self._counts: list[float] = []
        self._thread = this_thread()
        self._before = self._thread.passes

    def begin(self, samples: float) -> None:
        """Note a forward pass with `samples`, in the thread that will call backward."""
        watch()
        if not self._counts:
            self._thread = this_thread()
            self._before = self._thread.passes
        if samples:
            self._counts.append(samples)

    @property
    def had_pass(self) -> bool:
        """Return whether this thread has begun a backward pass since the first forward pass, of any loss."""
        return self._thread.passes != self._before

    def current(self) -> Terms | None:
        """Return the terms of the backward pass that runs."""
        return self._thread.terms

    def note(self) -> None:
        """Note the current backward pass."""
        terms = self.current()
        if terms is not None and not (self._passes and self._passes[-1] is terms):
            terms.users[id(self)] = frozenset(self._counts)
            self._passes.append(terms)

    def came_twice(self, otherwise: str) -> RuntimeError:
        """Return the error for a gradient that comes again: `otherwise`, if not in the pass of all gradients so far."""
        return RuntimeError(TWICE if len(self._passes) == 1 and self._passes[0] is self.current() else otherwise)

    def weight(self, samples: float) -> float | None:
        """Return a number that must be the same on every rank with `samples`; None if a loss is not known."""
        if self.unread:
            return None
        passes = [[each * samples for each in _runs(terms.coefficients or ())] for terms in self._passes]
        if all(_close(each, passes[0]) for each in passes):
            passes = passes[:1]  # then ranks may have different numbers of passes
        return sum(each * (1 + (i + 1) * GOLDEN % 1) for i, each in enumerate(chain.from_iterable(passes)))

    @property
    def had_gradient(self) -> bool:
        """Return whether a backward pass gave the wrapper gradients."""
        return bool(self._passes)

    @property
    def unread(self) -> str:
        """Return why the losses of this step are not known; else ""."""
        if not self._passes:
            return "no backward() gave this rank's gradients"
        if any(len(set(terms.users.values())) > 1 for terms in self._passes):
            return "it trains the model of another wrapper, too, which counted other samples"
        return next((terms.unread for terms in self._passes if terms.coefficients is None), "")

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
