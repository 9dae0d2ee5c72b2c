"""Memory that processes on one machine share: anonymous files, which the kernel frees with the last process.

A process with the handle (process and file descriptor) opens such a file through /proc, if the kernel permits. A page
before the data holds a random token, which identifies the file, and flags: bytes in which the processes report the
state of the data.
"""

import ctypes
import mmap
import os
import platform
import struct
import weakref

import torch

HEAD = mmap.PAGESIZE
_TOKEN = 16
_HANDLE = struct.Struct(f"{_TOKEN}sqqq")  # token, process, file descriptor, bytes of data
HANDLE_BYTES = _HANDLE.size

# A flag written after the data hands them over; other processors may reorder these writes.
POSSIBLE = hasattr(os, "memfd_create") and platform.machine() in ("x86_64", "AMD64")


class Memory:
    """One process's view of a file in memory: `token`, `flags` (bytes for its users), and the data."""

    def __init__(self, file: int, nbytes: int):
        self.bytes = mmap.mmap(file, HEAD + nbytes)
        self.token = self.bytes[:_TOKEN]
        self.flags = memoryview(self.bytes)[_TOKEN:HEAD]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)) + HEAD  # of the data
        self.handle = b""  # for other processes; only where it was created

    def view(self, dtype: torch.dtype, offset: int, nbytes: int) -> torch.Tensor:
        """Return `nbytes` of the data from `offset`, as a flat tensor."""
        return torch.frombuffer(self.bytes, dtype=dtype, count=nbytes // dtype.itemsize, offset=HEAD + offset)


def create(nbytes: int) -> Memory | None:
    """Create `nbytes` of zeros, with a `handle` for others; None if the system has no shared memory."""
    if not POSSIBLE:
        return None
    try:
        file = os.memfd_create("hpcdl")
    except OSError:  # forbidden here, or too many files are open
        return None
    try:
        os.ftruncate(file, HEAD + nbytes)
        os.pwrite(file, os.urandom(_TOKEN), 0)
        memory = Memory(file, nbytes)
    except OSError:
        os.close(file)
        return None
    memory.handle = _HANDLE.pack(memory.token, os.getpid(), file, nbytes)
    weakref.finalize(memory, os.close, file).atexit = False  # a neighbour may open it until this process ends
    return memory


def attach(handle: bytes) -> Memory | None:
    """Attach another process's memory; None if the kernel refuses, or it is on another machine."""
    token, process, file, nbytes = _HANDLE.unpack(handle)
    if not POSSIBLE:
        return None
    try:
        descriptor = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        memory = Memory(descriptor, nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return memory if memory.token == token else None
