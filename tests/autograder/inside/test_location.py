"""The line of the student's that is named, at whatever instruction a time limit's exception is raised."""

import itertools
import types

import pytest

from autograder.boundary.limits import TimeUp, time_limit
from autograder.inside import worker
from autograder.inside.location import places_of_ours, raised_at, without_paths
from hpcdl.comm.location import line_at, lines_of_traceback

ANSWER = """
def waits(queues, ends):
    while any(queues):
        for i in range(2):
            while queues[i] and queues[i][0] in ends:
                pass
"""


def every_second_without_a_line(code: types.CodeType) -> types.CodeType:
    """`code` with a table of lines in which each second instruction has none, as some have in Python 3.11.

    An entry is 1, its kind (13: a difference of lines, 15: none) in four bits and its length less 1 in three.
    """
    entries = (bytes([1 << 7 | 13 << 3, 1 << 1]), bytes([1 << 7 | 15 << 3]))
    return code.replace(co_linetable=b"".join(entries[unit % 2] for unit in range(len(code.co_code) // 2)))


def test_an_instruction_of_no_line_has_that_of_one_before_it():
    namespace: dict = {}
    exec(compile(ANSWER, "answer", "exec"), namespace)
    answer = every_second_without_a_line(namespace["waits"].__code__)
    lines = [(start, line) for start, _, line in answer.co_lines()]
    assert len(lines) > 20
    assert [line is None for _, line in lines[:4]] == [False, True, False, True]
    for (_, before), (start, line) in itertools.pairwise(lines):
        assert line_at(answer, start) == (before if line is None else line)


def test_a_limit_that_ends_a_loop_anywhere_names_a_line_of_it():
    namespace: dict = {}
    exec(compile(ANSWER, "answer", "exec"), namespace)
    for _ in range(80):  # without the mend one in eight fails
        with pytest.raises(TimeUp) as caught, time_limit(0.002):
            namespace["waits"]([[1], [2]], {})
        assert raised_at(caught.value, namespace)["line"] in range(3, 7)
        assert lines_of_traceback(caught.value.__traceback__)[-1].line >= 3


def test_a_text_names_no_line_of_ours():
    text = f'Current thread:\n  File "<cell 3>", line 8 in f\n  File "{worker.__file__}", line 170 in run'
    assert without_paths(text) == 'Current thread:\n  File "<cell 3>", line 8 in f\n'
    assert not places_of_ours(without_paths(f"{text}\nNo such file: {worker.__file__[:-9]}data.csv"))
