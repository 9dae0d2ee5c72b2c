"""What a training script does on simulated ranks: samples, weights, the disk after kills, errors.

    print(observe(saved))

A script gets its arguments by name, as many as it takes: model, optimizer, loss_sum, sampler, batch, epochs, batches,
passes, env, every, disk, log, comm.
"""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, DistributedSampler

from hpcdl.comm import simulate
from hpcdl.comm.base import Communicator
from hpcdl.comm.errors import CommError, DeadlockError, RankError

SAMPLES, EPOCHS, BATCH, PASSES, EVERY, LR = 16, 3, 2, 2, 2, 0.1


class ObservedDisk:
    """Files as states; `fails_at` is the number of the write during which the process is killed (None: never)."""

    def __init__(self, files: dict | None = None, fails_at: int | None = None):
        self.files, self.fails_at, self.writes = files if files is not None else {}, fails_at, 0

    def write(self, name: str, state: dict) -> None:
        """Write a file. A kill leaves half of it, which is None here, and raises KilledError."""
        self.writes += 1
        self.files[name] = None if self.writes == self.fails_at else deepcopy(state)
        if self.writes == self.fails_at:
            raise KilledError

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one moment; a file that had the new name is gone."""
        self.files[new] = self.files.pop(old)

    def read(self, name: str) -> dict:
        """Return a file's state. Raises FileNotFoundError if there is no such file, OSError for half a file."""
        if name not in self.files:
            raise FileNotFoundError(f"there is no file {name!r}")
        if self.files[name] is None:
            raise OSError(f"{name!r} is half a file")
        return deepcopy(self.files[name])


class KilledError(Exception):
    """A process was killed while it wrote a file."""


def observe(script: Callable, p: int = 4, per_node: int = 2) -> str:
    """Return a report of `script` on p simulated ranks, `per_node` on each machine."""
    return f"{script.__name__} on {p} ranks, {per_node} on each machine:\n" + "\n".join(
        f"   {line}" for line in Observed(script, p, per_node).lines()
    )


class Observed:
    """A script, the arguments that it takes, and what a run of it on p ranks shows."""

    def __init__(self, script: Callable, p: int, per_node: int):
        self.script, self.p, self.per_node = script, p, per_node
        self.takes = list(inspect.signature(script).parameters)
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(SAMPLES, 4, generator=generator).double()
        self.y = torch.randint(0, 3, (SAMPLES,), generator=generator)
        self.batches = [torch.randperm(SAMPLES, generator=generator)[: 4 * p // 2] for _ in range(5)]

    def lines(self) -> list[str]:
        """Return the report's lines; of a script that raises, the error's first lines."""
        try:
            run = simulate(self.rank, self.p, ObservedDisk(), alpha=1.0)
        except (DeadlockError, CommError, RankError) as error:
            return str(error).splitlines()[:8]
        returned, asked, logged, weights = zip(*run.results, strict=True)
        found = [f"rank {r} uses the samples {_joined(mine)}" for r, mine in enumerate(asked)]
        apart = max((a - b).abs().max().item() for a, b in zip(weights[0], self.serial(), strict=True))
        found.append(f"the weights differ from those of one process by {apart:.0e}")
        found += [f"rank {r} returns {value!r}" for r, value in enumerate(returned) if value is not None]
        found += [f"rank {r} logs {lines}" for r, lines in enumerate(logged) if lines]
        return found + (self.kills() if "disk" in self.takes else [])

    def asked(self, step: int) -> list[list[int]]:
        """Return the samples of each rank in a pass; `step` is its number."""
        return [rank[1][step] for rank in simulate(self.rank, self.p, ObservedDisk()).results]

    def kills(self) -> list[str]:
        """Return what happens after a kill during each write."""
        found = []
        for number in range(1, len(self.batches) // EVERY + 1):
            files: dict[str, Any] = {}
            with contextlib.suppress(DeadlockError, CommError, RankError):
                simulate(self.rank, self.p, ObservedDisk(files, number))
            try:
                asked = simulate(self.rank, self.p, ObservedDisk(files)).results[0][1]
                after = f"starts again at step {len(self.batches) - len(asked)}"
            except (DeadlockError, CommError, RankError) as error:
                after = f"cannot start again: {str(error).splitlines()[0]}"
            found.append(f"killed during write {number}: {after}")
        return found

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()

    def rank(self, comm: Communicator, disk: ObservedDisk) -> tuple:
        model, asked, logged = self.model(), list[list[int]](), list[str]()

        def loss_sum(chosen):
            asked.append(chosen.tolist())
            return cross_entropy(model(self.x[chosen]), self.y[chosen], reduction="sum")

        local, samples = comm.rank % self.per_node, cast(Dataset, range(SAMPLES))
        given = {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), LR),
            "loss_sum": loss_sum,
            "sampler": DistributedSampler(samples, comm.size, comm.rank),
            "batch": BATCH,
            "epochs": EPOCHS,
            "batches": self.batches,
            "passes": PASSES,
            "env": {"RANK": str(comm.rank), "WORLD_SIZE": str(comm.size), "LOCAL_RANK": str(local)},
            "every": EVERY,
            "disk": disk,
            "log": lambda step, loss: logged.append(f"{loss:.3f} at step {step}"),
            "comm": comm,
        }
        returned = self.script(*[given[name] for name in self.takes])
        return returned, asked, logged, [param.detach() for param in model.parameters()]

    def serial(self) -> list[torch.Tensor]:
        """Return the weights of one process."""
        model = self.model()
        optimizer = torch.optim.SGD(model.parameters(), LR)
        for chosen in self.steps():
            optimizer.zero_grad()
            cross_entropy(model(self.x[chosen]), self.y[chosen]).backward()
            optimizer.step()
        return [param.detach() for param in model.parameters()]

    def steps(self) -> Sequence[torch.Tensor]:
        if "sampler" not in self.takes:
            return self.batches
        orders = [torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)) for epoch in range(EPOCHS)]
        return [chosen for order in orders for chosen in order.split(BATCH * self.p)]


def _joined(asked: list[list[int]]) -> str:
    return " | ".join(" ".join(map(str, chosen)) for chosen in asked)
