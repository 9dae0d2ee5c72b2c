"""What the dashboard can train: LeNet-5 on replicas as in lab 07, or a model of the trainer on a mesh.

A program has its picture (`draw` on axes of `layout`, the `sentence` below it), its controls and `buttons`. `fresh`
makes the picture's state, `kept` is the part that a resumed run takes over, and `append` adds a record.
`stream` begins a run on the cluster's engines, which follow the file `commands`; with `again` it continues from the
checkpoint. `meanwhile` is called while the engines work for another run.
"""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

from hpcdl.cluster.cluster import Cluster
from hpcdl.collectives import ALL_REDUCE
from hpcdl.parallel import SCHEDULES
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError, from_options, parse_mesh
from hpcdl.training.hybrid.fitting import meshes, misfit, require_fit
from hpcdl.training.hybrid.models import build
from hpcdl.training.hybrid.on_engines import require_engines, train_here
from hpcdl.training.live import Settings, train_live
from hpcdl.widgets.kit.controls import checkbox, choice, slider, stops
from hpcdl.widgets.pictures import mesh_training, training

PATIENCE = 3600.0  # seconds that a training may take, pauses included
EVERY = 5  # steps between two checkpoints
BUTTONS = ("start", "pause", "stop", "kill")


class ReplicaTraining:
    """LeNet-5 on as many replicas as the controls say, by `hpcdl.ddp`."""

    ready = "Press start: LeNet-5 learns to read digits on the engines."
    layout = training.DASHBOARD
    buttons, kept = (*BUTTONS, "strong", "weak"), ()
    draw, append = staticmethod(training.draw), staticmethod(training.append)

    def controls(self, n: int) -> dict:
        return {
            "ranks": slider("ranks", n, 1, n),
            "batch": stops("batch, images", [16, 32, 64, 128, 256, 512], 64),
            "bucket_mb": stops("bucket, MB", [0.01, 0.03, 0.1, 0.2, 1.0], 1.0),
            "all_reduce": choice("all-reduce", list(ALL_REDUCE), "ring"),
            "overlap": checkbox("overlap", True),
        }

    def settings(self, values: dict[str, Any]) -> Settings:
        """Return the settings of the controls."""
        return Settings(**{name: values[name] for name in Settings._fields if name in values})

    def fresh(self, values: dict[str, Any]) -> dict:
        return training.fresh(self.settings(values).epochs)

    def sentence(self, state: dict) -> str:
        return training.sentence(state, state["ranks"])

    def stream(self, cluster: Cluster, values: dict, commands: str, meanwhile: Callable, again: bool) -> Any:
        return cluster.stream(train_live, self.settings(values), commands, timeout=PATIENCE, meanwhile=meanwhile)


class OnMesh:
    """The trainer with `options` as those of `run_on`; its controls choose among the meshes that fit.

    Every `EVERY` steps it saves a checkpoint, from which any other mesh continues. With `log`, a folder, ranks write
    their records there as `hpcdl train --log` does. Raises ConfigurationError if the options do not fit the model or
    the engines.
    """

    layout = mesh_training.LAYOUT
    buttons, kept = (*BUTTONS, "resume"), ("steps",)
    draw, append = staticmethod(mesh_training.draw), staticmethod(mesh_training.append)
    sentence = staticmethod(mesh_training.sentence)

    def __init__(self, cluster: Cluster, options: dict[str, Any], log: str | None = None):
        self.start, self.log = from_options(options), log
        self.model = build(self.start.model, self.start.size)
        require_fit(self.start, self.model, self.start.ranks)
        require_engines(self.start, cluster)
        self.ready = f"Press start: {self.start.model} {self.start.size} learns on a mesh of the engines."

    def controls(self, n: int) -> dict:
        fitting = [
            mesh_training.mesh_of(self.start.changed(mesh=mesh))
            for ranks in range(n, 0, -1)
            for mesh in meshes(ranks)
            if not misfit(self.start.changed(mesh=mesh), self.model, ranks)
        ]
        m = self.start.microbatches
        return {
            "mesh": choice("mesh", fitting, mesh_training.mesh_of(self.start)),
            "schedule": choice("schedule", list(SCHEDULES), self.start.schedule),
            "microbatches": stops("microbatches", sorted({1, 2, 4, 8, m}), m),
            "sharding": slider("ZeRO", self.start.sharding, 0, 3),
        }

    def configuration(self, values: dict[str, Any]) -> Configuration:
        """Return the settings of the controls."""
        chosen = {name: values[name] for name in ("schedule", "microbatches", "sharding")}
        mesh = "" if values["mesh"] == mesh_training.ONE else values["mesh"]
        return self.start.changed(mesh=parse_mesh(mesh), **chosen)

    def fresh(self, values: dict[str, Any]) -> dict:
        return mesh_training.fresh(self.configuration(values))

    def stream(self, cluster: Cluster, values: dict, commands: str, meanwhile: Callable, again: bool) -> Any:
        configuration, checkpoint = self.configuration(values), cluster.directory / "checkpoint"
        require_fit(configuration, self.model, configuration.ranks)
        require_engines(configuration, cluster)
        if again and not checkpoint.exists():
            raise ConfigurationError(f"there is no checkpoint: press start, which saves one every {EVERY} steps")
        if not again:
            shutil.rmtree(checkpoint, ignore_errors=True)
        live = partial(train_here, commands=commands, checkpoint=str(checkpoint), every=EVERY, log=self.log)
        return cluster.stream(live, configuration, True, timeout=PATIENCE, meanwhile=meanwhile)
