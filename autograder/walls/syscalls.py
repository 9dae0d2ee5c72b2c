"""Seccomp: system calls that no exercise needs are refused (Linux, where pyseccomp finds libseccomp).

The list denies calls; it does not list allowed ones: torch, NumPy and the C library differ too much between versions.
Even in a container without namespaces it must stop: processes (fork bombs, compilers, setuid helpers), sockets of every
family, signals to others, and the kernel's larger attack surfaces.

Ranks of one submission share only `comm`: so there are no watches on files, no questions about other processes or which
parts of a file are in memory, and no counts of a file system's free blocks and files. A lock on a file succeeds and
locks nothing: SQLite and other libraries need it, and a rank learns nothing from another's. A process's own processors
and priority are left as they are, too.

The kernel counts some things for a user, so for all ranks: pages of pipes, descriptors on their way, timers, threads,
real-time signals that wait. And it wakes threads of any process that sleep on a page that both have mapped. A rank can
cause and ask none of these.

Landlock does not cover what the kernel stores about a file: its mode, owner, times, extended attributes and flags. A
process may change those of every file that its user owns. So such a call succeeds and changes nothing, or is refused.
"""

import errno
import functools
import os
from collections.abc import Iterator
from itertools import chain
from typing import Any

try:
    import pyseccomp  # before any fork: it loads a shared library
except (ImportError, OSError, RuntimeError):  # not installed, no libseccomp
    pyseccomp = None

DENIED = """
    fork vfork execve execveat socket memfd_create memfd_secret io_uring_setup
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open pidfd_getfd pidfd_send_signal
    tkill rt_sigqueueinfo rt_tgsigqueueinfo setpriority ioprio_set
    mount umount2 pivot_root chroot unshare setns move_mount open_tree fsopen fsconfig fsmount mount_setattr
    bpf perf_event_open userfaultfd keyctl add_key request_key shmget msgget semget mq_open
    open_by_handle_at name_to_handle_at kexec_load init_module finit_module delete_module reboot swapon
    quotactl acct personality mknod mknodat
    inotify_init inotify_init1 inotify_add_watch fanotify_init fanotify_mark sysinfo setpgid setsid
    statfs fstatfs
    mincore cachestat migrate_pages move_pages process_mrelease
    getrusage sendmsg sendmmsg timer_create set_tid_address futex_wake futex_requeue
"""
OWN = ("kill", "tgkill")  # only to this process
SIGNALS = {"kill": 1, "tgkill": 2}  # with the place of the signal: the C library's own are below `REAL_TIME`
REAL_TIME = 34
SCHEDULING = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")  # others could read these
SELF = ("prlimit64", *SCHEDULING)  # only on itself: 0
# Questions that show which processes and threads there are, by the place of the argument that names one.
QUESTIONS = {
    **dict.fromkeys(("getpgid", "getsid", "get_robust_list"), 0),
    **dict.fromkeys((f"sched_{name}" for name in ("getaffinity", "getscheduler", "getparam", "getattr")), 0),
    "sched_rr_get_interval": 0,
    "getpriority": 1,
    "ioprio_get": 1,
    "preadv2": 5,  # its flags: whether a file's part is in memory
}
CLONE_THREAD = 0x10000
# Commands of fcntl, by number: leases, events of a folder, signals for others, the size of a pipe; from HINTS on, what
# a file stores.
FCNTL = (8, 10, 15, 1024, 1025, 1026, 1031)
HINTS = 1035
LOCKS = (6, 7, 37, 38)  # locks of a process and of an open file
WAKING, ANY_CLOCK = (1, 3, 4, 5, 10), 0xFF  # futex: its commands without the flag of a private page, and their mask
THREADS = 6  # the resource whose limit shows how many threads the user has
UNKNOWN = -1  # libseccomp's number of a call that it does not know
CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep")
METADATA = "chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat"
# With the number of their argument that holds the times; without times they mean "now", as in `Path.touch`.
TIMES = {"utime": 1, "utimes": 1, "futimesat": 2, "utimensat": 2, "utimensat_time64": 2}
# Advice on which parts of files to keep in memory, which all processes share; with the commands of madvise, by number.
ADVICE = ("fadvise64", "readahead")
ADVISED = (3, 20, 21)  # MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT
ATTRIBUTES = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr
"""
# Numbers on every processor, for a libseccomp that is older than the call.
RECENT = {"fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "file_setattr": 469}
KIND_OF_IOCTL, OF_FILES = 0xFF00, b"fXv"  # the letter in a command's number, and those that write a file's flags
OF_PROCESSES = 0x80000000  # clock ids from here on belong to processes and threads


def available() -> bool:
    return pyseccomp is not None


def restrict() -> None:
    """Refuse these calls in this process for good. `no_new_privs` must be set; pyseccomp must be installed."""
    rules = common()
    for name in OWN:
        _rule(rules, pyseccomp.ERRNO(errno.EPERM), name, pyseccomp.Arg(0, pyseccomp.NE, os.getpid()))
    rules.load()


@functools.cache
def common() -> Any:
    """Return the filter with the rules that are the same for all processes, computed once before a fork."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for action, name, *conditions in chain(_processes(), _files(), _scheduling()):
        _rule(rules, action, name, *(pyseccomp.Arg(*condition) for condition in conditions))
    return rules


def _processes() -> Iterator[tuple]:
    """Yield the rules on processes, signals and what else ranks could share: (action, call, conditions)."""
    denied = pyseccomp.ERRNO(errno.EPERM)
    yield from ((denied, name) for name in DENIED.split())
    yield pyseccomp.ERRNO(errno.ENOSYS), "clone3"  # its flags cannot be seen: the C library falls back on clone
    yield denied, "clone", (0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0)
    yield from ((denied, name, (0, pyseccomp.NE, 0)) for name in SELF)
    yield from ((denied, name, (place, pyseccomp.NE, 0)) for name, place in QUESTIONS.items())
    yield from ((denied, name, (place, pyseccomp.GE, REAL_TIME)) for name, place in SIGNALS.items())
    yield from ((denied, "futex", (1, pyseccomp.MASKED_EQ, ANY_CLOCK, command)) for command in WAKING)
    yield from ((denied, name, (0, pyseccomp.GE, OF_PROCESSES)) for name in CLOCKS)


def _files() -> Iterator[tuple]:
    """Yield the rules on what files have besides their bytes."""
    denied, nothing = pyseccomp.ERRNO(errno.EPERM), pyseccomp.ERRNO(0)  # the call does nothing and returns 0
    yield from ((denied, "fcntl", _is(1, command)) for command in FCNTL)
    yield denied, "fcntl", (1, pyseccomp.GE, HINTS)
    yield from ((nothing, "fcntl", _is(1, command)) for command in LOCKS)
    yield from ((denied, "ioctl", (1, pyseccomp.MASKED_EQ, KIND_OF_IOCTL, letter << 8)) for letter in OF_FILES)
    yield from ((pyseccomp.ERRNO(errno.ENOTSUP), name) for name in ATTRIBUTES.split())
    yield from ((nothing, name) for name in ("flock", *ADVICE, *METADATA.split()))
    for name, times in TIMES.items():
        yield nothing, name, (times, pyseccomp.NE, 0)
        yield denied, name, (times, pyseccomp.EQ, 0)  # `Path.touch` then creates the file


def _scheduling() -> Iterator[tuple]:
    """Yield the rules on memory, processors and limits."""
    nothing = pyseccomp.ERRNO(0)
    yield from ((nothing, "madvise", _is(2, advice)) for advice in ADVISED)
    yield nothing, "setrlimit", _is(0, THREADS)
    yield nothing, "prlimit64", (0, pyseccomp.EQ, 0), _is(1, THREADS), (2, pyseccomp.NE, 0)
    yield from ((nothing, name, (0, pyseccomp.EQ, 0)) for name in SCHEDULING)


def _is(place: int, value: int) -> tuple[int, ...]:
    """Return the condition that an int is `value`: the kernel reads its 32 bits; machine code may set others."""
    return place, pyseccomp.MASKED_EQ, 0xFFFFFFFF, value


def _rule(rules, action, name: str, *args) -> None:
    try:
        is_known = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) != UNKNOWN
        rules.add_rule(action, name if is_known else RECENT.get(name, name), *args)
    except (ValueError, OSError, RuntimeError) as error:
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:  # this processor has the call: refuse it
            raise OSError(f"seccomp: no rule for {name}") from error
