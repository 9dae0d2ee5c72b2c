"""Communication beside a rank's own work: collectives that go on while it computes."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from hpcdl.comm.base import Communicator
from hpcdl.comm.group import Group

APART = 1 << 14  # added to tags, so that messages beside the rank's work meet none of its own

ATTEND = 0.01  # seconds after which a rank that waits for its background looks after messages of its own


class Foreground:
    """No background at all: what is started runs at once, before `start` returns."""

    def __init__(self, comm: Communicator):
        self.comm = comm

    def start(self, f: Callable[[Communicator], None]) -> None:
        f(self.comm)

    def wait(self) -> None: ...

    def close(self) -> None: ...


class Background:
    """Runs what is started in a thread of its own, one call after the other, in the order of the starts.

    `f(comm)` gets a communicator over the same ranks, for messages only, which meet none of those outside. `wait()`
    returns when all is done, and raises what a call raised; `close()` gives up what is still under way.
    """

    def __init__(self, comm: Communicator):
        self._comm, self._machine = comm, comm.for_thread()
        self._calls, self._ended, self._under_way = SimpleQueue(), SimpleQueue(), 0
        work = (Apart(self._machine), self._calls, self._ended)
        threading.Thread(target=_work, args=work, name=f"background of rank {comm.rank}", daemon=True).start()

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._under_way += 1
        self._calls.put(f)

    def wait(self) -> None:
        self._machine.patient = False  # this thread has nothing to do: the other may have its core
        try:
            while self._under_way:
                error = self._next()
                self._under_way -= 1
                if error is not None:
                    raise error
        finally:
            self._machine.patient = True

    def _next(self) -> BaseException | None:
        while True:
            try:
                return self._ended.get(timeout=ATTEND)
            except Empty:
                self._comm.attend()

    def close(self) -> None:
        self._machine.given_up = True
        self._calls.put(None)


def _work(comm, calls: SimpleQueue, ended: SimpleQueue) -> None:
    while (f := calls.get()) is not None:
        try:
            f(comm)
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)
        f = None  # what it holds must not live until the next call


class Apart(Group):
    """All ranks of `comm`, with tags of their own."""

    def __init__(self, comm: Communicator):
        super().__init__(comm, range(comm.size))

    def _sendrecv_add(self, x, dest, out, source, scratch, weight, tag):
        super()._sendrecv_add(x, dest, out, source, scratch, weight, tag + APART)

    def _sendrecv_add_back(self, x, dest, out, source, scratch, weight, tag):
        super()._sendrecv_add_back(x, dest, out, source, scratch, weight, tag + APART)

    def _isend(self, op, x, dest, tag):
        return super()._isend(op, x, dest, tag + APART)

    def _irecv(self, op, out, source, tag):
        return super()._irecv(op, out, source, tag + APART)


class Through:
    """The background of the communicator inside another; `wrap` makes of the one what its calls get."""

    def __init__(self, inner, wrap: Callable[[Communicator], Communicator]):
        self._inner, self._wrap = inner, wrap
        self.wait, self.close = inner.wait, inner.close

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._inner.start(lambda comm: f(self._wrap(comm)))
