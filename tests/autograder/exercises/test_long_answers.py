"""Answers that are longer than any right one are refused before a check computes with them."""

import pytest

from autograder import exercises
from autograder.grading import run
from autograder.grading.seeds import seeds

MATRICES = """
from fractions import Fraction

def winograd_matrices(m, r):
    a = m + r - 1
    rows = lambda n, k: [[Fraction(1, 3**2000 + i * j) for i in range(k)] for j in range(n)]
    return rows(m, a), rows(a, r), rows(a, a)
"""
INDICES = """
import torch

def shard_indices(n, rank, size, epoch, seed):
    return torch.zeros(1000, dtype=torch.int64)
"""
SCHEDULE = """
def gpipe(p, m):
    return [[("F", 10**4500, 0)] for _ in range(p)]
"""


@pytest.mark.parametrize(
    ("slug", "name", "code", "said"),
    [
        (
            "convolution",
            "winograd_matrices",
            MATRICES,
            "is a fraction of ints of up to 3170 bits: the points are small",
        ),
        ("ddp", "shard_indices", INDICES, "holds 1000 indices, and there are 12 samples."),
        ("model_parallel", "schedules", SCHEDULE, "has ('F', an int of 14949 bits, 0): the ops are F, B"),
    ],
)
def test_a_long_answer_is_refused(slug, name, code, said, local):
    exercise = exercises.load(slug).exercises[name]
    found = run.run_exercise(exercise, local(code), seeds(b"", "")).checks[0]
    assert said in found.message
    assert found.kind == "values"
