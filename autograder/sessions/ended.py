"""How a worker ended, in words, and how much it has worked."""

import os
import signal

from autograder.boundary.channel import BROKEN, BrokenSealError
from autograder.boundary.protocol import ProtocolError

CHANNEL = "autograder.boundary.channel"  # what an answer is reported for that changes messages
TAPPED = "Your code interfered with the grader's connection: it changed a message."
KILLED = "it was killed, by itself or for want of memory"
SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "a segmentation fault",
    signal.SIGKILL: KILLED,
    signal.SIGABRT: "an abort, often for want of memory",
    signal.SIGXCPU: "it used up its processor time",
    signal.SIGXFSZ: "it wrote too large a file",
}


def is_tapped(error: Exception, status: int) -> bool:
    """Whether the worker has ended since an answer changed messages between it and the grader."""
    return isinstance(error, BrokenSealError) or os.waitstatus_to_exitcode(status) == BROKEN


def why_ended(error: Exception, status: int) -> str:
    """Say of a worker that has ended, or broken the protocol, what its code did."""
    if is_tapped(error, status):
        return TAPPED
    if isinstance(error, ProtocolError):
        return f"Your code interfered with the grader's connection ({error})."
    return describe_end(status)


def describe_end(status: int) -> str:
    """Describe the wait status of a worker that ended by itself."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"Your code ended the Python process: {SIGNALS.get(number, signal.Signals(number).name)}."
    return f"Your code ended the Python process (exit code {os.WEXITSTATUS(status)}), as os._exit does."


def processor_seconds(stat: int) -> float:
    """Return the processor seconds of all threads of a process, from a descriptor of its `/proc/.../stat`; or 0."""
    try:
        user, system = os.pread(stat, 1000, 0).rpartition(b")")[2].split()[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
