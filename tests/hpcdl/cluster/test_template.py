"""Engines are forked from one process that has imported what they need, and end as if mpiexec had started them."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from hpcdl.cluster import engine_sets, lifeline, stand_in, watcher
from hpcdl.cluster.processes import listening
from hpcdl.cluster.template import Template

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each engine starts by itself")


@pytest.mark.mpi
def test_engines_share_one_import(cluster):
    """The template is their parent; nothing of chance is shared."""

    def draws(comm):
        import random

        import numpy

        return os.getppid(), random.random(), numpy.random.rand()

    parents, *drawn = zip(*cluster.run(draws), strict=True)
    assert {*parents} == {cluster._processes.template.pid}
    assert [len({*values}) for values in drawn] == [cluster.n] * 2


@pytest.mark.mpi
@pytest.mark.labs  # an engine without a template imports torch by itself
def test_engines_start_without_a_template(pair, failure, who):
    """Killed, it takes its engines with it; the next ones start by themselves."""
    template = pair._processes.template

    def kill(comm, process):
        if comm.rank == 0:
            os.kill(process, signal.SIGKILL)
        signal.pause()

    message, _ = failure(pair, kill, template.pid)
    assert "died (its process was killed from outside" in message
    parents = pair.run(lambda comm: os.getppid())
    assert template.wait(10) == -signal.SIGKILL
    assert len({*parents}) == 2


IMPORTED = """
import pkgutil, sys, threading
import torch
asked = []
torch.cuda.is_available = lambda: asked.append(1)
from hpcdl.cluster import processes, template
names = [
    module.name
    for part in processes.OF_RANKS
    for module in pkgutil.walk_packages(__import__(part, fromlist=["*"]).__path__, part + ".")
    if not module.name.endswith("__main__")
]
template.import_all(names)
print(len(names) > 50, *(name for name in names if name not in sys.modules))
print(asked, "mpi4py.MPI" in sys.modules, "torch._dynamo" in sys.modules, threading.active_count())
"""


@pytest.mark.labs  # imports all that ranks may need
def test_a_template_asks_for_no_gpu_and_starts_nothing():
    """A GPU that was asked for before a fork cannot be used after it; no lock of another thread would ever open."""
    said = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["True", "[] False False 1"]


SERVED = """
import os, socket, sys
from hpcdl.cluster.template import Template, become
become(Template(socket.socket(fileno=0)).serve())
print(os.getpid(), os.getppid(), os.getcwd(), sys.argv[1:], flush=True)
exec(os.environ["ENGINE"])
"""


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """`begin(code)`: a stand-in whose engine runs `code`, its kernel and its template; they end with the test."""
    folder, kernel = tmp_path / ("long" * 50), subprocess.Popen(["sleep", "300"])
    folder.mkdir()
    known = f"{lifeline.machine()} {kernel.pid} {psutil.Process(kernel.pid).create_time()}"
    monkeypatch.setenv(lifeline.VARIABLE, known)
    monkeypatch.setenv(watcher.DIRECTORY, str(folder))
    started = [kernel]

    def begin(code: str) -> list[subprocess.Popen]:
        with listening(folder) as listener:
            started.append(subprocess.Popen([sys.executable, "-c", SERVED], stdin=listener))
        command = [*engine_sets.STAND_IN, "-P", "-m", "engine", "--mpi"]
        environment = os.environ | {"ENGINE": code}
        started.insert(0, subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd="/"))
        return started

    yield begin
    for process in started:
        process.kill()
        process.wait()
    started[0].stdout.close()


@pytest.mark.parametrize(("code", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("", 0)])
def test_a_stand_in_ends_as_its_engine(begin, code, status):
    standing, _, template = begin(code)
    pid, parent, *said = standing.stdout.readline().decode().split(maxsplit=2)
    assert int(parent) == template.pid
    assert int(pid) != standing.pid
    assert said == ["/ ['--mpi']\n"]
    assert standing.wait(30) == status


@pytest.mark.parametrize("gone", [0, 1, 2], ids=["stand-in", "kernel", "template"])
def test_an_engine_that_hangs_ends_with_the_others(begin, gone):
    """Also while it holds the interpreter's lock, as in MPI's start."""
    started = begin("import ctypes; print('hangs', flush=True); ctypes.PyDLL(None).sleep(300)")
    engine = psutil.Process(int(started[0].stdout.readline().split()[0]))
    assert started[0].stdout.readline() == b"hangs\n"
    started[gone].kill()
    started[gone].wait()
    engine.wait(30)
    assert started[0].wait(30)


@pytest.mark.parametrize(("parent", "status"), [("os.getppid()", 0), ("os.getpid()", -signal.SIGKILL)])
def test_a_process_ends_whose_parent_has_ended(parent, status):
    """Also if that was before the process asked Linux to end it."""
    code = f"import os; from hpcdl.cluster import lifeline; lifeline.end_with_parent({parent})"
    assert subprocess.run([sys.executable, "-c", code]).returncode == status


def test_a_stand_in_without_a_template_is_the_engine(tmp_path):
    environment = os.environ | {watcher.DIRECTORY: str(tmp_path)}
    command = [*engine_sets.STAND_IN, "-c", "import os, numpy; print(os.getpid())"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert int(process.stdout.read()) == process.pid


@pytest.mark.parametrize("said", [b"", b"\0\0\0", (100).to_bytes(8, "big") + b'{"options"'])
def test_a_stand_in_that_ends_while_it_asks(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with listening(tmp_path) as listener, socket.socket(socket.AF_UNIX) as line:
        line.connect(stand_in.SOCKET)
        line.send(said)
        line.close()
        template = Template(listener)
        assert template._fork() is None
        assert template._engines == {}
