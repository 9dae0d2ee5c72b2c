"""What the kernel counts for a user, or wakes on a page that all processes map, tells a rank nothing of another."""

import platform

import pytest

from autograder import doctor
from autograder.sessions.errors import StudentError
from autograder.walls import sandbox

pytestmark = [
    pytest.mark.labs,  # Numba compiles
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its system calls are those of x86-64"),
    pytest.mark.skipif(sandbox.tier() == "weak", reason=f"no sandbox on this system: {doctor.needs()}"),
]

COUNTS = """
import fcntl, os, resource, signal, socket, threading
import numba
import numpy as np
from numba.types import ExternalFunction, int64

system_call = ExternalFunction("syscall", int64(*[int64] * 7))
SET_PIPE_SIZE, FCNTL, FUTEX, TIMER_CREATE, SETRLIMIT, SET_TID_ADDRESS = 1031, 72, 202, 222, 160, 218
WAKE, WAKE_SOME, PRIVATE = 1, 10, 128

@numba.njit(nogil=True)
def call(number, *args):
    a, b, c, d, e, f = args
    return system_call(number, a, b, c, d, e, f)

def pages_of_pipes():
    return fcntl.fcntl(os.pipe()[1], SET_PIPE_SIZE, 1 << 20)

def pages_of_pipes_in_machine_code():
    return done(FCNTL, os.pipe()[1], SET_PIPE_SIZE + (1 << 32), 1 << 20)

def descriptors_in_flight():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return socket.send_fds(one, [b"x"], [0])

def timers():
    return done(TIMER_CREATE, 1, 0, np.zeros(1, np.int64).ctypes.data)

def signals_that_wait():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    return signal.pthread_kill(threading.get_ident(), signal.SIGRTMIN)

def signals_of_the_process():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMAX])
    return os.kill(os.getpid(), signal.SIGRTMAX)

def addresses_of_threads():
    return done(SET_TID_ADDRESS, 0)

def sleepers():
    return done(FUTEX, np.zeros(1, np.uint32).ctypes.data, WAKE, 1)

def some_sleepers():
    return done(FUTEX, np.zeros(1, np.uint32).ctypes.data, WAKE_SOME, 1, 0, 0, -1)

def reads_that_waited_for_the_disk():
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock

def done(number, *args):
    got = call(number, *args, *[0] * (6 - len(args)))
    if got < 0:
        raise PermissionError
    return got

def threads_of_the_user():
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
    call(SETRLIMIT, resource.RLIMIT_NPROC + (1 << 32), np.ones(2, np.int64).ctypes.data, 0, 0, 0, 0)
    if resource.getrlimit(resource.RLIMIT_NPROC) == before:
        raise PermissionError
    return "its limit shows how many there are"

def own():
    memory = np.zeros(1, np.uint32)
    return int(call(FUTEX, memory.ctypes.data, WAKE | PRIVATE, 1, 0, 0, 0))
"""
WAYS = (
    "pages_of_pipes",
    "pages_of_pipes_in_machine_code",
    "descriptors_in_flight",
    "timers",
    "signals_that_wait",
    "signals_of_the_process",
    "addresses_of_threads",
    "threads_of_the_user",
    "sleepers",
    "some_sleepers",
    "reads_that_waited_for_the_disk",
)


def test_no_count_is_shared(remote):
    session = remote(COUNTS)
    session.start_check(60)
    found = {}
    for way in WAYS:
        try:
            found[way] = getattr(session.student, way)()
        except StudentError as error:
            found[way] = error.type
    assert found == dict.fromkeys(WAYS, "PermissionError")
    assert session.student.own() == 0  # threads still wake each other
