"""Engines for tests of a live cluster, and a real Slurm of one node in a folder of its own, on ports of its own.

What ranks call is defined inside tests and fixtures, so that it is pickled by value, as a notebook's functions are:
engines cannot import the tests.
"""

import contextlib
import inspect
import os
import shutil
import signal
import socket
import subprocess
import time
import warnings
from pathlib import Path

import psutil
import pytest

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning
from hpcdl.cluster.launcher import LauncherError, find_launcher

# -- engines ----------------------------------------------------------------------------------------------------------


def started(n: int, **options) -> Cluster:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        return Cluster(n, **options).start()


@pytest.fixture(name="started")
def started_fixture():
    """`started(n)` is a cluster of n engines that says nothing of how many cores there are."""
    return started


@pytest.fixture(scope="module")
def cluster(need):
    try:
        find_launcher()
    except LauncherError as error:
        need("mpi", False, str(error))
    with started(4) as running:
        yield running


@pytest.fixture(scope="module")
def pair(cluster):
    """Two engines, for what ends in a restart: two are up again sooner than four."""
    with started(2) as running:
        yield running


@pytest.fixture
def who():
    def who(comm):
        return comm.rank, os.getpid()

    return who


@pytest.fixture
def failure(who):
    """`failure(cluster, f)`: the message of the one error that `f` ends in, and its seconds; the next run must work."""

    def failure(cluster, f, *args, timeout=20.0, **options) -> tuple[str, float]:
        cluster.run(who)
        begin = time.perf_counter()
        with pytest.raises(ClusterError) as caught:
            cluster.run(f, *args, timeout=timeout, **options)
        seconds = time.perf_counter() - begin
        assert [rank for rank, _ in cluster.run(who)] == list(range(cluster.n))
        return str(caught.value), seconds

    return failure


@pytest.fixture
def line():
    """`line(f, text)`: where `text` stands in `f`, as messages write it."""

    def line(f, text: str) -> str:
        lines, first = inspect.getsourcelines(f)
        found = first + next(i for i, code in enumerate(lines) if text in code)
        return f"{Path(inspect.getsourcefile(f)).name}, line {found}"

    return line


@pytest.fixture
def alive():
    """`alive(pid)`: whether that process runs."""

    def alive(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return alive


# -- Slurm ------------------------------------------------------------------------------------------------------------

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
SBIN = "/usr/sbin:/sbin"


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}")


@pytest.fixture(scope="session")
def slurm(need, tmp_path_factory):
    """The environment (SLURM_CONF) of a running one-node Slurm with all cores of this machine."""
    absent = [name for name in PROGRAMS if program(name) is None]
    need("slurm", not absent, f"apt-get install slurm-wlm munge (absent: {', '.join(absent)})")
    need("slurm", os.geteuid() == 0, "slurmd runs as root only")
    folder = Path(tmp_path_factory.mktemp("slurm"))
    with contextlib.ExitStack() as stack:
        socket_path = _munge(folder, stack)
        yield _slurm(folder, socket_path, stack)


def _munge(folder: Path, stack) -> Path:
    """munged with a key of its own; it insists on folders that nobody else may write."""
    home = folder / "munge"
    home.mkdir(mode=0o755)
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055 if parent != Path("/tmp") else parent.stat().st_mode)
    key, path = home / "key", home / "socket"
    subprocess.run([program("mungekey"), "--create", f"--keyfile={key}"], check=True, timeout=20)
    key.chmod(0o400)
    _start(
        stack,
        folder / "munged.log",
        *(program("munged"), "--foreground", "--force", f"--socket={path}", f"--key-file={key}"),
        *(f"--pid-file={home / 'pid'}", f"--log-file={home / 'log'}", f"--seed-file={home / 'seed'}"),
    )
    _until(path.exists, "munged to listen", folder / "munged.log")
    return path


def _slurm(folder: Path, munge_socket: Path, stack) -> dict:
    host, cores = socket.gethostname().split(".")[0], os.cpu_count()
    controller_port, node_port = _free_port(), _free_port()
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(
        f"""
ClusterName=hpcdl
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={munge_socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,defer
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
"""
    )
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:{SBIN}"}
    for daemon in ("slurmctld", "slurmd"):
        _start(stack, folder / f"{daemon}.log", program(daemon), "-D", "-f", str(conf), env=environment)

    def idle() -> bool:
        run = subprocess.run([program("sinfo"), "-h", "-o", "%t"], env=environment, capture_output=True, text=True)
        return run.stdout.strip() in ("idle", "mix", "alloc")

    _until(idle, "the node to be idle", folder / "slurmctld.log", folder / "slurmd.log")
    return environment


def _start(stack, log: Path, *command, env=None) -> None:
    """Run a daemon in the foreground until the fixture ends; only what was started here is ended."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)

    def stop():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)

    stack.callback(stop)


def _until(condition, what: str, *logs: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            texts = "\n".join(log.read_text()[-1500:] for log in logs)
            pytest.fail(f"waited {seconds} s for {what}:\n{texts}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
