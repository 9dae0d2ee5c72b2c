"""Atomic checkpoints of a training, so that a killed run continues to the same bits."""

from pathlib import Path

import torch

from hpcdl.ddp.buffers import broadcast_state
from hpcdl.ddp.overlapped import DistributedDataParallel
from hpcdl.files import written_whole
from hpcdl.training.momentum import Momentum


def save(path: str | Path, step: int, ddp: DistributedDataParallel, optimizer: Momentum, settings: dict) -> None:
    """Write the state after `step` steps from rank 0; the file is replaced atomically."""
    if ddp.comm.rank:
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"step": step, "model": ddp.state_dict(), "velocities": optimizer.velocities, "settings": settings}
    state["lr"] = optimizer.lr  # a schedule may have changed it
    state["samples"] = ddp.reducer.total  # a different guess of N may round the same gradients differently
    with written_whole(path, "wb") as file:
        torch.save(state, file)


def resume(path: str | Path, ddp: DistributedDataParallel, optimizer: Momentum, settings: dict) -> int:
    """Give every rank the state that rank 0 finds at `path`; return the number of steps done, 0 without a file.

    Only rank 0 needs access to the file. Raises ValueError if it was written with different `settings`.
    """
    state = None
    if ddp.comm.rank == 0 and Path(path).exists():
        state = torch.load(path, map_location="cpu", weights_only=True)
        _require_settings(path, state["settings"], settings)
        ddp.load_state_dict(state["model"])
        ddp.reducer.total = state["samples"]
        for mine, saved in zip(optimizer.velocities, state["velocities"], strict=True):
            mine.copy_(saved)
        optimizer.lr = state.get("lr", optimizer.lr)
    return _share(ddp, optimizer, state["step"] if state else 0)


def _share(ddp: DistributedDataParallel, optimizer: Momentum, step: int) -> int:
    numbers = torch.tensor([step, ddp.reducer.total, optimizer.lr], dtype=torch.float64)
    for tensor in (numbers, *ddp.module.parameters(), *ddp.module.buffers(), *optimizer.velocities):
        broadcast_state(tensor.detach(), ddp.comm)
    ddp.reducer.total, optimizer.lr = numbers[1].item(), numbers[2].item()
    return int(numbers[0])


def _require_settings(path: str | Path, saved: dict, settings: dict) -> None:
    for name, value in settings.items():
        if saved.get(name) != value:
            raise ValueError(
                f"{path} was written with {name}={saved.get(name)!r}, this run has {value!r}; "
                "continue with the same settings, or give a new file name to start afresh"
            )
