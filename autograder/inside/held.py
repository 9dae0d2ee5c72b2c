"""Count what an answer's objects hold outside the tensors that a memory meter counts as its own.

NumPy's arrays, bytes, Python's numbers and tensors made from their memory are found by following references from the
answer's objects, the names of its module, and the variables of its functions that are running.
"""

import array
import collections
import functools
import gc
import mmap
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch

from hpcdl.comm.base import Communicator
from hpcdl.memory import MemoryMeter

from . import owners
from .doors import opaque

is_library, is_students = opaque(owners.is_library), opaque(owners.is_students)  # an answer can reach this module
del owners

FEW = 1024  # bytes: counters, sizes and offsets of a right answer
NUMBERS = (float, complex, int)
FLAT = (bytes, bytearray, array.array, memoryview, mmap.mmap, str)
BEYOND = (types.ModuleType, types.CodeType, Communicator, MemoryMeter)  # not the answer's
CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque, functools.partial, torch.nn.Module)


class Held:
    """Measures how many bytes `roots` hold beside torch, more than at first.

    `known` are objects that the harness holds itself.
    """

    def __init__(self, memory: MemoryMeter, known: Iterable, *roots: Any):
        self.memory, self.known, self.roots = memory, {id(item) for item in known}, list(roots)
        self.most = 0
        self.first = self._nbytes()

    def look(self) -> int:
        """Return the bytes that the roots hold now, 0 if they are few."""
        now = self._nbytes() - self.first
        now = now if now > FEW else 0
        self.most = max(self.most, now)
        return now

    def take_most(self) -> int:
        """Return the most bytes of all looks since the last time."""
        most, self.most = self.most, 0
        return most

    def _nbytes(self) -> int:
        seen, total = set(self.known), 0
        storages: set[int] = set()
        waiting = [*self.roots, *_variables(sys._getframe(1))]
        while waiting:
            item = waiting.pop()
            if id(item) in seen or _is_foreign(item):
                continue
            seen.add(id(item))
            if isinstance(item, types.FunctionType) and is_library(item.__code__):  # a decorator around an answer's
                waiting += item.__closure__ or ()
                continue
            if isinstance(item, torch.Tensor):
                total += self._storage(item, storages)
            elif isinstance(item, numpy.ndarray):
                total += item.nbytes if item.base is None else 0
                waiting.append(item.base)
            else:
                total += _size(item)
            waiting += gc.get_referents(item)
        return total

    def _storage(self, tensor: torch.Tensor, storages: set[int]) -> int:
        """Return the bytes of a tensor that the meter counts as read only, once."""
        if tensor.layout is not torch.strided or tensor.is_meta:
            return 0
        storage = tensor.untyped_storage()
        if storage._cdata in storages or self.memory.is_own(storage):
            return 0
        storages.add(storage._cdata)
        return storage.nbytes()


def _size(item: Any) -> int:
    if isinstance(item, NUMBERS):
        return 8
    if isinstance(item, memoryview):
        return item.nbytes
    return len(item) if isinstance(item, FLAT) else 0


def _is_foreign(item: Any) -> bool:
    """Whether an object leads to a library's, not to an answer's."""
    if isinstance(item, BEYOND):
        return True
    if isinstance(item, (*CONTAINERS, types.FunctionType, torch.Tensor, numpy.ndarray)):
        return False
    return not is_students(item if isinstance(item, type) else type(item))


def _variables(frame: types.FrameType | None) -> Iterator[Any]:
    """Yield the variables of the answer's functions that are running."""
    while frame is not None:
        if not is_library(frame.f_code):
            yield dict(frame.f_locals)
        frame = frame.f_back


def watching(held: Held, work: Callable[[], None]) -> Callable[[], None]:
    """Return `work`, changed so that `held` is looked at first."""

    def watched() -> None:
        held.look()
        work()

    return watched
