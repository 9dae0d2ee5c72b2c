"""Weights that a forward pass changes: harmless if all ranks change them equally, otherwise refused."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import torch

from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import require_same
from hpcdl.ddp.backward_passes import Losses
from hpcdl.ddp.guarded import numbers_of
from hpcdl.ddp.left_out import with_left_out
from hpcdl.ddp.postponed import hooked
from hpcdl.sharding.ballot import Ballot

CHANGED = 2.0**30  # in a ballot, more than all ranks' votes together
HOOKED = 2.0**15


def votes_on(
    params: Sequence[torch.Tensor], used: Sequence[bool], changed: Iterable[bool], samples: float, losses: Losses
) -> list[float]:
    """Return a rank's votes on each of `params`: whether it is used, changed, hooked, frozen; `losses` of the step."""
    frozen = [not param.requires_grad for param in params]
    votes = with_hooks(with_changes(used, changed), params)
    return with_left_out(votes, frozen, samples, not (losses.had_pass or any(used)))


def with_changes(used: Iterable[bool], changed: Iterable[bool]) -> list[float]:
    """Return the ballot's votes on each parameter: 1 if it is used, plus CHANGED if forward changed it."""
    return [each * (1 + CHANGED * differs) for each, differs in zip(used, changed, strict=True)]


def with_hooks(votes: Iterable[float], params: Iterable[torch.Tensor]) -> list[float]:
    """Return `votes`, plus HOOKED for each used parameter whose gradient has users' hooks."""
    return [each + HOOKED * (each > 0 and hooked(param)) for each, param in zip(votes, params, strict=True)]


def uses(votes: Iterable[float]) -> list[float]:
    """Return how many ranks used each parameter, from the sums of `with_hooks`."""
    return [each % CHANGED % HOOKED for each in votes]


def hooked_on_ranks(votes: Sequence[float]) -> list[bool]:
    """Return which parameters have hooks, from the sums of `with_hooks`; raise RuntimeError if ranks differ."""
    found = []
    for each in votes:
        hooks, used = divmod(each % CHANGED, HOOKED)
        if hooks not in (0, used):
            raise RuntimeError(
                "ranks have other hooks on the gradient of a parameter, and would step their parts of it differently; "
                "register the same hooks on every rank"
            )
        found.append(hooks > 0)
    return found


def require_same_changes(ballot: Ballot, digests: Sequence[Callable[[], str]], comm: Communicator) -> None:
    """Raise ValueError on every rank if ranks differ in a parameter that a forward pass changed on some rank.

    `digests` describe each parameter as it is now. Sends nothing if no rank changed any. `ballot` is counted.
    """
    changed = [digest for digest, votes in zip(digests, ballot.votes, strict=True) if votes >= CHANGED]
    if changed:
        advice = (
            "a forward pass changed them by this rank's samples, as Embedding(max_norm=...) does; change after step()"
        )
        require_same("other weights", [digest() for digest in changed], comm, advice)


def shape_and_hash(param: torch.Tensor) -> str:
    """Return the shape of `param` and a hash of its numbers."""
    numbers = numbers_of(param.detach()).cpu().clone(memory_format=torch.contiguous_format)
    return (
        f"{tuple(param.shape)} {hashlib.sha256(numbers.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:8]}"
    )
