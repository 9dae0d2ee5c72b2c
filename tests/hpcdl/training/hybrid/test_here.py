"""A step on this processor is predicted from a few constants; virtual seconds prove the arithmetic."""

from subprocess import CalledProcessError, TimeoutExpired
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from hpcdl.conv import calibration
from hpcdl.cost.pipeline import play
from hpcdl.machine import Quiet
from hpcdl.parallel import SCHEDULES
from hpcdl.training import Configuration
from hpcdl.training.hybrid import rates
from hpcdl.training.hybrid.configuration import ConfigurationError
from hpcdl.training.hybrid.dry import DryComm
from hpcdl.training.hybrid.here import Call, Here, Listed, per_unit
from hpcdl.training.hybrid.predictions import difference, predicted_seconds
from hpcdl.training.hybrid.work import layers_of

PRODUCTS = Here(product=[(1.0, 1e-6)])  # a microsecond for each operation of a product, and nothing else
MLP = Configuration(model="mlp", size="tiny", batch=16)
FLOPS = [layer.flops for layer in layers_of("mlp", "tiny")]


def stage(layers: slice, first: bool) -> tuple[float, float]:
    """The seconds of a sample forward and backward; the first layer needs no gradient of its input."""
    flops = sum(FLOPS[layers])
    return flops * 1e-6, (2 * flops - first * FLOPS[0]) * 1e-6


@pytest.mark.parametrize(("mesh", "rows"), [((1, 1, 1, 1), 16), ((2, 1, 1, 1), 8)])
def test_a_rank_computes_its_samples(mesh, rows):
    assert PRODUCTS.step_seconds(MLP.changed(mesh=mesh)) == pytest.approx(rows * sum(stage(slice(9), True)), rel=1e-9)


def test_a_pipeline_takes_its_makespan():
    pipeline = MLP.changed(mesh=(1, 2, 1, 1), microbatches=4)
    stages = [stage(slice(0, 5), True), stage(slice(5, 9), False)]
    f, b = ([4 * seconds for seconds in passes] for passes in zip(*stages, strict=True))
    expected = play(SCHEDULES["one_f_one_b"].orders(2, 4), f, b).makespan
    assert PRODUCTS.step_seconds(pipeline) == pytest.approx(expected, rel=1e-9)


def test_calls_and_messages_add_up():
    call = Here(view=1.0, forward=1.0, backward=1.0, update=1.0)
    one, alpha = call.step_seconds(MLP), Here(alpha=1.0).step_seconds(MLP.changed(mesh=(2, 1, 1, 1)))
    assert one == round(one) > 200
    assert 2 <= alpha == round(alpha) <= 8, "sums of gradients, and the numbers to agree on"
    assert Here(alpha=1.0).step_seconds(MLP) == 0.0


def test_a_call_has_its_work():
    x, layer, q = torch.randn(2, 3, requires_grad=True), nn.Linear(3, 4), torch.randn(1, 2, 8, 4)
    with Listed() as listed:
        gelu(layer(x)).sum().backward()
        scaled_dot_product_attention(q, q, q)
    named = {(call.name, call.phase): call.amount for call in listed.calls[:3]}
    assert named == {("view", "forward"): 0.0, ("product", "forward"): 2.0 * 2 * 3 * 4, ("function", "forward"): 64.0}
    backward = [call.amount for call in listed.calls if call.phase == "backward" and call.name == "product"]
    assert backward == [48.0, 48.0]
    assert Call("product", "forward", 2.0 * 2 * q.numel() * 8) in listed.calls


@pytest.mark.parametrize(("amount", "expected"), [(1.0, 4.0), (10.0, 4.0), (100.0, 3.0), (1000.0, 2.0), (1e6, 2.0)])
def test_a_curve_goes_through_its_points(amount, expected):
    assert per_unit([(10.0, 4.0), (1000.0, 2.0)], amount) == pytest.approx(expected)


def test_the_run_has_both_times_beside_each_other():
    expected = PRODUCTS.step_seconds(MLP)
    assert predicted_seconds(MLP, PRODUCTS).endswith(" a step on this processor, predicted")
    assert difference(MLP, PRODUCTS, [9.0, 1.1 * expected, 0.0]).endswith(" was predicted: +10.0 %")


@pytest.mark.parametrize("waited", [0.0, 5.0])
def test_constants_of_a_busy_processor_are_not_kept(tmp_path, monkeypatch, waited):
    found = [PRODUCTS, Here(view=1.0)]
    waits = iter([0.0, waited])
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    monkeypatch.setattr(rates, "measured", lambda comm: found.pop(0))
    monkeypatch.setattr(rates, "Quiet", lambda: Quiet(lambda: 0.0, lambda: next(waits, 0.0)))
    rates.rates(DryComm(0, 1))
    assert rates.rates(DryComm(0, 1)).view == (1.0 if waited else 0.0)
    assert calibration.recalibrate()
    assert not calibration.recalibrate()


@pytest.mark.parametrize("failure", [CalledProcessError(1, "mpiexec"), TimeoutExpired("mpiexec", 120)])
def test_a_plan_without_ranks_to_measure_on_is_one_sentence(monkeypatch, failure):
    def run(*_, **__):
        raise failure

    monkeypatch.setattr(rates.subprocess, "run", run)
    monkeypatch.setattr(rates, "find_launcher", lambda: SimpleNamespace(path="mpiexec", options_here=[]))
    monkeypatch.setattr(rates, "cores", lambda: 2)
    with pytest.raises(ConfigurationError, match="could not start 2 ranks to measure on"):
        rates.of_ranks(MLP.changed(mesh=(2, 1, 1, 1)))


def test_constants_come_from_what_was_timed():
    """Each sample takes a second for its call, and a nanosecond for each unit of work."""
    seconds = {f"product {n}": 1.0 + 2e-9 * n**3 for n in rates.SIZES}
    seconds |= {f"convolution {c}": 1.0 + 2e-9 * 8 * 14 * 14 * 9 * c * c for c in rates.CHANNELS}
    seconds |= {f"moved {n}": 1.0 + 12e-9 * n for n in rates.ELEMENTS}
    seconds |= {f"function {n}": 1.0 + 8e-9 * n for n in rates.ELEMENTS}
    for curve in rates._curves(seconds).values():
        assert [per_unit for _, per_unit in curve] == pytest.approx([1e-9] * len(curve), rel=0.05)
