"""`hpcdl train` itself is killed at random moments and started again, and equals an undisturbed run."""

import contextlib
import json
import random
import threading
import time

import psutil
import pytest
import torch

KILLS = 10
ENDLESS = 10**6  # steps of a run that only a kill ends
KEPT = ("step", "loss", "gradient_norm", "samples")


def command(folder, steps: int, every: int, *others: str) -> list[str]:
    options = f"--model mlp --batch 12 --precision fp64 --optimizer adam --seed 3 --every {every} --steps {steps}"
    places = ["--checkpoint", str(folder / "state"), "--log", str(folder / "log")]
    return ["-m", "hpcdl", "train", *options.split(), *places, *others]


def logged(folder, rank: int = 0) -> list[list]:
    """Return what is kept of each whole line of the log."""
    file = folder / "log" / f"rank-{rank}.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [[json.loads(line)[name] for name in KEPT] for line in lines]


def kill(folder, steps: int, delay: float, rng: random.Random) -> None:
    """Kill a rank, or all of them with their mpiexec, a moment after the log has so many steps."""
    until = time.monotonic() + 150
    while len(logged(folder)) < steps and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(delay)
    everybody = rng.random() < 0.3
    family = psutil.Process().children(recursive=True)
    ranks = [process for process in family if process.name().startswith("python")]
    for process in family if everybody else [rng.choice(ranks)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.mpi
@pytest.mark.long  # starts eleven times
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [1, 2])
def test_ten_kills_lose_and_double_no_sample(ranks, mpiexec, tmp_path):
    """Losses, norms, samples, weights and states are those of an uninterrupted run, to the last bit."""
    rng, folder = random.Random(ranks), tmp_path / "killed"
    for _ in range(KILLS):
        moment = len(logged(folder)) + rng.randint(1, 4), rng.random() * 0.05
        killer = threading.Thread(target=kill, args=(folder, *moment, rng))
        killer.start()
        code, printed = mpiexec(ranks, *command(folder, ENDLESS, rng.randint(1, 3)))
        killer.join()
        assert code != 0, printed
        assert "Traceback" not in printed, printed
    steps = len(logged(folder)) + 2
    exported = []
    for place in (folder, tmp_path / "whole"):
        code, printed = mpiexec(ranks, *command(place, steps, 50, "--export", str(tmp_path / "all.pt")))
        assert code == 0, printed
        whole = torch.load(tmp_path / "all.pt", weights_only=True)
        exported.append((whole["step"], whole["model"], whole["optimizer"]["state"]))
    for rank in range(ranks):
        assert logged(folder, rank) == logged(tmp_path / "whole", rank)
        assert [step for step, *_ in logged(folder, rank)] == list(range(1, steps + 1))
    assert exported[0][0] == steps
    torch.testing.assert_close(*exported, rtol=0, atol=0)
