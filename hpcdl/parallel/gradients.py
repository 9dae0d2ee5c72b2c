"""Sum, in one message, gradients of parameters that several ranks have whole, each from part of the work."""

from collections.abc import Iterable

import torch

from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.comm import Communicator


def sum_gradients(params: Iterable[torch.Tensor], comm: Communicator) -> None:
    """Replace the gradient of each of `params` by its sum over the ranks, all of them in one all-reduce.

    A parameter without a gradient counts as zeros, a frozen one is skipped; all parameters have one dtype.
    """
    params = [param for param in params if param.requires_grad]
    if not params or comm.size == 1:
        return
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in params])
    fast_ring_all_reduce(flat, comm.labelled("gradients"))
    for param, total in zip(params, flat.split([p.numel() for p in params]), strict=True):
        param.grad = total.view_as(param)
