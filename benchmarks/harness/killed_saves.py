"""Saves of a sharded checkpoint by two processes; one or both are killed at a random moment.

    python -m benchmarks.harness.killed_saves 100 FOLDER

After each kill three ranks read the state. It is to be a whole one, the last that was known or a later one.
"""

import itertools
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from hpcdl.comm import TorchComm, simulate
from hpcdl.comm.base import Communicator
from hpcdl.sharding import Shard, load, save

NUMEL, RANKS, READERS = 200_000, 2, 3
MOST_SECONDS = 0.5  # from the end of the first save to the kill
PATIENCE = 60.0  # after which what should have ended is ended here


def shard(comm: Communicator, value: float) -> dict[str, Shard]:
    """Return this rank's part of a tensor whose elements all are `value`."""
    parts = torch.full((NUMEL,), value, dtype=torch.float64).tensor_split(comm.size)
    return {"x": Shard(parts[comm.rank], sum(len(part) for part in parts[: comm.rank]), (NUMEL,))}


def save_for_ever(rank: int, store: Path, path: Path, step: int, ready: int) -> None:
    """A process: rank `rank` of two, which saves one state after another until it is killed, or the other one was."""
    torch.set_num_threads(1)
    file = dist.FileStore(str(store), RANKS)
    dist.init_process_group("gloo", store=file, rank=rank, world_size=RANKS, timeout=timedelta(seconds=PATIENCE))
    comm = TorchComm()
    save(path, step + 1, shard(comm, step + 1.0), comm)
    os.write(ready, b".")
    for later in itertools.count(step + 2):
        save(path, later, shard(comm, float(later)), comm)


def start(rank: int, store: Path, path: Path, step: int, ready: int) -> int:
    """Fork such a process; its id."""
    child = os.fork()
    if child:
        return child
    quiet = os.open(os.devnull, os.O_WRONLY)  # the survivor's last words
    os.dup2(quiet, 2)
    try:
        save_for_ever(rank, store, path, step, ready)
    finally:
        os._exit(1)


def kill_once(path: Path, step: int, number: int, draw: random.Random) -> None:
    """Let two processes save, kill one of them or both after the first state, and wait until both have ended."""
    reading, ready = os.pipe()
    store = path.parent / f"store-{number}"
    children = [start(rank, store, path, step, ready) for rank in range(RANKS)]
    os.close(ready)
    for _ in children:
        if not os.read(reading, 1):
            raise RuntimeError(f"kill {number}: a process ended before it saved")
    os.close(reading)
    time.sleep(draw.uniform(0, MOST_SECONDS))
    for child in draw.choice(([children[0]], [children[1]], children)):
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    for child in children:
        _wait(child, deadline)
    store.unlink(missing_ok=True)


def _wait(child: int, deadline: float) -> None:
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.002)


def found(path: Path) -> int:
    """Return the step of the state that three ranks find; AssertionError where an element is not of that step."""

    def read(comm: Communicator) -> int:
        saved, mine = load(path, comm), shard(comm, 0.0)
        saved.fill(mine)
        assert mine["x"].piece.eq(saved.step).all(), f"elements of another step than {saved.step}"
        return saved.step

    (step,) = set(simulate(read, READERS).results)
    return step


def killed_saves(kills: int, folder: Path, seed: int = 0) -> dict[str, int]:
    """Of `kills`, how many left a whole state that is not older than the last one known, and how many a newer one."""
    path, draw = folder / "checkpoint", random.Random(seed)
    simulate(lambda comm: save(path, 1, shard(comm, 1.0), comm), RANKS)
    step, outcome = 1, {"kills": 0, "whole": 0, "newer": 0, "states": 1}
    for number in range(kills):
        kill_once(path, step, number, draw)
        now, known = found(path), step + 1
        outcome["kills"] += 1
        outcome["whole"] += now >= known
        outcome["newer"] += now > known
        step = now
    return outcome | {"states": step}


if __name__ == "__main__":
    print(killed_saves(int(sys.argv[1]), Path(sys.argv[2])))
