"""The search for a mesh: it finds the fastest that fits, and says why; and what its numbers are made of."""

import re

import pytest
import torch
from typer.testing import CliRunner

from hpcdl.cli import app
from hpcdl.cost.pipeline import bubble as closed_form
from hpcdl.training import Configuration, Trainer
from hpcdl.training.hybrid.configuration import ConfigurationError
from hpcdl.training.hybrid.dry import DryComm, dry_step
from hpcdl.training.hybrid.models import MODELS, build
from hpcdl.training.hybrid.planning import candidates, memory, search, table
from hpcdl.training.hybrid.seconds import bubble, cost_model, step_seconds
from hpcdl.training.hybrid.work import Speed, layers_of, machine_named, machine_of

A100 = machine_named("A100 (DGX)")
GPT = Configuration(model="gpt", size="small", batch=16)


def test_the_best_is_the_fastest_that_fits():
    limit = 3e6
    found = search(GPT, 4, A100, limit)
    fitting = [each for each in candidates(GPT, 4) if memory(each) <= limit]
    assert 0 < len(fitting) == found.tried - found.too_large < found.tried
    fastest = min(step_seconds(each, A100).seconds for each in fitting)
    assert found.best[0].step.seconds == pytest.approx(fastest, rel=5e-3)  # of those as fast the simpler
    assert found.best[0].memory <= limit
    assert len({each.configuration.mesh for each in found.best}) == len(found.best)


def test_less_memory_needs_another_mesh_and_none_may_fit():
    roomy, tight = (search(GPT, 4, A100, limit).best[0] for limit in (1e9, 3e6))
    assert tight.memory < roomy.memory
    assert tight.step.seconds >= roomy.step.seconds
    lines = table(search(GPT, 4, A100, 1e5), A100, 1e5)
    assert re.match(r"none fits: the smallest, --mesh \S+.*, needs [\d.]+ MB; take more ranks", lines[-1])


@pytest.mark.parametrize("sharding", [0, pytest.param(3, marks=pytest.mark.labs)])
def test_memory_is_about_what_a_rank_holds(sharding):
    """What a dry run holds besides the samples, which are all on each rank."""
    configuration = Configuration(model="gpt", size="small", mesh=(2, 2, 1, 1), microbatches=2, sharding=sharding)
    samples = sum(x.nbytes for x in build("gpt", "small").data)
    held = max(dry_step(configuration, rank)["peak_bytes"] for rank in (0, 2)) - samples
    assert memory(configuration) == pytest.approx(held, rel=0.25)


@pytest.mark.parametrize(("schedule", "m"), [("one_f_one_b", 1), ("one_f_one_b", 8), ("gpipe", 3)])
def test_the_bubble_is_that_of_the_schedule(schedule, m):
    assert bubble(schedule, 4, m) == pytest.approx(closed_form(4, m))


def test_one_microbatch_leaves_a_bubble_whatever_the_schedule():
    """The closed form of `zb_v` says none, for microbatches enough; one alone passes through stage by stage."""
    configuration = GPT.changed(mesh=(1, 4, 1, 1), schedule="zb_v")
    step = step_seconds(configuration, A100)
    assert step.bubble > step.forward + step.backward
    assert bubble("zb_v", 4, 8) < 0.1 < bubble("zb_v", 4, 1)


@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_a_layers_work_is_what_torch_counts(model):
    """Forward and backward of the dense model, three times forward except for the first layer's input."""
    from torch.utils.flop_counter import FlopCounterMode

    built, layers = build(model), layers_of(model, "")
    dense, (x, y) = built.dense(), built.data
    with FlopCounterMode(display=False) as counter:
        out = dense(x[:2])
        torch.nn.functional.cross_entropy(out.flatten(0, -2), y[:2].flatten()).backward()
    first = 2 * layers[0].flops
    assert counter.get_total_flops() == 2 * 3 * sum(layer.flops for layer in layers) - first
    assert sum(layer.weights for layer in layers) == sum(param.numel() for param in dense.parameters())


def test_a_transformers_work_is_the_formula_of_its_sizes():
    for size in MODELS["gpt"]:
        model = cost_model("gpt", size)
        assert 3 * sum(layer.flops for layer in layers_of("gpt", size)) == model.flops(1, "nothing")


def test_utilization_is_the_share_of_all_ranks_peaks():
    configuration = GPT.changed(mesh=(2, 1, 1, 1))
    speed, model = Speed(configuration, build("gpt", "small"), A100), build("gpt", "small")
    rates = speed.rates(16, 2.0)
    flops = 16 * 3 * sum(layer.flops for layer in layers_of("gpt", "small"))
    assert rates == {"tokens_per_second": 8 * model.sequence, "mfu": flops / (2.0 * 2 * A100.peaks["fp32"])}
    unknown = Speed(configuration, model, machine_of("cpu"))
    assert unknown.rates(16, 2.0)["mfu"] is None
    assert unknown.rates(16, 0.0)["tokens_per_second"] is None


def test_a_trainers_record_has_its_rates():
    records = []
    Trainer(DryComm(0, 1), Configuration(model="mlp", steps=1), machine=A100).train(records.append)
    assert records[0]["images_per_second"] == pytest.approx(32 / records[0]["seconds"])
    assert 0 < records[0]["mfu"] < 1


@pytest.mark.parametrize("name", ["", "A100", "abacus"])
def test_a_machine_is_named_as_it_is(name):
    with pytest.raises(ConfigurationError, match=r"it is one of K80, P40, .*A100 \(DGX\)"):
        machine_named(name)
    assert machine_named("h100 (d") is machine_named("H100 (DGX)")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--plan", "--machine", "abacus"), "machine is 'abacus'; it is one of K80,"),
        (("--plan", "--machine", "P100", "--precision", "bf16"), "precision is bf16; P100 has peaks for fp32"),
        (("--plan", "--memory", "2"), "--memory limits what --plan proposes for a machine; add --plan --machine NAME"),
        (("--simulate", "2", "--profile"), "--profile writes into the folder of --log; add --log FOLDER"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(arguments, said):
    ended = CliRunner().invoke(app, ["train", "--model", "mlp", *arguments])
    assert ended.exit_code == 2
    assert said.lower() in " ".join(ended.output.split()).lower()


def test_nothing_fits_into_no_memory():
    assert not search(GPT, 4, machine_named("P100"), 0.0).best


def test_a_plan_proposes_options_that_a_run_takes():
    plan = ["train", "--model", "mlp", "--simulate", "4", "--plan", "--machine", "A100 (DGX)", "--memory", "0.001"]
    ended = CliRunner().invoke(app, plan)
    assert ended.exit_code == 0, ended.output
    best = re.search(r"^best +(--mesh .*)$", ended.output, re.MULTILINE).group(1).split()
    run = CliRunner().invoke(app, ["train", "--model", "mlp", "--steps", "1", "--simulate", "4", *best])
    assert run.exit_code == 0, run.output
