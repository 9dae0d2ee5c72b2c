"""What training keeps: ZeRO's division, and activations item by item."""

import pytest

from hpcdl.cost import memory


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.40625), (2, 16.640625), (3, 1.875)])
def test_zero_divides_memory_as_the_paper_has_it(stage, gigabytes):
    assert memory.zero(7.5e9, 64, stage) == gigabytes * 1e9


@pytest.mark.parametrize("ranks", [1, 3, 64])
def test_what_is_divided_is_whole_when_put_together(ranks):
    assert memory.zero(1e6, ranks, 3) * ranks == pytest.approx(memory.zero(1e6, ranks, 0))
    sizes = [memory.zero(1e6, ranks, stage) for stage in range(4)]
    assert sizes == sorted(sizes, reverse=True)


def test_zero_has_four_stages():
    with pytest.raises(ValueError, match=r"stage is 4; ZeRO's stages are 0 .* to 3"):
        memory.zero(1e9, 8, 4)


# What a layer keeps for its backward pass, in bytes, by item (Korthikanti et al. 2022, section 4): sbh times the first
# number and abs^2 times the second; then whether tensor parallelism cuts it, and whether it belongs to the core of
# attention, which selective recomputation drops.
ITEMS = {
    "inputs of two normalizations": (4, 0, False, False),
    "input of queries, keys, values": (2, 0, False, False),
    "queries and keys": (4, 0, True, False),
    "values": (2, 0, True, False),
    "softmax": (0, 2, True, True),
    "mask of its dropout": (0, 1, True, True),
    "output of its dropout": (0, 2, True, True),
    "input of the projection": (2, 0, True, False),
    "mask of the projection's dropout": (1, 0, False, False),
    "input of the first linear layer": (2, 0, False, False),
    "input of GeLU": (8, 0, True, False),
    "input of the second linear layer": (8, 0, True, False),
    "mask of the last dropout": (1, 0, False, False),
}


@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("recompute", ["nothing", "selective"])
@pytest.mark.parametrize(("s", "b", "h", "a"), [(2048, 1, 12288, 96), (1024, 4, 2304, 24)])
def test_activations_are_the_sum_of_their_items(s, b, h, a, tensor, sequence_parallel, recompute):
    expected = 0.0
    for tokens, scores, cut, core in ITEMS.values():
        ways = tensor if cut or sequence_parallel else 1
        if not (core and recompute == "selective"):
            expected += (tokens * s * b * h + scores * a * b * s * s) / ways
    options = {"tensor": tensor, "sequence_parallel": sequence_parallel, "recompute": recompute}
    assert memory.activations(s, b, h, a, **options) == pytest.approx(expected)


def test_full_recomputation_keeps_the_input_of_each_layer():
    assert memory.activations(2048, 1, 12288, 96, recompute="full") == 2 * 2048 * 12288
    cut = {"tensor": 8, "recompute": "full"}
    assert memory.activations(2048, 1, 12288, 96, **cut) == 2 * 2048 * 12288
    assert memory.activations(2048, 1, 12288, 96, **cut, sequence_parallel=True) == 2 * 2048 * 12288 / 8


def test_gpt_3_saves_seventy_percent_without_the_scores_of_attention():
    kept, less = (memory.activations(2048, 1, 12288, 96, recompute=what) for what in ("nothing", "selective"))
    assert kept / less == pytest.approx((34 + 80) / 34)


def test_first_stage_keeps_all_layers_of_a_microbatch():
    assert memory.first_stage(96, 10.0) == 960
    assert memory.first_stage(96, 10.0, p=8) == 960  # 12 layers of 8 microbatches
    assert memory.first_stage(96, 10.0, p=8, v=3) == pytest.approx(960 * (1 + 7 / 24))


@pytest.mark.parametrize(("p", "v"), [(2, 2), (4, 3), (8, 2)])
def test_what_interleaving_adds_is_what_its_schedule_holds(p, v):
    from hpcdl.parallel.schedules import in_flight, interleaved

    held = in_flight(interleaved(p, 8 * p, v)[0])  # chunks of 1 / (p v) of the layers
    assert held / (p * v) == pytest.approx(memory.interleaving(p, v))


def test_what_is_recomputed_has_three_names():
    with pytest.raises(ValueError, match=r"recompute is 'some'; .* nothing, selective, full"):
        memory.activations(8, 1, 8, 1, recompute="some")
