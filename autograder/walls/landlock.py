"""Landlock: a process gives up every file except the ones it names, for good (Linux 5.13; no privilege needed).

Numbers and structures come from the kernel's `include/uapi/linux/landlock.h`.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every processor
VERSION, PATH_BENEATH = 1, 1
WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
OF_FILES = 1 | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # rights on files; the others are for folders
READ = READ_FILE | READ_DIR
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # version -> number of file rights that it knows
TCP, SCOPES = 0b11, 0b11  # bind and connect, from version 4; abstract sockets and signals, from version 6


def version() -> int:
    """Return the kernel's version of Landlock; 0 if it has none."""
    try:
        return max(0, ctypes.CDLL(None).syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))
    except (AttributeError, OSError):  # no such C library: not Linux
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Restrict this process to these files and folders, without execution, TCP or signals to others; raise OSError on
    failure.

    `no_new_privs` must be set. Paths that do not exist are skipped.
    """
    known, call = version(), _caller()
    everything = (1 << RIGHTS.get(known, 16)) - 1
    attributes = struct.pack("QQQ", everything, TCP if known >= 4 else 0, SCOPES if known >= 6 else 0)
    ruleset = call(CREATE_RULESET, attributes, ctypes.c_size_t(_size(known)), 0)
    for paths, rights in ((readable, READ), (writable, everything & ~1)):
        for path in paths:
            _allow(call, ruleset, path, rights & everything)
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def without(folder: str, secrets: Iterable[str]) -> list[str]:
    """Return the paths that together make up `folder` without `secrets`, all resolved: rules can only allow.

    Links are skipped: a rule for a link would apply to its target, which has its own rules if it may be read.
    """
    inside = [secret for secret in secrets if Path(secret).is_relative_to(folder)]
    if not inside:
        return [folder]
    if folder in inside:
        return []
    try:
        entries = [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:  # a folder that cannot be listed must not be allowed as a whole
        return []
    return [path for entry in entries for path in without(entry, inside)]


def _allow(call: Callable, ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        rights &= OF_FILES
    call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    os.close(descriptor)


def _size(known: int) -> int:
    return 8 if known < 4 else 16 if known < 6 else 24


def _caller() -> Callable[..., int]:
    """Return a function that makes a system call. Nothing keeps it: an answer could use it."""
    libc = ctypes.CDLL(None, use_errno=True)  # made once for all calls

    def call(number: int, *args) -> int:
        result = libc.syscall(number, *args)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"Landlock: {os.strerror(code)}")
        return result

    return call
