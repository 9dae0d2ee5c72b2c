"""Lab 17's tape: an operator that makes no node is named."""

import pytest

from autograder import exercises
from autograder.grading import run
from autograder.grading.seeds import seeds

NODE = """
class Node:
    def __init__(self, data, parents=(), pulls=()):
        self.data, self.parents, self.pulls = data, parents, pulls

    def __add__(self, other):
        {add}

    def __matmul__(self, other):
        {matmul}
"""
ADD, MATMUL = "return Node(self.data + other.data)", "return Node(self.data @ other.data)"


@pytest.mark.parametrize(("add", "matmul", "said"), [("pass", MATMUL, "a + b"), (ADD, "pass", "a @ b")])
def test_a_method_that_returns_nothing_is_named(add, matmul, said, local):
    tape = exercises.load("own_stack").exercises["tape"]
    found = run.run_exercise(tape, local(NODE.format(add=add, matmul=matmul)), seeds(b"", "")).checks[0]
    assert found.message == f"{said} is None: the method returns nothing, expected a new node."
