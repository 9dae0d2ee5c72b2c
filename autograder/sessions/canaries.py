"""Canaries: attacks that a student's code could try, run in a worker like any other.

Every grader sends them through its own walls before the first submission; `autograder doctor` shows what each found.
"""

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder.walls import sandbox
from autograder.walls.zygote import Zygote

from . import mpi_team
from .errors import StudentError
from .remote import RemoteSession

# Each function returns what it could access; an exception, or nothing, means that the wall holds.
ATTACKS = """
import os, signal, socket, stat, subprocess

def read(path):
    return len(open(path, "rb").read())

def read_in_c(path):  # Python's audit events do not hear it, so only the kernel can refuse
    import torch
    return torch.from_file(path, size=os.stat(path).st_size, dtype=torch.uint8).numel()

def names(path):
    return sorted(os.listdir(path))

def write(path):
    with open(path, "w") as file:
        return file.write("canary")

def change(path):
    "Change what the kernel stores about a file: the file itself need not be open."
    before = stored(path)
    os.chmod(path, 0o604)
    os.utime(path, (1, 1))
    if stored(path) == before:
        raise PermissionError("its mode and times are as they were")
    return stored(path)

def stored(path):
    found = os.stat(path)
    return oct(found.st_mode), found.st_mtime_ns

def mark(path):
    return os.setxattr(path, "user.canary", b"seen") or "it could"

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

def find(pid):
    return os.getpgid(pid), os.sched_getaffinity(pid), os.getpriority(os.PRIO_PROCESS, pid)

def signal_to(pid):
    return os.kill(pid, 0) or "it could"
"""

CELLS = [("attacks", ATTACKS)]
PLANTED = Path(sys.prefix, f"hpcdl_canary_{os.getpid()}")


class WallError(RuntimeError):
    """A wall that the report promises does not hold; the message says what student code could do here."""


@dataclass(frozen=True)
class AttackOutcome:
    """One attack: what it tried, whether the wall held, and the outcome."""

    title: str
    held: bool
    said: str


def require(zygote: Zygote) -> None:
    """Raise WallError if a canary gets through the walls of this zygote's workers; weak walls promise nothing."""
    if zygote.walls == "weak":
        return
    if broken := [f"{outcome.title} ({outcome.said})" for outcome in attack(zygote) if not outcome.held]:
        raise WallError(f"the walls ({zygote.walls}) have a hole: a student's code can {'; '.join(broken)}")


def attack(zygote: Zygote, mpi: bool = False) -> list[AttackOutcome]:
    """Run each attack from a worker of `zygote`, and return the outcomes. Attacks touch only what they create.

    With `mpi` the worker is a rank of a real MPI; raises LauncherError without an MPI.
    """
    with contextlib.ExitStack() as stack:
        target, folder = (stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2))
        stack.callback(PLANTED.unlink, missing_ok=True)
        port, address = stack.enter_context(_listening(target))
        Path(target, "other.ipynb").write_text("another student's submission")
        session = stack.enter_context(_rank(zygote) if mpi else RemoteSession(zygote, CELLS, folder))
        return [_finding(session, title, *attempt) for title, attempt in _attempts(target, port, address).items()]


def _attempts(target: str, port: int, address: str) -> dict[str, tuple]:
    """Return, for each attack by its aim, the function of ATTACKS and its arguments."""
    return {
        "read another submission": ("read", str(Path(target, "other.ipynb"))),
        "list the other submissions": ("names", target),
        "read the checks": ("read_in_c", str(sandbox.PACKAGE / "checks" / "ladder.py")),
        "list the exercises": ("names", str(sandbox.PACKAGE / "exercises")),
        "list the home folder": ("names", os.path.expanduser("~")),
        "read the accounts of this machine": ("read", "/etc/passwd"),
        "read the grader's environment": ("read", f"/proc/{os.getpid()}/environ"),
        "write beside another submission": ("write", str(Path(target, "written"))),
        "write into Python's packages": ("write", str(PLANTED)),
        "change another submission's mode and times": ("change", str(Path(target, "other.ipynb"))),
        "mark another submission with an attribute": ("mark", str(Path(target, "other.ipynb"))),
        "reach a service of this machine": ("connect", port),
        "reach a service by its socket file": ("connect_unix", address),
        "find a connection that was left open": ("connections",),
        "start a process": ("fork",),
        "run a program": ("run", sys.executable),
        "find another process": ("find", 1),
        "signal the grader": ("signal_to", os.getpid()),
        "signal the zygote": ("signal_to", 1),
    }


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
        # an attack that never ran proves nothing
        return AttackOutcome(title, error.kind == "exception", f"refused ({error.type}: {error.text[:60]})")
    return AttackOutcome(title, False, f"it can: {str(got)[:60]}")


@contextlib.contextmanager
def _listening(folder: str) -> Iterator[tuple[int, str]]:
    """Provide a TCP port and a socket file that answer."""
    address = str(Path(folder, "service"))
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(address)
        unix.listen()
        yield tcp.getsockname()[1], address
