"""Mutated notebooks, of bytes, JSON, cells and metadata: each is read, or refused in words, and the next one too."""

import copy
import json
import random
import tempfile

import pytest

from autograder.inside.notebook import UngradableError
from autograder.sessions.parsing import ParsingSession

CODE = (
    "import torch\nfrom math import *\n%matplotlib inline",
    "def mean(x):\n    '''The mean.'''\n    return x.sum() / x.numel()",
    "@decorated\nclass Count:\n    n: int = 3\n\n    def __call__(self): return [i async for i in self]",
    "!ls\n%%time\ntable[0] = lambda *a, **k: {**k}\nmatch table:\n    case [x, *_]: pass",
)
SCRAPS = [
    "",
    "\x00",
    "\ud800",
    "é" * 9,
    "(" * 300,
    "[" * 5000,
    "%%px",
    "!",
    "?",
    "def ",
    "\\",
    "'''",
    "{{",
    "1e999",
    "\t",
    "\r",
]
VALUES = [None, True, -1, 10**30, 1e308, float("nan"), "", "x" * 10_000, [], [[]], {}, {"cells": []}, ["a", 1, None]]


def notebook() -> dict:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": code} for code in CODE]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"hpcdl": {"lab": "tiny"}}, "cells": cells}


def places(value, found):
    """Every (container, key) of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        found.append((value, key))
        places(inner, found)
    return found


def mutated(rng: random.Random) -> bytes:
    content = notebook()
    for _ in range(rng.randrange(3)):  # its structure
        container, key = rng.choice(places(content, []))
        container[key] = copy.deepcopy(rng.choice(VALUES))
    for _ in range(rng.randrange(3)):  # its code
        container, key = rng.choice(places(content, []) or [(content, "cells")])
        if isinstance(text := container[key], str):
            at = rng.randrange(len(text) + 1)
            container[key] = text[:at] + rng.choice(SCRAPS) + text[at + rng.randrange(5) :]
    data = bytearray(json.dumps(content), "utf-8")
    for _ in range(rng.choice((0, 0, 1, 5))):  # its bytes
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.05 else data)


def read(zygote, seeds) -> list[str]:
    """What became of each mutant, in one reader: "" for one that was read, or the reason."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, ParsingSession(zygote, folder) as reader:
        for seed in seeds:
            try:
                found = reader.read(mutated(random.Random(seed)))
                reader.needed(found.cells, [["mean", "Count"], ["table"]])
                outcomes.append("")
            except UngradableError as error:
                outcomes.append(str(error) or "no reason")
    return outcomes


def judge(outcomes) -> None:
    assert outcomes.count("") > len(outcomes) / 4  # many mutants are still notebooks
    assert len(set(outcomes)) > 5  # and the others fail in many ways
    odd = [text for text in outcomes if "no reason" in text or "cannot be read" in text or "Error" in text]
    assert odd == []


def test_500_mutants_are_read_or_refused_in_words(zygote):
    judge(read(zygote, range(500)))


@pytest.mark.long
def test_10_000_mutants_are_read_or_refused_in_words(zygote):
    judge(read(zygote, range(1000, 11_000)))
