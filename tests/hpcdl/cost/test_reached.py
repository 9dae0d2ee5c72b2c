"""Predictions say what they reach."""

import copy
import math
import pickle

import pytest

from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import A100_SUPERPOD, EPYC_7642, H100_DGX, H100_GRAND_TETON, H200_DGX, K80, P100
from hpcdl.cost.reached import KINDS, OTHER_DEVICE
from hpcdl.cost.scaling import Iteration
from hpcdl.cost.topology import Link, ParameterServers
from hpcdl.cost.training import ADAM_BYTES, MOMENTUM_BYTES, predict
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import resnet50, resnet50_v1_5

GPT = Transformer(24, 4096, 1024, 50304, 32)
SERVED = P100._replace(network=ParameterServers(4, Link(1e-5, 1e-9)))
HALF = {"precision": "fp16", "itemsize": 2}
CASES = {
    "transformer": (GPT, A100_SUPERPOD, Layout(**HALF), {}),
    "small transformer": (GPT._replace(layers=6), A100_SUPERPOD, Layout(**HALF), {}),
    "tiny transformer": (GPT._replace(hidden=512), A100_SUPERPOD, Layout(**HALF), {}),
    "sharded": (GPT, A100_SUPERPOD, Layout(data=8, zero=3, **HALF), {}),
    "context": (GPT, A100_SUPERPOD, Layout(context=8, **HALF), {}),
    "experts": (GPT._replace(experts=8, active=2), A100_SUPERPOD, Layout(data=8, experts=8, **HALF), {}),
    "layers": (resnet50(), P100, Layout(), {}),
    "measured": (resnet50(), P100, Layout(data=8), {"measured": (0.06, 0.12)}),
    "servers": (resnet50(), SERVED, Layout(data=8), {"measured": (0.06, 0.12)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_its_interval(kind):
    model, machine, layout, options = CASES[kind]
    found = predict(model, machine, layout, 64, **options)
    assert found.kind == kind
    assert found.low < found.seconds < found.high
    assert found.high / found.seconds == pytest.approx(math.exp(KINDS[kind].width))
    assert f"{found.low:.3g} to {found.high:.3g} s), {kind}" in str(found)
    assert KINDS[kind].says in str(found)
    assert ("no public figure" in str(found)) >= (KINDS[kind].rows == 0)


def test_a_device_without_figures_widens_the_interval():
    known, unknown = (predict(resnet50(), machine, Layout(), 64) for machine in (P100, EPYC_7642))
    assert unknown.width == pytest.approx(math.hypot(known.width, OTHER_DEVICE))
    capped, full = (predict(GPT, machine, Layout(**HALF), 64) for machine in (H100_GRAND_TETON, H100_DGX))
    assert full.width == pytest.approx(math.hypot(capped.width, OTHER_DEVICE))
    assert full.seconds < capped.seconds
    measured = predict(resnet50(), K80, Layout(data=8), 64, measured=(0.1, 0.2))
    assert measured.width == KINDS["measured"].width


def test_parts_are_asked_for_by_their_names():
    found = predict(resnet50(), P100, Layout(data=8), 64)
    assert [getattr(found, name) for name in Iteration._fields] == list(found.parts)
    assert found.compute == found.parts.compute
    assert copy.deepcopy(found) == pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(
        AttributeError, match="a prediction has no 'speed'; it has seconds, low, high, compute, forward"
    ):
        assert found.speed


# Milliseconds of a step on an H200, whose host launches a kernel in 28 to 38 µs (`benchmarks card`).
ON_AN_H200 = [
    (Transformer(6, 384, 256, 65, 6), 64, 15.0),  # its host is the slowest part
    (Transformer(12, 768, 1024, 50304, 12), 16, 45.9),
    (Transformer(24, 1024, 1024, 50304, 16), 8, 58.2),
    (Transformer(36, 1280, 1024, 50304, 20), 8, 119.0),
    (Transformer(24, 2048, 2048, 50304, 16), 4, 157.0),
    (Transformer(32, 2560, 2048, 50304, 32), 2, 177.0),
    *((resnet50_v1_5(), samples, ms) for samples, ms in ((16, 21.1), (64, 25.5), (256, 54.8))),
]
EAGER = Layout(precision="bf16", itemsize=2, kernels="eager", attention="flash", dropout=False)


@pytest.mark.parametrize(("model", "samples", "ms"), ON_AN_H200)
def test_measured_steps_are_in_their_intervals(model, samples, ms):
    update = ADAM_BYTES if isinstance(model, Transformer) else MOMENTUM_BYTES
    found = predict(model, H200_DGX, EAGER._replace(update_bytes=update, channels_last=True), samples)
    assert found.low < ms / 1e3 < found.high


def test_what_waits_for_its_host_says_so_by_its_interval():
    small, large = (predict(*ON_AN_H200[i][:1], H100_DGX, EAGER, ON_AN_H200[i][1]) for i in (0, 5))
    assert small.high / small.seconds > 2 * large.high / large.seconds
    slow = predict(ON_AN_H200[0][0], H100_DGX._replace(launch=45e-6), EAGER, 64)
    assert slow.seconds > 2 * small.seconds
