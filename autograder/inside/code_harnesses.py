"""Harnesses that watch how an answer's code runs: instructions of Python, and memory that a Triton kernel uses."""

import contextlib
import functools
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpcdl.comm.base import Communicator

from .doors import opaque
from .shims import in_threads
from .triton_rule import Fault, Launches

C: Any = torch._C


@contextlib.contextmanager
def addresses() -> Iterator[tuple[list, list, dict]]:
    """Collect the addresses, in bytes, that Triton's interpreter loads and stores, and those that each program stores;
    on a GPU there are none to see."""
    from triton.runtime.interpreter import InterpreterBuilder

    loaded, stored, written = [], [], defaultdict[tuple, list](list)
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def watched_load(self, pointers, mask, *rest):
        loaded.extend(pointers.data[mask.data].astype("int64").tolist())
        return load(self, pointers, mask, *rest)

    def watched_store(self, pointers, value, mask, *rest):
        stored.extend(places := pointers.data[mask.data].astype("int64").tolist())
        written[tuple(self.grid_idx)] += places
        return store(self, pointers, value, mask, *rest)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = watched_load, watched_store
    try:
        yield loaded, stored, written
    finally:
        InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = load, store


NO_FUNCTION_MODES, NO_DISPATCH_MODES = torch._C.DisableTorchFunction, C._DisableTorchDispatch


def launched(launch: Callable, *args: Any) -> tuple[Fault | None, Any]:
    """Return why a kernel was not started, or None, and the launch's result; no mode of torch's sees its tensors."""
    *given, _ = args
    launches = Launches(launch)
    with NO_FUNCTION_MODES(), NO_DISPATCH_MODES():
        result = launches.launch(*given)
    return launches.outcome, result


def loads(
    launch: Callable, x: torch.Tensor, n: int, seed: int, block: int, comm: Communicator
) -> tuple[Fault | None, Any, int, int, int]:
    """Return what `launched` does, how many numbers of x a kernel reads, how many it writes, gaps included, and the
    most that one program writes; 0 on a GPU."""
    with addresses() as (loaded, stored, written):
        outcome = launched(launch, x, n, seed, block, comm)
    places = [(address - x.data_ptr()) // x.element_size() for address in loaded]
    read = max((place + 1 for place in places if 0 <= place < len(x)), default=0)
    size = (max(stored) - min(stored)) // 2 + 1 if stored else 0
    return *outcome, read, size, max(map(len, written.values()), default=0)


def reads(launch: Callable, *args: Any) -> tuple[Fault | None, Any, torch.Tensor, list[torch.Tensor]]:
    """Return what `launched` does, the places that a kernel reads, in float32 numbers from the first one that it
    writes, and the places that each program writes; none on a GPU."""
    with addresses() as (loaded, stored, written):
        outcome = launched(launch, *args)
    start = min(stored, default=0)

    def places(found: Iterable[int]) -> torch.Tensor:
        return torch.tensor([(address - start) // 4 for address in found], dtype=torch.int64)

    return *outcome, places(set(loaded) if stored else ()), [places(set(part)) for part in written.values()]


class ThroughPython(TorchDispatchMode):
    """Pass every torch operator through Python, even if C code calls them in a loop (`map`)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler at the first operation, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def instructions(function: Callable, first: tuple, second: tuple, comm: Communicator) -> tuple[int, Any]:
    """Call the student's function with both groups of arguments; return how much Python the second call runs, and its
    result.

    The count includes the instructions of called functions, and a few for each torch operator. It grows with each turn
    of a loop and does not depend on how busy the machine is. The first call imports and compiles. The second one has
    other numbers: a result that the function has kept is of no use.
    """
    with ThroughPython():
        function(*first)
        return traced(lambda: function(*second))


def traced(call: Callable[[], Any], mode: Callable[[], TorchDispatchMode] = ThroughPython) -> tuple[int, Any]:
    """Return how much Python a call runs, also in threads that begin meanwhile, under `mode()` of torch; its result."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable:
        nonlocal count
        count += 1
        frame.f_trace_opcodes = True
        return shown

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        with mode():
            sys.settrace(shown)  # the thread ends with it
            yield

    before, of_threads, shown = sys.gettrace(), threading.gettrace(), opaque(trace)
    with in_threads(watched) as are_watched:
        sys.settrace(shown)
        threading.settrace(of_threads if are_watched else shown)
        try:
            result = call()
        finally:
            sys.settrace(before)
            threading.settrace(of_threads)
    return count, result


class Calls(ThroughPython):
    """Counts the calls of torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Made(ThroughPython):
    """Counts the numbers in the memory that torch's operators make, views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        new = (x for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        self.numbers += sum(x.numel() for x in new if x.untyped_storage().data_ptr() not in known)
        return result


FORMULAS: dict[str, Callable] = {
    "y = a @ b": lambda a, b: a @ b,
    "y = a.relu() @ b": lambda a, b: a.relu() @ b,
    "L = z.cross_entropy(y)": lambda z, y: z.cross_entropy(y),
}


def swept(make: Callable, formula: str, inputs: list, comm: Communicator) -> tuple[int, int, list]:
    """Sweep two of the student's tapes of a formula; tensors of integers are no nodes.

    Returns the numbers that torch's operators make in the second sweep, while its gradients are read, too, how much
    Python runs, and the gradients.
    """
    for _ in range(2):  # the first sweep imports and compiles
        nodes = [make(x.clone()) if x.is_floating_point() else x for x in inputs]
        result = FORMULAS[formula](*nodes)
        with Made() as made:
            count, gradients = traced(functools.partial(gradients_of, result, nodes), lambda: made)
    return made.numbers, count, gradients


def gradients_of(result: Any, nodes: list) -> list:
    """Sweep from `result` and read the nodes' gradients, which a property may compute only then."""
    result.backward()
    return [node.grad for node in nodes if not isinstance(node, torch.Tensor)]
