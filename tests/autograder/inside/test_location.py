"""The line of the student's that is named, at whatever instruction a time limit's exception is raised."""

import types

import pytest

from autograder.boundary.limits import TimeUp, time_limit
from autograder.inside.location import raised_at
from hpcdl.comm.location import line_at, lines_of_traceback

ANSWER = """
def waits(queues, ends):
    while any(queues):
        for i in range(2):
            while queues[i] and queues[i][0] in ends:
                pass
"""


def codes(code):
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def test_an_instruction_of_no_line_has_that_of_one_before_it():
    (answer,) = (code for code in codes(compile(ANSWER, "answer", "exec")) if code.co_name == "waits")
    assert None in {line for *_, line in answer.co_lines()}  # else this tests nothing
    for start, _, line in answer.co_lines():
        assert line_at(answer, start) in ((line,) if line is not None else range(2, 7))


def test_a_limit_that_ends_a_loop_anywhere_names_a_line_of_it():
    namespace: dict = {}
    exec(compile(ANSWER, "answer", "exec"), namespace)
    for _ in range(80):  # without the mend one in eight fails
        with pytest.raises(TimeUp) as caught, time_limit(0.002):
            namespace["waits"]([[1], [2]], {})
        assert raised_at(caught.value, namespace)["line"] in range(3, 7)
        assert lines_of_traceback(caught.value.__traceback__)[-1].line >= 3
