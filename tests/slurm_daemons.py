"""A Slurm of one node on this machine, for tests: munged, slurmctld and slurmd, each with files of its own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
SBIN = "/usr/sbin:/sbin"
PATIENCE = 30.0  # seconds for a daemon to do what takes it one
# Of this one, and of the one on several hosts: tests/hpcdl/cluster/hosts.py.
SETTINGS = """SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,defer
"""
STARTS = 3  # of slurmd, which now and then hangs before it has registered its node


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}")


def start(folder: Path, ports: tuple[int, int], stack: contextlib.ExitStack) -> dict:
    """Start the daemons, until `stack` ends, and return the environment of a client (SLURM_CONF)."""
    conf, logs = folder / "slurm.conf", {name: folder / f"{name}.log" for name in ("slurmctld", "slurmd")}
    conf.write_text(_configuration(folder, ports, _munge(folder, stack)))
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:{SBIN}"}

    def is_idle() -> bool:
        run = subprocess.run([program("sinfo"), "-h", "-o", "%t"], env=environment, capture_output=True, text=True)
        return run.stdout.strip() in ("idle", "mix", "alloc")

    def begin(name: str, until: contextlib.ExitStack) -> None:
        _start(until, logs[name], program(name), "-D", "-f", str(conf), env=environment)

    begin("slurmctld", stack)
    for _ in range(STARTS):
        with contextlib.ExitStack() as slurmd:
            begin("slurmd", slurmd)
            if _comes_true(is_idle):
                stack.push(slurmd.pop_all())
                return environment
    _give_up("the node to be idle", *logs.values())


def _munge(folder: Path, stack: contextlib.ExitStack) -> Path:
    """munged with a key of its own; it insists on folders that no one else may write."""
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
    if not _comes_true(path.exists):
        _give_up("munged to listen", folder / "munged.log")
    return path


def _configuration(folder: Path, ports: tuple[int, int], munge_socket: Path) -> str:
    host, cores = socket.gethostname().split(".")[0], os.cpu_count()
    for name in ("state", "spool"):
        (folder / name).mkdir()
    return f"""
ClusterName=hpcdl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthInfo=socket={munge_socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
{SETTINGS}NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
"""


def _start(stack: contextlib.ExitStack, log: Path, *command, env=None) -> None:
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


def _comes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return is_true


def _give_up(what: str, *logs: Path) -> NoReturn:
    texts = "\n".join(log.read_text()[-1500:] for log in logs)
    pytest.fail(f"waited {PATIENCE:.0f} s for {what}:\n{texts}")
