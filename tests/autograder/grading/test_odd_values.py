"""No check fails with an error of its own, whatever an answer returns: it names the value instead."""

import contextlib
import inspect
import io
import random
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch

from autograder import exercises
from autograder.authoring import Check, Exercise
from autograder.grading import lazy
from autograder.grading.run import _blank, run_check
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession

pytestmark = pytest.mark.filterwarnings("ignore")
SAMPLE, MANY = 1, 20  # changed returns per check, in CI and in a long run


NOT_RETURNING = ("__init__", "__repr__", "__getattr__", "__setattr__", "__post_init__")


class Angry:
    """Raises an error whatever is asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    __len__ = __iter__ = __eq__ = __hash__ = __float__ = __index__ = __bool__ = None  # type: ignore[assignment]


ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an empty dict": dict,
    "an empty list": list,
    "an empty tuple": tuple,
    "a word": lambda: "word",
    "a bool": lambda: True,
    "0": lambda: 0,
    "nan": lambda: float("nan"),
    "a complex number": lambda: 1j,
    "a huge int": lambda: 10**400,
    "a list of None": lambda: [None, None],
    "a list of lists": lambda: [[]],
    "a pair of words": lambda: ("a", "b"),
    "a dict of None": lambda: {0: None},
    "a generator": lambda: (x for x in [None]),
    "an angry object": Angry,
    "a number as a tensor": lambda: torch.zeros(()),
    "an empty tensor": lambda: torch.zeros(0),
    "a tensor of rank 3": lambda: torch.zeros(2, 3, 4),
    "a tensor of nan": lambda: torch.full((2, 2), torch.nan),
    "ints": lambda: torch.ones(3, dtype=torch.int64),
    "complex numbers": lambda: torch.ones(2, dtype=torch.complex64),
    "a tensor of float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "a list of tensors": lambda: [torch.zeros(2), torch.zeros(2, 2)],
}


def first_leaf(right: Any, odd: Any) -> Any:
    """Return `right` with its first number or tensor replaced."""
    if isinstance(right, (list, tuple)) and len(right):
        return type(right)([first_leaf(right[0], odd), *right[1:]]) if type(right) in (list, tuple) else odd
    if isinstance(right, dict) and right:
        first = next(iter(right))
        return {**right, first: first_leaf(right[first], odd)}
    return odd


def last_item(right: Any, odd: Any) -> Any:
    if type(right) in (list, tuple) and len(right):
        return type(right)([*right[:-1], odd])
    if isinstance(right, dict) and right:
        return {**right, list(right)[-1]: odd}
    return odd


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "its value": lambda right, odd: odd,
    "its first number": first_leaf,
    "its last item": last_item,
}


def shorter(right: Any) -> Any:
    if isinstance(right, dict):
        return dict(list(right.items())[1:])
    is_long = type(right) in (list, tuple, str) or (isinstance(right, torch.Tensor) and right.dim())
    return right[:-1] if is_long else None


def longer(right: Any) -> Any:
    if isinstance(right, torch.Tensor):
        return right[None]
    return right + right[-1:] if type(right) in (list, tuple) else [right]


def as_tensor(change: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
    def changed(right: Any) -> Any:
        if type(right) in (list, tuple):
            return type(right)(map(changed, right))
        return change(right.detach()) if isinstance(right, torch.Tensor) else str(right)

    return changed


Changes = dict[str, Callable[[Any], Any]]
Around = Callable[[], AbstractContextManager]
CHANGES: Changes = {
    f"{what} for {place}": lambda right, put=put, odd=odd: put(right, odd())
    for place, put in PLACES.items()
    for what, odd in ODD.items()
}
CHANGES |= {"one item less": shorter, "one item more": longer}
CHANGES |= {
    what: as_tensor(change)
    for what, change in {
        "lists for tensors": torch.Tensor.tolist,
        "one axis more": lambda t: t[None],
        "one axis": torch.Tensor.flatten,
        "no last column": lambda t: t[..., :-1] if t.dim() else t,
        "nan": lambda t: torch.full(t.shape, torch.nan),
        "another dtype": lambda t: t.float() if t.dtype == torch.float64 else t.double(),
        "float8": lambda t: t.to(torch.float8_e4m3fn),
        "complex numbers": lambda t: t.to(torch.complex64),
        "bools": torch.Tensor.bool,
    }.items()
}


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def spoilt(function: Callable, change: Callable) -> Callable:
    return lambda *args, **kwargs: change(function(*args, **kwargs))


def with_method(owner: type, name: str, given: Any, change: Callable) -> type:
    """Return a subclass of `owner` whose method `name`, `given` in its class, returns something else."""
    is_static = isinstance(given, staticmethod)
    method = spoilt(given.__func__ if is_static else given, change)
    return type(owner.__name__, (owner,), {name: staticmethod(method) if is_static else method})


def spoilers(target: Any) -> Iterator[Callable[[Callable], Any]]:
    """Yield the ways to change what a function, or one method of a class, returns."""
    if not inspect.isclass(target):
        yield partial(spoilt, target)
        yield partial(spoilt, nothing)
        return
    for name, given in vars(target).items():
        is_method = isinstance(given, (types.FunctionType, staticmethod))
        if is_method and name not in NOT_RETURNING:
            yield partial(with_method, target, name, given)


def cases(exercise: Exercise, namespace: dict, changes: Iterable[str]) -> list[tuple[Check, str, Callable, str]]:
    """Return each check with each function or method to spoil, and each change."""
    return [
        (check, function, made, what)
        for check in exercise.checks.values()
        for function in exercise.functions
        for made in spoilers(namespace[function])
        for what in changes
    ]


def own_errors(
    slug: str, sample: int = 0, seed: int = 0, only: str = "", changes: Changes = CHANGES, around: Around = nullcontext
) -> Iterator[str]:
    """Run each check alone, with one function's answers changed; yield the errors that are the check's own.

    Each check runs in a context of its own, `around()`.
    """
    lab, solved = exercises.load(slug), lazy.solved(slug)
    draw = random.Random(seed)
    for exercise in lab.exercises.values():
        if only not in ("", exercise.name):
            continue
        every = cases(exercise, solved, changes)
        wanted = min(len(every), sample * len(exercise.checks)) if sample else len(every)
        for check, function, made, what in draw.sample(every, wanted) if sample else every:
            namespace = {**solved, function: made(changes[what])}
            session = LocalSession(namespace)
            session.forbid(exercise.closed, exercise.opened)
            verdict = _blank(exercise, check, seeds(b"odd", slug))
            try:
                with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()), around():
                    run_check(check, verdict, session, check.seconds)
            finally:
                session.forbid()
            if verdict.kind == "check":
                yield f"{exercise.id}.{check.name}, {function}, {what}: {verdict.message}\n{verdict.detail}"


@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_a_sample_of_values(slug):
    assert list(own_errors(slug, SAMPLE)) == []


@pytest.mark.long
@pytest.mark.parametrize("slug", exercises.LABS)
def test_many_values(slug):
    assert list(own_errors(slug, MANY, seed=1)) == []
