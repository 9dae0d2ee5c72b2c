"""Parameters that only one rank of a network has: a norm of that rank's gradients is not the network's.

A split layer, an expert or a pipeline's stage makes its parameters known with the ranks that it is split over. Their
gradients are guarded, and `counted` says on which rank each counts in a sum over all ranks.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.comm import Communicator
from hpcdl.comm.wrapper import Wrapper
from hpcdl.ddp.guarded import REDUCES, GradientPart, Guarded, as_kind, matches, numbers_of
from hpcdl.ddp.postponed import own

Ranks = tuple[int, ...]
Grad = TypeVar("Grad", torch.Tensor, torch.Tensor | None)

ADVICE = (
    "; call hpcdl.parallel.clip_grad_norm_(params, max_norm, comm) on every rank, which returns the norm over all ranks"
)
OVERFLOW = (
    "this gradient is of weights that only this rank has, so an overflow elsewhere would not be found; use "
    "hpcdl.training.mixed_precision.LossScaler(comm), with which all ranks skip a step together"
)


class OfSplitLayer(GradientPart):
    """The gradient of a rank's share of a split layer's weight."""

    sentence = f"this gradient is of this rank's share of a split layer, so its norm is not the weight's{ADVICE}"

    @classmethod
    def why(cls, name: str) -> str:
        if matches("non_finite|^all$|^any$", name):
            return OVERFLOW
        found = super().why(name)
        return found if found == cls.sentence else found.replace("as a vector, ", "")


class OfStage(Guarded):
    """The gradient of a whole parameter that only this rank has: of a pipeline's stage, or of an expert."""

    refuses = REDUCES
    sentence = (
        "this gradient is of layers that only this rank has, so a norm or sum over this rank's parameters is not the "
        f"network's{ADVICE}"
    )

    @classmethod
    def why(cls, name: str) -> str:
        return OVERFLOW if matches("non_finite|^all$|^any$", name) else cls.sentence


class _Known:
    """How a parameter's gradient is guarded, and whether it counts on this rank, by the ranks of a communicator."""

    def __init__(self) -> None:
        self.kind: type[Guarded] = OfStage
        self.counts: dict[Ranks, bool] = {}


_known: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameters to `_Known`


def know(param: torch.Tensor, comm: Communicator, kind: type[Guarded], counts: bool = True) -> None:
    """Note that ranks of `comm` have other parameters instead of `param`; `counts`: no earlier rank has it, too."""
    known = _known.setdefault(param, _Known())
    known.counts[ranks_of(comm)] = counts
    known.kind = kind if kind is OfSplitLayer else known.kind


def listen(param: torch.Tensor, in_loss: Callable[[torch.Tensor], torch.Tensor] = lambda grad: grad) -> None:
    """Guard each gradient of a known parameter as soon as autograd has computed it; `in_loss`: create_graph=True."""

    def guard(grad: torch.Tensor) -> torch.Tensor:
        return in_loss(grad) if torch.is_grad_enabled() else guarded(param, grad)

    def keep(param: torch.Tensor) -> None:
        param.grad = guarded(param, param.grad)

    guard.only_guards = keep.only_guards = True  # type: ignore[attr-defined]
    param.register_hook(own(guard))
    param.register_post_accumulate_grad_hook(own(keep))


def is_used() -> bool:
    """Return whether any parameter is known: every optimizer's step asks this first."""
    return bool(_known)


def is_known(param: torch.Tensor, kind: type[Guarded]) -> bool:
    """Return whether gradients of `param` are guarded as `kind`."""
    known = _known.get(param)
    return known is not None and known.kind is kind


def guarded(param: torch.Tensor, grad: Grad) -> Grad:
    """Return a final gradient of `param`, guarded if the parameter is known."""
    known = _known.get(param)
    return grad if known is None or type(grad) is not torch.Tensor else as_kind(grad, known.kind)


def plain(grad: Grad) -> Grad:
    """Return a gradient's numbers; wrappers that combine ranks guard it by other classes, which stay."""
    return numbers_of(grad) if isinstance(grad, OfSplitLayer | OfStage) else grad


def counts_of(param: torch.Tensor) -> Mapping[Ranks, bool]:
    """Return the ranks that `param` is split over, and whether it counts on this one."""
    known = _known.get(param)
    return {} if known is None else known.counts


def counted(counts: Mapping[Ranks, bool], shape: Iterable[int], comms: Iterable[Communicator]) -> bool:
    """Return whether this rank adds a parameter of this `shape` to a sum over `comms`.

    Of ranks that have the same parameter only the first does. Raises ValueError if it is split over other ranks.
    """
    given = {ranks_of(comm): comm for comm in comms}
    if missing := [ranks for ranks in counts if ranks not in given]:
        raise ValueError(
            f"a parameter of shape {tuple(shape)} is split over ranks {list(missing[0])}, and no communicator of these "
            "was given; give every one that the network is split over, such as mesh.tensor and mesh.pipeline"
        )
    return all(counts.get(ranks, comm.rank == 0) for ranks, comm in given.items())


def ranks_of(comm: Communicator) -> Ranks:
    """Return the ranks of `comm` by their numbers among all ranks."""
    ranks = range(comm.size)
    while isinstance(comm, Wrapper):
        ranks = [comm.inner_rank(rank) for rank in ranks]  # type: ignore[assignment]
        comm = comm.comm
    return tuple(ranks)
