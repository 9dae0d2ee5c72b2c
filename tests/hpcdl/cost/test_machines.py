"""Machines as values: what the lecture prints of them, and what a program reaches."""

import pytest

from hpcdl.cost.machines import A100_DGX, FITTED_SHARE, MACHINES, P100, V100_DGX1, V100_DGX2


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_every_machine_has_a_source_a_roofline_and_a_network(machine):
    assert len(machine.source) > 20
    for precision in machine.peaks:
        assert 1 < machine.device(precision).ridge < 1000 or machine.name.startswith("EPYC")
    assert machine.memory > 1e9
    assert machine.network.all_reduce(64)(1 << 20) > 0


def test_accelerators_are_those_of_the_lectures_table():
    assert [machine.peaks["fp32"] / 1e12 for machine in (P100, V100_DGX1, A100_DGX)] == [10.6, 15.7, 19.5]
    assert [machine.bandwidth / 1e9 for machine in (P100, V100_DGX1, A100_DGX)] == [720, 900, 1600]
    assert A100_DGX.peaks["tf32"], A100_DGX.peaks["fp16"] == (156e12, 312e12)
    both_ways = [round(2 / machine.network.within.beta / 1e9) for machine in (P100, V100_DGX2, A100_DGX)]
    assert both_ways == [160, 300, 600]


def test_faster_generations_are_faster_in_everything():
    names = ["K80", "P100", "V100 (DGX-1)", "A100 (DGX)", "H100 (DGX)"]
    for values in (
        [MACHINES[name].peaks["fp32"] for name in names],
        [MACHINES[name].bandwidth for name in names],
        [1 / MACHINES[name].network.within.beta for name in names],
    ):
        assert values == sorted(values)


def test_a_program_reaches_a_share():
    seen = A100_DGX.reaching(0.5, 0.25, 0.5)
    assert seen.device("fp16") == (156e12, 400e9)
    assert seen.network.within.beta == 2 * A100_DGX.network.within.beta
    assert pytest.approx(0.818, abs=0.001) == FITTED_SHARE


def test_a_precision_without_a_peak_is_named():
    with pytest.raises(ValueError, match="precision is 'fp16'; P100 has peaks for fp32"):
        P100.device("fp16")
