"""Notebooks that try to gain points, to crash the grader or to make it wait; one for each class of threat.

Each is the work of one student of the lab `arena` (see `test_attacks.py`): `mean(x)` for 60 points, `count(n)` for 40.
`ATTACKS` of each module maps a title to an `Attack`.
"""

import json
from dataclasses import dataclass

MEAN = "import torch\n\ndef mean(x):\n    return x.sum() / x.numel()\n"
CLOSED = "which this exercise forbids"  # refused before it happens: the sentry hears it
COUNT = "def count(n):\n    return list(range(n))\n"


@dataclass(frozen=True)
class Attack:
    """What is handed in, the score it must have, and words that its row or its feedback must contain."""

    content: bytes
    score: float = 40
    says: str = ""


def notebook(*cells, **metadata) -> bytes:
    """The bytes of a notebook of code cells; a dict is a cell as it stands."""
    blank = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    made = [
        cell if isinstance(cell, dict) else {**blank, "id": f"c{i}", "source": cell} for i, cell in enumerate(cells)
    ]
    metadata = {"hpcdl": {"lab": "arena"}, **metadata}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": made}).encode()


def cells(*sources, score: float = 100, says: str = "", **metadata) -> Attack:
    return Attack(notebook(*sources, **metadata), score, says)


def mean(body: str, before: str = "", *, score: float = 40, says: str = "") -> Attack:
    """A `mean` with this body that should gain nothing, beside a right `count` that should lose nothing."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return Attack(notebook(f"import torch\n{before}\ndef mean(x):\n{lines}", COUNT), score, says)
