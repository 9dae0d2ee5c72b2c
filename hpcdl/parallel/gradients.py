"""Gradients over all ranks of a split network: sums of the parts that ranks have, and clipping by the whole norm."""

from collections.abc import Iterable

import torch
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.apart import counted, counts_of, guarded, plain, ranks_of
from hpcdl.ddp.bucketed import laid_out_like
from hpcdl.ddp.postponed import own
from hpcdl.sharding.clipping import clip_counted

_listened: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameters to whether backward is adding to a sum
SUMMED = "_summed_over"  # an attribute of a gradient: the lists of ranks over which it is a sum


def sum_gradients(params: Iterable[torch.Tensor], comm: Communicator) -> None:
    """Replace the gradient of each of `params` by its sum over the ranks, in one all-reduce for each dtype.

    Call it once, after the last backward pass and before the step. A parameter without a gradient counts as zeros, a
    frozen one is skipped. Raises ValueError for a sparse gradient, and RuntimeError for a gradient that is such a sum
    already; so does a backward pass that would add one rank's gradient to a sum.
    """
    params = [param for param in params if param.requires_grad]
    if not params or comm.size == 1:
        return
    if sparse := [p for p in params if p.grad is not None and p.grad.layout is not torch.strided]:
        raise ValueError(
            f"sum_gradients: a gradient of shape {tuple(sparse[0].shape)} is sparse, and sparse gradients cannot be "
            "summed over ranks; use sparse=False"
        )
    ranks = ranks_of(comm)
    if any(ranks in getattr(p.grad, SUMMED, ()) for p in params):
        raise RuntimeError(
            "sum_gradients: a gradient is the sum over these ranks already; call it once, after the last backward pass "
            "and before the step, and zero_grad() after the step"
        )
    for dtype in dict.fromkeys(p.dtype for p in params):
        alike = [p for p in params if p.dtype is dtype]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else plain(p.grad)).flatten() for p in alike])
        fast_ring_all_reduce(flat, comm.labelled("gradients"))
        for param, total in zip(alike, flat.split([p.numel() for p in alike]), strict=True):
            before = getattr(param.grad, SUMMED, ())
            param.grad = guarded(param, laid_out_like(param, total.view_as(param)))
            setattr(param.grad, SUMMED, (*before, ranks))
            _listen(param)


def require_no_sum(param: torch.Tensor) -> None:
    """Raise RuntimeError if backward is about to add to a sum over ranks, unless it was zeroed."""
    grad = plain(param.grad)
    if grad is not None and hasattr(param.grad, SUMMED):
        if grad.any():
            raise RuntimeError(
                f"the gradient of a parameter of shape {tuple(param.shape)} is a sum over ranks, and backward adds one "
                "rank's to it; call sum_gradients once, after the last backward pass and before the step, and "
                "zero_grad() after the step"
            )
        delattr(param.grad, SUMMED)


def _listen(param: torch.Tensor) -> None:
    """Let every backward pass that adds to the gradient of `param` call `require_no_sum` first."""
    if param in _listened:
        return
    _listened[param] = None

    def begin(grad: torch.Tensor) -> None:  # torch.autograd.grad calls it, too
        _listened[param] = None
        try:
            require_no_sum(param)
        except RuntimeError as error:
            _listened[param] = error

    def end(param: torch.Tensor) -> None:
        error, _listened[param] = _listened[param], None
        if error:
            raise error

    begin.only_guards = end.only_guards = True  # type: ignore[attr-defined]
    param.register_hook(own(begin))
    param.register_post_accumulate_grad_hook(own(end))


def clip_grad_norm_(parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float, *comms: Communicator) -> float:
    """Scale the gradients of a split network so that their norm is at most `max_norm`; return the norm before.

    `parameters` are this rank's, `comms` the communicators over which the network is split, in the same order on every
    rank: `mesh.tensor` and `mesh.pipeline`, or only one. A rank's share of a split layer, its experts and its stage
    count once each, and so does a parameter that several ranks have whole, whose gradient must be the same on each
    (first call `sum_gradients` where a layer asks for it). Every rank calls it, also without parameters; each
    communicator sums one float64 number. The norm is bit-identical on every rank. Raises ValueError unless `max_norm`
    is positive, and for a parameter that is split over ranks of no given communicator.
    """
    if not comms:
        raise ValueError(
            "clip_grad_norm_ was given no communicator; give every one that the network is split over, such as "
            "mesh.tensor and mesh.pipeline"
        )
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(dict.fromkeys(parameters))
    found = [(plain(p.grad), counted(counts_of(p), p.shape, comms)) for p in params if p.grad is not None]
    return clip_counted([(grad, counts) for grad, counts in found if grad is not None], comms, max_norm)
