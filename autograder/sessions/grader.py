"""The trusted peer: sends a check's calls, and records the other side's results."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch

from autograder import show
from autograder.boundary.decode import Decoder
from autograder.boundary.peer import Peer
from autograder.boundary.protocol import Frame
from autograder.checks import CheckFailure, same

from .errors import StudentError
from .handle import Handle


class Timed(Protocol):
    """The parts of a session that its grader needs."""

    def timed(self, target: list, args: tuple, kwargs: dict | None, objects: bool): ...

    def deny(self, name: Any, location: Any) -> None: ...


class Grader(Peer):
    """The trusted side of a call: calls by name; the other side may call only the functions that it was passed."""

    session: Timed  # its session, once a check has begun

    def __init__(self):
        super().__init__()
        self.objects = False
        self.failure: CheckFailure | None = None
        self.changed = False  # whether a call has changed one of its arguments
        self.sent: Frame | None = None  # the last call by name, to show it when a check fails

    def call(
        self,
        target: Any,
        args: Sequence = (),
        kwargs: dict | None = None,
        *,
        objects: bool = False,
        seconds: float | None = None,
    ):
        self.objects = objects
        result = super().call(target, args, kwargs, objects=objects, seconds=seconds)
        if self.failure is not None:  # raised by a check's function that the student's code called
            raise self.failure
        return result

    def deny(self, _: Any, args: tuple, kwargs: dict) -> None:
        self.session.deny(*args)

    verbs: ClassVar = Peer.verbs | {"forbidden": deny}

    def accept(self, argument: Any, contents: Any) -> None:
        self.changed |= type(argument) is not torch.Generator and not same(argument, contents)
        super().accept(argument, contents)

    def lends(self, objects: bool) -> bool:
        return objects and self.objects

    def describe(self, error: BaseException) -> dict:
        if isinstance(error, CheckFailure):
            self.failure = error
        return super().describe(error)

    def error(self, problem: Any) -> Exception:
        return self.failure or StudentError.of(problem)

    def make_proxy(self, number: int, is_function: bool, name: str):
        if is_function and not self.objects:

            def function(*args, **kwargs):  # the student's function, which uses the check's time
                return self.session.timed(["yours", number], args, kwargs, objects=False)

            function.__name__ = function.__qualname__ = name
            return function
        return Handle(self, number, name)  # also for a method: its result may be an object


def shown_call(frame: Frame, handles: dict) -> str:
    """`mse_loss(tensor(...), ...)` for a call that was sent, with one argument per line if one line is too long."""
    decoder = Decoder(frame, _Names(handles))
    _, (_, name), args, kwargs, *_ = frame.header
    args, kwargs = decoder.read(args), decoder.read(kwargs)
    shown = [show.show(value) for value in args] + [f"{key}={show.show(value)}" for key, value in kwargs]
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= 90 else f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + ")"


class _Shown(dict):
    """Names of handles by number, made when they are asked for."""

    def __init__(self, handles: dict):
        super().__init__()
        self.handles = handles

    def __contains__(self, number: object) -> bool:
        return number in self.handles

    def __missing__(self, number: int) -> show.Named:
        return show.Named(repr(self.handles[number]))


class _Names(Peer):
    """Reads handles only as names, including handles on the student's objects (by number)."""

    def __init__(self, handles):
        super().__init__()
        self.exports = _Shown(handles)

    def make_proxy(self, number, is_function, name):
        return show.Named(name)
