"""Communication beside a rank's own work, in a thread: collectives that go on while it computes."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from hpcdl.comm.base import Background, Communicator
from hpcdl.comm.group import Group

TAG_OFFSET = 1 << 14  # added to tags in the background, so that its messages meet none of the rank's own
PROGRESS_SECONDS = 0.01  # how often a rank that waits for its background takes in messages of its own

Calls = SimpleQueue[Callable[[Communicator], None] | None]  # None: no call follows


class ThreadedBackground(Background):
    """A thread of its own, for what is started. `close()` ends it, and makes the call under way raise."""

    def __init__(self, comm: Communicator):
        self._comm, self._machine = comm, comm.for_thread()
        self._calls: Calls = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        self._under_way = 0
        work = (OffsetTags(self._machine), self._calls, self._outcomes)
        threading.Thread(target=_work, args=work, name=f"background of rank {comm.rank}", daemon=True).start()

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._under_way += 1
        self._calls.put(f)

    def wait(self) -> None:
        self._machine.patient = False  # this thread has nothing to do: the other may have its core
        try:
            while self._under_way:
                error = self._next_outcome()
                self._under_way -= 1
                if error is not None:
                    raise error
        finally:
            self._machine.patient = True

    def _next_outcome(self) -> BaseException | None:
        while True:
            try:
                return self._outcomes.get(timeout=PROGRESS_SECONDS)
            except Empty:
                self._comm.progress()

    def close(self) -> None:
        self._machine.cancelled = True
        self._calls.put(None)


def _work(comm: Communicator, calls: Calls, outcomes: SimpleQueue[BaseException | None]) -> None:
    while (f := calls.get()) is not None:
        try:
            f(comm)
        except BaseException as error:
            outcomes.put(error)
        else:
            outcomes.put(None)
        f = None  # what it holds must not live until the next call


class OffsetTags(Group):
    """All ranks of `comm`, with tags that nobody else uses, and messages only."""

    def __init__(self, comm: Communicator):
        super().__init__(comm, range(comm.size))

    def wrap(self, comm: Communicator) -> "OffsetTags":
        return OffsetTags(comm)

    def inner_tag(self, tag: int) -> int:
        return tag + TAG_OFFSET
