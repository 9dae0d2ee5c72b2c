"""Memory that processes of one machine share: files without a name, which the kernel frees with the last of them.

Whoever has the handle, process and file descriptor, opens such a file through /proc, where the kernel lets it. A page
before the data holds a random token, by which the other is sure to have the right one, and flags: bytes in which the
processes tell each other what has become of the data.
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

# Data are handed over by a flag written after them, which processors other than these may show in another order.
POSSIBLE = hasattr(os, "memfd_create") and platform.machine() in ("x86_64", "AMD64")


class Memory:
    """A file in memory as one of its processes sees it: `token`, `flags` (bytes for its users), and the data."""

    def __init__(self, file: int, nbytes: int):
        self.bytes = mmap.mmap(file, HEAD + nbytes)
        self.token = self.bytes[:_TOKEN]
        self.flags = memoryview(self.bytes)[_TOKEN:HEAD]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)) + HEAD  # of the data
        self.handle = b""  # for other processes; only where it was created

    def view(self, dtype: torch.dtype, offset: int, nbytes: int) -> torch.Tensor:
        """`nbytes` of the data from `offset`, as a flat tensor."""
        return torch.frombuffer(self.bytes, dtype=dtype, count=nbytes // dtype.itemsize, offset=HEAD + offset)


def create(nbytes: int) -> Memory | None:
    """Memory of `nbytes` zeros, with a `handle` for others; None where the system has none to share."""
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
    weakref.finalize(memory, os.close, file).atexit = False  # a neighbour may open it until this process is gone
    return memory


def attach(handle: bytes) -> Memory | None:
    """The memory of another process on this machine; None where the kernel refuses, or it is another machine's."""
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
