"""The trainer from a notebook, in one call: `run_on(cluster, model="gpt", mesh="data=2,tensor=2", steps=4)`."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hpcdl.cluster import publish
from hpcdl.comm import Communicator, Group, simulate
from hpcdl.training.hybrid import predictions, records
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError, from_options
from hpcdl.training.hybrid.fitting import require_fit
from hpcdl.training.hybrid.models import build
from hpcdl.training.live import LiveCommands, follow_commands
from hpcdl.training.trainer import Trainer

if TYPE_CHECKING:
    from hpcdl.cluster import Cluster

PATIENCE = 3600.0  # seconds that a run may take


def run_on(
    cluster: "Cluster | None",
    *,
    say: Callable[[str], None] = print,
    measure: bool = True,
    checkpoint: str | None = None,
    **options: Any,
) -> list[list[dict[str, Any]]]:
    """Train on the first engines of `cluster`, like `hpcdl train` with these `options`; with None the ranks are
    simulated.

    Options are those of `Configuration`, with the mesh as a text: `model="gpt"`, `mesh="pipeline=2"`, `sharding=1`.
    Prints what the run needs before the first step, then a line per step. Returns each rank's records by step, as from
    `Trainer.step`, with its `spans` over time and, with `measure`, its `peak_bytes`. With `checkpoint`, a folder, each
    step is saved, and a run continues from there on any mesh, for instance after a rank died. Raises ConfigurationError
    if the mesh does not fit the model or has more ranks than there are engines.
    """
    configuration = from_options(options)
    require_fit(configuration, build(configuration.model, configuration.size), configuration.ranks)
    require_engines(configuration, cluster)
    for line in predictions.described(configuration, predictions.predict(configuration)):
        say(line)
    if cluster is None:
        return simulate(_train_simulated, configuration.ranks, configuration, measure, checkpoint).results
    found: list[list[dict[str, Any]]] = [[] for _ in range(configuration.ranks)]
    for record in cluster.stream(train_here, configuration, measure, None, checkpoint, timeout=PATIENCE):
        found[record.rank].append(record.value)
        if record.rank == 0:
            say(records.sentence(record.value))
    return found


def require_engines(configuration: Configuration, cluster: "Cluster | None") -> None:
    """Raise ConfigurationError for a mesh of more ranks than there are engines."""
    if cluster is not None and configuration.ranks > cluster.n:
        engines = "is 1 engine" if cluster.n == 1 else f"are {cluster.n} engines"
        raise ConfigurationError(
            f"the mesh {configuration.mesh_text} has {configuration.ranks} ranks, and there {engines}; "
            f"start Cluster(n={configuration.ranks}), or take a smaller mesh"
        )


def train_here(
    comm: Communicator,
    configuration: Configuration,
    measure: bool = False,
    commands: str | None = None,
    checkpoint: str | None = None,
    report: Callable[[dict], None] = publish,
    every: int = 1,
    log: str | None = None,
) -> None:
    """Run this engine's part of a training and report its records; engines beyond the mesh stay idle.

    `commands` is a file of `hpcdl.training.live.LiveCommands`, which pause, slow down or end ranks between steps.
    `checkpoint` is a folder to continue from, saved every `every` steps. `log` is a folder for a line per step and
    rank, as in `hpcdl train --log`.
    """
    torch.set_num_threads(1)
    if comm.rank >= configuration.ranks:
        return
    trainer = Trainer(Group(comm, range(configuration.ranks)), configuration, profile=True)
    if checkpoint:
        trainer.resume(checkpoint)
    own = 0.0  # seconds of the last step without waits

    def before_step(step: int) -> None:
        if commands is None:
            return
        now: LiveCommands = follow_commands(commands, comm.rank, report)
        if now.slow_rank == comm.rank:
            time.sleep((now.factor - 1) * own)

    def after_step(record: dict[str, Any]) -> None:
        nonlocal own
        own = record["seconds"] - record["waited"]
        records.write(file, record)
        report({**record, "spans": trainer.timeline.take()})

    with records.log(Path(log) if log else None, comm.rank, configuration.ranks, trainer.done) as file:
        trainer.train(after_step, before_step, checkpoint=checkpoint, every=every, measure=measure)


def _train_simulated(
    comm: Communicator, configuration: Configuration, measure: bool, checkpoint: str | None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    train_here(comm, configuration, measure, checkpoint=checkpoint, report=found.append)
    return found
