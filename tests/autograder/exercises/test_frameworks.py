"""Lab `frameworks`: its answers' worked examples hold, any seed will do, and its oracles agree with others."""

import doctest

import pytest
import torch

from autograder import exercises
from autograder.checks import CheckFailure
from autograder.exercises.frameworks import config, elastic, serial
from autograder.grading.reference import statements
from autograder.grading.run import run_exercise
from autograder.sessions.local import LocalSession
from hpcdl.comm import simulate

pytestmark = pytest.mark.labs

LAB = exercises.load("frameworks")
EXAMPLES = ("place", "plan", "allreduce", "zero_config", "holds", "which")


@pytest.fixture(scope="module")
def reference() -> dict:
    names: dict = {"__name__": "reference", "simulate": simulate}
    for _, code in statements(LAB.slug, LAB.functions):
        exec(code, names)
    return names


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_worked_examples_are_true(reference, name):
    for test in doctest.DocTestFinder(recurse=False).find(reference[name], name, globs=reference):
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("name", list(LAB.exercises))
def test_the_reference_passes_with_another_seed(reference, name):
    result = run_exercise(LAB.exercises[name], LocalSession(reference), lambda check: 1000 + len(check))
    assert [(check.name, check.detail) for check in result.checks if not check.passed] == []


def test_the_elastic_training_of_one_process_is_its_mean_over_ranks_of_equal_shares():
    job = elastic.Job(torch.Generator().manual_seed(0))
    assert not torch.allclose(job.serial()[1][0], job.mean_of_means(3)[0], rtol=1e-6)
    job.batches = [chosen[:6] for chosen in job.batches]
    for a, b in zip(job.serial()[1], job.mean_of_means(2), strict=True):
        assert torch.allclose(a, b, rtol=1e-12)  # 6 samples on 2 ranks: a mean of means is the mean


@pytest.mark.parametrize("what", ["momentum", "rate", "weights"])
def test_what_a_restart_may_forget_shows(what):
    job = elastic.Job(torch.Generator().manual_seed(0))
    assert not torch.allclose(job.serial()[1][0], job.serial(5, what)[1][0], rtol=1e-6)


@pytest.mark.parametrize(
    "written",
    [
        {"train_batch": 4},
        {"train_batch_size": 4.0},
        {"train_batch_size": True},
        {"zero_optimization": {"stages": 1}},
        {"bf16": True},
        [("train_batch_size", 4)],
    ],
)
def test_the_reader_is_strict(written):
    with pytest.raises(CheckFailure):
        config.read_strictly(written)


def test_the_reader_takes_what_deepspeeds_documentation_has():
    config.read_strictly(
        {
            "train_batch_size": 8,
            "gradient_clipping": 1,
            "fp16": {"enabled": False, "loss_scale": 0, "initial_scale_power": 16},
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
        }
    )


def test_a_decoder_without_heads_that_divide_is_refused():
    from hpcdl.nn.decoder import Decoder

    with pytest.raises(ValueError, match="each head has hidden / heads"):
        Decoder(4, 8, 3, 1)
    assert (
        len(serial.decoder_weights(torch.Generator(), tied=True)) == len(serial.decoder_weights(torch.Generator())) - 1
    )
