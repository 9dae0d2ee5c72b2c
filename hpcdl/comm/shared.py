"""Tensors in memory that the ranks of one machine share: a neighbour adds straight from them.

The sender lends a part of such a tensor: a byte in the memory's first page is 1 until the neighbour has read it.
"""

import mmap
import os
import weakref
from contextlib import suppress
from functools import cache
from operator import index

import torch

from hpcdl.comm.memory import HEAD, Memory, accept, create

SHORTEST = 1 << 15  # bytes of a message for which it is worth while
LOANS = 64  # of one tensor at a time
TENSORS = 64  # at a time: each takes two file descriptors, and a process may have but 1,024 by default
_RETURNED = 0  # the byte that tells neighbours that there is no tensor any more; one per loan comes after it

_own: dict[int, "_Shared"] = {}  # by the address of their data
_neighbours: dict[bytes, Memory] = {}  # by the invitation to them


class _Shared:
    """A tensor's memory, and which loans of it are free."""

    def __init__(self, memory: Memory):
        self.memory, self.free = memory, list(range(_RETURNED + 1, _RETURNED + 1 + LOANS))

    def lend(self, x: torch.Tensor) -> "Loan | None":
        """A loan of `x`, which is a part of the tensor; None where too many are under way."""
        try:
            byte = self.free.pop()  # in one step: another thread may lend too
        except IndexError:
            return None
        return Loan(self, byte, x.data_ptr() - self.memory.address, x.nbytes)


class Loan:
    """`nbytes` from `offset` of a shared tensor, until the neighbour that reads them writes 0 at `byte`."""

    def __init__(self, owner: _Shared, byte: int, offset: int, nbytes: int):
        self.owner, self.byte, self.offset, self.nbytes = owner, byte, offset, nbytes
        owner.memory.told[byte] = 1

    def over(self) -> bool:
        return not self.owner.memory.told[self.byte]

    def end(self) -> None:
        """Let another loan have the byte; this one's end has been seen."""
        self.owner.free.append(self.byte)


def empty(numel: int, dtype: torch.dtype) -> torch.Tensor:
    """A flat tensor in memory to share; an ordinary one where it is short, or the system has no such memory."""
    nbytes = index(numel) * dtype.itemsize
    memory = create(nbytes) if nbytes >= SHORTEST and len(_own) < TENSORS else None
    if memory is None:
        return torch.empty(numel, dtype=dtype)
    _own[memory.address] = _Shared(memory)
    held = memoryview(memory.bytes)  # dies with the tensor and all its views, and the memory after it
    weakref.finalize(held, _give_back, memory.address, os.getpid()).atexit = False  # a neighbour may still read
    return torch.frombuffer(held, dtype=dtype, count=numel, offset=HEAD)


def owner(x: torch.Tensor) -> _Shared | None:
    """What lends `x`, a part of a tensor of `empty`; None for an ordinary one."""
    return _own.get(x.untyped_storage().data_ptr()) if _own else None


@cache
def card() -> Memory | None:
    """Memory without data: a neighbour that can open it can open tensors of this rank."""
    return create(0)


def reach(invitation: bytes) -> Memory | None:
    """A neighbour's memory, opened when first seen; then those are let go whose tensors are no more."""
    memory = _neighbours.get(invitation)
    if memory is None and (memory := accept(invitation)) is not None:
        for other, known in tuple(_neighbours.items()):
            if known.told[_RETURNED]:
                _neighbours.pop(other, None)
        _neighbours[invitation] = memory
    return memory


def _give_back(address: int, process: int) -> None:
    memory = _own.pop(address).memory
    if os.getpid() == process:  # a fork's copy of the tensor may go first
        memory.told[_RETURNED] = 1
        with suppress(OSError):  # else it is free when the last neighbour lets go of it
            memory.bytes.madvise(mmap.MADV_REMOVE, HEAD)
