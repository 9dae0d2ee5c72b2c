"""Find small changes of the reference solutions that lose no points: see `authors.mutants`."""

import copy
import random
from collections.abc import Iterator
from dataclasses import replace

from autograder import exercises
from autograder.authoring import Exercise, Lab
from autograder.authors import mutants
from autograder.authors.mutants import Mutant
from autograder.walls.zygote import Zygote

from . import selfcheck


def proofs(slug: str, zygote: Zygote) -> Iterator[selfcheck.Proof]:
    """Return one proof for each surviving mutant, and one for all others."""
    tried, left = chosen(slug), 0
    for mutant in survivors(slug, zygote):
        left += 1
        problem = "It loses no points: a check is missing, or it does the same and belongs into equivalent.json."
        yield selfcheck.Proof(f"{slug}.{mutant.exercise} ({mutant.operator}): {mutant.change}", [problem])
    yield selfcheck.Proof(f"{len(tried) - left} of {len(tried)} mutants lose points", [])


def survivors(slug: str, zygote: Zygote, sample: int = 0, seed: int = 0, only: str = "") -> Iterator[Mutant]:
    """Yield the mutants that keep all points and are not listed as equivalent; of a `sample` if it is not 0."""
    solved = selfcheck.cells_of(selfcheck.build.solved(slug))
    for mutant in chosen(slug, sample, seed, only):
        if not is_killed(slug, mutant, solved, zygote):
            yield mutant


def chosen(slug: str, sample: int = 0, seed: int = 0, only: str = "") -> list[Mutant]:
    """Return the mutants to try, in order, without known equivalent ones; `only` selects one exercise."""
    known = mutants.equivalent(slug)
    every = [m for m in mutants.mutants(slug) if m.change not in known.get(m.exercise, {}) and only in ("", m.exercise)]
    if not sample or sample >= len(every):
        return every
    picked = random.Random(seed).sample(range(len(every)), sample)
    return [every[i] for i in sorted(picked)]


def is_killed(slug: str, mutant: Mutant, solved: list[tuple[str, str]], zygote: Zygote) -> bool:
    """Return whether the mutant loses points of its own exercise; checks after the first that fails are not run."""
    lab = exercises.load(slug)
    part = Lab(slug, number=lab.number, title=lab.title, slow_modules=lab.slow_modules)
    part.exercises[mutant.exercise] = up_to_the_first_failure(lab.exercises[mutant.exercise])
    result = selfcheck.run(part, [*solved, (selfcheck.WRONG, mutant.code)], zygote)
    return any(not check.passed for exercise in result.exercises for check in exercise.checks)


def up_to_the_first_failure(exercise: Exercise) -> Exercise:
    """Return the exercise with checks that each need all checks before them."""
    names = list(exercise.checks)
    whole = copy.copy(exercise)
    whole.checks = {
        name: replace(check, needs=tuple(names[:i])) for i, (name, check) in enumerate(exercise.checks.items())
    }
    return whole
