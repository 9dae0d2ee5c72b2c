"""A flood of lines does not reach the page: the first ones, a count, the last ones."""

import io

import pytest

from hpcdl.cluster.engine.printing import FIRST, LAST, Limited


def printed(pieces) -> str:
    stream = io.StringIO()
    limited = Limited(stream)
    for piece in pieces:
        limited.write(piece)
    limited.finish()
    return stream.getvalue()


@pytest.mark.parametrize("pieces", [[], ["a"], ["a\n", "b"], [f"{i}\n" for i in range(FIRST)]])
def test_few_lines_are_printed_as_they_are(pieces):
    assert printed(pieces) == "".join(pieces)


@pytest.mark.parametrize("number", [FIRST + 1, FIRST + LAST, FIRST + LAST + 1, 50_000])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_of_many_lines_the_first_and_last_are(number, size):
    """However the text comes: `print` writes a line and its end apart."""
    text = "".join(f"line {i}\n" for i in range(number))
    lines = printed(text[i : i + size] for i in range(0, len(text), size)).splitlines()
    assert lines[:FIRST] == [f"line {i}" for i in range(FIRST)]
    assert lines[-1] == f"line {number - 1}"
    assert len(lines) < FIRST + LAST + 5000 / 8 + 5
    shown = sum(line.startswith("line ") for line in lines)
    left_out = next((int(line.split()[1].replace(",", "")) for line in lines if "left out" in line), 0)
    assert shown + left_out == number


def test_one_endless_line_is_cut():
    text = printed("x" * 1000 for _ in range(10_000))
    assert len(text) < 300_000
