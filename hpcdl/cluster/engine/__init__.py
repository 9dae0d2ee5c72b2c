"""The code of each engine process: ipyparallel's engine, a watcher thread, the call of the user's function."""

import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from hpcdl.cluster import lifeline, watcher
from hpcdl.cluster.engine.printing import limited_output
from hpcdl.cluster.watcher import Interrupted, Watcher
from hpcdl.comm.location import lines_of_traceback

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpcdl.comm.mpi import MPIComm

_watcher: Watcher | None = None
_previous: "MPI.Intracomm | None" = None  # the communicator of the last run
_started = 0.0
_published = 0


def main() -> None:
    """Run as an engine until the kernel ends."""
    global _watcher
    lifeline.end_with_parent()
    lifeline.hold()
    _watcher = Watcher()
    _watcher.install()
    import mpi4py  # the library, while the notebook's folder is not on the path
    from ipyparallel.engine.app import IPEngine

    app = IPEngine.instance()
    app.initialize()
    sys.path[:] = [*filter(None, sys.path), ""]  # ipyparallel puts the folder first: its torch.py would hide torch
    app.start()


def identify() -> dict:
    """Return this engine's identity: its MPI rank and size, process, machine, MPI library, and files in shared
    memory."""
    import socket

    from mpi4py import MPI

    return {
        "rank": MPI.COMM_WORLD.Get_rank(),
        "size": MPI.COMM_WORLD.Get_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "machine": lifeline.machine(),
        "name": watcher.name(),
        "library": MPI.Get_library_version().splitlines()[0],
        "shared_memory": lifeline.shared_memory(),
    }


def warm_up() -> None:
    """Import what every run needs, so that the first run does not wait."""
    import cloudpickle

    import hpcdl.comm.mpi


def call(payload: bytes, run: int, timeout: float, clean: bool, directory: str, path: list[str]) -> dict:
    """Call the pickled function as one rank of `run`; return the outcome as plain values.

    `clean` says whether every rank of the previous run returned, so that its communicator can be freed.
    """
    global _started, _published
    assert _watcher is not None  # created by `main`
    outcome: dict[str, Any] = {"end": "raised", "value": None}
    _enter(directory, path)
    try:
        with limited_output(), _watcher.watching(run, timeout):
            import cloudpickle

            comm = _watcher.comm = _fresh_comm(clean)
            _started, _published = time.perf_counter(), 0
            f, args = cloudpickle.loads(payload)
            value = f(comm, *args)
        outcome |= {"end": "returned", "value": cloudpickle.dumps(value)}
    except Interrupted as error:
        outcome |= {"end": "stopped", "stack": lines_of_traceback(error.__traceback__), "waiting": _watcher.waiting()}
    except BaseException as error:
        outcome |= {
            "stack": lines_of_traceback(error.__traceback__),
            # The name that the notebook knows, without the module.
            "error": "".join(traceback.format_exception_only(error)).strip().removeprefix(f"{type(error).__module__}."),
        }
    sys.stdout.flush()
    sys.stderr.flush()
    return outcome


def _enter(directory: str, path: list[str]) -> None:
    """Use the notebook's working directory and path, so that its imports and files are found."""
    os.chdir(directory)
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]


def _fresh_comm(clean: bool) -> "MPIComm":
    """Return a communicator only for this run: leftover messages of an earlier run cannot reach it."""
    global _previous
    from mpi4py import MPI

    from hpcdl.comm.mpi import MPIComm

    if _previous is not None and clean:
        MPIComm(_previous).free()
    _previous = None
    duplicate, request = MPI.COMM_WORLD.Idup()
    MPIComm(MPI.COMM_WORLD).finish(request, "start of the run")
    _previous = duplicate
    return MPIComm(duplicate)


def follow(comm: "MPIComm") -> None:
    """Let the watcher report the waits of `comm`."""
    assert _watcher is not None  # created by `main`
    _watcher.comm = comm


def publish(value: Any) -> None:
    """Send `value`, anything that can be pickled, to the notebook's `cluster.stream`; outside engines do nothing."""
    global _published
    if _watcher is None:
        return
    import cloudpickle
    from ipyparallel.engine.datapub import publish_data

    number, data = _published + 1, cloudpickle.dumps((time.perf_counter() - _started, value))
    publish_data({number: data})
    _published = number  # not before: an interrupt would leave a gap, at which the notebook waits
