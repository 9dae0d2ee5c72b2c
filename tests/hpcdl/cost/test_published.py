"""The page of published figures is what the models say now, and they say it within the limits."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hpcdl.cost import published
from hpcdl.cost.published.row import USABLE
from hpcdl.cost.published.transformers import MEGATRON

ROOT = Path(__file__).resolve().parents[3]
ROWS = published.rows()
BOUND = {f"{row.source}: {row.what}": row for row in ROWS if row.limit is not None}
# Per cent, or points; "exact" figures have 0.
LIMITS = {
    "ZeRO": set(),
    "GPipe": {10},
    "Zero Bubble": {0.4, 10},
    "PipeDream": {10},
    "Megatron-LM": {8},
    "Megatron 2021": {1, 8},
    "Korthikanti": {0.1, 1, 10},
    "Ring attention": set(),
    "DeepSeek-V3": set(),
    "Goyal et al. 2017": {5},
    "Horovod": {7},
    "Poseidon": {10},
    "Large batch": {5},
    "Micikevicius et al. 2018": set(),
    "Lecture": set(),
}


def test_the_page_is_what_the_command_writes():
    command = [sys.executable, "-X", "utf8", "-m", "hpcdl.cost.published"]
    run = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=240, check=True)
    committed = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    assert run.stdout.decode() == committed, "run: python -m hpcdl.cost.published > docs/published.md"


@pytest.mark.parametrize("row", BOUND.values(), ids=BOUND)
def test_a_prediction_is_within_its_limit(row):
    assert abs(row.error) <= row.limit + (1e-3 if row.fitted else 1e-9)


def test_every_source_has_the_limit_it_was_given():
    limits = {source: {row.limit for row in ROWS if row.source == source and row.limit} for source in LIMITS}
    assert limits == LIMITS
    assert {row.source for row in ROWS} == set(LIMITS)
    unreached = Counter(row.source for row in ROWS if row.limit is None)
    assert unreached == {
        "GPipe": 13,
        "PipeDream": 3,
        "Megatron 2021": 1,
        "Goyal et al. 2017": 1,
        "Poseidon": 1,
        "Large batch": 1,
        "Lecture": 2,
    }


def test_rows_that_fix_an_assumption_are_marked_and_agree():
    fitted = [row for row in ROWS if row.fitted]
    assert [row.source for row in fitted] == ["Megatron-LM", "Megatron 2021", "Korthikanti", "Large batch"]
    for row in fitted:
        assert abs(row.error) < 1e-3
        assert row.cells()[-1] == "fitted"


def test_no_source_with_an_assumption_fitted_to_it_is_without_a_figure_that_is_predicted():
    for source in {row.source for row in ROWS if row.fitted}:
        assert any(row.source == source and row.limit and not row.fitted for row in ROWS)


def test_a_figure_is_called_not_reached_only_where_the_model_is_off():
    for row in ROWS:
        if row.limit is None:
            assert abs(row.error) > 5, row
            assert row.cells()[-1] == "not reached"


def test_what_the_assumptions_are_taken_from_is_what_they_say():
    assert pytest.approx(0.818, abs=0.001) == USABLE
    # The fit over 16 workers, for the page's "66 %", and the 10 GbE one, which claims more than the wire can carry.
    assert pytest.approx(0.66, abs=0.005) == 30 / 16 / (4.0595e-10 * 7e9)
    assert 14 / 8 / 8.5707e-10 > 10e9 / 8
    assert [round(model.parameters / 1e9, 1) for model in MEGATRON.values()] == [1.2, 2.5, 4.2, 8.3]
