"""Training on a GPU: the trainer's losses are those of simulated ranks on the processor, on one rank and on several."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from hpcdl import cli
from hpcdl.sharding.checkpointing import checkpointed

STEPS = ("--steps", "3", "--seed", "2")
ADVICE = "trainings on a card"


@pytest.fixture(autouse=True)
def card(need):
    need("gpu", torch.cuda.is_available(), ADVICE)


def logged(folder, ranks: int) -> list[float]:
    """The losses that rank 0 logged."""
    assert len(list(folder.glob("rank-*.jsonl"))) == ranks
    return [json.loads(line)["loss"] for line in (folder / "rank-0.jsonl").read_text().splitlines()]


def on_card(folder, ranks: int, *options: str) -> tuple[list[float], str]:
    """The losses of a run by torchrun, whose ranks share the card, and what it prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    ended = subprocess.run(
        [*command, "-m", "hpcdl.training", *options, *STEPS, "--jsonl", str(folder)],
        capture_output=True, text=True, timeout=250, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return logged(folder, ranks), ended.stdout


def simulated(folder, ranks: int, *options: str) -> list[float]:
    """The same losses, by ranks that are simulated on the processor."""
    ended = CliRunner().invoke(cli.app, ["train", *options, *STEPS, "--simulate", str(ranks), "--log", str(folder)])
    assert ended.exit_code == 0, ended.output
    return logged(folder, ranks)


RUNS = [
    (1, "mlp", ""),
    (1, "lenet", ""),
    (1, "gpt", ""),
    (2, "lenet", "data=2"),
    (2, "gpt", "data=2"),
    (2, "gpt", "tensor=2"),
    (2, "gpt", "pipeline=2"),
    (2, "gpt", "sequence=2"),
    (2, "gpt", "data=2 --sharding 1"),
    (2, "gpt", "data=2 --sharding 2"),
    (2, "gpt", "data=2 --sharding 3"),
    (4, "gpt", "data=2,tensor=2"),
    (4, "gpt", "data=2,pipeline=2 --sharding 1"),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("ranks", "model", "mesh"), RUNS)
def test_losses_are_those_of_the_processor(tmp_path, ranks, model, mesh):
    options = ["--model", model, *(f"--mesh {mesh}".split() if mesh else ())]
    found, printed = on_card(tmp_path / "card", ranks, *options)
    assert found == pytest.approx(simulated(tmp_path / "processor", ranks, *options), rel=2e-5)
    assert ("share 1 GPU" in printed) == (ranks > torch.cuda.device_count() == 1)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_sixteen_bits_are_near_and_not_equal(tmp_path, precision):
    found, _ = on_card(tmp_path / "card", 1, "--model", "gpt", "--precision", precision)
    whole = simulated(tmp_path / "processor", 1, "--model", "gpt")
    assert found == pytest.approx(whole, rel=2e-2)
    assert found != pytest.approx(whole, rel=1e-7)


@pytest.mark.gpu
def test_a_run_on_a_card_says_how_much_of_its_peak_it_reaches(tmp_path):
    """A card without known peaks says so; nothing is above the peak."""
    on_card(tmp_path, 1, "--model", "gpt", "--precision", "bf16")
    lines = [json.loads(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    shares = [line["mfu"] for line in lines]
    assert all(share is None or 0 < share < 1 for share in shares)
    assert any(known in torch.cuda.get_device_name() for known in ("H100", "H200", "A100", "V100")) <= all(shares)


@pytest.mark.gpu
def test_what_is_computed_again_draws_the_same_dropout():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 8)).cuda()
    x, gradients = torch.randn(16, 64, device="cuda"), []
    for again in (False, True):
        torch.cuda.manual_seed(3)
        y = checkpointed(block, x) if again else block(x)
        gradients.append(torch.autograd.grad(y.square().sum(), list(block.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.gpu
def test_the_doctor_names_the_card():
    printed = CliRunner().invoke(cli.app, ["doctor"]).output
    assert torch.cuda.get_device_name() in " ".join(printed.split())
