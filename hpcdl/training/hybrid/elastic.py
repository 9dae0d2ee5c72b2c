"""Elastic training: a rank dies, the others continue from the checkpoint on a smaller mesh, later a new rank comes in.

    train_elastic(cluster, model="gpt", mesh="data=4", sharding=1, steps=9, checkpoint="live", kills={3: 1})

Every step is saved, so the others read a dead rank's shards from the checkpoint. They also compute its samples: a
step's batch does not depend on the ranks, so losses are those of a run in which no rank dies.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from hpcdl.cluster import ClusterError, publish
from hpcdl.comm import Communicator, Group, RankError, simulate
from hpcdl.training.hybrid import checkpoints, records
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError, from_options
from hpcdl.training.hybrid.fitting import nearest, require_fit
from hpcdl.training.hybrid.models import build
from hpcdl.training.hybrid.on_engines import PATIENCE, require_engines
from hpcdl.training.trainer import Trainer

if TYPE_CHECKING:
    from hpcdl.cluster import Cluster

Take = Callable[[dict[str, Any]], None]


class RankLostError(RuntimeError):
    """A simulated rank dies where this is raised."""


def train_elastic(
    cluster: "Cluster | None",
    *,
    checkpoint: str,
    quorum: int = 1,
    rejoin_after: int = 2,
    kills: Mapping[int, int] | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train on the first engines of `cluster`, or on simulated ranks (None), through deaths of ranks.

    Options are those of `Configuration`, with the mesh as a text. When a rank dies, the run continues from
    `checkpoint`, a folder, on the nearest mesh that fits the ranks that are left. After `rejoin_after` steps a new rank
    comes in, and the run continues on its whole mesh. `kills` ends ranks on purpose: {3: 1} kills rank 1 at the start
    of step 3, if the mesh then has it. Returns rank 0's record of each step, with its `mesh`. Raises ConfigurationError
    if fewer than `quorum` ranks are left; the folder then has the last step. An error of a living rank is raised.
    """
    configuration = from_options(options)
    require_fit(configuration, build(configuration.model, configuration.size), configuration.ranks)
    require_engines(configuration, cluster)
    if not 1 <= quorum <= configuration.ranks:
        raise ConfigurationError(f"quorum is {quorum}; it is a number of ranks, 1 to {configuration.ranks}")
    if rejoin_after < 1:
        raise ConfigurationError(f"rejoin_after is {rejoin_after}; it is a number of steps, 1 or more")
    pending, now, found = dict(kills or {}), configuration, {}

    def take(record: dict[str, Any]) -> None:
        found[record["step"]] = {**record, "mesh": now.mesh_text}
        say(records.sentence(record))

    while (done := checkpoints.steps_done(checkpoint)) < configuration.steps:
        whole = now.ranks == configuration.ranks
        steps = configuration.steps if whole else min(done + rejoin_after, configuration.steps)
        try:
            _run(cluster, now.changed(steps=steps), checkpoint, pending, take)
            now = configuration
        except (ClusterError, RankError) as error:
            if not _died(error):
                raise
            done = checkpoints.steps_done(checkpoint)
            pending = {step: rank for step, rank in pending.items() if step > done + 1}
            now = _smaller(configuration, now.ranks - 1, quorum, done)
        if (done := checkpoints.steps_done(checkpoint)) < configuration.steps:
            say(f"on from step {done} with {now.ranks} ranks: {now.mesh_text}")
    return [found[step] for step in sorted(found)]


def _smaller(configuration: Configuration, ranks: int, quorum: int, done: int) -> Configuration:
    """Return the configuration on the nearest mesh of at most `ranks` ranks."""
    model = build(configuration.model, configuration.size)
    for n in range(ranks, quorum - 1, -1):
        if mesh := nearest(configuration, model, n):
            return configuration.changed(mesh=mesh)
    raise ConfigurationError(
        f"{ranks} ranks are left after step {done}, and quorum is {quorum}; the checkpoint has that step: start again "
        "with a mesh that fits"
    )


def _died(error: ClusterError | RankError) -> bool:
    if isinstance(error, RankError):
        return isinstance(error.__cause__, RankLostError)
    return any(report.end == "died" for report in error.reports)


def _run(
    cluster: "Cluster | None", configuration: Configuration, checkpoint: str, kills: Mapping[int, int], take: Take
) -> None:
    """Train once, until the configuration's steps are done or a rank fails; `take` gets rank 0's records."""
    if cluster is None:
        simulate(
            lambda comm: _train(comm, configuration, checkpoint, kills, _raise, take if comm.rank == 0 else _ignore),
            configuration.ranks,
        )
        return
    for record in cluster.stream(_train, configuration, checkpoint, kills, _kill, publish, timeout=PATIENCE):
        if record.rank == 0:
            take(record.value)


def _train(
    comm: Communicator,
    configuration: Configuration,
    checkpoint: str,
    kills: Mapping[int, int],
    die: Callable[[], None],
    report: Take,
) -> None:
    """Run this rank's part of a training, and save each step; engines beyond the mesh stay idle."""
    torch.set_num_threads(1)
    if comm.rank >= configuration.ranks:
        return
    trainer = Trainer(Group(comm, range(configuration.ranks)), configuration)
    trainer.resume(checkpoint)

    def before_step(step: int) -> None:
        if kills.get(step + 1) == comm.rank:
            die()

    trainer.train(report, before_step, checkpoint=checkpoint, every=1)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise RankLostError("this rank was killed")


def _ignore(record: dict[str, Any]) -> None:
    """Leave the record of a rank other than 0."""
