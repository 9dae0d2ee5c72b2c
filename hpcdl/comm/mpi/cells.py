"""Long messages between ranks on one machine: the data are in shared memory, and MPI carries only a pointer.

MPI copies such a message page by page through the kernel, or twice. Here the sender copies it into one of a few cells
of the receiver's memory, and the receiver adds from there at once, while the data are in the processor's caches. A
tensor of `hpcdl.comm.mpi.shared` is not copied at all: the receiver adds from the tensor, and the sender waits until it
has. When `sendrecv` exchanges other tensors, MPI carries them itself: nothing is added, and one copy is enough.
"""

import atexit
import contextlib
import ctypes
import struct
import weakref
from typing import Any

import torch
from mpi4py import MPI

import hpcdl.comm.mpi.shared as shared
from hpcdl.comm.channels import MOST, TAGS, Channels
from hpcdl.comm.mpi.memory import HANDLE_BYTES, Memory, attach, create
from hpcdl.comm.mpi.shared import Loan

SHORTEST, LONGEST = shared.SHORTEST, 1 << 22  # bytes of a message sent through a cell; a loan may be longer
CELLS = 4  # messages that may wait for the receiver; further messages go through MPI

# MPI carries a pointer instead of the message: into the receiver's memory, or into the sender's.
_IN_CELL = struct.Struct("16sqq")  # the receiver's token, cell, bytes
_LENT = struct.Struct(f"16sqqq{HANDLE_BYTES}s")  # the receiver's token, the loan's flag, offset, bytes, sender's handle
POINTER_BYTES = max(_IN_CELL.size, _LENT.size)

# The flags of the receiver's memory: one per cell; then whether the receiver can attach to the sender's memory, and
# the handle to try it with.
_FREE, _FULL, _WAITED_FOR, _BACK = range(4)  # a cell: with a message; one whose sender waits for a sum; with the sum
_ANSWER = CELLS
_UNASKED, _ASKED, _YES, _NO = range(4)
_PROBE = slice(_ANSWER + 1, _ANSWER + 1 + HANDLE_BYTES)

_KEY = MPI.Comm.Create_keyval()  # under which an MPI communicator keeps its cells
_all: "weakref.WeakSet[NeighbourMemory]" = weakref.WeakSet()


class InMemory:
    """A message in shared memory, in a cell or `lent` by its sender; call `free()` when it has been read.

    The sender of a loan waits for that and sees what was written there; `flag` becomes `after`.
    """

    def __init__(self, memory: Memory, flag: int, offset: int, nbytes: int, lent: bool, after: int = _FREE):
        self._memory, self._flag, self._offset, self._after = memory, flag, offset, after
        self.nbytes, self.lent = nbytes, lent

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        return self._memory.view(dtype, self._offset, self.nbytes)

    def copy_to(self, out: torch.Tensor) -> None:
        ctypes.memmove(out.data_ptr(), self._memory.address + self._offset, self.nbytes)

    def free(self) -> None:
        self._memory.flags[self._flag] = self._after


class Deposit:
    """A loan of `x` through a cell: the receiver's result there is copied into `x` at the end."""

    def __init__(self, x: torch.Tensor, memory: Memory, cell: int):
        self._x, self._memory, self._cell = x, memory, cell

    def over(self) -> bool:
        """Return whether the receiver has put the sum into the cell."""
        return self._memory.flags[self._cell] == _BACK

    def end(self) -> None:
        """Copy the sum out of the cell, and free it; call it once `over()`."""
        ctypes.memmove(self._x.data_ptr(), self._memory.address + self._cell * LONGEST, self._x.nbytes)
        self._memory.flags[self._cell] = _FREE


def cells_of(mpi: MPI.Comm, channel: int | None = None) -> "NeighbourMemory":
    """Return this rank's cells on `mpi`: for its own messages, or for a background's on `channel`."""
    known = _kept(mpi).cells
    if channel not in known:
        known[channel] = NeighbourMemory(mpi, _largest_tag(mpi) - (0 if channel is None else 1 + channel))
    return known[channel]


def channels_of(mpi: MPI.Comm) -> Channels:
    """Return the channels of the backgrounds on `mpi`."""
    return _kept(mpi).channels


def farewell_of(mpi: MPI.Comm) -> int:
    """Return the tag of the last message on `mpi`, which no other message has."""
    return _kept(mpi).farewell


class _Kept:
    """This rank's state for one MPI communicator."""

    def __init__(self, mpi: MPI.Comm):
        largest = _largest_tag(mpi)
        most = min(MOST, largest // (TAGS + 1) // 2 * 2 - 2)  # tags above are the cells' own, and the farewell
        self.cells: dict[int | None, NeighbourMemory] = {}  # by channel
        self.channels, self.farewell = Channels(most), largest - most - 1


def _kept(mpi: MPI.Comm) -> _Kept:
    known: Any = mpi.Get_attr(_KEY)  # MPI keeps an object of any kind
    if known is None:
        known = _Kept(mpi)
        mpi.Set_attr(_KEY, known)
    return known


@atexit.register
def _leave_nothing_behind() -> None:
    """Receive what is left: MPICH's Finalize fails if a message was never received, and its mpiexec kills the other
    ranks."""
    for cells in () if MPI.Is_finalized() else tuple(_all):
        with contextlib.suppress(MPI.Exception):  # the communicator was freed, or lost a rank
            cells.take_in_invitations()


def _largest_tag(mpi: MPI.Comm) -> int:
    tag = mpi.Get_attr(MPI.TAG_UB)
    assert tag is not None  # the standard requires every implementation to set it
    return tag


class NeighbourMemory:
    """This rank's shared memory with its neighbours, over `mpi`: a receiver invites, and the sender attaches if it can.

    An invitation is a message with `tag`, the handle of the receiver's memory; the receiver sends it with its first
    long `recv` from that sender. Only a process of this machine that may attach to the memory finds the right token in
    it; all others send through MPI. A sender that attaches leaves a handle to its own memory, and lends tensors once
    the receiver has attached to that.
    """

    def __init__(self, mpi: MPI.Comm, tag: int):
        self._mpi, self._tag = mpi, tag
        self._from: dict[int, Memory | None] = {}  # by source: this rank's memory for it
        self._to: dict[int, Memory | None] = {}  # by destination: its memory for this rank
        _all.add(self)

    def invite(self, source: int) -> None:
        """Let `source` put its long messages into cells from now on."""
        if source in self._from:
            return
        memory = self._from[source] = create(CELLS * LONGEST)
        if memory is not None:  # a message without a wait; `_from` keeps the handle alive
            self._mpi.Isend(memory.handle, source, self._tag).Free()

    def take_in_invitations(self) -> None:
        """Receive invitations that came too late: their messages were sent through MPI long ago."""
        while self._mpi.Iprobe(MPI.ANY_SOURCE, self._tag):
            self._mpi.Recv(bytearray(HANDLE_BYTES), MPI.ANY_SOURCE, self._tag)

    def may_borrow(self, source: int) -> bool:
        """Return whether `source` may lend its messages to this rank yet."""
        memory = self._from.get(source)
        return memory is not None and memory.flags[_ANSWER] == _YES

    def put(self, x: torch.Tensor, dest: int) -> bytes | None:
        """Copy `x` into a cell of `dest` and return the pointer to send instead; None if `x` itself must be sent."""
        memory, cell = self._free_cell(x, dest)
        if memory is None:
            return None
        ctypes.memmove(memory.address + cell * LONGEST, x.data_ptr(), x.nbytes)
        memory.flags[cell] = _FULL
        return _IN_CELL.pack(memory.token, cell, x.nbytes)

    def deposit(self, x: torch.Tensor, dest: int, weight: float) -> tuple[bytes, Deposit] | None:
        """Put `weight * x` into a cell of `dest`, where the sum will come back; otherwise like `lend`."""
        memory, cell = self._free_cell(x, dest)
        if memory is None:
            return None
        inside, x = memory.view(x.dtype, cell * LONGEST, x.nbytes), x.detach().view(-1)
        inside.copy_(x) if weight == 1 else torch.mul(x, weight, out=inside)
        memory.flags[cell] = _WAITED_FOR
        return _IN_CELL.pack(memory.token, cell, x.nbytes), Deposit(x, memory, cell)

    def _free_cell(self, x: torch.Tensor, dest: int) -> tuple[Memory | None, int]:
        memory = self._memory_of(dest)
        cell = bytes(memory.flags[:CELLS]).find(_FREE) if memory is not None and x.nbytes <= LONGEST else -1
        return (None if cell < 0 else memory), cell

    def lend(self, x: torch.Tensor, dest: int) -> tuple[bytes, Loan] | None:
        """Let `dest` read `x` in place; return the pointer to send and the loan, or None if that is impossible."""
        owner = shared.owner(x)
        if owner is None:
            return None
        memory = self._memory_of(dest)
        if memory is None or not _can_borrow(memory) or (loan := owner.lend(x)) is None:
            return None
        return _LENT.pack(memory.token, loan.flag, loan.offset, loan.nbytes, owner.memory.handle), loan

    def find(self, inbox: int, source: int, nbytes: int) -> InMemory | None:
        """Return the message that the `nbytes` at address `inbox` point to; None if they are the message itself.

        Raises ConnectionError if it is in memory that this process cannot open, although it could open other memory.
        """
        memory = self._from.get(source)
        if memory is None:
            return None
        if memory.flags[_ANSWER] == _ASKED:
            memory.flags[_ANSWER] = _NO if attach(bytes(memory.flags[_PROBE])) is None else _YES
        if nbytes == _IN_CELL.size:
            token, cell, length = _IN_CELL.unpack(ctypes.string_at(inbox, nbytes))
            if token != memory.token:
                return None
            lent = memory.flags[cell] == _WAITED_FOR
            return InMemory(memory, cell, cell * LONGEST, length, lent, _BACK if lent else _FREE)
        if nbytes == _LENT.size:
            token, flag, offset, length, handle = _LENT.unpack(ctypes.string_at(inbox, nbytes))
            return InMemory(_attached(handle), flag, offset, length, True) if token == memory.token else None
        return None

    def _memory_of(self, dest: int) -> Memory | None:
        """Return `dest`'s memory for this rank once its invitation has arrived."""
        if dest not in self._to and self._mpi.Iprobe(dest, self._tag):
            handle = bytearray(HANDLE_BYTES)
            self._mpi.Recv(handle, dest, self._tag)
            self._to[dest] = attach(bytes(handle))
        return self._to.get(dest)


def _can_borrow(memory: Memory) -> bool:
    """Return whether the receiver that invited to `memory` can read this rank's shared memory; it tries first."""
    if memory.flags[_ANSWER] == _UNASKED and (probe := shared.probe()) is not None:
        memory.flags[_PROBE] = probe.handle
        memory.flags[_ANSWER] = _ASKED
    return memory.flags[_ANSWER] == _YES


def _attached(handle: bytes) -> Memory:
    memory = shared.attached(handle)
    if memory is None:
        raise ConnectionError("the sender's tensor cannot be opened; are too many files open here? see `ulimit -n`")
    return memory
