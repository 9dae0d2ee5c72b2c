"""What a run says before its first step is what it then sends and holds."""

import re

import pytest

from hpcdl.comm import simulate
from hpcdl.cost.machines import MACHINES
from hpcdl.training import Configuration, Trainer
from hpcdl.training.hybrid.metering import BY_KIND
from hpcdl.training.hybrid.predictions import described, format_bytes, predict, predicted_seconds

SMALL = 3000  # bytes of numbers to agree on, beside gradients: samples, which parameters are used, loss and norm


def second_step(configuration):
    """The records of every rank's second step: the first one only learns which layers follow which."""

    def rank(comm):
        records = []
        trainer = Trainer(comm, configuration.changed(steps=2))
        trainer.train(records.append, measure=True)
        held = sum(shard.piece.numel() for shard in trainer.whole.shards)
        return records[-1] | {"held": held}

    return simulate(rank, configuration.ranks).results


@pytest.mark.parametrize(
    "options",
    [
        {"mesh": (2, 1, 1, 1), "sharding": 0},
        pytest.param({"mesh": (3, 1, 1, 1), "sharding": 1}, marks=pytest.mark.labs),
        pytest.param({"mesh": (2, 1, 1, 1), "sharding": 2}, marks=pytest.mark.labs),
        {"mesh": (2, 1, 1, 1), "sharding": 3},
        pytest.param({"mesh": (2, 1, 1, 1), "sharding": 3, "microbatches": 2}, marks=pytest.mark.labs),
        pytest.param({"mesh": (2, 1, 1, 1), "sharding": 2, "microbatches": 3}, marks=pytest.mark.labs),
        {"mesh": (1, 2, 1, 1), "microbatches": 2},
        pytest.param({"mesh": (1, 2, 1, 1), "microbatches": 2, "schedule": "zb_v"}, marks=pytest.mark.labs),
        pytest.param({"mesh": (2, 2, 1, 1), "sharding": 1, "microbatches": 2}, marks=pytest.mark.labs),
    ],
    ids=str,
)
def test_a_rank_sends_as_many_bytes_as_predicted(options):
    configuration = Configuration(model="mlp", size="small", batch=12, **options)
    expected = predict(configuration)
    records = second_step(configuration)
    sent = max(record["bytes_sent"] for record in records)
    assert sent == pytest.approx(expected["replica_bytes"] + expected["pipeline_bytes"], abs=SMALL, rel=0.002)
    most = {name: max(record[name] for record in records) for name in BY_KIND}
    for kind in ("gradient", "parameter"):  # chunks of a ring differ by one number
        assert most[f"{kind}s_bytes"] == pytest.approx(expected[f"{kind}_bytes"], rel=0.001)
    assert most["activations_bytes"] == expected["pipeline_bytes"]
    assert most["tensor_bytes"] == most["sequence_bytes"] == 0 < most["control_bytes"] < SMALL


@pytest.mark.labs  # a model of 17 million weights
@pytest.mark.parametrize("sharding", [0, 3])
def test_a_rank_holds_what_is_predicted_and_activations(sharding):
    configuration = Configuration(model="mlp", size="medium", batch=4, mesh=(2, 1, 1, 1), sharding=sharding)
    expected = predict(configuration)
    record = second_step(configuration)[0]
    most = expected["memory"] * 1.05 + 3 * 4 * 1024 * 1024  # a layer or two are whole meanwhile
    assert expected["memory"] * 0.95 <= record["peak_bytes"] <= most
    assert record["held"] == pytest.approx(expected["held"] / (2 if sharding else 1), rel=1e-6)


def test_the_parameters_of_a_rank_are_counted_before_it_is_made():
    configuration = Configuration(model="gpt", mesh=(1, 2, 2, 1), microbatches=2)
    found = simulate(lambda comm: sum(s.piece.numel() for s in Trainer(comm, configuration).whole.shards), 4).results
    assert max(found) == predict(configuration)["held"]


def test_the_block_names_every_axis_and_both_units():
    configuration = Configuration(model="gpt", mesh=(2, 2, 1, 2), microbatches=4, sharding=1, batch=32)
    block = "\n".join(described(configuration, predict(configuration)))
    for said in ("8 = data 2 x pipeline 2 x tensor 1 x sequence 2", "32 texts, 512 tokens", "stage 1 over 4 replicas"):
        assert said in block
    assert "20.0 % of a stage's time" in block  # (p - 1) / (m + p - 1)


def test_one_replica_has_nothing_to_shard_and_is_told_so():
    configuration = Configuration(model="mlp", mesh=(1, 2, 1, 1), sharding=3)
    assert any("one replica: nothing to shard" in line for line in described(configuration, predict(configuration)))


def test_seconds_need_a_machine_with_a_peak():
    configuration = Configuration(model="gpt", mesh=(2, 1, 1, 1))
    lines = {name: predicted_seconds(configuration, name and MACHINES[name]) for name in (None, "P100")}
    command = "for a machine of hpcdl.cost: hpcdl train --machine NAME"
    assert lines[None] == f"seconds    no peak known of this processor; {command}"
    assert re.fullmatch(
        r"seconds    [\d.]+ ms a step on P100, predicted: computing .*, messages .*, bubble 0 µs", lines["P100"]
    )
    double = predicted_seconds(configuration.changed(precision="fp64"), MACHINES["P100"])
    assert double == "seconds    no peak known: P100 has peaks for fp32"


@pytest.mark.parametrize(("n", "said"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 KB"), (1.5e6, "1.5 MB")])
def test_bytes_have_three_figures(n, said):
    assert format_bytes(n) == said
