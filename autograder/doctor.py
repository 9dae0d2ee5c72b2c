"""Attacks on the sandbox by canaries: what a student's code could do here, tried out in a worker like any other."""

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder.sessions import mpi_team
from autograder.sessions.errors import StudentError
from autograder.sessions.remote import RemoteSession
from autograder.walls import landlock, namespaces, sandbox, syscalls
from autograder.walls.zygote import Zygote
from hpcdl.cluster.launcher import LauncherError

# Each function returns what it got hold of; an exception, or nothing, is a wall that holds.
ATTACKS = """
import os, signal, socket, stat, subprocess

def read(path):
    return len(open(path, "rb").read())

def names(path):
    return sorted(os.listdir(path))

def write(path):
    with open(path, "w") as file:
        return file.write("canary")

def connect(port):
    return str(socket.create_connection(("127.0.0.1", port), timeout=2))

def connect_unix(path):
    reached = socket.socket(socket.AF_UNIX)
    reached.connect(path)
    return path

def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    return os.waitpid(child, 0)

def run(program):
    return subprocess.run([program, "-c", ""]).returncode

def connections():
    found = [number for number in range(128) if is_socket(number)]
    if len(found) == 1:
        raise ConnectionError("there is none but the grader's")
    return found

def is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False

def signal_to(pid):
    return os.kill(pid, 0) or "it could"
"""

CELLS = [("attacks", ATTACKS)]
PLANTED = Path(sys.prefix, f"hpcdl_canary_{os.getpid()}")


@dataclass(frozen=True)
class AttackOutcome:
    """One attack: what it tried, whether the wall held, and what came of it."""

    title: str
    held: bool
    said: str


def needs() -> dict[str, bool]:
    """What the tiers are made of, and whether it is there."""
    return {
        f"Landlock (version {landlock.version()})": landlock.version() > 0,
        "seccomp (pip install pyseccomp)": syscalls.available(),
        "user namespaces (a container needs to allow them)": namespaces.available(),
        "a spare user id (for root, where Python's files are open to all)": bool(sandbox.spare_uid()),
    }


def attack(mpi: bool = False) -> list[AttackOutcome]:
    """The findings of all attacks, from a worker of the tier that this system has. It touches what it makes alone.

    With `mpi` the worker is a rank of a real MPI; LauncherError where there is none.
    """
    with contextlib.ExitStack() as stack:
        target, folder = (stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2))
        stack.callback(PLANTED.unlink, missing_ok=True)
        port, address = stack.enter_context(_listening(target))
        other = Path(target, "other.ipynb")
        other.write_text("another student's submission")
        zygote = stack.enter_context(Zygote())
        session = stack.enter_context(_rank(zygote) if mpi else RemoteSession(zygote, CELLS, folder))
        attempts: dict[str, tuple[str, *tuple[object, ...]]] = {  # what it would be -> the function, its arguments
            "read another submission": ("read", str(other)),
            "list the other submissions": ("names", target),
            "read the checks": ("read", str(sandbox.PACKAGE / "checks" / "ladder.py")),
            "list the exercises": ("names", str(sandbox.PACKAGE / "exercises")),
            "list the home folder": ("names", os.path.expanduser("~")),
            "read the accounts of this machine": ("read", "/etc/passwd"),
            "read the grader's environment": ("read", f"/proc/{os.getpid()}/environ"),
            "write beside another submission": ("write", str(Path(target, "written"))),
            "write into Python's packages": ("write", str(PLANTED)),
            "reach a service of this machine": ("connect", port),
            "reach a service by its socket file": ("connect_unix", address),
            "find a connection that was left open": ("connections",),
            "start a process": ("fork",),
            "run a program": ("run", sys.executable),
            "signal the grader": ("signal_to", os.getpid()),
            "signal the zygote": ("signal_to", 1),
        }
        return [_finding(session, title, *attempt) for title, attempt in attempts.items()]


def from_a_rank() -> AttackOutcome:
    """All of them from a rank of a real MPI, in one finding; where there is no MPI there is nothing to wall in."""
    title = "do any of this from a rank of a real MPI"
    try:
        broken = [finding.title for finding in attack(mpi=True) if not finding.held]
    except LauncherError as error:
        return AttackOutcome(title, True, f"not tried: {error}")
    return AttackOutcome(title, not broken, f"it can: {', '.join(broken)}" if broken else "refused, all of it")


@contextlib.contextmanager
def _rank(zygote: Zygote) -> Iterator[RemoteSession]:
    with mpi_team.team(zygote, CELLS) as ranks:
        ranks.start_check(mpi_team.SECONDS)
        yield ranks.ranks[0]


def _finding(session: RemoteSession, title: str, name: str, *args) -> AttackOutcome:
    session.start_check(10)
    try:
        got = getattr(session.student, name)(*args)
    except StudentError as error:
        # an attack that never ran has proved nothing
        return AttackOutcome(title, error.kind == "exception", f"refused ({error.type}: {error.text[:60]})")
    return AttackOutcome(title, False, f"it can: {str(got)[:60]}")


@contextlib.contextmanager
def _listening(folder: str) -> Iterator[tuple[int, str]]:
    """A TCP port of this machine and a socket file on which something answers."""
    address = str(Path(folder, "service"))
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(address)
        unix.listen()
        yield tcp.getsockname()[1], address
