"""Convert a sharded optimizer's states to whole parameters' states by gathering, and back by splitting."""

import copy
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hpcdl.collectives import broadcast
from hpcdl.comm import Communicator
from hpcdl.sharding.flat import Shard

Whole = dict[int, dict[str, Any]]  # by parameter number: "state" in torch's state_dict


def gathered(parts: Mapping[int, tuple[Shard, dict[str, Any]]], comm: Communicator) -> Whole:
    """Gather each rank's `parts` into every parameter's whole states, on every rank; every rank calls it."""
    found: Whole = {}
    mine = {i: (shard.start, shard.shape, len(shard.piece), state) for i, (shard, state) in parts.items()}
    for rank in range(comm.size):
        for i, (start, shape, length, state) in _theirs(rank, mine, comm).items():
            whole = found.setdefault(i, {})
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.shape == (length,):
                    if key not in whole:
                        whole[key] = value.new_empty(shape)
                    whole[key].view(-1)[start : start + length] = value
                else:
                    whole.setdefault(key, value)
    return dict(sorted(found.items()))


def cut(state: Mapping[str, Any], shard: Shard) -> dict[str, Any]:
    """Return the part of a whole parameter's state for `shard`, in separate memory; dtypes as torch loads them."""
    found: dict[str, Any] = {}
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            found[key] = copy.deepcopy(value)
            continue
        if key != "step":
            dtype = shard.piece.dtype if value.is_floating_point() else value.dtype
            value = value.to(shard.piece.device, dtype)
            if tuple(value.shape) == tuple(shard.shape):
                value = value.reshape(-1)[shard.start : shard.start + len(shard.piece)]
        found[key] = value.clone()
    return found


def require_groups(saved: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> None:
    """Raise ValueError unless a state's groups have the same numbers of parameters as ours."""
    theirs = [len(group["params"]) for group in saved]
    if theirs != list(sizes):
        raise ValueError(
            f"the state has groups of {theirs} parameters, and here are groups of {list(sizes)}; load it into an "
            "optimizer of the same model and groups"
        )


def _theirs(rank: int, mine: Any, comm: Communicator) -> Any:
    """Return `rank`'s data on every rank."""
    file = io.BytesIO()
    if comm.rank == rank:
        torch.save(mine, file)
    length = torch.tensor([file.tell()], device=comm.devices[0])
    broadcast(length, comm, rank)
    letters = torch.zeros(int(length), dtype=torch.uint8, device=comm.devices[0])
    if comm.rank == rank:
        letters.copy_(torch.frombuffer(file.getbuffer(), dtype=torch.uint8))
    broadcast(letters, comm, rank)
    return torch.load(io.BytesIO(letters.cpu().numpy().tobytes()), map_location="cpu", weights_only=False)
