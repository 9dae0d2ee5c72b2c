"""Any layout is predicted or refused in a sentence, and what helps helps."""

import math
import random
from collections import Counter

import pytest

from hpcdl.cost import work
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import A100_SUPERPOD, H100_DGX, MACHINES
from hpcdl.cost.pipeline import BUBBLES
from hpcdl.cost.reached import KINDS
from hpcdl.cost.topology import Link, Nodes, ParameterServers, Torus, tcp
from hpcdl.cost.training import predict
from hpcdl.cost.work import RECOMPUTE, Transformer
from hpcdl.nn.networks import NETWORKS

GPT = Transformer(24, 4096, 2048, 50304, 32, gated=True, kv_heads=8)
BASE = Layout(8, 2, 2, microbatch=1, precision="bf16", itemsize=2, update_bytes=28)


def drawn(rng: random.Random):
    """Any machine, model, layout, batch and options, possible or not: small and huge, images and text."""
    pick = rng.choice
    machine, heads = pick(list(MACHINES.values())), pick([1, 2, 8, 32])
    if rng.random() < 0.2:
        slow = Link(1e-5, 1e-9)
        others = (ParameterServers(pick([1, 16]), slow), Torus(pick([2, 32]), slow, pick([True, False])))
        machine = machine._replace(
            network=pick([*others, Nodes(pick([1, 8]), Link(0, 0), tcp(1e9, 4e-5, pick([1, 8])))])
        )
    experts = pick([1, 1, 8])
    text = Transformer(
        pick([1, 2, 24, 96]), heads * pick([4, 32, 128]), pick([1, 64, 2048, 131_072]), pick([10, 50_304]), heads,
        pick([None, 1, 11_008]), pick([False, True]), pick([None, 1]), pick([False, True]), experts,
        pick([1, 2]) if experts > 1 else 1, pick([True, False]),
    )  # fmt: skip
    images, common = rng.random() < 0.4, {"microbatch": pick([None, None, 1, 4]), "chunks": pick([1, 2])}
    common |= {"schedule": pick(list(BUBBLES)), "kernels": pick(["eager", "fused"]), "balanced": pick([False, True])}
    common |= {"recompute": pick(RECOMPUTE), "precision": pick([*machine.peaks, "fp16"]), "itemsize": pick([1, 2, 4])}
    common |= {"update_bytes": pick([0.0, 28.0]), "offload": pick([None, None, 1e10]), "overlap": pick([False, True])}
    layout = Layout(pick([1, 2, 8, 64]), pipeline=pick([1, 1, 2, 4]), channels_last=pick([False, True]), **common)
    if not images:
        layout = layout._replace(
            tensor=pick([1, 1, 2, 8]), sequence_parallel=pick([False, True]), zero=pick(range(4)),
            shards=pick([None, None, 2, 8]), prefetch=pick([False, True]), context=pick([1, 1, 2, 4]),
            context_by=pick(["ring", "all_gather", "all_to_all"]), experts=pick([1, 1, 1, 2, 8]),
            expert_nodes=pick([None, 1]), hide_experts=pick([False, True]), imbalance=pick([1.0, 2.0]),
            attention=pick(["scores", "flash"]), dropout=pick([False, True]),
        )  # fmt: skip
    batch, options = pick([1, 64, 4096, 65_536, layout.data * layout.pipeline]), {}
    if rng.random() < 0.2:
        options = {"spread": rng.uniform(0, 0.5), "input_rate": 10 ** rng.uniform(-2, 6), "half": rng.uniform(0, 64)}
    return pick(list(NETWORKS.values()))() if images else text, machine, layout, batch, options


def least_seconds(model, machine, layout, batch):
    """The operations at the peak of all ranks; algorithms save some of a convolution's, flash some of attention's."""
    flops = work.training_flops(model, batch)
    if isinstance(model, Transformer):
        whole = 3 * model.layers * 4.0 * batch * model.sequence**2 * model.hidden
        return (flops - whole) / machine.peaks[layout.precision] / layout.ranks
    return flops / machine.peaks[layout.precision] / layout.ranks / (10 if layout.precision == "fp32" else 1)


def test_any_run_is_predicted_or_refused():
    """Never a figure that cannot be, and never an error from further down than a check."""
    rng, kinds, refusals = random.Random(0), Counter(), []
    for _ in range(400):
        model, machine, layout, batch, options = drawn(rng)
        try:
            found = predict(model, machine, layout, batch, **options)
        except (ValueError, TypeError) as refused:
            refusals.append(str(refused))
            continue
        assert all(seconds >= 0 and math.isfinite(seconds) for seconds in found.parts), (model, layout)
        assert 0 < found.low <= found.seconds <= found.high < math.inf
        assert found.seconds >= 0.999 * least_seconds(model, machine, layout, batch), (machine.name, model, layout)
        kinds[found.kind] += 1
    assert set(kinds) >= set(KINDS) - {"measured", "small transformer"}
    assert all("; " in refusal for refusal in refusals), "name, value, and the rule"


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"zero": 3, "prefetch": False}, {"zero": 3}),
        ({"zero": 0}, {"zero": 1}),
        ({}, {"attention": "flash"}),
        ({"kernels": "eager"}, {}),
        ({}, {"sequence_parallel": True}),
        ({"recompute": "full"}, {"recompute": "selective"}),
        ({"recompute": "full"}, {"recompute": "full", "recomputed": 0.5}),
        ({}, {"schedule": "zb_h1"}),
        ({}, {"balanced": True}),
        ({"overlap": False}, {}),
    ],
)
def test_what_saves_work_saves_time(worse, better):
    slow, fast = (predict(GPT, A100_SUPERPOD, BASE._replace(**options), 64).seconds for options in (worse, better))
    assert fast < slow


def test_float8_speeds_up_linear_layers_alone():
    half, eight = (predict(GPT, H100_DGX, BASE._replace(precision=what), 64) for what in ("bf16", "fp8"))
    assert 0.5 < eight.compute / half.compute < 0.9
    assert eight.exposed >= half.exposed, "less time to hide behind"


def test_context_divides_a_long_sequence():
    long = GPT._replace(sequence=65_536)
    alone, cut = (
        predict(long, A100_SUPERPOD, BASE._replace(data=1, tensor=1, pipeline=1, context=c, attention="flash"), 1)
        for c in (1, 8)
    )
    assert 1 / 8 <= cut.compute / alone.compute < 1 / 6
    assert cut.seconds < alone.seconds / 4


def test_a_whole_run_in_a_node_stays_there():
    """Messages between stages travel over links inside the node, if all ranks are in it."""
    near, far = BASE._replace(data=2, overlap=False), BASE._replace(data=8, overlap=False)
    assert near.ranks == A100_SUPERPOD.network.per_node
    assert predict(GPT, A100_SUPERPOD, near, 16).exposed < predict(GPT, A100_SUPERPOD, far, 64).exposed


def test_names_and_numbers_that_do_not_fit_are_refused():
    for options, said in (
        ({"context_by": "rings"}, "context_by is 'rings'; it is one of ring, all_gather, all_to_all"),
        ({"kernels": "fast"}, "kernels is 'fast'; it is one of eager, fused"),
        ({"shards": 3}, "shards is 3; it divides data x context, which is 8"),
        ({"imbalance": 0.5}, "imbalance is 0.5; it is a number from 1"),
        ({"chunks": 0}, "chunks is 0; it is a whole number from 1"),
        ({"itemsize": 0}, "itemsize is 0; it is a number above 0"),
    ):
        with pytest.raises(ValueError, match=said):
            BASE._replace(**options).check()
