"""Predictions say what they reach."""

import copy
import math
import pickle

import pytest

from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import A100_SUPERPOD, EPYC_7642, H100_DGX, H100_GRAND_TETON, K80, P100
from hpcdl.cost.reached import KINDS, OTHER_DEVICE
from hpcdl.cost.scaling import Iteration
from hpcdl.cost.topology import Link, ParameterServers
from hpcdl.cost.training import predict
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import resnet50

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
