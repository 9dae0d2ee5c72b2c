"""Mutants of the reference solutions lose points, except the listed ones, each with the reason."""

import pytest

from autograder import exercises
from autograder.grading import mutation

SEED = 5
CLEAN = (
    "consistency",
    "hogwild",
    "model_parallel",
    "sharding",
    "machines",
    "scaling",
    "frameworks",
    "own_stack",
)  # nothing survives here


def told(mutants) -> list[str]:
    return [f"{mutant.exercise} ({mutant.operator}): {mutant.change}" for mutant in mutants]


def test_a_sample_is_killed(zygote):
    assert told(mutation.survivors("consistency", zygote, sample=4, seed=SEED, only="delay")) == []


@pytest.mark.labs  # some seconds each
@pytest.mark.parametrize("slug", CLEAN)
def test_a_sample_of_each_lab_is_killed(slug, zygote):
    assert told(mutation.survivors(slug, zygote, sample=2, seed=SEED)) == []


@pytest.mark.long  # some hundred mutants in each lab
@pytest.mark.parametrize("slug", exercises.LABS)
def test_all_are_killed(slug, zygote):
    left = told(mutation.survivors(slug, zygote))
    allowed = 0 if slug in CLEAN else len(mutation.chosen(slug)) // 8
    assert len(left) <= allowed, left


def test_a_sample_is_the_same_each_time():
    first, second = (mutation.chosen("consistency", 5, SEED) for _ in range(2))
    assert first == second
    assert len(first) == 5
