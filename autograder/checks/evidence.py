"""Checks that need more than one value: properties, lengths, random draws, gradients, counts of calls, time."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from autograder import show

from . import advice
from .elements import items
from .ladder import CheckFailure, Mistakes, close

FALSE_ALARM = 1e-9  # the probability that a statistical check fails a right answer


class counted:  # noqa: N801 (reads as a function: `grad = counted(grad)`)
    """A trusted function that counts its calls, to pass to the student's code: `grad.calls` after the call."""

    def __init__(self, function: Callable):
        self.function, self.calls, self.__name__ = function, 0, getattr(function, "__name__", "function")

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


# Properties


class _TimeIsUpError(BaseException):
    """Ends the search for a smaller counterexample; Hypothesis would treat an `Exception` as another failure."""


def for_all(property_of: Callable, rng: torch.Generator, *, examples: int = 50, **strategies: Any) -> None:
    """Check that `property_of(**values)` passes for all values that the Hypothesis strategies draw, seeded by `rng`.

    A failure shows the smallest counterexample found.
    """
    import hypothesis

    found: dict = {}

    settings = hypothesis.settings(
        max_examples=examples,
        derandomize=False,  # the seed decides, a different one for each student
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    @hypothesis.seed(int(torch.randint(2**31, (), generator=rng)))
    @settings
    @hypothesis.given(hypothesis.strategies.fixed_dictionaries(strategies))
    def search(values):
        try:
            property_of(**values)
        except Exception as error:
            if found and getattr(error, "kind", "") == "timeout":
                raise _TimeIsUpError from None  # the smallest so far will do
            found.update(error=error, values=values)
            raise

    try:
        search()
    except (Exception, _TimeIsUpError) as error:
        failure = found.get("error", error)
        if isinstance(failure, CheckFailure):
            example = ", ".join(f"{name} = {show.show(value)}" for name, value in found["values"].items())
            failure.where = " ".join(filter(None, [failure.where, f"The smallest example found: {example}."]))
        raise failure from None


# Lengths


def length(got: Any, expected: int, *, name: str, noun: str = "item", start: int = 0, why: str = "") -> None:
    """Check that the list or tuple `got` has `expected` items; `noun` is what the sentence calls one of them.

    A loop that adds one in each round begins with `start` of them.
    """
    if len(got) != expected:
        more = advice.of_length(len(got) - start, expected - start)
        message = f"{name} has {items(len(got), noun)}, expected {expected}. {more}"
        raise CheckFailure(message.rstrip(), show.show(got), str(expected), why=why)


# Random draws


def retested(test: Callable[[], None]) -> None:
    """Run a statistical test; one that fails is run again on fresh draws, and only a second failure counts."""
    try:
        test()
    except CheckFailure:
        test()


def share(count: int, trials: int, probability: float, *, what: str, why: str = "") -> None:
    """Check that `count` of `trials` independent draws agrees with `probability`; `what` names them: `"rounded up"`."""
    allowed = _deviation(probability * (1 - probability), 1.0, trials)
    _within(count / trials, probability, allowed, trials, f"The share {what}", why)


def mean(draws: torch.Tensor, expected: float, *, low: float, high: float, what: str, why: str = "") -> None:
    """Check that the mean of independent draws between `low` and `high` agrees with `expected`, up to chance."""
    outside = (draws < low) | (draws > high) | ~draws.isfinite()
    if outside.any():
        value = draws[outside][0].item()
        raise CheckFailure(f"{what} is {show.number(value)} once: it lies between {low:g} and {high:g}.", why=why)
    variance = (high - expected) * (expected - low)  # the largest possible variance with this range and mean
    allowed = _deviation(variance, high - low, draws.numel())
    _within(draws.double().mean().item(), expected, allowed, draws.numel(), f"The mean of {what}", why)


def _deviation(variance: float, reach: float, n: int) -> float:
    """Return the deviation of the mean of n draws that is exceeded once in 1e9 times. By Bernstein's inequality, for
    any n: P(|mean - expected| >= t) <= 2 exp(-n t^2 / (2 (variance + reach t / 3)))."""
    a = math.log(2 / FALSE_ALARM)
    return (a * reach / 3 + math.sqrt((a * reach / 3) ** 2 + 2 * n * a * variance)) / n


def _within(got: float, expected: float, allowed: float, n: int, what: str, why: str) -> None:
    if not abs(got - expected) <= allowed:
        raise CheckFailure(
            f"{what} is {got:.4g}, expected {expected:.4g}.",
            got=f"{got:.6g} in {n:,} draws",
            expected=f"{expected:.6g} ± {allowed:.2g}",
            where=f"Chance explains ± {allowed:.2g} in {n:,} draws; a right answer is further off once in 1e9 times.",
            why=why,
        )


# Gradients


def gradient(got: Any, f: Callable, x: torch.Tensor, *, name: str, why: str = "", mistakes: Mistakes = None) -> None:
    """Check that `got` is the gradient of the trusted `f` (tensor -> number) at x, by finite differences, to 1e-6."""
    expected = differences(f, x)
    why = why or "Expected is what differences of the function's own values give."
    rtol = 1e-6 if x.dtype == torch.float64 else None
    close(got, expected.to(x.dtype), name=name, why=why, mistakes=mistakes, rtol=rtol)


def differences(f: Callable, x: torch.Tensor, h: float = 1e-3) -> torch.Tensor:
    """Return df/dx in float64 by central differences of fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h."""
    x = x.detach().double()
    grad = torch.empty_like(x)
    for i in range(x.numel()):
        step = h * max(1.0, abs(x.reshape(-1)[i].item()))
        near, far = (_difference(f, x, i, k * step) for k in (1, 2))
        grad.view(-1)[i] = (8 * near - far) / (12 * step)
    return grad


def _difference(f: Callable, x: torch.Tensor, i: int, step: float) -> float:
    above, below = x.clone(), x.clone()
    above.view(-1)[i] += step
    below.view(-1)[i] -= step
    return float(f(above)) - float(f(below))


# Time


def faster(
    mine: Callable, reference: Callable, *, none: float, full: float, name: str, repeats: int = 5, why: str = ""
) -> None:
    """Compare the student's `mine()` with the trusted `reference()`, called alternately, by the fastest run of each.

    It gives full points if `mine` is at least `full` times as fast, none at `none`, and proportional points in between.
    Another check must verify the result's value, since a wrong answer is fast. Calls should take 10 ms or more.
    """
    if not full >= 1.3 * none > 0:
        raise ValueError(f"full is {full}, none is {none}: leave a factor of 1.3 between them, for a busy machine")
    times: dict[str, list[float]] = {"mine": [], "reference": []}
    for _ in range(repeats):
        for key, function in (("mine", mine), ("reference", reference)):
            begin = time.perf_counter()
            function()
            times[key].append(time.perf_counter() - begin)
    ratio = min(times["reference"]) / min(times["mine"])
    if ratio >= full:
        return
    shown = {key: f"{1e3 * min(values):.3g} ms" for key, values in times.items()}
    earned = max(0.0, (ratio - none) / (full - none))
    raise CheckFailure(
        f"{name} is {ratio:.2g} times as fast as the reference; full points from {full:g} times on.",
        got=shown["mine"],
        expected=f"the reference takes {shown['reference']}",
        where=f"That is {100 * earned:.0f} % of the way from {none:g} to {full:g} times.",
        share=earned,
    )
