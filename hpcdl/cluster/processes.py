"""The processes of a cluster: start the controller and the engines, and end exactly those."""

import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from hpcdl.cluster import lifeline
from hpcdl.cluster.diagnosis import ClusterError
from hpcdl.cluster.launcher import without_job
from hpcdl.cluster.stand_in import SOCKET
from hpcdl.cluster.watcher import DIRECTORY

ERROR = re.compile(r"\berror\b|\bfatal\b|abort\(|no such file|not found|cannot|unable to", re.IGNORECASE)
FROM_LIBRARIES = ("-P", "-m")  # whatever else is in the notebook's folder: a random.py, a queue.py
# If the notebook has imported parts of these, its runs will need them.
OF_RANKS = tuple(f"hpcdl.{part}" for part in ("collectives", "ddp", "parallel", "sharding", "consistency", "training"))
START_SECONDS = 60  # if starting takes longer, the machine has another problem


class OversubscribedWarning(UserWarning):
    """There are more engines than cores: they take turns."""


class Engines(Protocol):
    """The interface of a set of engines; `engine_sets` implements it for mpiexec and Slurm."""

    patience: int  # seconds
    elsewhere: bool  # some of them run on other machines
    forked: bool  # from a template, which is on this machine
    variables: dict[str, str]  # in the environment of each

    def start(self, directory: Path) -> None: ...

    def confirm(self) -> None: ...

    def why_ended(self) -> str | None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Engine:
    """One engine: its view, machine and name, and its process if it runs on this machine."""

    view: Any
    host: str
    name: str
    process: psutil.Process | None

    def alive(self) -> bool:
        """False once its process has ended; for an engine on another machine, ipyparallel reports it."""
        return self.process is None or alive(self.process)


class Processes:
    """A controller and `engines` (of `engine_sets`) in a new directory in `parent`, which `stop` removes."""

    def __init__(self, engines: Engines, parent: Path | None = None):
        self.engines = engines
        self.directory = Path(tempfile.mkdtemp(prefix="hpcdl-cluster-", dir=parent or runtime_folder())).absolute()
        self.controller: subprocess.Popen | None = None
        self.template: subprocess.Popen | None = None
        self.shared_memory: set[str] = set()  # files that killed engines leave behind

    def start_template(self) -> None:
        """Start the process from which engines are forked; without it each engine starts by itself."""
        if not self.engines.forked:
            return
        names = [name for name in sys.modules if name.startswith(OF_RANKS)]
        with contextlib.suppress(OSError), listening(self.directory) as listener:
            self.template = start(
                "template",
                self.directory,
                [sys.executable, *FROM_LIBRARIES, "hpcdl.cluster.template", *names],
                stdin=listener.fileno(),
                job=False,
                **self.engines.variables,
            )

    def start_controller(self) -> None:
        # The hub counts an engine as started after two heartbeats, which by default are 3 s apart. For an engine on
        # this machine, its process shows whether it lives; elsewhere, missed heartbeats do (30: 9 s).
        misses = 30 if self.engines.elsewhere else 1000
        self.controller = start(
            "controller",
            self.directory,
            [sys.executable, *FROM_LIBRARIES, "hpcdl.cluster.controller", f"--profile-dir={self.directory}"],
            ["--IPController.use_threads=True", "--IPController.broadcast_scheduler_depth=0", "--nodb"],
            ["--HeartMonitor.period=300", f"--HeartMonitor.max_heartmonitor_misses={misses}"],
            ["--ip=*"] if self.engines.elsewhere else [],
        )

    def controller_ended(self) -> bool:
        """Return whether the controller has ended by itself, or was killed."""
        return self.controller is not None and self.controller.poll() is not None

    def ended_by_chance(self, n: int) -> bool:
        """Return whether the controller has ended by itself, and no limit or full disk around it explains why."""
        from hpcdl.cluster import surroundings  # needs what Windows lacks

        return self.controller_ended() and not surroundings.causes(self.directory, n)

    def start_engines(self) -> None:
        self.connection("engine")  # the engines read the file
        self.engines.start(self.directory)

    def connection(self, side: str) -> dict:
        """Return how an "engine" or a "client" reaches the controller; wait until the controller has written it."""
        file = self.directory / "security" / f"ipcontroller-{side}.json"
        for _ in until(START_SECONDS):
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads(file.read_text())
            assert self.controller is not None  # the controller starts first
            if self.controller.poll() is not None:
                break
        raise ClusterError(f"the controller did not start:\n{self.log('controller')}")

    def log(self, name: str, lines: int = 12) -> str:
        """Return the last lines that "controller" or "engines" printed."""
        with contextlib.suppress(OSError):
            return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        return ""

    def first_error(self) -> str:
        """Return the first line in the engines' log that looks like an error, or an empty string."""
        with contextlib.suppress(OSError):
            lines = (self.directory / "engines.log").read_text(errors="replace").splitlines()
            return next((line.strip() for line in lines if ERROR.search(line)), "")
        return ""

    def stop_engines(self) -> None:
        end_children(self.template)
        self.engines.stop()
        remove(self.shared_memory)
        self.shared_memory.clear()

    def stop(self) -> None:
        self.stop_engines()
        for process in (self.controller, self.template):
            end(process)
        self.controller = self.template = None
        shutil.rmtree(self.directory, ignore_errors=True)


def runtime_folder() -> Path | None:
    """Return Jupyter's runtime folder, which is not cleaned like /tmp, or None."""
    from jupyter_core.paths import jupyter_runtime_dir

    folder = Path(jupyter_runtime_dir())
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def environment(directory: Path) -> dict[str, str]:
    """Return the variables that tell controller and engines about this kernel.

    Where warnings are errors, those of packages would end them.
    """
    warnings = {"PYTHONWARNINGS": ""} if "error" in os.environ.get("PYTHONWARNINGS", "") else {}
    return {DIRECTORY: str(directory), **lifeline.environment(), **warnings}


def start(
    name: str, directory: Path, *command: list[str], job: bool = True, stdin: Any = subprocess.DEVNULL, **more: str
) -> subprocess.Popen:
    """Start a program that prints into `directory`/`name`.log, with `more` in its environment.

    If `job` is False, a job's variables are removed (`launcher.without_job`).
    """
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*itertools.chain(*command)],
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=(dict(os.environ) if job else without_job(os.environ)) | environment(directory) | more,
            cwd=folder(directory),
            start_new_session=True,  # Ctrl-C goes only to the notebook, which tells the engines
        )


def listening(directory: Path) -> socket.socket:
    """Return a socket in `directory` on which stand-ins ask for engines."""
    listener, folder = socket.socket(socket.AF_UNIX), os.open(directory, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")  # the directory's own path may be too long
    finally:
        os.close(folder)
    listener.listen()
    return listener


def folder(otherwise: Path) -> str:
    """Return this process's folder, or `otherwise` if it is deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return str(otherwise)


def until(seconds: float, pause: float = 0.01):
    """Iterate, with pauses, for this many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(pause)


def alive(process: psutil.Process) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(process: subprocess.Popen | None) -> None:
    """Kill a process and all its children at once: there is nothing in them to save."""
    if process is not None:
        end_children(process, also=True)
        process.wait()


def end_children(process: subprocess.Popen | None, also: bool = False) -> None:
    """Kill the children of a process, and `also` the process; remove their shared memory, as MPI's start may hang."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        if process is not None:
            parent = psutil.Process(process.pid)
            family = [*parent.children(recursive=True), *([parent] if also else [])]
    files = {file for member in family for file in lifeline.shared_memory(member.pid)}
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    for _ in until(2):
        if not any(alive(member) for member in family):
            break
    remove(files)


def remove(files: Iterable[str]) -> None:
    """Remove those of the files that are there."""
    for file in files:
        with contextlib.suppress(OSError):
            os.unlink(file)
