"""A notebook's guard: what it puts before torch's operators stays for the next check, and costs nothing in between.

Torch takes 15 ms to register the kernels of 900 operators, more than most checks take. They are above all others and
under a key of no tensor; only threads that run an answer ask for it.
"""

import functools
import threading
from collections.abc import Iterator
from types import FunctionType
from typing import cast

from autograder.boundary.own import contextlib

from .doors import kept
from .forbidden import Guard, Named
from .operators import ASKED, ask, fall_through, is_asked, watch_only, watching

_watchers: dict[str, object] = {}  # of all guards of this process, by operator
_up: list["LastingGuard"] = []  # the guards whose answers run, the last one innermost
_entries: dict[frozenset[Named], list[tuple]] = {}  # functions, their code and their doors': thousands take 10 ms


class LastingGuard(Guard):
    """Refuses as `Guard` does, on threads that it is up on and on those that start meanwhile."""

    def is_down(self) -> bool:
        return not self.is_up or self.is_other()

    def forbid(self, patterns: tuple[str, ...], opened: tuple[str, ...] | None = None) -> None:
        super().forbid(patterns, opened)
        if self.refused:
            self.doors.bar(cast(FunctionType, threading.Thread._bootstrap_inner), _begins)  # type: ignore[attr-defined]

    def _keep(self) -> None:
        for name in self.refused - _watchers.keys():  # another exercise's stay, too: the next check may be of that one
            _watchers[name] = _watching(name)
        watch_only(self.counting, self.watchers, self.watching)

    def bar_all(self, functions: frozenset[Named]) -> None:
        if functions not in _entries:
            super().bar_all(functions)
            _entries[functions] = [self._lasting(named) for named in functions]
            return
        barred = self.doors.barred
        for named, own, entry in _entries[functions]:
            if named[1].__code__ is own:
                named[1].__code__, barred[named[1]] = entry, own
            elif named[1] not in barred:  # it has changed since
                self.bar(named)

    def _lasting(self, named: Named) -> tuple:
        """Return a named function, its code and its door's, which the guard that is up hears from now on."""
        door, own = kept(named[1]), self.doors.barred.get(named[1])
        if door is None or own is None:
            return named, None, None  # it gets a new door each time
        door.knock = door.lasting = functools.partial(_called, *named)
        return named, own, named[1].__code__

    @contextlib.contextmanager
    def met(self, is_up: bool) -> Iterator[None]:
        """Let calls on this thread meet the watchers in the block, or not."""
        fall_through()
        before = is_asked()
        _up.append(self)
        ask(is_up)
        try:
            yield
        finally:
            ask(before)
            _up.remove(self)


def _watching(name: str) -> object:
    return watching(name, _heard, ASKED)


def _called(name: str, function: FunctionType, args: tuple) -> None:
    for guard in _up[-1:]:
        guard.called(name, function, args)


def _heard(operator: str) -> None:
    for guard in _up[-1:]:
        if operator in guard.refused:  # what is counted has a kernel further down, too
            guard.meet(operator)


def _begins(args: tuple) -> None:
    """Watch a thread that an answer has started; it runs this first."""
    if any(guard.is_up for guard in _up[-1:]):
        ask(True)
