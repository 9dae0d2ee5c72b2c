"""The batch script of `hpcdl cluster script`: what it says, what it refuses, and a job of a real Slurm."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpcdl.cli import app
from hpcdl.cluster.script import sbatch


def script(*arguments):
    return CliRunner().invoke(app, ["cluster", "script", *arguments])


def test_the_script_asks_for_a_task_per_node_and_starts_torchrun_in_it():
    text = sbatch(2, 4, arguments=["--checkpoint", "my file.pt"], minutes=90)
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=training\n")
    for line in ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--time=01:30:00"):
        assert f"#SBATCH {line}\n" in text
    assert "--nnodes=2 --nproc-per-node=4 --max-restarts=1" in text
    assert text.endswith("-m hpcdl.training --checkpoint 'my file.pt'\n")
    assert "gpus" not in text
    assert "#SBATCH --gpus-per-node=4\n" in sbatch(2, 4, gpus=True)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=20)


def test_the_command_that_hands_a_script_in_can_be_pasted(tmp_path):
    said = script("--out", str(tmp_path / "my job.sh")).output.replace("\n", "")
    assert f"sbatch '{tmp_path / 'my job.sh'}'" in said


def test_two_jobs_on_one_node_meet_at_two_ports():
    """A job that meets at another's port would wait for ranks that never come."""
    text = sbatch(1, 2)
    assert '--rdzv-endpoint="$first:$port"' in text
    line = next(line for line in text.splitlines() if line.startswith("port="))
    ports = [
        int(subprocess.run(["bash", "-c", f"SLURM_JOB_ID={job}; {line}; echo $port"], capture_output=True).stdout)
        for job in (1, 2, 9999, 10000, 123456789)
    ]
    assert len({*ports}) == 5
    assert all(20000 <= port < 30000 for port in ports)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nodes": 0}, "nodes is 0, expected 1 or more"),
        ({"each": 0}, "each is 0"),
        ({"minutes": 0}, "minutes is 0"),
        ({"restarts": -1}, "restarts is -1, expected 0 or more"),
        ({"module": "rm -r"}, "expected a name such as hpcdl.training"),
        ({"arguments": ["a\nb"]}, "cannot be printed"),
    ],
)
def test_what_makes_no_job_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        sbatch(**{"nodes": 1, "each": 2, **wrong})


def test_the_command_prints_it_or_writes_a_file(tmp_path):
    ended = script("--nodes", "2", "--each", "4", "--", "--epochs", "1")
    assert ended.exit_code == 0
    assert ended.stdout == sbatch(2, 4, arguments=["--epochs", "1"])
    ended = script("--out", str(tmp_path / "job.sh"))
    assert "sbatch" in ended.stdout
    assert (tmp_path / "job.sh").read_text() == sbatch(1, 2)


@pytest.mark.parametrize(
    ("partitions", "minutes", "said"),
    [
        ("debug* 30:00\nlong 2-00:00:00", 90, "debug allows 30: .* --partition=long"),
        ("debug* 1:29:30\nshort 45", 90, r"debug allows 89.5: the job would wait forever. Ask .* --time\.$"),
        ("debug* 1:30:00", 90, None),
        ("all* infinite", 100_000, None),
        ("week* 7-00:00:00", 10_080, None),
        ("debug 30:00", 90, None),  # no default partition
        ("", 90, None),
    ],
)
def test_a_job_longer_than_its_partition_allows_is_said(partitions, minutes, said, tmp_path, monkeypatch):
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/sh\ncat <<END\n{partitions}\nEND\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ended = script("--minutes", str(minutes))
    assert ended.exit_code == 0
    assert ended.stdout == sbatch(1, 2, minutes=minutes)
    assert ended.stderr == "" if said is None else re.search(said, ended.stderr.strip())


def test_where_slurm_does_not_answer_nothing_is_said(tmp_path, monkeypatch):
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho debug* 1:00\nexit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert script("--minutes", "90").stderr == ""


def test_a_wrong_module_is_a_sentence():
    ended = script("--module", "train me")
    assert ended.exit_code == 2
    assert "expected a name such as hpcdl.training" in ended.stderr


@pytest.mark.long
def test_slurm_runs_it_and_both_processes_agree(slurm, tmp_path):
    assert script("--minutes", "5", "--out", str(tmp_path / "job.sh"), "--", "--epochs", "1").exit_code == 0
    path = os.pathsep.join([str(Path(sys.executable).parent), slurm["PATH"]])
    environment = {**os.environ, "SLURM_CONF": slurm["SLURM_CONF"], "PATH": path}
    call = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 30}
    handed_in = subprocess.run(["sbatch", "--parsable", "job.sh"], **call)
    assert handed_in.returncode == 0, handed_in.stderr
    job, deadline = handed_in.stdout.strip(), time.monotonic() + 150
    while subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], **call).stdout.strip() not in (
        "",
        "COMPLETED",
        "FAILED",
    ):
        if time.monotonic() > deadline:
            subprocess.run(["scancel", job], **call)
            pytest.fail("the job did not end")
        time.sleep(0.5)
    said = (tmp_path / f"training-{job}.out").read_text()
    assert re.search(r"2 of 2 replicas agree to the last bit", said), said
