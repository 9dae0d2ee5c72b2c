"""Long messages between ranks on one machine: they lie in memory that both see, and MPI carries only where.

MPI copies such a message page by page through the kernel, or twice. Here the sender copies it into one of a few cells
of the receiver's memory, and the receiver adds from there at once, while the processor's caches have it.
The memory has no name in the file system: the kernel frees it with the last of the two processes, however they end.
"""

import ctypes
import mmap
import os
import platform
import struct
import weakref

import torch
from mpi4py import MPI

SHORTEST, LONGEST = 1 << 15, 1 << 22  # bytes of a message that takes this way
CELLS = 4  # messages that may wait for the receiver; those beyond go through MPI
_INVITATION = struct.Struct("16sqq")  # token, process, file descriptor: where a rank's cells are
_PLACE = struct.Struct("16sqq")  # token, cell, bytes: where a message is
_HEAD = mmap.PAGESIZE  # before the cells: the token, and a byte per cell, 1 while it holds a message

_KEY = MPI.Comm.Create_keyval()  # under which an MPI communicator keeps its cells

# A cell is handed over by a byte written after it, which other processors than these may show in another order.
POSSIBLE = hasattr(os, "memfd_create") and platform.machine() in ("x86_64", "AMD64")


class _Memory:
    """The cells that one rank fills and another empties, seen from either."""

    def __init__(self, file: int):
        self.bytes = mmap.mmap(file, _HEAD + CELLS * LONGEST)
        self.token = self.bytes[:16]
        self.full = memoryview(self.bytes)[16 : 16 + CELLS]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)) + _HEAD


class Arrived:
    """A message in its cell; `free()` when it has been read."""

    def __init__(self, memory: _Memory, cell: int, nbytes: int):
        self._memory, self._cell, self.nbytes = memory, cell, nbytes

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        return torch.frombuffer(
            self._memory.bytes, dtype=dtype, count=self.nbytes // dtype.itemsize, offset=_HEAD + self._cell * LONGEST
        )

    def copy_to(self, out: torch.Tensor) -> None:
        ctypes.memmove(out.data_ptr(), self._memory.address + self._cell * LONGEST, self.nbytes)

    def free(self) -> None:
        self._memory.full[self._cell] = 0


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
    machine that may open the memory finds the right token in it; all others send through MPI.
    """

    def __init__(self, mpi: MPI.Comm, tag: int):
        self._mpi, self._tag = mpi, tag
        self._from: dict[int, _Memory | None] = {}
        self._to: dict[int, _Memory | None] = {}
        self._invitations: list[bytes] = []

    def invite(self, source: int) -> None:
        """Let `source` put its long messages into cells from now on."""
        if source in self._from:
            return
        self._from[source] = None
        if not POSSIBLE:
            return
        try:
            file = os.memfd_create("hpcdl")
        except OSError:  # forbidden here
            return
        weakref.finalize(self, os.close, file)
        os.ftruncate(file, _HEAD + CELLS * LONGEST)
        os.pwrite(file, os.urandom(16), 0)
        memory = self._from[source] = _Memory(file)
        invitation = _INVITATION.pack(memory.token, os.getpid(), file)
        self._mpi.Isend(invitation, source, self._tag).Free()
        self._invitations.append(invitation)  # it must outlive its message, for which nobody waits

    def put(self, x: torch.Tensor, dest: int) -> bytes | None:
        """Copy `x` into a cell of `dest`'s; what to send in its place, None where `x` itself must be sent."""
        memory = self._to[dest] if dest in self._to else self._accept(dest)
        if memory is None:
            return None
        cell = bytes(memory.full).find(0)
        if cell < 0:
            return None
        ctypes.memmove(memory.address + cell * LONGEST, x.data_ptr(), x.nbytes)
        memory.full[cell] = 1
        return _PLACE.pack(memory.token, cell, x.nbytes)

    def find(self, out: torch.Tensor, source: int, nbytes: int) -> Arrived | None:
        """Where the message is of which `nbytes` came into `out`; None where that was the message itself."""
        memory = self._from.get(source)
        if memory is None or nbytes != _PLACE.size:
            return None
        token, cell, length = _PLACE.unpack(ctypes.string_at(out.data_ptr(), nbytes))
        return Arrived(memory, cell, length) if token == memory.token else None

    def _accept(self, dest: int) -> _Memory | None:
        """`dest`'s memory when its invitation has come."""
        if not POSSIBLE or not self._mpi.Iprobe(dest, self._tag):
            return None
        invitation = bytearray(_INVITATION.size)
        self._mpi.Recv(invitation, dest, self._tag)
        self._to[dest] = _open(*_INVITATION.unpack(invitation))
        return self._to[dest]


def _open(token: bytes, process: int, file: int) -> _Memory | None:
    """The memory of another process on this machine; None where the kernel refuses, or it is another machine's."""
    try:
        descriptor = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        memory = _Memory(descriptor)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return memory if memory.token == token else None
