"""Communication in a thread, concurrent with the rank's computation."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from hpcdl.comm.base import Background, Communicator
from hpcdl.comm.channels import TAGS, offset
from hpcdl.comm.group import Group

PROGRESS_SECONDS = 0.01  # how often a rank that waits for its background also receives its own messages

Calls = SimpleQueue[Callable[[Communicator], None] | None]  # None: no call follows


class ThreadedBackground(Background):
    """A thread that runs the started calls, with messages on `channel`. `close()` ends it; the running call raises."""

    def __init__(self, comm: Communicator, channel: int):
        self._comm, self._machine = comm, comm.for_thread(channel)
        self._calls: Calls = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        self._under_way = 0
        work = (OffsetTags(self._machine, channel), self._calls, self._outcomes)
        threading.Thread(target=_work, args=work, name=f"background of rank {comm.rank}", daemon=True).start()

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._under_way += 1
        self._calls.put(f)

    def wait(self) -> None:
        self._machine.patient = False  # this thread is idle: the other may use its core
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
        f = None  # free its objects before the next call


class OffsetTags(Group):
    """All ranks of `comm`, with the tags of `channel`; supports only messages."""

    def __init__(self, comm: Communicator, channel: int):
        super().__init__(comm, range(comm.size))
        self._channel_number, self._offset = channel, offset(channel)

    def wrap(self, comm: Communicator) -> "OffsetTags":
        return OffsetTags(comm, self._channel_number)

    def inner_tag(self, tag: int) -> int:
        if tag >= TAGS:
            raise ValueError(f"rank {self.rank}: tag is {tag}; in the background a tag is below {TAGS}")
        return tag + self._offset
