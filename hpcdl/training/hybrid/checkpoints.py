"""Where a training on a mesh stands, on disk: written by any mesh, read by any other, or as one file of torch's.

A checkpoint is a folder of `hpcdl.sharding.save`: the new state replaces the old one in one moment, so that a run may
be killed whenever. It holds the whole model's elements, by the names of the model on one rank, and the configuration.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from hpcdl.files import written_whole
from hpcdl.sharding import Checkpoint, load
from hpcdl.sharding.saving import MANIFEST
from hpcdl.sharding.together import together
from hpcdl.training.hybrid.configuration import ConfigurationError, from_options, read_text
from hpcdl.training.hybrid.whole import SCALE, WEIGHTS, settings_of

if TYPE_CHECKING:
    from hpcdl.training.trainer import Trainer

# What a run must have in common with the run that wrote its checkpoint: else its samples or its weights are others.
COMMON = ("model", "size", "precision", "optimizer", "batch", "seed")


def save(trainer: "Trainer", folder: str | Path) -> None:
    """Make the trainer's state that of the folder, which all ranks reach; every rank calls it.

    Raises OSError on every rank where one cannot write, and then the state in the folder is what it was.
    """
    settings = trainer.configuration.to_toml()
    try:
        extra = trainer.scale.state()
        trainer.whole.save(str(folder), trainer.done, trainer.values, trainer.states, settings, extra)
    except OSError as error:
        raise OSError(
            f"the checkpoint of step {trainer.done} cannot be written ({error}); the one before is whole: make room or "
            "give another folder, and start again"
        ) from None


def resume(trainer: "Trainer", folder: str | Path) -> bool:
    """Give every rank the state in the folder, written by any mesh; False, and nothing changes, where there is none.

    Raises ValueError, on every rank, for a folder with other files, a damaged checkpoint, one of another program, and
    one with other values of `COMMON`: none is changed.
    """
    comm, path = trainer.comm, Path(folder)
    if not together(lambda: _inspect(path) if comm.rank == 0 else "", comm)[0]:
        return False
    state = load(path, comm)
    found: dict[str, list[torch.Tensor]] = {}

    def read() -> str:
        _require_common(trainer, state, path)
        for kind in (WEIGHTS, *(trainer.states if state.step else ())):
            found[kind] = list(trainer.whole.read(state, kind))
        if SCALE in state.shapes:
            trainer.scale.load(state.read(SCALE, 0, 2))
        return ""

    together(read, comm)
    _give(trainer, state.step, found)
    return True


@torch.no_grad()
def _give(trainer: "Trainer", step: int, found: dict[str, list[torch.Tensor]]) -> None:
    weights = found.pop(WEIGHTS)
    for i, shard in enumerate(trainer.whole.shards):
        shard.piece.copy_(weights[i])
        if step and shard.piece.numel():
            states = {kind: values[i].to(shard.piece.device) for kind, values in found.items()}
            trainer.replicas.optimizer.state[shard.piece] = _counted(trainer, states, step)
    trainer.replicas.loaded()
    trainer.done = step


def export(trainer: "Trainer", file: str | Path) -> None:
    """Write the whole state as one file that torch loads, for a program on one rank; every rank calls it.

    A dict: "model" and "optimizer" are state dicts of the whole model and of torch's optimizer of its parameters,
    "step" the steps done, "configuration" the text of `Configuration.to_toml`.
    """
    model, optimizer = trainer.whole_model(), None
    optimizer = trainer.optimizer(list(model.parameters()))
    kinds = {kind: trainer.whole.gather(trainer.values, kind) for kind in trainer.states if trainer.done}
    for i, param in enumerate(model.parameters() if trainer.done else ()):
        optimizer.state[param] = _counted(trainer, {kind: kinds[kind][i].clone() for kind in kinds}, trainer.done)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": trainer.done}

    def write() -> str:
        if trainer.comm.rank == 0:
            with written_whole(file, "wb") as out:
                torch.save({**state, "configuration": trainer.configuration.to_toml()}, out)
        return ""

    together(write, trainer.comm)


def whole_model(trainer: "Trainer") -> nn.Sequential:
    """The model as one rank would have it, on every rank; every rank calls it."""
    model = trainer.fresh_model()
    values = trainer.whole.gather(trainer.values, WEIGHTS)
    with torch.no_grad():
        for param, value in zip(model.parameters(), values, strict=True):
            param.copy_(value)
    return model


def _counted(trainer: "Trainer", states: dict[str, torch.Tensor], step: int) -> dict[str, torch.Tensor]:
    """An optimizer's states of a parameter, with its count of steps where it keeps one."""
    counts = trainer.configuration.optimizer != "sgd"
    return {**states, **({"step": torch.tensor(float(step))} if counts else {})}


def _inspect(path: Path) -> str:
    """Rank 0 looks: whether there is a checkpoint; ValueError for a folder with other things."""
    if not path.exists():
        return ""
    if not path.is_dir():
        raise ValueError(f"{path} is a file; a checkpoint is a folder: give the name of a new one")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        strange = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(("step-", f".{MANIFEST}")))
        if strange:
            raise ValueError(
                f"{path} has {strange[0]!r} and no checkpoint; give a folder that is new or empty"
            ) from None
        return ""
    except (ValueError, UnicodeDecodeError):
        manifest = None
    if not isinstance(manifest, dict) or not {"step", "folder", "files"} <= set(manifest):
        raise ValueError(f"{path / MANIFEST} is not that of a checkpoint; give a folder that is new or empty")
    return "there"


def _require_common(trainer: "Trainer", state: Checkpoint, path: Path) -> None:
    try:
        saved = from_options(read_text(settings_of(state), str(path)))
    except ValueError as error:
        raise ValueError(f"{path} cannot be gone on with: {error}") from None
    for name in COMMON:
        theirs, ours = getattr(saved, name), getattr(trainer.configuration, name)
        if theirs != ours:
            raise ConfigurationError(
                f"{path} was written with {name}={theirs}, and this run has {name}={ours}; go on with the same, or "
                "give a new folder to start afresh"
            )


def states_of(optimizer: str) -> Sequence[str]:
    """The states that an optimizer keeps for each element."""
    return {"sgd": ("momentum_buffer",)}.get(optimizer, ("exp_avg", "exp_avg_sq"))
