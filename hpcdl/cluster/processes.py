"""The processes of a cluster: the controller and the engines that mpiexec starts, and the end of exactly those."""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

import psutil

from hpcdl.cluster import lifeline
from hpcdl.cluster.diagnosis import ClusterError
from hpcdl.cluster.launcher import without_job
from hpcdl.cluster.watcher import DIRECTORY

ERROR = re.compile(r"\berror\b|\bfatal\b|abort\(|no such file|not found|cannot|unable to", re.IGNORECASE)
START_SECONDS = 60  # a machine that needs longer to start the engines has another problem


class OversubscribedWarning(UserWarning):
    """More engines than cores: they take turns."""


class Engines(Protocol):
    """What a cluster needs to know and to have done; `engine_sets` has those of mpiexec and of Slurm."""

    patience: int  # seconds
    elsewhere: bool  # not all of them are processes of this machine

    def start(self, directory: Path) -> None: ...

    def confirm(self) -> None: ...

    def why_ended(self) -> str | None: ...

    def stop(self) -> None: ...


class Processes:
    """A controller and `engines` (of `engine_sets`) in a directory of their own in `parent`, which `stop` removes."""

    def __init__(self, engines: Engines, parent: Path | None = None):
        self.engines = engines
        self.directory = Path(tempfile.mkdtemp(prefix="hpcdl-cluster-", dir=parent or runtime_folder()))
        self.controller: subprocess.Popen | None = None
        self.shared_memory: set[str] = set()  # files that killed engines would leave behind

    def start_controller(self) -> None:
        # The hub counts an engine as started after two heartbeats, which by default are 3 s apart. Whether an engine
        # on this machine lives is asked of its process; of one elsewhere, missed heartbeats show it (30: 9 s).
        misses = 30 if self.engines.elsewhere else 1000
        self.controller = start(
            "controller",
            self.directory,
            [sys.executable, "-m", "hpcdl.cluster.controller", f"--profile-dir={self.directory}"],
            ["--IPController.use_threads=True", "--IPController.broadcast_scheduler_depth=0", "--nodb"],
            ["--HeartMonitor.period=300", f"--HeartMonitor.max_heartmonitor_misses={misses}"],
            ["--ip=*"] if self.engines.elsewhere else [],
        )

    def start_engines(self) -> None:
        self.connection("engine")  # the engines read the file
        self.engines.start(self.directory)

    def connection(self, side: str) -> dict:
        """How to reach the controller, for "engine" or "client"; waits until the controller has written it."""
        file = self.directory / "security" / f"ipcontroller-{side}.json"
        for _ in until(START_SECONDS):
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads(file.read_text())
            assert self.controller is not None  # it is started first
            if self.controller.poll() is not None:
                break
        raise ClusterError(f"the controller did not start:\n{self.log('controller')}")

    def log(self, name: str, lines: int = 12) -> str:
        """The last lines of what "controller" or "engines" printed."""
        with contextlib.suppress(OSError):
            return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        return ""

    def first_error(self) -> str:
        """The first line in the log of the engines that reads as an error; empty if there is none."""
        with contextlib.suppress(OSError):
            lines = (self.directory / "engines.log").read_text(errors="replace").splitlines()
            return next((line.strip() for line in lines if ERROR.search(line)), "")
        return ""

    def stop_engines(self) -> None:
        self.engines.stop()
        for file in self.shared_memory:
            with contextlib.suppress(OSError):
                os.unlink(file)
        self.shared_memory.clear()

    def stop(self) -> None:
        self.stop_engines()
        end(self.controller)
        self.controller = None
        shutil.rmtree(self.directory, ignore_errors=True)


def runtime_folder() -> Path | None:
    """Jupyter's folder for what lives as long as a kernel: nobody sweeps it, as /tmp is swept. None: no such place."""
    from jupyter_core.paths import jupyter_runtime_dir

    folder = Path(jupyter_runtime_dir())
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder if os.access(folder, os.W_OK) else None


def environment(directory: Path) -> dict[str, str]:
    """What controller and engines must know of this kernel."""
    return {DIRECTORY: str(directory), **lifeline.environment()}


def start(name: str, directory: Path, *command: list[str], job: bool = True, **more: str) -> subprocess.Popen:
    """Start a program that prints into `directory`/`name`.log, with `more` in its environment.

    Without the variables of a job (`launcher.without_job`) where `job` is False.
    """
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*itertools.chain(*command)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=(dict(os.environ) if job else without_job(os.environ)) | environment(directory) | more,
            start_new_session=True,  # Ctrl-C in the notebook is for the notebook: it tells the engines itself
        )


def until(seconds: float, pause: float = 0.01):
    """Iterate, with pauses, until so many seconds have passed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(pause)


def alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and whose parent has not asked how (a zombie) does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(process: subprocess.Popen | None) -> None:
    """End a process and all that it started, at once: there is nothing in them to save."""
    if process is None:
        return
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    for _ in until(2):
        if not any(alive(member) for member in family):
            break
