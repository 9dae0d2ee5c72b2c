"""Pipelines, cut layers and divided memory: formulas beside schedules, modules and sums."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hpcdl.comm import simulate
from hpcdl.cost import memory, pipeline
from hpcdl.cost.tensor_parallel import Transformer, step


def scheduled(stages, microbatches):
    """When the last microbatch leaves the last stage, each stage taking one at a time in order."""
    free, end = [0.0] * len(stages), 0.0
    for _ in range(microbatches):
        end = 0.0
        for stage, seconds in enumerate(stages):
            free[stage] = end = max(end, free[stage]) + seconds
    return end


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=6), st.integers(1, 9))
@settings(deadline=None)
def test_a_batch_takes_what_its_schedule_takes(stages, microbatches):
    forward, backward = stages, [2 * seconds for seconds in reversed(stages)]
    expected = scheduled(forward, microbatches) + scheduled(backward, microbatches)
    assert pipeline.seconds(forward, backward, microbatches) == pytest.approx(expected)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 3), (4, 8), (5, 2)])
def test_the_simulated_machine_runs_a_pipeline_in_the_formulas_time(stages, microbatches):
    def stage(comm):
        x = torch.zeros(1)
        for _ in range(microbatches):
            if comm.rank:
                comm.recv(x, comm.rank - 1)
            comm.compute(1.0)
            if comm.rank < comm.size - 1:
                comm.send(x, comm.rank + 1)

    seconds = simulate(stage, stages).seconds
    assert pipeline.seconds([1.0] * stages, [0.0] * stages, microbatches) == pytest.approx(seconds)
    assert pipeline.speedup(stages, microbatches) == pytest.approx(stages * microbatches / seconds)
    assert pipeline.bubble(stages, microbatches) == pytest.approx(1 - microbatches / seconds)


def test_messages_delay_the_first_microbatch_once_per_boundary():
    assert pipeline.seconds([1, 1, 1], [2, 2, 2], 4, message=0.5) == pipeline.seconds([1, 1, 1], [2, 2, 2], 4) + 2.0


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


def test_a_transformers_parameters_are_those_of_torchs_layers():
    h, layers, words, tokens = 32, 3, 100, 16
    block = nn.TransformerEncoderLayer(h, nhead=4, dim_feedforward=4 * h)
    parts = [*[block] * layers, nn.Embedding(words, h), nn.Embedding(tokens, h), nn.LayerNorm(h)]
    expected = sum(p.numel() for part in parts for p in part.parameters())
    assert Transformer(layers, h, tokens, words).parameters == expected


def test_a_transformers_operations_are_those_torch_counts():
    h, batch, tokens, words = 32, 3, 16, 100
    block = nn.TransformerEncoderLayer(h, nhead=4, dim_feedforward=4 * h, batch_first=True)
    head = nn.Linear(h, words, bias=False)
    x = torch.randn(batch, tokens, h, requires_grad=True)
    with FlopCounterMode(display=False) as count, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        head(block(x)).sum().backward()
    assert Transformer(1, h, tokens, words).flops(batch, recompute=False) == count.get_total_flops()


def test_cutting_layers_divides_the_products_and_nothing_else():
    model = Transformer(4, 64, 32, 1000)
    options = {"rate": 1e12, "bandwidth": 1e11}
    alone = step(model, 2, 1, all_reduce=lambda nbytes: 0.0, **options)
    cut = step(model, 2, 4, all_reduce=lambda nbytes: 1e-6, **options)
    assert cut.split == pytest.approx(alone.split / 4)
    assert cut.repeated == alone.repeated
    assert cut.communication == pytest.approx(4 * 6 * 1e-6)
    kept = step(model, 2, 4, all_reduce=lambda nbytes: 1e-6, recompute=False, **options)
    assert kept.communication == pytest.approx(4 * 4 * 1e-6)
    assert kept.repeated == pytest.approx(alone.repeated * 3 / 4)
