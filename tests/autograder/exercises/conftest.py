import functools

import pytest
import torch

from autograder import exercises
from autograder.grading.reference import statements
from hpcdl.comm import simulate


@functools.cache
def functions_of(slug: str) -> dict:
    names: dict = {"__name__": "reference", "simulate": simulate, "torch": torch}  # for examples in docstrings
    for _, code in statements(slug, exercises.load(slug).functions):
        exec(code, names)
    return names


@pytest.fixture
def reference(slug) -> dict:
    """The names that the reference's answers to the lab `slug` define."""
    return functions_of(slug)
