"""The student's code in this process: the basis of a notebook's `check`, and of tests of checks."""

import contextlib
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autograder.boundary.limits import Stopwatch, TimeUp, account
from autograder.boundary.protocol import Frame
from autograder.inside import packages
from autograder.inside.lasting import LastingGuard
from autograder.inside.under_way import WatchedComm
from autograder.inside.worker import SignatureError, UndefinedError, Worker
from hpcdl.comm import CommError, Communicator, DeadlockError, RankError, Simulation, simulate
from hpcdl.lazy import COMPILER, import_compiler, is_imported, whole

from .errors import StudentError
from .garbled import garbled
from .grader import Grader
from .ranks import RankCall, deadlock, misfit, of_rank
from .session import Session

SECONDS = 5.0  # of a call on several ranks as threads: many times what a right answer takes


def is_thread_of_kernel() -> bool:
    """Whether the current thread belongs to the notebook's kernel: JupyterLab draws playing pictures there during a
    check."""
    kernel = sys.modules.get("ipykernel.thread")
    return kernel is not None and isinstance(threading.current_thread(), kernel.BaseThread)


@contextlib.contextmanager
def warnings_of_cells() -> Iterator[None]:
    """Show only the warnings about lines of the notebook's cells in the block, whatever thread they come from.

    Those about lines of files, torch's and the library's own, tell a student nothing: a check says what is wrong.
    """
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_of_cells(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None,
            line: str | None = None,
        ) -> None:  # fmt: skip
            if not Path(filename).is_file():
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = show_of_cells
        yield


def import_what_optimizers_need(namespace: dict) -> None:
    """Import what optimizers need, without counting the seconds of `hpcdl.lazy.import_compiler` as the answer's."""
    if needs_compiler(namespace):
        import_compiler()


def needs_compiler(namespace: dict) -> bool:
    """Whether a function or class in `namespace` creates a torch optimizer, which imports torch's compiler."""
    return not is_imported(COMPILER) and any(map(uses_optimizers, list(namespace.values())))


def uses_optimizers(value: Any) -> bool:
    """Whether a value is a class of torch.optim, or a function that looks one up in `torch.optim`."""
    if type(value) is types.FunctionType:
        return "optim" in value.__code__.co_names
    return isinstance(value, type) and str(value.__module__).startswith("torch.optim.")


class LocalGrader(Grader):
    worker: "LocalWorker"

    def ask(self, frame: Frame) -> Frame:
        if frame.header[1][0] == "name":
            self.sent = frame
        return self.worker.serve(frame)


class LocalWorker(Worker):
    stops_on_interrupt = True  # the student may press the stop button

    def __init__(self, namespace: dict, grader: LocalGrader):
        super().__init__(namespace, LastingGuard(is_other=is_thread_of_kernel))
        self.guard.named = frozenset()
        self.grader = grader

    def find(self, name: str) -> Any:
        found = super().find(name)
        self.guard.look_for(packages.named_in(found, self.namespace))
        return found

    def ask(self, frame: Frame) -> Frame:
        with self.guard.up(False), account().aside():
            return self.grader.serve(frame)


class LocalSession(Session):
    """The student's code in this process: the names of a notebook, a time limit, no isolation."""

    undefined = "Run the cell that defines it, then check again."

    def __init__(self, namespace: dict):
        super().__init__()
        self.grader = LocalGrader()
        self.worker = self.grader.worker = LocalWorker(namespace, self.grader)

    @whole
    def make_ready(self, seconds: float) -> None:
        self.worker.forbid(*self.forbidden)

    @whole
    def forbid(self, patterns: tuple[str, ...] = (), opened: tuple[str, ...] | None = None) -> None:
        super().forbid(patterns, opened)
        self.worker.forbid(patterns, opened)

    def simulate(self, call: RankCall) -> Simulation:
        """Run the ranks as threads of this process."""
        import_what_optimizers_need(self.worker.namespace)
        worker, watch = self.worker, Stopwatch()
        stopped: list[tuple[int, dict]] = []
        watched: dict[int, WatchedComm] = {}

        try:
            function = worker.function_of_rank(call.name, (*call.arguments[0], None), call.kwargs, call.harness)

            def rank(comm: Communicator) -> Any:
                garbled(comm, call.garble)
                watched[comm.rank] = WatchedComm(comm)
                try:
                    return function(*call.arguments[comm.rank], comm, **call.kwargs)
                except SystemExit as error:  # the simulation ends its ranks like this, first the running one
                    stopped.append((comm.rank, worker.describe(error)))
                    raise

            with worker.running(self.left if call.p == 1 else min(self.left, SECONDS)):
                run = simulate(rank, call.p, **call.machine)
            self.careless = [sentence for _, watch in sorted(watched.items()) for sentence in watch.careless()]
            return run
        except (UndefinedError, SignatureError) as error:
            raise StudentError.of(worker.describe(error)) from None
        except TimeUp:
            raise self.stopped(call.p, *stopped[:1]) from None
        except RankError as error:
            raise of_rank(StudentError.of(worker.describe(error.__cause__)), error.rank, call.p) from None
        except DeadlockError as error:
            raise deadlock(call.p, error) from None
        except CommError as error:
            raise misfit(call.p, error) from None
        finally:
            self.left -= watch.seconds()

    def stopped(self, p: int, *ranks: tuple[int, dict]) -> StudentError:
        """Report that the ranks timed out; `ranks` says which one was running, and where."""
        error = self.timeout(self.seconds if p == 1 else min(self.seconds, SECONDS))
        for rank, problem in ranks:
            error = of_rank(StudentError.of({**problem, "kind": "timeout", "text": error.text}), rank, p)
        return error
