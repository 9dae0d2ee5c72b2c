"""The printed scripts do what they say: the engines that can run here do run, killed shards and all."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from autograder.cli import app
from autograder.shards.scripts import ENGINES, Job

NUMBER = 4  # shards


@pytest.fixture
def students(tmp_path, write_notebook):
    """A class in a folder whose name needs quotes; a folder of results. Weak walls will do here."""
    for i in range(12):
        write_notebook(f"student {i:02}.ipynb", f"x = {i}", hpcdl={"lab": "gradient_descent"})
    (tmp_path / "submissions").rename(tmp_path / "it's $HOME")
    return tmp_path / "it's $HOME", tmp_path / "the results"


@pytest.fixture
def script(students, tmp_path):
    """Write the script that `autograder engine` prints for this class."""

    def write(kind: str) -> Path:
        words = [sys.executable, "-m", "autograder", "engine", kind, students[0], "--out", students[1]]
        done = subprocess.run([*words, "--shards", str(NUMBER)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert (students[1] / ".secret").exists(), "what all shards must agree on"
        (tmp_path / "script").write_text(done.stdout)
        return tmp_path / "script"

    return write


def everyone_has_a_row(out: Path) -> bool:
    rows = list(csv.DictReader((out / "grades.csv").read_text().splitlines()))
    return [row["student"] for row in rows] == [f"student {i:02}" for i in range(12)]


@pytest.mark.parametrize("kind", ["slurm", "torchrun", "local"])
def test_a_shell_reads_the_script(script, kind):
    subprocess.run(["bash", "-n", script(kind)], check=True, timeout=20)


def test_kubernetes_reads_an_indexed_job():
    job = Job(Path("/class/it's in"), Path("/class/out"), 64, ("--lab", "ddp"))
    said = yaml.safe_load(ENGINES["kubernetes"](job))
    spec = said["spec"]
    assert (said["apiVersion"], said["kind"]) == ("batch/v1", "Job")
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 64, 16)
    (shard,) = spec["template"]["spec"]["containers"]
    assert shard["volumeMounts"] == [{"name": "class", "mountPath": "/class"}]
    words = f"set -- {shard['args'][0].removeprefix('exec ')}; printf '%s|' \"$@\""
    shown = subprocess.run(
        ["sh", "-c", words], env=os.environ | {"JOB_COMPLETION_INDEX": "63"}, capture_output=True, text=True, timeout=20
    )
    assert shown.stdout.split("|")[:-1] == (
        ["autograder", "grade", "/class/it's in", "--out", "/class/out", "--lab", "ddp", "--shard", "64/64"]
    )


@pytest.mark.parametrize("kind", ENGINES)
def test_options_of_grading_reach_no_merge(kind):
    script = ENGINES[kind](Job(Path("/class"), Path("/out"), 4, grading=("--allow-weak", "--no-mpi")))
    assert script.count("--allow-weak --no-mpi") == 1
    assert "merge /class --out /out" in script


def test_the_engine_passes_on_what_grading_takes(tmp_path):
    words = ["engine", "local", str(tmp_path), "--out", str(tmp_path / "out"), "--no-mpi", "--allow-weak"]
    done = CliRunner().invoke(app, words)
    assert "--allow-weak --no-mpi" in done.output


def test_an_engine_that_there_is_not_names_those_there_are(students):
    words = [sys.executable, "-m", "autograder", "engine", "lsf", students[0], "--out", students[1]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "slurm, torchrun, kubernetes, submitit, local" in " ".join(done.stderr.split()).replace("│ ", "")


@pytest.mark.long  # starts a grader for each shard, as test_slurm_grades_everyone does
@pytest.mark.parametrize("kind", ["torchrun", "submitit", "local"])
def test_the_script_grades_everyone(script, students, kind):
    words = [sys.executable, script(kind), "local"] if kind == "submitit" else ["sh", script(kind)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert everyone_has_a_row(students[1])


@pytest.mark.long  # a real array job, twice: two minutes
def test_slurm_grades_everyone_although_shards_are_killed(slurm, script, students, monkeypatch):
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm[name])
    file = script("slurm")
    whole, *_ = ENGINES["slurm"](Job(*students, NUMBER)).splitlines()
    assert whole == "#!/bin/bash"
    # What a small machine and a test's patience allow, instead of what the script asks for: memory, cores, minutes.
    submit = ["sbatch", "--wait", "--mem=0", "--cpus-per-task=1", "--time=5", file]
    with subprocess.Popen(submit, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        kill_one(students[0], job)
        job.communicate(timeout=240)
    again = subprocess.run(submit, capture_output=True, text=True, timeout=240)
    logs = "".join(path.read_text() for path in students[1].glob("shard-*.log"))
    assert again.returncode == 0, again.stdout + again.stderr + logs
    merge = [sys.executable, "-m", "autograder", "merge", students[0], "--out", students[1]]
    merged = subprocess.run(merge, capture_output=True, text=True, timeout=120)
    assert merged.returncode == 0, merged.stderr + logs
    assert everyone_has_a_row(students[1])


def kill_one(submissions: Path, job: subprocess.Popen) -> None:
    """SIGKILL to one of the processes that grade this folder, as soon as there is one and a moment later."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        graders = [
            p for p in psutil.process_iter(["cmdline"]) if {"--shard", str(submissions)} <= {*(p.info["cmdline"] or ())}
        ]
        if graders:
            time.sleep(random.Random(0).uniform(0.5, 3))
            random.Random(1).choice(graders).send_signal(signal.SIGKILL)
            return
        if job.poll():
            pytest.fail(job.stdout.read())
        time.sleep(0.05)
    job.kill()
    pytest.fail("no shard began")
