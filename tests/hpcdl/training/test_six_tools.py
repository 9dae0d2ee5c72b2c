"""What each tool sends in a step is the formula's, and torchrun trains by each of them in a fork of its own."""

import json
import subprocess
import sys

import pytest

from hpcdl.training import six_tools

WIDTH, NUMBER = 32, 8
WEIGHTS = six_tools.LAYERS * WIDTH**2 * NUMBER  # bytes
HALF = {  # what crosses in a ring of two: (p - 1)/p of all, each time
    "DDP": 2 * WEIGHTS / 2,
    "FSDP2": 3 * WEIGHTS / 2,
    "hpcdl.ddp": 2 * WEIGHTS / 2,
    "hpcdl.sharding": 3 * WEIGHTS / 2,
}


@pytest.mark.parametrize("way", HALF)
def test_a_step_sends_what_the_formula_says(way):
    assert six_tools.sent(six_tools.WAYS[way], 2, WIDTH) == pytest.approx(HALF[way], rel=0.01)


def test_a_plan_sends_activations_which_know_nothing_of_weights():
    activations = six_tools.ROWS * WIDTH * NUMBER  # whole, a sum: 2 (p - 1)/p of it
    assert six_tools.sent(six_tools.WAYS["DTensor"], 2, WIDTH) % activations == 0


@pytest.mark.long
def test_torchrun_trains_by_every_way_to_the_losses_of_one_process():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "hpcdl.training.six_tools"], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [tool["way"] for tool in found] == list(six_tools.WAYS)
    for tool in found:
        assert tool["losses"] == pytest.approx(six_tools.serial(), rel=1e-12)
        assert 0 < min(tool["seconds"]) < tool["ready"]
        assert tool["peak"] > 50e6


@pytest.mark.long
def test_torchrun_names_the_way_that_fails():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "hpcdl.training.six_tools", "none"], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode != 0
    assert "none ended with 1" in done.stderr
