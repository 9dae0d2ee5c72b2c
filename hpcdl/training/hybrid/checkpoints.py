"""Checkpoints of a training on a mesh: written by any mesh, read by any other, or exported as one torch file.

A checkpoint is a folder of `hpcdl.sharding.save`: the new state replaces the old one atomically, so a run may be killed
at any time. It holds the whole model's elements, by their names in the model on one rank, and the configuration.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.files import written_whole
from hpcdl.sharding import Checkpoint, load
from hpcdl.sharding.saving import MANIFEST
from hpcdl.sharding.together import together
from hpcdl.training.hybrid.configuration import ConfigurationError, from_options, read_text
from hpcdl.training.hybrid.whole import SCALE, WEIGHTS, settings_of

if TYPE_CHECKING:
    from hpcdl.training.trainer import Trainer

# A run must share these options with the run that wrote its checkpoint; otherwise its samples or weights differ.
COMMON = ("model", "size", "precision", "optimizer", "batch", "seed")


@contextlib.contextmanager
def alone(folder: str | Path | None, comm: Communicator) -> Iterator[None]:
    """Let no other run save in the folder inside the block; every rank enters it, and None is no folder.

    Two runs would remove each other's states. If another run is in such a block, or the folder cannot be written, every
    rank raises OSError.
    """
    with contextlib.ExitStack() as stack:

        def take() -> str:
            if comm.rank == 0 and folder is not None:
                stack.enter_context(_locked(Path(folder)))
            return ""

        if folder is not None:
            together(take, comm)
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock that ends with this process at the latest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f".{MANIFEST}.lock").open("w")
    except OSError as error:
        raise OSError(f"no checkpoint can be written to {folder} ({error.strerror}); give another folder") from None
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(
                f"another run saves its checkpoints in {folder}; wait for its end or give another folder"
            ) from None
        except (ImportError, OSError):  # Windows, and file systems without locks
            pass
        yield


def save(trainer: "Trainer", folder: str | Path) -> None:
    """Save the trainer's state in the folder, which all ranks can reach; every rank calls it.

    If a rank cannot write, the folder keeps its old state and every rank raises OSError.
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
    """Give every rank the state in the folder, written by any mesh; return False without one, and change nothing.

    Raises ValueError on every rank, and changes nothing, for a folder with other files, a damaged checkpoint, another
    program's checkpoint, or different values of `COMMON`.
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
    give(trainer, state.step, found)
    return True


@torch.no_grad()
def give(trainer: "Trainer", step: int, found: dict[str, list[torch.Tensor]]) -> None:
    """Replace this rank's shards and states by those `found` after `step` steps, by kind."""
    weights = found.pop(WEIGHTS)
    for i, shard in enumerate(trainer.whole.shards):
        shard.piece.copy_(weights[i])
        if step and shard.piece.numel():
            states = {kind: values[i].to(shard.piece.device) for kind, values in found.items()}
            trainer.replicas.optimizer.state[shard.piece] = _counted(trainer, states, step)
    trainer.replicas.loaded()
    trainer.done = step


def steps_done(folder: str | Path) -> int:
    """Return the steps of the checkpoint in the folder, 0 without one; raise ValueError if it holds other files."""
    path = Path(folder)
    return json.loads((path / MANIFEST).read_text(encoding="utf-8"))["step"] if _inspect(path) else 0


def export(trainer: "Trainer", file: str | Path) -> None:
    """Write the whole state as one file that torch loads, for a program on one rank; every rank calls it.

    A dict: "model" and "optimizer" are the state dicts of the whole model and of a torch optimizer for it, "step" is
    the number of steps done, "configuration" the text of `Configuration.to_toml`.
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
    """Return the whole model, as on one rank, on every rank; every rank calls it."""
    model = trainer.fresh_model()
    values = trainer.whole.gather(trainer.values, WEIGHTS)
    with torch.no_grad():
        for param, value in zip(model.parameters(), values, strict=True):
            param.copy_(value)
    return model


def _counted(trainer: "Trainer", states: dict[str, torch.Tensor], step: int) -> dict[str, torch.Tensor]:
    """Return an optimizer's states of a parameter, with its step count if it keeps one."""
    counts = trainer.configuration.optimizer != "sgd"
    return {**states, **({"step": torch.tensor(float(step))} if counts else {})}


def _inspect(path: Path) -> str:
    """Return whether there is a checkpoint, as rank 0 sees it; raise ValueError if the folder holds other files."""
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
                f"{path} was written with {name}={theirs}, and this run has {name}={ours}; continue with the same, or "
                "give a new folder to start afresh"
            )


def states_of(optimizer: str) -> Sequence[str]:
    """Return the names of the states that an optimizer keeps for each element."""
    return {"sgd": ("momentum_buffer",)}.get(optimizer, ("exp_avg", "exp_avg_sq"))
