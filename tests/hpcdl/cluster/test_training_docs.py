"""docs/training.md is run as it stands: its commands, and its batch file as a job of a real Slurm."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcdl.cluster import find_launcher
from hpcdl.cluster.launcher import LauncherError

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
END = re.compile(r"(\d) ranks, [\d.]+ s: held-out accuracy [\d.]+ %\n\1 of \1 replicas agree to the last bit")

SAID = {  # by the command, what a run on a mesh, or the script of one, ends with
    "--dry-run": re.compile(r"^bytes sent +[\d,]+ +[\d,]+ +0\nmessages +[\d,]+ +[\d,]+ +0\npeak .* 0$", re.MULTILINE),
    "--plan": re.compile(r"^best       --mesh \S+", re.MULTILINE),
    "--profile": re.compile(
        r"^peak bytes .* 0$.*^2 ranks, 2 steps\nof a step: .*^Wrote trace.json", re.MULTILINE | re.DOTALL
    ),
    "compare": re.compile(r"^2 steps agree: losses and gradients differ by .*e-1\d at most", re.MULTILINE),
    "script": re.compile(r"^Wrote job.sh\. Hand it in: sbatch job.sh", re.MULTILINE),
    "--export": re.compile(
        r"^step 4: .*^state has 4 steps: on from there.*^step 6: .*^it writes: ", re.MULTILINE | re.DOTALL
    ),
    "--model": re.compile(r"^step 3: loss .*^it writes: ", re.MULTILINE | re.DOTALL),
}

OTHERS = ("--model", "cluster script")  # commands that end as `SAID`, and not as lab 07's training
pytestmark = pytest.mark.mpi


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(need):
    """With the course's programs first on the PATH, as after `activate`, and one thread per rank."""
    try:
        folders = [str(Path(sys.executable).parent), str(find_launcher().path.parent), os.environ["PATH"]]
    except LauncherError as error:
        need("mpi", False, str(error))
    return {**os.environ, "PATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}


@pytest.mark.labs  # the README's command trains in the first tier
@pytest.mark.thinned(1, 2)
@pytest.mark.parametrize("command", blocks("sh"), ids=lambda command: "-".join(command.split()[:5]))
def test_the_commands_train(command, environment, tmp_path):
    command = command.replace("--epochs 2", "--epochs 1").replace("torchrun ", "torchrun --standalone ")
    run = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    if any(word in command for word in OTHERS):
        expected = next(said for word, said in SAID.items() if f" {word} " in f"{command.replace(chr(10), ' ')} ")
        assert expected.search(run.stdout), run.stdout
    else:
        assert END.search(run.stdout).group(1) == "4"


@pytest.mark.labs
def test_finished_training_is_not_repeated(environment, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\.venv/bin/(\w+ .*(?:hpcdl|ddp\.)[ \w.-]*train.*?) *#", readme, re.MULTILINE)
    plain = [command.replace(".venv/bin/", "") for command in commands]
    plainly = [block for block in blocks("sh") if not any(word in block for word in OTHERS)]
    written = [re.sub(r" --epochs 2", "", block.strip()) for block in plainly]
    assert plain[:2] == written
    command = f"{plain[2]} --epochs 1 --every 23"
    for repeated in (False, True):
        run = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert END.search(run.stdout)
        assert ("epoch 1:" in run.stdout) != repeated


@pytest.mark.labs  # Slurm runs engines in the first tier
def test_resubmitted_batch_file_resumes(slurm, environment, tmp_path):
    (file,) = blocks("sbatch")
    (tmp_path / "train.sbatch").write_text(file)
    environment |= {"SLURM_CONF": slurm["SLURM_CONF"], "PATH": f"{environment['PATH']}:{slurm['PATH']}"}
    first, second = (outcome_of_job(tmp_path, environment) for _ in range(2))
    assert END.search(first), first
    assert "epoch 1:" in first
    assert END.search(second), second
    assert "epoch 1:" not in second, "the second job began where the first had saved"
    assert first.splitlines()[-1] == second.splitlines()[-1], "both end with the same bits"


def outcome_of_job(folder, environment, seconds=100):
    """What the job printed, once Slurm says that it has ended."""
    command = ["sbatch", "--parsable", "train.sbatch"]
    handed_in = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=30)
    assert handed_in.returncode == 0, handed_in.stderr
    job, deadline = handed_in.stdout.strip(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        queue = ["squeue", "-h", "-j", job, "-o", "%T"]
        state = subprocess.run(queue, env=environment, capture_output=True, text=True, timeout=30).stdout.strip()
        if state in ("", "COMPLETED", "FAILED", "CANCELLED"):
            break
        time.sleep(0.3)
    else:
        subprocess.run(["scancel", job], env=environment, timeout=30, check=False)
        pytest.fail(f"the job did not end within {seconds} s: {state}")
    return (folder / f"lenet-{job}.out").read_text()
