"""Grade many submissions in parallel lanes; each result is kept at once, nothing is repeated, and no error stops the
batch."""

import concurrent.futures as futures
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from autograder import exercises
from autograder.authoring import Lab
from autograder.results import LabResult
from autograder.sessions import canaries
from autograder.walls import memory, namespaces, sandbox, scratch
from autograder.walls.zygote import Zygote

from . import grade
from .alone import FLOOR
from .store import ResultStore, key_of
from .submission import Submission
from .submitted import copies, discard, take

Graded = tuple[Submission, LabResult]
AHEAD = 4  # submissions queued per lane, so that thousands of results are never in memory together
CRASHES = 3  # of a lane's process (for example, out of memory) before this process grades the rest


def grade_all(
    todo: list[Submission],
    secret: bytes,
    only: Lab | None = None,
    store: ResultStore | None = None,
    lanes: int = 1,
    mpi: bool = False,
    allow_weak: bool = False,
) -> Iterator[Graded]:
    """Yield the result of each submission when it is ready; results in `store` come first.

    Every file is read before grading begins, and never again: later changes do not affect results. Each lane tests its
    walls before it reads a submission, and raises `WallError` if they have a hole, unless that is allowed.
    """
    scratch.clear()
    store, rest = store or ResultStore(None), []
    with copies() as folder:
        for submission in todo:
            taken = take(submission, folder)
            kept = store.load(key_of(taken, secret, only, machine(mpi)))
            if kept:
                discard(taken)
                yield taken, kept
            else:
                rest.append(taken)
        lanes = min(lanes, len(rest))
        if lanes > 1:
            each = memory.allowance(lanes)
            yield from _in_processes(rest, secret, only, store, lanes, mpi, allow_weak, each)
        elif rest:
            with Lane(secret, only, store, mpi, allow_weak) as lane:
                for submission in rest:
                    yield submission, lane.grade(submission)


def machine(mpi: bool) -> str:
    """Return the properties of this machine that a result depends on."""
    return f"{sandbox.tier()}, {'MPI' if mpi else 'no MPI'}"


def _in_processes(todo, secret, only, store, lanes, mpi, allow_weak, each) -> Iterator[Graded]:
    left, crashes = dict(enumerate(todo)), 0
    while left and crashes < CRASHES:
        try:
            for number, result in _pool(left, secret, only, store, lanes, mpi, allow_weak, each):
                yield left.pop(number), result
        except BrokenProcessPool:
            crashes += 1
    if left:
        yield from grade_all([*left.values()], secret, only, store, mpi=mpi, allow_weak=allow_weak)


def _pool(todo, secret, only, store, lanes, mpi, allow_weak, each) -> Iterator[tuple[int, LabResult]]:
    """Yield the results of the submissions `todo`, each with its index."""
    # spawn: a forked lane could hang in torch if a tensor operation has run here on several threads
    context = multiprocessing.get_context("spawn")
    slug = only.slug if only else None
    options = (secret, slug, store, mpi, allow_weak, each)
    with futures.ProcessPoolExecutor(lanes, context, _open_lane, options) as pool:
        waiting = iter([*todo.items()])
        with _without_interrupts():  # this starts the processes
            begun = [(number, pool.submit(_in_lane, one)) for number, one in itertools.islice(waiting, AHEAD * lanes)]
        pending = {future: number for number, future in begun}
        try:
            while pending:
                for done in futures.wait(pending, return_when=futures.FIRST_COMPLETED).done:
                    yield pending.pop(done), done.result()
                    for number, one in itertools.islice(waiting, 1):
                        pending[pool.submit(_in_lane, one)] = number
        finally:
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Send Ctrl-C only to this process: children started in the block ignore it, and print nothing while they start."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Lane:
    """One zygote and the submissions that it handles, one after another. A context manager.

    On entry raises WallError if its walls have a hole; with `allow_weak` each result says so instead.
    """

    zygote: Zygote  # set by `__enter__`

    def __init__(
        self,
        secret: bytes,
        only: Lab | None,
        store: ResultStore,
        mpi: bool = False,
        allow_weak: bool = False,
        each: memory.Allowance | None = None,
    ):
        """`each` is what the processes of this lane may take; None: all free memory."""
        self.memory = each or memory.allowance()
        self.secret, self.only, self.store, self.mpi, self.allow_weak = secret, only, store, mpi, allow_weak
        self.hole = ""
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        import torch

        self.stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # many small checks: a thread pool costs more than it saves
        self.open_zygote()
        try:
            canaries.require(self.zygote)
        except canaries.WallError as error:
            self.hole = str(error)
            if not self.allow_weak:
                self.close()
                raise
        return self

    def open_zygote(self) -> None:
        self.zygote = self.stack.enter_context(Zygote(allowed=self.memory))

    def close(self) -> None:
        self.stack.close()

    def __exit__(self, *_):
        self.close()

    def grade(self, submission: Submission) -> LabResult:
        """Return the submission's result; an error in the grader costs only that submission, not the batch."""
        submission = take(submission)
        key = key_of(submission, self.secret, self.only, machine(self.mpi))
        try:
            with FLOOR.shared():
                result = grade.grade(submission, self.zygote, self.secret, self.only, self.mpi)
        except Exception as error:
            message = f"the grader failed on this file ({type(error).__name__}: {error}): grade it by hand, and tell us"
            result = grade.ungradable(submission, self.only, message)
            result.retry = True
            with contextlib.suppress(Exception):  # if none can start, each submission reports it
                self.open_zygote()
        else:
            if not self.hole:
                self.store.save(key, result)
        if self.hole:
            result.isolation = f"weak isolation: {self.hole}"
        return result


class _Process:
    lane: Lane  # set by `_open_lane`, unless there is a hole
    hole: canaries.WallError | None = None  # why there is no lane


_here = _Process()  # this process's lane, if it is one of several


def _open_lane(
    secret: bytes, slug: str | None, store: ResultStore, mpi: bool, allow_weak: bool, each: memory.Allowance
) -> None:
    namespaces.end_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # the parent was killed while this process started: nothing would end it
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # at once and silently: the grader reports it
    lane = Lane(secret, exercises.load(slug) if slug else None, store, mpi, allow_weak, each)
    try:
        _here.lane = lane.__enter__()
    except canaries.WallError as error:  # the first submission reports it: here it would end the process
        _here.hole = error


def _in_lane(submission: Submission) -> LabResult:
    if _here.hole:
        raise _here.hole
    return _here.lane.grade(submission)
