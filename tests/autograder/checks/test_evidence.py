"""Properties, draws, gradients, counts and times: each fails what is wrong, in its own sentence, and nothing else."""

import math
import time

import pytest
import torch
from hypothesis import strategies as st

from autograder import checks
from autograder.authoring import Lab
from autograder.checks import CheckFailure
from autograder.checks.evidence import differences
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.sessions.errors import StudentError

SORT = "def sort(x): return sorted(set(x))"  # wrong for the first time where a value occurs twice


def failure(check, *args, **kwargs) -> CheckFailure:
    with pytest.raises(CheckFailure) as caught:
        check(*args, **kwargs)
    return caught.value


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Properties


def sorts(sort):
    return lambda x: checks.equal(sort(x), sorted(x), name="sort(x)")


def test_smallest_counterexample_is_shown():
    lists = st.lists(st.integers(-9, 9))
    checks.for_all(sorts(sorted), rng(), x=lists)
    for seed in range(3):
        said = failure(checks.for_all, sorts(lambda x: sorted(set(x))), rng(seed), x=lists)
        assert said.where == "The smallest example found: x = [0, 0]."
        assert said.message.startswith("sort(x) has 1 item, expected 2. If a loop makes them, ")


def test_the_examples_are_those_of_the_seed():
    def drawn(seed):
        found = []
        checks.for_all(lambda n: found.append(n), rng(seed), n=st.integers(0, 10**6))
        return found

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_property_is_checked_on_the_students_side(session):
    lab = Lab("property", number=0, title="")
    exercise = lab.exercise("sort", points=1, minutes=1)

    @exercise.check(points=1)
    def any_list(student, rng):
        checks.for_all(sorts(student.sort), rng, x=st.lists(st.integers(-9, 9)))

    check = run.run_lab(lab, session(SORT), seeds(b"", ""))[0].checks[0]
    assert (check.call, check.got, check.expected) == ("sort([0, 0])", "[0]", "[0, 0]")


def test_errors_are_shrunk_within_the_time():
    calls = []

    def property_of(n):
        calls.append(n)
        if n > 100:
            raise StudentError("timeout" if len(calls) > 30 else "exception", "no")

    with pytest.raises(StudentError) as caught:
        checks.for_all(property_of, rng(), n=st.integers(0, 10**6))
    assert caught.value.kind == "exception"
    assert len(calls) < 40


# Draws


def test_a_fair_share_passes_every_time_and_a_biased_one_fails():
    n, generator = 1 << 16, rng(1)
    for _ in range(50):
        checks.share(int((torch.rand(n, generator=generator) < 0.3).sum()), n, 0.3, what="drawn")
    said = failure(checks.share, int(0.32 * n), n, 0.3, what="rounded up")
    assert said.message == "The share rounded up is 0.32, expected 0.3."
    assert "once in 1e9 times" in said.where


@pytest.mark.parametrize(("n", "p"), [(20, 0.5), (50, 0.1), (200, 0.01)])
def test_false_alarm_rate_is_exact(n, p):
    alarm = 0.0
    for k in range(n + 1):
        try:
            checks.share(k, n, p, what="")
        except CheckFailure:
            alarm += math.comb(n, k) * p**k * (1 - p) ** (n - k)
    assert alarm <= 1e-9


def test_65_536_draws_catch_a_bias_of_two_hundredths():
    n, generator = 1 << 16, rng(2)
    for _ in range(20):
        failure(checks.share, int((torch.rand(n, generator=generator) < 0.52).sum()), n, 0.5, what="")


def test_a_mean_is_what_it_should_be_and_draws_lie_where_they_should():
    x = torch.rand(10_000, generator=rng(3))
    checks.mean(x, 0.5, low=0.0, high=1.0, what="u")
    assert failure(checks.mean, x**2, 0.5, low=0.0, high=1.0, what="u").message.startswith("The mean of u is 0.33")
    assert failure(checks.mean, x + 0.5, 0.5, low=0.0, high=1.0, what="u").message.endswith("between 0 and 1.")
    assert "nan once" in failure(checks.mean, x * math.nan, 0.5, low=0.0, high=1.0, what="u").message


def test_only_a_second_failure_counts():
    outcomes = [False, True, False, False]

    def test():
        checks.that(outcomes.pop(0), "no")

    checks.retested(test)
    failure(checks.retested, test)


# Gradients


def test_differences_are_the_gradient_of_autograd():
    x = torch.randn(2, 3, dtype=torch.float64, generator=rng(4), requires_grad=True)
    f = lambda x: (x.sin() * x.exp()).sum()  # noqa: E731
    (expected,) = torch.autograd.grad(f(x), x)
    assert torch.allclose(differences(f, x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_is_checked_against_the_function_alone(dtype):
    x = torch.randn(5, generator=rng(5)).to(dtype)
    cube = lambda x: (x**3).sum()  # noqa: E731
    checks.gradient(3 * x**2, cube, x, name="grad")
    said = failure(checks.gradient, x**2, cube, x, name="grad", mistakes={"The factor 3 is missing.": x**2})
    assert said.mistake == "The factor 3 is missing."
    assert "differences" in said.why


# Time


def sleeper(seconds: float):
    return lambda: time.sleep(seconds)


def test_time_beside_the_reference_gives_full_points_some_or_none():
    checks.faster(sleeper(0.002), sleeper(0.02), none=0.5, full=2.0, name="f", repeats=3)
    some = failure(checks.faster, sleeper(0.02), sleeper(0.02), none=0.5, full=2.0, name="f", repeats=3)
    assert 0.15 < some.share < 0.5
    assert "full points from 2 times on" in some.message
    assert failure(checks.faster, sleeper(0.02), sleeper(0.001), none=0.5, full=2.0, name="f", repeats=3).share == 0
    with pytest.raises(ValueError, match=r"a factor of 1\.3"):
        checks.faster(sleeper(0), sleeper(0), none=1.0, full=1.2, name="f")


def test_a_share_of_the_points_reaches_the_result(session):
    lab = Lab("partial", number=0, title="")
    exercise = lab.exercise("f", points=10, minutes=1)

    @exercise.check(points=10)
    def slow(student, rng):
        student.f()
        raise CheckFailure("slow", share=0.35)

    result = run.run_lab(lab, session("def f(): pass"), seeds(b"", ""))[0]
    assert (result.points, result.status) == (3.5, "failed")
    assert type(result.checks[0])(**vars(result.checks[0])).points == 3.5
