"""The stored runs in low precision are all there, and what they claim to be."""

import pytest

from hpcdl.training import low_precision_runs

pytestmark = pytest.mark.labs("stochastic_rounding")


def test_the_file_has_every_setting_with_every_epoch():
    table = low_precision_runs.made_before()
    assert set(table) == {low_precision_runs.name_of(*setting) for setting in low_precision_runs.settings()}
    for found in table.values():
        assert len(found) == len(low_precision_runs.SEEDS)
        for run in found:
            assert [epoch.number for epoch in run] == list(range(1, low_precision_runs.EPOCHS + 1))


@pytest.mark.long
def test_a_run_made_again_is_the_one_in_the_file():
    for setting in ((16, 8, "stochastic"), (16, 8, "nearest")):
        again = [low_precision_runs.short(epoch) for epoch in low_precision_runs.make(*setting, seed=0)]
        stored = low_precision_runs.made_before()[low_precision_runs.name_of(*setting)][0]
        # Convolutions may add in another order on another machine: the course of the run is compared, not its bits.
        assert again[-1][2] == pytest.approx(stored[-1].accuracy, abs=0.05)
