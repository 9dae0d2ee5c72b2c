"""Random programs, which combine what each entry of the zoo does alone: every wrapper trains like one process.

A failure names the seed; `Program(seed, kit).steps` are the functions that it calls.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo.outcomes import float64
from zoo.programs import ENTRY, Program
from zoo.registry import WRAPPERS, Kit

from hpcdl.comm import simulate


def compare(seed, column):
    with float64():
        expected = Program(seed, Kit(entry=ENTRY)).run()
        found = simulate(lambda comm: Program(seed, WRAPPERS[column](comm, ENTRY)).run(), 2).results
    for weights in found:
        torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-9)


COLUMNS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seed", range(15))
def test_programs(seed, column):
    compare(seed, column)


@pytest.mark.long
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seed", range(15, 400))
def test_more_programs(seed, column):
    compare(seed, column)
