"""Elastic training: a rank dies, the others continue on a smaller mesh, later a new rank comes in.

    train_elastic(cluster, model="gpt", mesh="data=4", sharding=1, steps=9, checkpoint="live", kills={3: 1})

A dead rank's shards come from the checkpoint of the last step, or from the next rank's memory: see `neighbours`. The
others also compute its samples: a step's batch does not depend on the ranks, so losses are those of a run in which no
rank dies.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hpcdl.cluster import ClusterError, publish
from hpcdl.cluster.watcher import Interrupted
from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator, Group, RankError, simulate
from hpcdl.training.hybrid import checkpoints, neighbours, records
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError, from_options
from hpcdl.training.hybrid.fitting import nearest, require_fit
from hpcdl.training.hybrid.models import build
from hpcdl.training.hybrid.on_engines import PATIENCE, require_engines
from hpcdl.training.hybrid.predictions import format_bytes
from hpcdl.training.trainer import Trainer

if TYPE_CHECKING:
    from hpcdl.cluster import Cluster

Take = Callable[[dict[str, Any]], None]
TRIES = 5  # a rank that is told to stop is told again four times a second


class RankLostError(RuntimeError):
    """A simulated rank dies where this is raised."""


def train_elastic(
    cluster: "Cluster | None",
    *,
    checkpoint: str,
    every: int = 1,
    quorum: int = 1,
    rejoin_after: int = 2,
    kills: Mapping[int, int] | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train on the first engines of `cluster`, or on simulated ranks (None), through deaths of ranks.

    Options are those of `Configuration`, with the mesh as a text. When a rank dies, the run continues on the nearest
    mesh that fits the ranks that are left. After `rejoin_after` steps a new rank comes in, and the run continues on its
    whole mesh. The state is saved in `checkpoint`, a folder, after `every` steps, and whenever the mesh is whole again;
    if `every` is above 1, each step is also copied to the next rank's memory, and the run continues from there, without
    the folder. `kills` ends ranks on purpose, with their memory: {3: 1} kills rank 1 when all have reached step 3, if
    the mesh then has it. Returns rank 0's record of each step, with its `mesh`. Raises ConfigurationError if fewer than
    `quorum` ranks are left; the folder then has the last saved step. An error of a living rank is raised.
    """
    configuration = from_options(options)
    require_fit(configuration, build(configuration.model, configuration.size), configuration.ranks)
    require_engines(configuration, cluster)
    if not 1 <= quorum <= configuration.ranks:
        raise ConfigurationError(f"quorum is {quorum}; it is a number of ranks, 1 to {configuration.ranks}")
    for name, steps in (("rejoin_after", rejoin_after), ("every", every)):
        if steps < 1:
            raise ConfigurationError(f"{name} is {steps}; it is a number of steps, 1 or more")
    if every > 1:
        sent, held = neighbours.needs(configuration)
        say(f"copies     all ranks send {format_bytes(sent)} a step to their neighbours, and hold {format_bytes(held)}")
    return _Training(cluster, configuration, checkpoint, every, say, dict(kills or {})).run(quorum, rejoin_after)


class RunPlan(NamedTuple):
    """What the ranks of one run are told; `source` is None to continue from the checkpoint."""

    configuration: Configuration
    checkpoint: str
    every: int
    kills: Mapping[int, int]
    number: int
    source: neighbours.Source | None
    memories: list[neighbours.Memory]


class Left(NamedTuple):
    """What an engine publishes when its run ends."""

    memory: neighbours.Memory


class _Training:
    """A training of several runs, between which the mesh changes."""

    def __init__(
        self,
        cluster: "Cluster | None",
        configuration: Configuration,
        checkpoint: str,
        every: int,
        say: Callable[[str], None],
        kills: dict[int, int],
    ):
        self.cluster, self.configuration, self.checkpoint, self.every = cluster, configuration, checkpoint, every
        self.say, self.kills, self.now = say, kills, configuration
        self.records: dict[int, dict[str, Any]] = {}
        self.memories: list[neighbours.Memory] = []  # of the last run's living ranks
        self.number = 0

    def run(self, quorum: int, rejoin_after: int) -> list[dict[str, Any]]:
        """Train to the end, and return rank 0's record of each step."""
        while (done := self._find()[0]) < self.configuration.steps:
            whole = self.now.ranks == self.configuration.ranks
            steps = self.configuration.steps if whole else min(done + rejoin_after, self.configuration.steps)
            try:
                self._run_once(self.now.changed(steps=steps))
                self.now = self.configuration
            except (ClusterError, RankError) as error:
                if not _died(error):
                    raise
                done = self._find()[0]
                self.kills = {step: rank for step, rank in self.kills.items() if step > done + 1}
                self.now = self._smaller(self.now.ranks - 1, quorum, done)
            done, source, _ = self._find()
            if done < self.configuration.steps:
                said = "" if self.every == 1 else ", from the ranks' memory" if source else ", from the checkpoint"
                self.say(f"on from step {done} with {_counted(self.now.ranks)}: {self.now.mesh_text}{said}")
        return [self.records[step] for step in sorted(self.records)]

    def _find(self) -> tuple[int, neighbours.Source | None, list[neighbours.Memory]]:
        """Return the last step that is kept, its source if that is the ranks' memory, and the next run's memories."""
        saved = checkpoints.steps_done(self.checkpoint)
        source, memories = neighbours.find(self.memories, self.now.ranks)
        if source and source.moment.step >= saved:
            return source.moment.step, source, memories
        return saved, None, [{} for _ in range(self.now.ranks)]

    def _smaller(self, ranks: int, quorum: int, done: int) -> Configuration:
        """Return the configuration on the nearest mesh of at most `ranks` ranks."""
        model = build(self.configuration.model, self.configuration.size)
        for n in range(ranks, quorum - 1, -1):
            if mesh := nearest(self.configuration, model, n):
                return self.configuration.changed(mesh=mesh)
        raise ConfigurationError(
            f"{_counted(ranks)} {'is' if ranks == 1 else 'are'} left after step {done}, and quorum is {quorum}; the "
            f"checkpoint has step {checkpoints.steps_done(self.checkpoint)}: start again with a mesh that fits"
        )

    def _take(self, record: dict[str, Any]) -> None:
        self.records[record["step"]] = {**record, "mesh": self.now.mesh_text}
        self.say(records.sentence(record))

    def _run_once(self, configuration: Configuration) -> None:
        """Train until the configuration's steps are done or a rank fails."""
        _, source, memories = self._find()
        self.number += 1
        plan = RunPlan(configuration, self.checkpoint, self.every, self.kills, self.number, source, memories)
        if self.cluster is None:
            self._simulate(plan)
        else:
            self._on_engines(plan, self.cluster)

    def _simulate(self, plan: RunPlan) -> None:
        self.memories = plan.memories
        try:
            simulate(
                lambda comm: _train(comm, plan, _raise, self._take if comm.rank == 0 else _ignore, _ignore),
                plan.configuration.ranks,
            )
        except RankError as error:
            del self.memories[error.rank]
            raise

    def _on_engines(self, plan: RunPlan, cluster: "Cluster") -> None:
        left: dict[int, neighbours.Memory] = {}
        try:
            for record in cluster.stream(_train, plan, _kill, publish, _hand_over, timeout=PATIENCE):
                if isinstance(record.value, Left):
                    left[record.rank] = record.value.memory
                elif record.rank == 0:
                    self._take(record.value)
        finally:
            self.memories = [left[rank] for rank in sorted(left)]


def _counted(n: int) -> str:
    """Return "1 rank" or "3 ranks"."""
    return f"{n} rank{'s' * (n != 1)}"


def _died(error: ClusterError | RankError) -> bool:
    if isinstance(error, RankError):
        return isinstance(error.__cause__, RankLostError)
    return any(report.end == "died" for report in error.reports)


def _train(
    comm: Communicator, plan: RunPlan, die: Callable[[], None], report: Take, leave: Callable[[Left], None]
) -> None:
    """Run this rank's part of a training; engines beyond the mesh stay idle."""
    torch.set_num_threads(1)
    if comm.rank >= plan.configuration.ranks:
        return
    memory = plan.memories[comm.rank]
    try:
        trainer = Trainer(Group(comm, range(plan.configuration.ranks)), plan.configuration)
        if plan.source:
            neighbours.resume(trainer, memory, plan.source)
        else:
            trainer.resume(plan.checkpoint)
        copies = neighbours.NeighbourCopies(trainer, memory, plan.number) if plan.every > 1 else None

        def before_step(step: int) -> None:
            if step + 1 in plan.kills:
                # A group has no barrier. After this, all ranks have copied the step before.
                recursive_doubling_all_reduce(torch.zeros(1), trainer.comm)
            if plan.kills.get(step + 1) == comm.rank:
                die()

        def after_step(record: dict[str, Any]) -> None:
            if copies:
                copies.keep()
            report(record)

        trainer.train(after_step, before_step, checkpoint=plan.checkpoint, every=plan.every)
    finally:
        leave(Left(memory))


def _hand_over(left: Left) -> None:
    """Publish what this engine has, also while it is told to stop."""
    for _ in range(TRIES):
        with contextlib.suppress(Interrupted):
            publish(left)
            return


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise RankLostError("this rank was killed")


def _ignore(value: Any) -> None:
    """Drop the record of a rank other than 0; a simulated rank's memory is here already."""
