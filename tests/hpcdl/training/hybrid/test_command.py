"""`hpcdl train` with a mesh: on simulated ranks, without a launcher, from its own TOML, and what it refuses."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from hpcdl.cli import app


def hpcdl_train(*arguments: str):
    return CliRunner().invoke(app, ["train", *arguments])


def run(*arguments: str) -> str:
    ended = hpcdl_train(*arguments)
    assert ended.exit_code == 0, ended.output
    return ended.output


def losses(printed: str) -> list[str]:
    return re.findall(r"^step \d+: loss ([\d.]+)", printed, re.MULTILINE)


def test_a_run_can_be_repeated_from_what_it_prints(tmp_path):
    printed = run("--model", "mlp", "--mesh", "data=2", "--simulate", "2", "--steps", "3", "--seed", "4")
    (tmp_path / "run.toml").write_text(f"a line of the queue\n{printed}")
    again = run("--config", str(tmp_path / "run.toml"), "--simulate", "2")
    assert again == printed
    assert len(losses(printed)) == 3
    other = run("--config", str(tmp_path / "run.toml"), "--simulate", "2", "--seed", "5")
    assert losses(other) != losses(printed)


def test_a_text_comes_out_at_the_end():
    assert re.search(r"^it writes: ['\"]The ", run("--model", "gpt", "--simulate", "1", "--steps", "1"), re.MULTILINE)


def test_the_log_has_a_line_per_step_of_each_rank(tmp_path):
    run("--model", "mlp", "--simulate", "2", "--steps", "3", "--log", str(tmp_path / "log"))
    for rank in range(2):
        lines = [json.loads(line) for line in (tmp_path / "log" / f"rank-{rank}.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == [1, 2, 3]
        assert all(line["peak_bytes"] > 0 < line["bytes_sent"] for line in lines)
        assert {"loss", "gradient_norm", "lr", "samples", "seconds", "waited", "messages"} <= set(lines[0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--mesh", "data=3", "--simulate", "2"),
            "has 3 ranks, and there are 2: start 3, by mpiexec -n 3, torchrun or --simulate 3; the nearest",
        ),
        (("--model", "mlp", "--epochs", "3"), "--epochs is for the training of lab 07; with a mesh take --steps"),
        (("--model", "lenet", "--no-overlap"), "--overlap is for the training of lab 07"),
        (("--model", "mlp", "--simulate", "1", "--every", "0"), "every is 0; it is a number of steps, 1 or more"),
        (("--model", "mlp", "--simulate", "1", "--steps", "9", "--lr", "1e30"), "the weights are still those of"),
        (("--model", "mlp", "--export", "no-folder/x.pt"), "there is no folder no-folder for --export; make it"),
        (("--model", "mlp", "--export", "."), "--export . is a folder; give a file"),
        (("--model", "mlp", "--export", "/proc/x.pt"), "--export /proc/x.pt cannot be written (No such file"),
        (
            ("--model", "gpt", "--tokens-per-step", "100"),
            "16 tokens of a text; the nearest is 96",
        ),
        (("--config", "no.toml"), "does not exist"),
        (("--model", "gpt", "--plan", "--mesh", "tensor=9"), "8 heads of attention"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(arguments, said):
    ended = hpcdl_train(*arguments)
    assert ended.exit_code == 2
    assert said.lower() in re.sub(r"[\s│]+", " ", ended.output).lower()
    assert "Traceback" not in ended.output


def test_a_closed_pipe_ends_it_without_a_word(monkeypatch):
    """`hpcdl train ... | head -1` ends without a word, as other programs do."""

    def closed(line):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("hpcdl.training.hybrid.command._print", closed)
    ended = hpcdl_train("--model", "mlp", "--simulate", "1", "--steps", "1")
    assert (ended.exit_code, ended.output) == (1, "")


def test_a_plan_starts_no_rank(monkeypatch):
    monkeypatch.setattr("hpcdl.training.trainer.Trainer.__init__", lambda *_: pytest.fail("it made a trainer"))
    printed = run("--plan", "--model", "gpt", "--mesh", "data=2,pipeline=2,tensor=2", "--sharding", "1")
    assert "ranks      8 = data 2 x pipeline 2 x tensor 2 x sequence 1" in printed
    assert "bubble     50.0 %" in printed


def test_one_process_needs_no_mpi(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr("hpcdl.training.program.ranks", lambda: pytest.fail("it asked for MPI"))
    assert len(losses(run("--model", "mlp", "--steps", "2"))) == 2


def test_torchrun_leaves_each_option_to_the_program():
    """It refuses a program's option that could be the beginning of several of its own."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    for option in (option for option in get_command(app).commands["train"].params if option.opts != ["--help"]):
        spellings = [name for name in option.opts if not clashes(parser, name)]
        assert spellings, option.opts
        taken = parser.parse_args(["-m", "hpcdl.training", spellings[-1], "1"]).training_script_args
        assert taken == [spellings[-1], "1"]


def clashes(parser, name: str) -> bool:
    return len(parser._get_option_tuples(name)) > 1


@pytest.mark.labs  # starts processes
def test_torchrun_brings_its_ranks():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "hpcdl.training", "--model", "gpt", "--mesh", "pipeline=2", "--microbatches", "2", "--steps", "2"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    expected = run("--model", "gpt", "--mesh", "pipeline=2", "--microbatches", "2", "--steps", "2", "--simulate", "2")
    if not torch.cuda.is_available():
        assert losses(ended.stdout) == losses(expected)


@pytest.mark.mpi
@pytest.mark.labs  # starts processes
def test_mpiexec_brings_its_ranks(mpiexec):
    code, printed = mpiexec(2, "-m", "hpcdl", "train", "--model", "gpt", "--mesh", "tensor=2", "--steps", "2")
    assert code == 0, printed
    assert "ranks      2 = data 1 x pipeline 1 x tensor 2" in printed
    expected = run("--model", "gpt", "--mesh", "tensor=2", "--steps", "2", "--simulate", "2")
    assert losses(printed) == losses(expected)
