"""Computing in fp16: the loss is scaled, all ranks skip a step together, and a restart keeps the scale."""

import math
from itertools import pairwise

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.training import Configuration, Trainer
from hpcdl.training.hybrid.gradients import squares

FP16 = Configuration(model="mlp", mesh=(2, 1, 1, 1), batch=8, steps=3, precision="fp16", optimizer="sgd")


def run(configuration, prepare=lambda trainer: None):
    """The records and the weights of rank 0, and whether all ranks have the same ones of each."""

    def rank(comm):
        records = []
        trainer = Trainer(comm, configuration)
        prepare(trainer)
        trainer.train(records.append)
        return records, [param.detach().clone() for param in trainer.whole_model().parameters()]

    results = simulate(rank, configuration.ranks).results
    assert all([r["loss"] for r in records] == [r["loss"] for r in results[0][0]] for records, _ in results)
    return results[0]


@pytest.mark.parametrize("sharding", [0, 2, 3])
def test_fp16_is_near_float32(sharding):
    records, _ = run(FP16.changed(sharding=sharding))
    expected, _ = run(FP16.changed(precision="fp32"))
    assert [r["loss"] for r in records] == pytest.approx([r["loss"] for r in expected], rel=1e-3)
    assert [r["loss"] for r in records] != [r["loss"] for r in expected]
    assert [r["gradient_norm"] for r in records] == pytest.approx([r["gradient_norm"] for r in expected], rel=1e-2)
    assert all(record["loss_scale"] == 2**16 and not record["skipped"] for record in records)


@pytest.mark.parametrize("sharding", [0, 2, 3])
def test_an_overflow_skips_the_step_and_halves_the_scale(sharding):
    """At 2^30 gradients in 16 bits are infinite; after a skipped step the weights are those of before."""

    def too_large(trainer):
        trainer.scale.scaler.value = 2.0**30

    records, weights = run(FP16.changed(steps=1, sharding=sharding), too_large)
    _, before = run(FP16.changed(steps=0))
    assert records[0]["skipped"]
    assert math.isinf(records[0]["gradient_norm"]) or math.isnan(records[0]["gradient_norm"])
    assert all(torch.equal(x, y) for x, y in zip(weights, before, strict=True))
    records, weights = run(FP16.changed(steps=20, sharding=sharding), too_large)
    assert {record["skipped"] for record in records} == {True, False}
    for record, following in pairwise(records):
        assert following["loss_scale"] == record["loss_scale"] / (2 if record["skipped"] else 1)
    assert not all(torch.equal(x, y) for x, y in zip(weights, before, strict=True))


def test_a_checkpoint_has_the_scale(tmp_path):
    folder = str(tmp_path / "state")

    def first(comm):
        trainer = Trainer(comm, FP16)
        trainer.scale.scaler.value, trainer.scale.scaler.good_steps = 128.0, 7
        trainer.save(folder)

    def second(comm):
        trainer = Trainer(comm, FP16.changed(mesh=(1, 2, 1, 1)))
        assert trainer.resume(folder)
        return trainer.scale.scaler.value, trainer.scale.scaler.good_steps

    simulate(first, 2)
    assert simulate(second, 2).results == [(128.0, 7)] * 2


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e20, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_norm_is_right_for_any_range_and_length(dtype, scale):
    torch.manual_seed(0)
    gradients = [torch.rand(n, dtype=dtype) * scale for n in (0, 3, 3_000_000)]
    expected = sum(x.double().square().sum().item() for x in gradients)
    assert squares(gradients) == pytest.approx(expected, rel=1e-6 if dtype == torch.float32 else 1e-12)
    assert squares([]) == 0
    assert math.isnan(squares([*gradients, torch.full((2,), math.nan, dtype=dtype)]))
