"""Each harness that lets virtual time pass says so: else the grader refuses that time as an answer's own."""

import types

import pytest

from autograder.inside.harnesses import HARNESSES

LETS_PASS = {"compute", "takes_time"}


def names_in(code: types.CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(names_in, inner))


def reached(function: types.FunctionType, seen: set) -> set[str]:
    """Return the names in a function, and in the functions and classes of the harnesses that it names."""
    seen.add(function)
    names = names_in(function.__code__)
    found = [function.__globals__.get(name) for name in names]
    parts = [part for value in found if isinstance(value, type) for part in vars(value).values()]
    for value in (*found, *parts):
        if isinstance(value, types.FunctionType) and value not in seen and "autograder.inside" in value.__module__:
            names |= reached(value, seen)
    return names


@pytest.mark.parametrize("name", HARNESSES)
def test_time_is_declared(name):
    harness = HARNESSES[name]
    if LETS_PASS & reached(harness.run, set()):
        assert harness.works or harness.booked


def test_known_ones_are_seen():
    for name in ("hooks", "measured", "layer", "gathered", "asynchronous", "downpour", "horovod"):
        assert LETS_PASS & reached(HARNESSES[name].run, set()), name
