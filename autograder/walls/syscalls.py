"""Seccomp: system calls that no exercise needs are refused (Linux, where pyseccomp finds libseccomp).

The list denies calls; it does not list allowed ones: torch, NumPy and the C library differ too much between versions.
Even in a container without namespaces it must stop: processes (fork bombs, compilers, setuid helpers), sockets of every
family, signals to others, and the kernel's larger attack surfaces.

Ranks of one submission share only `comm`: so there are no watches on files, no access to other processes' times, and no
counts of a file system's free blocks and files. A lock on a file succeeds and locks nothing: SQLite and other libraries
need it, and a rank learns nothing from another's. A process's own processors and priority are left as they are, too.
"""

import errno
import os

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
"""
OWN = ("kill", "tgkill")  # only to this process
SCHEDULING = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")  # others could read these
SELF = ("prlimit64", *SCHEDULING)  # only on itself: 0
CLONE_THREAD = 0x10000
# Commands of fcntl, by number: leases, events of a folder, signals for others.
FCNTL = (8, 10, 15, 1024, 1025, 1026)
LOCKS = (6, 7, 37, 38)  # locks of a process and of an open file
CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep")
OF_PROCESSES = 0x80000000  # clock ids from here on belong to processes and threads


def available() -> bool:
    return pyseccomp is not None


def restrict() -> None:
    """Refuse these calls in this process for good. `no_new_privs` must be set; pyseccomp must be installed."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    denied, arg = pyseccomp.ERRNO(errno.EPERM), pyseccomp.Arg
    for name in DENIED.split():
        _rule(rules, denied, name)
    _rule(rules, pyseccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags cannot be seen: the C library falls back on clone
    _rule(rules, denied, "clone", arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    for name in OWN:
        _rule(rules, denied, name, arg(0, pyseccomp.NE, os.getpid()))
    for name in SELF:
        _rule(rules, denied, name, arg(0, pyseccomp.NE, 0))
    for command in FCNTL:
        _rule(rules, denied, "fcntl", arg(1, pyseccomp.EQ, command))
    nothing = pyseccomp.ERRNO(0)  # the call does nothing and returns 0
    _rule(rules, nothing, "flock")
    for command in LOCKS:
        _rule(rules, nothing, "fcntl", arg(1, pyseccomp.EQ, command))
    for name in SCHEDULING:
        _rule(rules, nothing, name, arg(0, pyseccomp.EQ, 0))
    for name in CLOCKS:
        _rule(rules, denied, name, arg(0, pyseccomp.GE, OF_PROCESSES))
    rules.load()


def _rule(rules, action, name: str, *args) -> None:
    try:
        rules.add_rule(action, name, *args)
    except (ValueError, OSError, RuntimeError) as error:
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:  # this processor has the call: refuse it
            raise OSError(f"seccomp: no rule for {name}") from error
