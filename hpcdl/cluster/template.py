"""Import once what every engine needs, and fork the engines: `python -m hpcdl.cluster.template MODULE ...`.

Its standard input is the socket on which stand-ins ask for engines (`stand_in`). MPI starts only in the engines, so
nothing here may import it. An engine ends with its stand-in, and all engines end with the template.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import socket
import sys
from typing import Any

from hpcdl.cluster import engine, lifeline
from hpcdl.cluster.stand_in import STARTED

NEEDED = ("torch", "cloudpickle", "ipyparallel.engine.app")
PAUSE = 0.2  # seconds between looks at the kernel and at engines that have ended


class Template:
    """Forks an engine for each stand-in that asks on `listener`."""

    def __init__(self, listener: socket.socket):
        self.listener = listener
        self._engines: dict[socket.socket, int] = {}  # the process of each stand-in's engine

    def serve(self) -> dict[str, Any]:
        """Serve until the kernel ends; return, only in each forked engine, what its stand-in asked for."""
        while True:
            if not lifeline.kernel_lives():
                lifeline.end()
            for line in select.select([self.listener, *self._engines], [], [], PAUSE)[0]:
                if line is not self.listener:  # a stand-in says no second word: it has ended
                    lifeline.kill([self._engines[line]])
                elif asked := self._fork():
                    return asked
            self._bury()

    def _fork(self) -> dict[str, Any] | None:
        """Fork an engine; return in the engine what its stand-in asked for, and None here."""
        line, _ = self.listener.accept()
        asked, received = _heard(line)
        template, process = os.getpid(), None
        if asked:
            with contextlib.suppress(OSError):  # the stand-in then starts the engine itself
                process = os.fork()
        if asked and process == 0:
            lifeline.end_with_parent(template)
            self.listener.detach()  # its descriptor is the engine's standard input
            for other in [line, *self._engines]:
                other.close()
            _adopt(received, asked["descriptors"])
            return asked
        for descriptor in received:
            os.close(descriptor)
        if process is None:
            line.close()
        else:
            self._engines[line] = process
            with contextlib.suppress(OSError):
                line.send(STARTED)
        return None

    def _bury(self) -> None:
        """Tell stand-ins whose engines have ended their status."""
        for line, process in list(self._engines.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError):
                    line.send(bytes([code if code >= 0 else 128 - code]))
                line.close()
                del self._engines[line]


def _heard(line: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return a stand-in's request, None if it ended before its end, and the descriptors that it has sent."""
    descriptors: list[int] = []
    with contextlib.suppress(OSError, ValueError), line.makefile("rb") as file:
        length, descriptors, _, _ = socket.recv_fds(line, 8, 8)
        return json.loads(file.read(int.from_bytes(length, "big"))), descriptors
    return None, descriptors


def _adopt(descriptors: list[int], numbers: list[int]) -> None:
    """Give descriptors the numbers that they had in the stand-in."""
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(numbers) + 1) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(above, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def import_all(names: list[str]) -> None:
    """Import what every engine needs, and the modules `names`, except those that would start MPI."""
    for name in NEEDED:
        importlib.import_module(name)
    sys.modules["mpi4py.MPI"] = None  # type: ignore[assignment]  # Python says that it is not installed
    for name in names:
        with contextlib.suppress(Exception):  # an engine that needs it says what is wrong
            importlib.import_module(name)
    del sys.modules["mpi4py.MPI"]
    gc.freeze()  # the garbage collector would write in memory that engines share


def become(asked: dict[str, Any]) -> None:
    """Take the environment, the folder and the options that a stand-in sent."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    module = asked["options"].index("-m") + 1
    sys.argv[1:] = asked["options"][module + 1 :]
    import numpy

    numpy.random.seed()  # Python's own generator does so after a fork; torch's begins the same in every process


if __name__ == "__main__":
    import_all(sys.argv[1:])
    become(Template(socket.socket(fileno=0)).serve())
    engine.main()
