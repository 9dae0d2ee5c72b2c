"""A worker at the end of a socket, for grading: a separate process that serves until the grader hangs up."""

import builtins
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from autograder.boundary import protocol
from autograder.boundary.channel import Channel
from autograder.boundary.limits import account
from autograder.boundary.own import contextlib
from autograder.boundary.peer import mark_of
from autograder.boundary.protocol import Frame, UnsendableError

from . import modes
from .book import WireBook
from .doors import opaque
from .forbidden import Guard
from .harnesses import HARNESSES
from .location import text_of
from .seal import private
from .sentry import LEFT, SEAL
from .worker import Worker


class SocketWorker(Worker):
    """A worker at the end of a socket."""

    def __init__(self, channel: Channel, namespace: dict, guard: Guard, harnesses: dict[str, Callable]):
        """`harnesses` are `private_harnesses()`."""
        super().__init__(namespace, guard)
        self.channel, self.harnesses = channel, harnesses

    def make_proxy(self, number: int, is_function: bool, name: str):
        """Return a stand-in that does not expose this worker."""
        proxy: Any = opaque(super().make_proxy(number, is_function, name))
        proxy.__name__ = proxy.__qualname__ = name
        return proxy

    def run_rank(
        self,
        name: str,
        args: tuple,
        kwargs: dict,
        rank: int,
        size: int,
        operate: Callable | None,
        harness: str | None,
        _audit: Callable = sys.audit,
    ):
        """Call the function as a rank, and check before and after that the machinery is unchanged."""
        modes.leave()
        _audit(SEAL)
        try:
            return super().run_rank(name, args, kwargs, rank, size, operate, harness)
        finally:
            _audit(SEAL)

    def harnessed(self, harness: str, function: Callable, operate: Callable | None) -> Callable:
        """Return the harness of that name; its book, if any, is kept by the grader, which `operate` reaches."""
        if operate is None:
            return super().harnessed(harness, function, operate)
        if type(function) is types.FunctionType:
            function = watched(function)
        run = functools.partial(self.harnesses[harness], function)
        return functools.partial(run, book=WireBook(operate)) if HARNESSES[harness].booked else run

    def ask(self, frame: Frame) -> Frame:
        time = account()
        with time.aside():  # the grader works, or a nested call, which has its own limit
            self.channel.send(frame)
            while True:
                reply = self.channel.receive()
                if reply.header[:1] == ["call"]:
                    with time.counted():
                        answer = self.reply(reply)
                    self.channel.send_bytes(answer)
                elif mark_of(reply) == mark_of(frame):
                    return reply

    def reply(self, frame: Frame) -> bytes:
        """Return the reply to a call in a form that can be sent, whatever the result."""
        reply = self.serve(frame)
        try:
            return protocol.pack(reply)
        except (UnsendableError, ValueError, TypeError, RecursionError) as error:
            problem = {"kind": "unsendable", "type": type(error).__name__, "text": text_of(error)}
            return protocol.pack(Frame(["error", problem, mark_of(frame)]))

    def run(self) -> None:
        """Serve until the grader closes the connection; raise ProtocolError if what comes is not from the grader."""
        with contextlib.suppress(protocol.Closed):
            while True:
                self.channel.send_bytes(self.reply(self.channel.receive()))


def private_harnesses() -> dict[str, Callable]:
    """Return the functions of all harnesses, with names of their own that nothing outside them holds."""
    known: dict[int, dict] = {}
    return {name: private(harness.run, known) for name, harness in HARNESSES.items()}


def watched(function: Callable) -> Callable:
    """Return `function` with a check each time that it returns to a harness: of the machinery, and of what would answer
    for a tensor."""
    audit = sys.audit

    @functools.wraps(function)
    def call(*args, **kwargs):
        before = modes.count()
        try:
            result = function(*args, **kwargs)
        finally:
            left = modes.leave(before)
        for name in (*left, *modes.hidden_methods((result, *args, *kwargs.values()))):
            audit(LEFT, name)
        audit(SEAL)
        return result

    return call


def fresh_namespace() -> dict:
    """Return a namespace for a student's cells, like a notebook's: the one of a new module `__main__`."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    return vars(main)


def warm_up(worker: Worker) -> None:
    """Parse a notebook of one cell. In the zygote this sets up the parser; in a worker it allocates the memory in
    advance."""
    cells, *_ = worker.parse(b'{"cells": [{"cell_type": "code", "source": "def f(x): return x"}]}')
    worker.needed(cells, [["f"]])
