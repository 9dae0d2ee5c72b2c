"""The trainer on live engines, as docs/training.md shows it in a notebook."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[4] / "docs" / "training.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.mpi, pytest.mark.labs]  # starts engines


def test_the_notebooks_cell_of_the_docs_trains(capsys):
    (cell,) = re.findall(r"^```ipython\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(cell, "cell", "exec"), {"__name__": "__main__"})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert sorted((int(rank), int(step)) for rank, step, *_ in lines) == [(r, s) for r in (0, 1) for s in (1, 2, 3)]
    by_step = {step: {loss for _, s, loss, _ in lines if s == step} for _, step, *_ in lines}
    assert all(len(losses) == 1 for losses in by_step.values()), "both ranks know the loss of all"
