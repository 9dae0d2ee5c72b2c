"""A server's state on disk, one file per server: servers may be at different updates, as in DistBelief."""

from pathlib import Path
from typing import Any

import torch

from hpcdl.files import written_whole


class Snapshots:
    """Server `server` of `servers` saves its state in `folder` atomically after every `every` updates.

    Raises ValueError for an `every` below 1.
    """

    def __init__(self, folder: str | Path, every: int, server: int, servers: int):
        if every < 1:
            raise ValueError(f"every is {every}; a server saves its state after every so many updates, 1 or more")
        self.path, self.every, self.servers = Path(folder) / f"server-{server}", every, servers
        self._saved = 0

    def save(self, updates: int, state: dict[str, Any]) -> None:
        """Write `state`, after `updates` updates, if a snapshot is due."""
        if updates // self.every > self._saved // self.every:
            self._saved = updates
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(self.path, "wb") as file:
                torch.save({**state, "updates": updates, "servers": self.servers}, file)

    def load(self, ranks: list[int], numel: int) -> dict[str, Any] | None:
        """Return the last state, or None. Raises ValueError if it belongs to different servers or workers."""
        if not self.path.exists():
            return None
        state = torch.load(self.path, weights_only=True)
        found = state["servers"], sorted(state["clocks"]), len(state["w"])
        if found != (self.servers, ranks, numel):
            raise ValueError(
                f"{self.path} is of {found[0]} servers, workers {found[1]} and {found[2]} elements; this run has "
                f"{self.servers}, {ranks} and {numel}: start as many as before, or give a new folder to start afresh"
            )
        self._saved = state["updates"]
        return state
