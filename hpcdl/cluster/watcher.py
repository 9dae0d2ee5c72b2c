"""A thread next to a rank: it interrupts the rank when its time is up, and records the rank's current line in a black
box.

It runs even while the main thread is in C code or in an endless loop. The black box is a small file that the notebook's
side reads when a rank does not answer or has died.
"""

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpcdl.comm.location import SourceLine, lines_of
from hpcdl.files import write_whole
from hpcdl.lazy import is_importing

if TYPE_CHECKING:
    from hpcdl.comm.mpi import MPIComm

DIRECTORY = "HPCDL_CLUSTER_DIR"
PERIOD = 0.05  # seconds between checks
SIGNAL = getattr(signal, "SIGUSR2", signal.SIGINT)


class Interrupted(BaseException):
    """The rank must stop: its time is up, another rank failed, or the user pressed Ctrl-C."""


def name() -> str:
    """Return a name for this process that is unique over all machines."""
    return f"{socket.gethostname()}-{os.getpid()}"


def black_box(directory: Path, name: str) -> Path:
    """Return the file in which the watcher of process `name` records its rank's position (JSON)."""
    return directory / f"rank-{name}.json"


def crash_report(directory: Path, name: str) -> Path:
    """Return the file for the stack of process `name` when it crashes, for example with a segmentation fault."""
    return directory / f"crash-{name}.txt"


def cancel_flag(directory: Path, run: int) -> Path:
    """Return the file whose existence tells every rank to stop `run`."""
    return directory / f"cancel-{run}"


class Watcher:
    """Watches the main thread of this process during a run."""

    def __init__(self):
        self.directory = Path(os.environ[DIRECTORY])
        self.comm: MPIComm | None = None  # the rank's communicator, which knows its waits
        self._run: int | None = None  # the current run, None between runs
        self._on = threading.Event()
        self._box = black_box(self.directory, name())
        for stale in (self._box, crash_report(self.directory, name())):  # after a reboot a host gives the same numbers
            stale.unlink(missing_ok=True)
        self._last: dict | None = None
        self._writing, self._ended = threading.Lock(), False

    def install(self) -> None:
        """Handle the signal, wrap os._exit, and start to watch; call it once, in the main thread."""
        signal.signal(SIGNAL, self._interrupt)
        exit_process, process = os._exit, os.getpid()

        def recorded_exit(status):
            # Nothing else could tell later at which line the process ended itself. A forked process has no box of its
            # own.
            if self._run is not None and os.getpid() == process:
                self._write(*_seen(sys._getframe(1)), f"os._exit({status})")
            exit_process(status)

        os._exit = recorded_exit
        threading.Thread(target=self._watch, name="watcher", daemon=True).start()

    @contextlib.contextmanager
    def watching(self, run: int, timeout: float):
        """Watch the block; Interrupted is raised in it after `timeout` seconds, or when the run is cancelled."""
        self._crash = crash_report(self.directory, name()).open("w")
        faulthandler.enable(file=self._crash)
        self.deadline = time.monotonic() + timeout
        self.comm, self._run, self._ended = None, run, False  # an os._exit may have been interrupted
        self._on.set()
        try:
            yield
        finally:
            self._run = None
            self._on.clear()

    def _interrupt(self, _signal, frame):
        # A rank that imports is asked again soon; if it keeps importing, the notebook's side ends it.
        if self._run is not None and not is_importing(frame):
            raise Interrupted

    def _watch(self):
        main = threading.main_thread().ident
        assert main is not None  # it has been started
        while True:
            self._on.wait()
            time.sleep(PERIOD)
            run = self._run
            if run is None:
                continue
            with contextlib.suppress(Exception):  # a frame may end while it is read, a disk may be full
                self._write(*_seen(sys._current_frames().get(main)))
            if time.monotonic() > self.deadline or cancel_flag(self.directory, run).exists():
                signal.pthread_kill(main, SIGNAL)  # a real signal: it also ends a sleep
                time.sleep(4 * PERIOD)

    def _write(self, stack: list[SourceLine], importing: bool, end: str | None = None) -> None:
        state = {"run": self._run, "stack": stack, "waiting": self.waiting(), "end": end, "importing": importing}
        with self._writing:
            if state == self._last or self._ended:  # never overwrite how it ended
                return
            self._last, self._ended = state, end is not None
            write_whole(self._box, json.dumps(state), durable=False)

    def waiting(self) -> dict | None:
        """Return the communicator's current wait, as text and ranks; None if it does not wait."""
        return self.comm.situation() if self.comm is not None else None


def _seen(frame: FrameType | None) -> tuple[list[SourceLine], bool]:
    """Return the stack that ends in `frame`, and whether it imports, without keeping the frame.

    Holding a frame while writing a file would keep the tensors of a function that has returned meanwhile.
    """
    return lines_of(frame), is_importing(frame)


def read(directory: Path, name: str, run: int) -> dict:
    """Return the black box of process `name` in `run`, with its crash report; empty if it left nothing."""
    box = {}
    with contextlib.suppress(OSError, json.JSONDecodeError):
        box = json.loads(black_box(directory, name).read_text())
    if box.get("run") != run:  # it says where the rank stood in an earlier run
        box = {}
    with contextlib.suppress(OSError):
        box["crash"] = crash_report(directory, name).read_text()
    return box
