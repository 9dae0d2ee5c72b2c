"""`hpcdl compare` says that two meshes agree, or names the first step and tensor in which they do not."""

import pytest
from typer.testing import CliRunner

from hpcdl.cli import app
from hpcdl.parallel.tensor import linear
from hpcdl.training.hybrid import gradients
from hpcdl.training.hybrid.comparing import compare
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError


def hpcdl_compare(*arguments: str):
    return CliRunner().invoke(app, ["compare", *arguments])


def test_two_meshes_of_one_training_agree():
    ended = hpcdl_compare("data=2", "pipeline=2", "--microbatches", "2", "--steps", "2")
    assert ended.exit_code == 0, ended.output
    assert ended.output.startswith("2 steps agree: losses and gradients differ by ")


@pytest.mark.labs  # six ranks
def test_a_decoder_agrees_in_float32():
    ended = hpcdl_compare("data=2", "tensor=2,sequence=2", "--model", "gpt", "--precision", "fp32")
    assert ended.exit_code == 0, ended.output


def test_a_sum_that_is_left_out_is_named(monkeypatch):
    """Without the sum of a column layer's gradient over its ranks, the layer before is the first that is wrong."""
    monkeypatch.setattr(linear, "copy", lambda x, comm: x)
    ended = hpcdl_compare("data=1", "tensor=2", "--steps", "1")
    assert ended.exit_code == 1
    assert ended.output.startswith("step 1: the gradient of 0.1.weight is the first that differs, by ")


def test_replicas_that_drift_are_named_in_the_second_step(monkeypatch):
    """Where DDP halves its rate, the first step is right, and the second is not."""
    step = gradients.Repeated.step

    def forgets(replicas):
        for group in replicas.optimizer.param_groups:
            group["lr"] *= 0.5
        step(replicas)

    monkeypatch.setattr(gradients.Repeated, "step", forgets)
    first, _ = compare(
        *(Configuration(model="mlp", precision="fp64", batch=8, steps=2, mesh=(d, 1, 1, 1)) for d in (1, 2))
    )
    assert first.step == 2
    assert first.tensor == "the loss"


def test_other_trainings_are_not_compared():
    with pytest.raises(ConfigurationError, match="seed is 0 in A and 1 in B, so that they train differently"):
        compare(Configuration(), Configuration(seed=1))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--tolerance", "-1", "tolerance is -1.0; it is a number that is at least 0"),
        ("--tolerance", "nan", "tolerance is nan; it is a number that is at least 0"),
        ("--steps", "0", "steps is 0; to compare takes a step or more"),
    ],
)
def test_what_compares_nothing_is_refused(option, value, said):
    ended = hpcdl_compare("data=1", "data=2", option, value)
    assert (ended.exit_code, said in ended.output.lower()) == (2, True), ended.output


def test_a_mesh_that_does_not_fit_is_a_sentence():
    ended = hpcdl_compare("data=1", "tensor=64")
    assert ended.exit_code == 2
    assert "ensor=64 is too much for mlp, which has 32 neurons a layer" in ended.output
