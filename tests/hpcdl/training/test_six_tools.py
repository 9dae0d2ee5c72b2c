"""What each tool sends in a step is the formula's, and torchrun trains by each of them in a fork of its own."""

import json
import subprocess
import sys

import pytest

from hpcdl.comm import simulate
from hpcdl.training import optional, six_tools

WIDTH, NUMBER = 32, 8
TASKS = six_tools.TASKS | {"wide": six_tools.wide(WIDTH)}
OF_WEIGHTS = {"DDP": 2, "FSDP2": 3, "hpcdl.ddp": 2, "hpcdl.sharding": 3}  # what crosses in a ring: this x (p - 1)/p
ROWS = 64


def weights(module):
    return NUMBER * sum(param.numel() for param in module.parameters())


@pytest.mark.thinned(5)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("way", OF_WEIGHTS)
def test_a_step_sends_what_the_formula_says(way, task):
    model = TASKS[task].network()
    expected = OF_WEIGHTS[way] * weights(model) / 2
    if (way, task) == ("FSDP2", "transformer"):  # keeps what is outside the blocks from forward to backward
        expected -= (weights(model) - weights(model.blocks)) / 2
    assert six_tools.sent(six_tools.WAYS[way], TASKS[task]) == pytest.approx(expected, rel=0.01)


# Sums over the ranks of what has the size of these outputs: forward one for each pair, backward one for each of the
# pair's layers that takes the input.
SUMS = {
    "wide": [WIDTH] * 4,
    "LeNet-5": [84, 400],
    "transformer": 2 * [16 * 64] * (2 + 3 + 1),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("task", TASKS)
def test_a_plan_sends_activations_which_know_nothing_of_weights(task):
    activations = sum(ROWS * NUMBER * size for size in SUMS[task])  # a sum is 2 (p - 1)/p of it
    assert six_tools.sent(six_tools.WAYS["DTensor"], TASKS[task]) == pytest.approx(
        activations, abs=ROWS * NUMBER * WIDTH
    )


@pytest.mark.labs  # of the wide layers alone in the first tier: test_process_group
@pytest.mark.parametrize("task", six_tools.TASKS)
@pytest.mark.parametrize("way", six_tools.WAYS)
def test_the_losses_are_those_of_one_process(way, task):
    right = six_tools.serial(TASKS[task], 6)
    for losses in simulate(six_tools.train, 2, six_tools.WAYS[way], TASKS[task], 6).results:
        assert losses == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("task", six_tools.TASKS)
def test_twenty_steps_learn_something(task):
    losses = six_tools.serial(TASKS[task])
    assert losses[-1] < 0.97 * losses[0]


def torchrun(*ways):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*command, "-m", "hpcdl.training.six_tools", *ways], capture_output=True, text=True, timeout=250, check=False
    )


@pytest.mark.long
def test_torchrun_trains_by_every_way_to_the_losses_of_one_process():
    done = torchrun()
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    both = [(task, way) for task in six_tools.TASKS for way in six_tools.installed()]
    assert [(run["task"], run["way"]) for run in found] == both
    for run in found:
        right = six_tools.serial(six_tools.TASKS[run["task"]])
        assert run["losses"] == pytest.approx(right, rel=1e-6 if run["way"] in six_tools.DEEPSPEED else 1e-12)
        assert 0 < min(run["seconds"]) < run["ready"]
        assert run["peak"] > 50e6


@pytest.mark.long
def test_torchrun_names_the_way_that_fails():
    done = torchrun("none")
    assert done.returncode != 0
    assert "none ended with 1" in done.stderr


@pytest.mark.long
def test_ray_trains_to_the_losses_of_one_process():
    if optional.found("Ray") is None:
        pytest.skip(f"Ray is not here: {optional.advice('Ray')}")
    found = six_tools.fit(six_tools.LENET, count=5)
    assert found["losses"] == pytest.approx(six_tools.serial(six_tools.LENET, 5), rel=1e-12)
