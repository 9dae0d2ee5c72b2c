"""Gradients over all ranks of a split network: sums of the parts that ranks have, and clipping by the whole norm."""

from collections.abc import Iterable

import torch

from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.apart import counted, counts_of, guarded, plain
from hpcdl.sharding.clipping import clip_counted


def sum_gradients(params: Iterable[torch.Tensor], comm: Communicator) -> None:
    """Replace the gradient of each of `params` by its sum over the ranks, all of them in one all-reduce.

    A parameter without a gradient counts as zeros, a frozen one is skipped; all parameters have one dtype. Raises
    ValueError for a sparse gradient.
    """
    params = [param for param in params if param.requires_grad]
    if not params or comm.size == 1:
        return
    if sparse := [p for p in params if p.grad is not None and p.grad.layout is not torch.strided]:
        raise ValueError(
            f"sum_gradients: a gradient of shape {tuple(sparse[0].shape)} is sparse, and sparse gradients cannot be "
            "summed over ranks; use sparse=False"
        )
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else plain(p.grad)).flatten() for p in params])
    fast_ring_all_reduce(flat, comm.labelled("gradients"))
    for param, total in zip(params, flat.split([p.numel() for p in params]), strict=True):
        param.grad = guarded(param, total.view_as(param))


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
