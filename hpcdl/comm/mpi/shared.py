"""Tensors in memory shared by the ranks of one machine: a neighbour adds directly from them.

The sender lends a part of such a tensor: a flag in the memory's first page is 1 until the neighbour has read it.
"""

import mmap
import os
import weakref
from contextlib import suppress
from functools import cache
from operator import index

import torch

from hpcdl.comm.mpi.memory import HEAD, Memory, attach, create

SHORTEST = 1 << 15  # bytes: shorter messages are not worth it
LOANS = 64  # of one tensor at a time
TENSORS = 64  # at a time: each takes two file descriptors, and a process may have only 1,024 by default
_FREED = 0  # this flag tells neighbours that the tensor is gone; after it comes one flag per loan

_own: dict[int, "_Shared"] = {}  # by the address of the data
_neighbours: dict[bytes, Memory] = {}  # by handle


class _Shared:
    """A tensor's memory, and the flags free for its loans."""

    def __init__(self, memory: Memory):
        self.memory, self.free_flags = memory, list(range(_FREED + 1, _FREED + 1 + LOANS))

    def lend(self, x: torch.Tensor) -> "Loan | None":
        """Lend `x`, a part of the tensor; None if too many loans are open."""
        try:
            flag = self.free_flags.pop()  # atomic: another thread may lend too
        except IndexError:
            return None
        return Loan(self, flag, x.data_ptr() - self.memory.address, x.nbytes)


class Loan:
    """`nbytes` from `offset` of a shared tensor, lent until the neighbour that reads them sets `flag` to 0."""

    def __init__(self, owner: _Shared, flag: int, offset: int, nbytes: int):
        self.owner, self.flag, self.offset, self.nbytes = owner, flag, offset, nbytes
        owner.memory.flags[flag] = 1

    def over(self) -> bool:
        """Return whether the neighbour has read it."""
        return not self.owner.memory.flags[self.flag]

    def end(self) -> None:
        """Release the flag for another loan; call it once `over()`."""
        self.owner.free_flags.append(self.flag)


def empty(numel: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a flat tensor in shared memory, or an ordinary one if it is short or the system has no such memory."""
    nbytes = index(numel) * dtype.itemsize
    memory = create(nbytes) if nbytes >= SHORTEST and len(_own) < TENSORS else None
    if memory is None:
        return torch.empty(numel, dtype=dtype)
    _own[memory.address] = _Shared(memory)
    held = memoryview(memory.bytes)  # dies with the tensor and all its views, and the memory after it
    weakref.finalize(held, _free, memory.address, os.getpid()).atexit = False  # a neighbour may still read
    return torch.frombuffer(held, dtype=dtype, count=numel, offset=HEAD)


def owner(x: torch.Tensor) -> _Shared | None:
    """Return the lender of `x`, a part of a tensor from `empty`; None for an ordinary tensor."""
    return _own.get(x.untyped_storage().data_ptr()) if _own else None


@cache
def probe() -> Memory | None:
    """Return memory without data: a neighbour that can attach to it can attach to this rank's tensors."""
    return create(0)


def attached(handle: bytes) -> Memory | None:
    """Return a neighbour's memory, attached on first use; then release memory whose tensors are gone."""
    memory = _neighbours.get(handle)
    if memory is None and (memory := attach(handle)) is not None:
        for other, known in tuple(_neighbours.items()):
            if known.flags[_FREED]:
                _neighbours.pop(other, None)
        _neighbours[handle] = memory
    return memory


def _free(address: int, process: int) -> None:
    memory = _own.pop(address).memory
    if os.getpid() == process:  # a forked copy of the tensor may be freed first
        memory.flags[_FREED] = 1
        with suppress(OSError):  # otherwise it is freed with the last neighbour
            memory.bytes.madvise(mmap.MADV_REMOVE, HEAD)
