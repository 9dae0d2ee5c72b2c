"""The trainer on live engines, as docs/training.md shows it in a notebook."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcdl.cluster import Cluster
from hpcdl.training import Configuration, run_on
from hpcdl.training.hybrid.configuration import ConfigurationError
from hpcdl.training.hybrid.dry import NUMBERS, dry_step

PAGE = (Path(__file__).parents[4] / "docs" / "training.md").read_text(encoding="utf-8")
OPTIONS = {"model": "mlp", "mesh": "pipeline=2", "microbatches": 4, "steps": 2, "precision": "fp64"}


def test_none_simulates_and_says_what_engines_would():
    said: list[str] = []
    ranks = run_on(None, say=said.append, **OPTIONS)
    assert said[1] == "ranks      2 = data 1 x pipeline 2 x tensor 1 x sequence 1"
    (alone,) = run_on(None, say=said.append, **{**OPTIONS, "mesh": ""})
    for records in ranks:
        assert [r["loss"] for r in records] == pytest.approx([r["loss"] for r in alone], rel=1e-12, abs=1e-12)
        assert all(record["peak_bytes"] and record["spans"] for record in records)


def test_a_mesh_of_more_ranks_than_engines_is_a_sentence():
    said = r"has 2 ranks, and there is 1 engine; start Cluster\(n=2\), or take a smaller mesh"
    with pytest.raises(ConfigurationError, match=said):
        run_on(Cluster(n=1), **OPTIONS)


@pytest.mark.mpi
@pytest.mark.labs  # starts engines
def test_the_notebooks_cells_of_the_docs_train(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = re.findall(r"^```ipython\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(cells) == 3
    for cell in cells:
        exec(compile(cell, "cell", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if re.match(r"\d+ \d+ \d+\.", line)]
    assert sorted((int(rank), int(step)) for rank, step, *_ in lines) == [(r, s) for r in (0, 1) for s in (1, 2, 3)]
    by_step = {step: {loss for _, s, loss, _ in lines if s == step} for _, step, *_ in lines}
    assert all(len(losses) == 1 for losses in by_step.values()), "both ranks know the loss of all"
    assert re.findall(r"^step (\d): loss ", printed, re.MULTILINE) == ["1", "2", "3", "4"]


@pytest.mark.mpi
@pytest.mark.labs  # starts engines
def test_engines_do_what_was_predicted_and_others_stand_by():
    with Cluster(n=2) as cluster:
        ranks = run_on(cluster, say=lambda line: None, **OPTIONS)
        assert len(run_on(cluster, say=lambda line: None, **{**OPTIONS, "mesh": ""})) == 1
    simulated = run_on(None, say=lambda line: None, **OPTIONS)
    configuration = Configuration(**{**OPTIONS, "mesh": (1, 2, 1, 1)})
    assert len(ranks) == 2
    for rank, (live, virtual) in enumerate(zip(ranks, simulated, strict=True)):
        assert [record["loss"] for record in live] == [record["loss"] for record in virtual]
        alone = dry_step(configuration, rank)
        assert {name: live[-1][name] for name in NUMBERS} == {name: alone[name] for name in NUMBERS}


def test_a_run_goes_on_from_the_checkpoint_on_another_mesh(tmp_path):
    """One call after the other, as in a notebook after a rank died."""

    def run(mesh, steps, checkpoint=str(tmp_path / "state")):
        options = {**OPTIONS, "mesh": mesh, "steps": steps}
        return run_on(None, say=lambda line: None, measure=False, checkpoint=checkpoint, **options)[0]

    records = run("pipeline=2", 2) + run("tensor=2", 4)
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    alone = [record["loss"] for record in run("", 4, None)]
    assert [record["loss"] for record in records] == pytest.approx(alone, rel=1e-12)


LIGHT = """
import sys
from hpcdl.training import run_on
run_on(None, say=lambda line: None, model="gpt", mesh="data=2,pipeline=2", microbatches=2, optimizer="adam", steps=2)
print(sorted({"torch._dynamo", "sympy", "triton", "torch.distributed.fsdp"} & set(sys.modules)))
"""


def test_a_training_imports_no_compiler():
    """Each engine would import it before its first step, which takes more than a second."""
    ended = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
