"""Long messages between ranks on one machine: they lie in memory that both see, and MPI carries only where.

MPI copies such a message page by page through the kernel, or twice. Here the sender copies it into one of a few cells
of the receiver's memory, and the receiver adds from there at once, while the processor's caches have it. A tensor of
`hpcdl.comm.shared` is not copied at all: the receiver adds from the tensor, and the sender waits until it has.
"""

import ctypes
import struct

import torch
from mpi4py import MPI

from hpcdl.comm import shared
from hpcdl.comm.memory import INVITATION, Memory, accept, create
from hpcdl.comm.shared import Loan

SHORTEST, LONGEST = shared.SHORTEST, 1 << 22  # bytes of a message that takes this way; a loan may be longer
CELLS = 4  # messages that may wait for the receiver; those beyond go through MPI
_PLACE = struct.Struct("16sqq")  # token, cell, bytes: where a message is
_NOTE = struct.Struct(f"16sqqq{INVITATION}s")  # token, the loan's byte, offset, bytes, where the tensor is
NOTICE = max(_PLACE.size, _NOTE.size)  # bytes of what comes over MPI in a message's place, at most

# What the two tell each other in the first page: a byte per cell; then whether the receiver can read the sender's
# memory, and an invitation to try it with.
_FREE, _FULL, _LENT, _BACK = range(4)  # a cell: with a message; with one whose sender waits for a sum; with the sum
_ANSWER = CELLS
_UNASKED, _ASKED, _YES, _NO = range(4)
_CARD = slice(_ANSWER + 1, _ANSWER + 1 + INVITATION)

_KEY = MPI.Comm.Create_keyval()  # under which an MPI communicator keeps its cells


class Arrived:
    """A message that lies in memory, in a cell or `lent` by its sender; `free()` when it has been read.

    The sender of what is lent waits for that, and has what was written there; `byte` becomes `after`.
    """

    def __init__(self, memory: Memory, byte: int, offset: int, nbytes: int, lent: bool, after: int = _FREE):
        self._memory, self._byte, self._offset, self._after = memory, byte, offset, after
        self.nbytes, self.lent = nbytes, lent

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        return self._memory.view(dtype, self._offset, self.nbytes)

    def copy_to(self, out: torch.Tensor) -> None:
        ctypes.memmove(out.data_ptr(), self._memory.address + self._offset, self.nbytes)

    def free(self) -> None:
        self._memory.told[self._byte] = self._after


class Deposit:
    """A loan of `x` by way of a cell: what the receiver leaves there comes into `x` at the end."""

    def __init__(self, x: torch.Tensor, memory: Memory, cell: int):
        self._x, self._memory, self._cell = x, memory, cell

    def over(self) -> bool:
        return self._memory.told[self._cell] == _BACK

    def end(self) -> None:
        ctypes.memmove(self._x.data_ptr(), self._memory.address + self._cell * LONGEST, self._x.nbytes)
        self._memory.told[self._cell] = _FREE


def cells_of(mpi: MPI.Comm, own: bool = False) -> "Cells":
    """The cells of this rank on `mpi`, the same for all that use it; with `own` some for one thread alone.

    Threads that belong together on all ranks find each other's where they ask for them in the same order.
    """
    known = mpi.Get_attr(_KEY)
    if known is None:
        known = [Cells(mpi, mpi.Get_attr(MPI.TAG_UB))]
        mpi.Set_attr(_KEY, known)
    if own:
        known.append(Cells(mpi, mpi.Get_attr(MPI.TAG_UB) - len(known)))
    return known[-1] if own else known[0]


class Cells:
    """This rank's ways to its neighbours, over `mpi`: a receiver invites, and the sender comes if it can.

    An invitation (a message with `tag`) goes to the sender with the first long `recv` from it. Only a process of this
    machine that may open the memory finds the right token in it; all others send through MPI. The sender who has come
    leaves an invitation to its own memory, and lends once the receiver has followed it.
    """

    def __init__(self, mpi: MPI.Comm, tag: int):
        self._mpi, self._tag = mpi, tag
        self._from: dict[int, Memory | None] = {}
        self._to: dict[int, Memory | None] = {}

    def invite(self, source: int) -> None:
        """Let `source` put its long messages into cells from now on."""
        if source in self._from:
            return
        memory = self._from[source] = create(CELLS * LONGEST)
        if memory is not None:  # the invitation outlives its message, for which nobody waits: `_from` has it
            self._mpi.Isend(memory.invitation, source, self._tag).Free()

    def borrows(self, source: int) -> bool:
        """Whether `source` may lend its messages to this rank by now."""
        memory = self._from.get(source)
        return memory is not None and memory.told[_ANSWER] == _YES

    def put(self, x: torch.Tensor, dest: int) -> bytes | None:
        """Copy `x` into a cell of `dest`'s; what to send in its place, None where `x` itself must be sent."""
        memory, cell = self._free_cell(x, dest)
        if memory is None:
            return None
        ctypes.memmove(memory.address + cell * LONGEST, x.data_ptr(), x.nbytes)
        memory.told[cell] = _FULL
        return _PLACE.pack(memory.token, cell, x.nbytes)

    def deposit(self, x: torch.Tensor, dest: int, weight: float) -> tuple[bytes, Deposit] | None:
        """Put `weight * x` into a cell of `dest`'s, for the sum to come back there: as `lend` otherwise."""
        memory, cell = self._free_cell(x, dest)
        if memory is None:
            return None
        place, x = memory.view(x.dtype, cell * LONGEST, x.nbytes), x.detach().view(-1)
        place.copy_(x) if weight == 1 else torch.mul(x, weight, out=place)
        memory.told[cell] = _LENT
        return _PLACE.pack(memory.token, cell, x.nbytes), Deposit(x, memory, cell)

    def _free_cell(self, x: torch.Tensor, dest: int) -> tuple[Memory | None, int]:
        memory = self._reached(dest)
        cell = bytes(memory.told[:CELLS]).find(_FREE) if memory is not None and x.nbytes <= LONGEST else -1
        return (None if cell < 0 else memory), cell

    def lend(self, x: torch.Tensor, dest: int) -> tuple[bytes, Loan] | None:
        """Let `dest` read `x` where it is: what to send in its place, and the loan; None where that cannot be."""
        owner = shared.owner(x)
        memory = None if owner is None else self._reached(dest)
        if memory is None or not _can_read(memory) or (loan := owner.lend(x)) is None:
            return None
        return _NOTE.pack(memory.token, loan.byte, loan.offset, loan.nbytes, owner.memory.invitation), loan

    def find(self, inbox: int, source: int, nbytes: int) -> Arrived | None:
        """Where the message is of which `nbytes` came to the address `inbox`; None where that was the message itself.

        Raises ConnectionError where it is in memory that this process cannot open, though it could open other.
        """
        memory = self._from.get(source)
        if memory is None:
            return None
        if memory.told[_ANSWER] == _ASKED:
            memory.told[_ANSWER] = _NO if accept(bytes(memory.told[_CARD])) is None else _YES
        if nbytes == _PLACE.size:
            token, cell, length = _PLACE.unpack(ctypes.string_at(inbox, nbytes))
            if token != memory.token:
                return None
            lent = memory.told[cell] == _LENT
            return Arrived(memory, cell, cell * LONGEST, length, lent, _BACK if lent else _FREE)
        if nbytes == _NOTE.size:
            token, byte, offset, length, invitation = _NOTE.unpack(ctypes.string_at(inbox, nbytes))
            return Arrived(_opened(invitation), byte, offset, length, True) if token == memory.token else None
        return None

    def _reached(self, dest: int) -> Memory | None:
        """`dest`'s memory when its invitation has come."""
        if dest not in self._to and self._mpi.Iprobe(dest, self._tag):
            invitation = bytearray(INVITATION)
            self._mpi.Recv(invitation, dest, self._tag)
            self._to[dest] = accept(bytes(invitation))
        return self._to.get(dest)


def _can_read(memory: Memory) -> bool:
    """Whether the receiver that invited to `memory` can read what this rank shares; it is asked first."""
    if memory.told[_ANSWER] == _UNASKED and (card := shared.card()) is not None:
        memory.told[_CARD] = card.invitation
        memory.told[_ANSWER] = _ASKED
    return memory.told[_ANSWER] == _YES


def _opened(invitation: bytes) -> Memory:
    memory = shared.reach(invitation)
    if memory is None:
        raise ConnectionError("the sender's tensor cannot be opened; are too many files open here? see `ulimit -n`")
    return memory
