"""Weights that a forward pass changes: harmless if all ranks change them equally, otherwise refused."""

import hashlib
from collections.abc import Iterable, Sequence

import torch

from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import require_same
from hpcdl.sharding.ballot import Ballot

CHANGED = 2.0**30  # in a ballot, more than all ranks' votes together


def with_changes(used: Iterable[bool], changed: Iterable[bool]) -> list[float]:
    """Return the ballot's votes on each parameter: 1 if it is used, plus CHANGED if forward changed it."""
    return [each * (1 + CHANGED * differs) for each, differs in zip(used, changed, strict=True)]


def require_same_changes(ballot: Ballot, params: Sequence[torch.Tensor], comm: Communicator) -> None:
    """Raise ValueError on every rank if ranks differ in a parameter that a forward pass changed on some rank.

    Sends nothing if no rank changed any. `ballot` must be counted.
    """
    changed = [param for param, votes in zip(params, ballot.votes, strict=True) if votes >= CHANGED]
    if changed:
        lines = [f"{tuple(param.shape)} {_digest(param)}" for param in changed]
        advice = (
            "a forward pass changed them by this rank's samples, as Embedding(max_norm=...) does; change after step()"
        )
        require_same("other weights", lines, comm, advice)


def _digest(param: torch.Tensor) -> str:
    return hashlib.sha256(param.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:8]
