"""Any layout is predicted or refused in a sentence, and what helps helps."""

import math
import random

import pytest

from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import A100_SUPERPOD, H100_DGX, MACHINES
from hpcdl.cost.training import predict
from hpcdl.cost.work import RECOMPUTE, Transformer

GPT = Transformer(24, 4096, 2048, 50304, 32, gated=True, kv_heads=8)
BASE = Layout(8, 2, 2, microbatch=1, precision="bf16", itemsize=2, update_bytes=28)


def drawn(rng: random.Random, machine) -> Layout:
    """Any layout, possible or not."""
    pick = rng.choice
    return Layout(
        pick([1, 2, 8, 64]), pick([1, 2, 8]), pick([1, 2, 4]), pick([1, 2]), pick([None, 1, 2]),
        pick(["one_f_one_b", "interleaved", "zb_h1", "gpipe", "zb_v"]), pick([False, True]), pick(RECOMPUTE),
        pick(list(machine.peaks)), 2, 28.0, overlap=pick([False, True]), zero=pick(range(4)), shards=pick([None, 2, 8]),
        prefetch=pick([False, True]), context=pick([1, 2, 4]), context_by=pick(["ring", "all_gather", "all_to_all"]),
        experts=pick([1, 2, 8]), attention=pick(["scores", "flash"]), kernels=pick(["eager", "fused"]),
    )  # fmt: skip


def test_any_layout_is_predicted_or_refused():
    rng, predicted, refusals = random.Random(0), 0, []
    for _ in range(400):
        machine = rng.choice(list(MACHINES.values()))
        layout, model = drawn(rng, machine), GPT._replace(layers=rng.choice([1, 24]), experts=rng.choice([1, 8]))
        try:
            found = predict(model, machine, layout, layout.data * rng.choice([1, 4]))
        except ValueError as refused:
            refusals.append(str(refused))
            continue
        assert all(seconds >= 0 and math.isfinite(seconds) for seconds in found.parts)
        predicted += 1
    assert predicted > 150
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
        ({"imbalance": 0.5}, "ranks and imbalance are 1 or more"),
    ):
        with pytest.raises(ValueError, match=said):
            BASE._replace(**options).check()
