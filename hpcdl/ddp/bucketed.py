"""Gradients in buckets: a few large messages instead of many small ones, in the order in which backward computes
them."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from inspect import signature
from typing import Any

import torch

from hpcdl.comm import Communicator
from hpcdl.ddp.apart import guarded, plain
from hpcdl.ddp.guarded import UnderWay, unguarded


def make_buckets(params: Iterable[torch.Tensor], cap_bytes: float) -> list[list[torch.Tensor]]:
    """Group `params`, last layer first, into buckets of up to `cap_bytes`; a larger parameter gets its own bucket.

    Backward reaches the last layer first, so the first bucket is full while most of the work is still to come. Only
    tensors of one dtype on one device share a bucket. The result is the same on every rank: it does not depend on the
    data.
    """
    buckets: list[list[torch.Tensor]] = []
    for param in reversed(list(params)):
        if buckets and _fits(buckets[-1], param, cap_bytes):
            buckets[-1].append(param)
        else:
            buckets.append([param])
    return buckets


def _fits(bucket: list[torch.Tensor], param: torch.Tensor, cap_bytes: float) -> bool:
    alike = (bucket[0].dtype, bucket[0].device) == (param.dtype, param.device)
    return alike and sum(other.nbytes for other in bucket) + param.nbytes <= cap_bytes


class Bucket:
    """Parameters whose gradients are summed over the ranks together, in messages of up to `piece_bytes`.

    Several gradients become views of one flat buffer, which `comm` allocated for sending. A gradient alone in its
    bucket stays where backward put it: copying 16 MB takes longer than sending it to a neighbour on the same machine.
    """

    def __init__(self, params: Sequence[torch.Tensor], piece_bytes: float, comm: Communicator):
        self.params, self.dtype = list(params), params[0].dtype
        self.nbytes = sum(param.nbytes for param in self.params)
        self.piece = max(1, int(piece_bytes // self.params[0].element_size()))  # elements
        self.direct = self.params[0].device.type in comm.devices  # gradients can be sent in place
        self.flat: torch.Tensor | None = None
        self.pieces: Sequence[torch.Tensor] = ()  # views of `flat`: the messages
        self.views: Sequence[torch.Tensor] = ()  # views of `flat`: the gradients, by parameter
        self._given: dict[int, Any] = {}  # weak references to the means of the last step
        if len(self.params) > 1:
            self._lay_out(_buffer(self.nbytes // self.params[0].element_size(), self.params[0], comm).zero_())
        self.clear()

    def clear(self) -> None:
        """Empty the bucket before a step."""
        self.announced = [False] * len(self.params)  # by backward
        self.present: list[bool | None] = [None] * len(self.params)  # None: not put in yet
        self.missing = len(self.params)
        self.brought = False  # a gradient that is not the mean of the last step
        self._guards: dict[int, torch.Tensor] = {}  # the `.grad` of parameters that are in
        self._waiting: dict[int, torch.Tensor] = {}  # the `.grad` of parameters that are to be put in later

    def guard(self, i: int) -> None:
        """Refuse to read or change the gradient of the i-th parameter until it is put in."""
        grad = self.params[i].grad
        if grad is not None and not grad.requires_grad:
            self.params[i].grad = self._waiting[i] = dense(grad).as_subclass(UnderWay)

    def put_in(self, i: int) -> None:
        """Put in the gradient of the i-th parameter, or zeros if it has none."""
        param, grad = self.params[i], self.params[i].grad
        self.brought |= grad is not None and (self.announced[i] or self._given.get(i, _nothing)() is not grad)
        if i in self._waiting:
            if grad is not self._waiting[i]:
                raise RuntimeError(UnderWay.sentence)
            grad = grad.as_subclass(torch.Tensor)
        grad = None if grad is None else plain(unguarded(grad))
        if grad is not None and grad.requires_grad:
            raise RuntimeError(
                "backward(create_graph=True) under DistributedDataParallel: the mean over ranks keeps no graph; take "
                "the inner gradients by torch.autograd.grad(..., create_graph=True), then call backward() without it"
            )
        if param.dtype != self.dtype:
            raise RuntimeError(
                f"a parameter of shape {tuple(param.shape)} is {str(param.dtype).removeprefix('torch.')} now, and was "
                f"{str(self.dtype).removeprefix('torch.')} when it was wrapped; call to(), half() and the like on the "
                "wrapper, or before wrapping"
            )
        self.present[i] = grad is not None
        self.missing -= 1
        if len(self.params) == 1:
            grad = torch.zeros_like(param) if grad is None else grad
            self._lay_out(dense(grad).detach().resolve_conj().resolve_neg().contiguous().view(-1))
        elif grad is None:
            self.views[i].zero_()
        elif grad is not self.views[i]:
            self.views[i].copy_(dense(grad))
        if self.present[i]:
            param.grad = self._guards[i] = self.views[i].as_subclass(UnderWay)

    def put_in_rest(self) -> None:
        """Put in the missing gradients: earlier ones, or zeros."""
        for i, present in enumerate(self.present):
            if present is None:
                self.put_in(i)

    def reduce(self, weight: float, all_reduce: Callable, comm: Communicator) -> None:
        """Replace the gradients by the sum over ranks of weight * gradient.

        `all_reduce(x, comm, weight)` applies the weight itself, like the functions of `hpcdl.collectives`; for
        `all_reduce(x, comm)` the gradients are weighted before sending. With weight 0 they do not count at all, not
        even NaN.
        """
        flat = self._complete()
        if not weight:
            flat.zero_()
        elif _takes_weight(all_reduce):
            all_reduce = partial(all_reduce, weight=weight)
        else:
            flat.mul_(weight)
        for piece in self.pieces:
            message = piece if self.direct else piece.to(comm.devices[0])
            all_reduce(message, comm)
            if message is not piece:
                piece.copy_(message)

    def release(self, scale: float, used: Sequence[bool]) -> None:
        """Multiply the sums by `scale` and hand them to the parameters; one that no rank used gets no gradient.

        Raises RuntimeError if a gradient was dropped or replaced after it was put in.
        """
        if any(self.params[i].grad is not guard for i, guard in self._guards.items()):
            raise RuntimeError(UnderWay.sentence)
        if scale != 1:
            self._complete().mul_(scale)
        self._given = {}
        for i, (param, view, was_used) in enumerate(zip(self.params, self.views, used, strict=True)):
            param.grad = guarded(param, laid_out_like(param, view)) if was_used else None
            if param.grad is not None:
                self._given[i] = weakref.ref(param.grad)
        if len(self.params) == 1:
            # The memory is free for the next gradient when `zero_grad` drops this one.
            self.flat, self.pieces, self.views = None, (), ()
        self.clear()

    def _complete(self) -> torch.Tensor:
        """Return the flat buffer once all gradients are in."""
        assert self.flat is not None  # `put_in` has allocated it
        return self.flat

    def _lay_out(self, flat: torch.Tensor) -> None:
        self.flat, self.pieces = flat, flat.split(self.piece)
        parts = flat.split([param.numel() for param in self.params])
        views = [part.view(param.shape) for part, param in zip(parts, self.params, strict=True)]
        self.views = [view.new_empty(0).set_(view) for view in views]  # torch detaches in place what is no view


def laid_out_like(param: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Return `grad` in the order in memory of `param`, as autograd lays it out: fused optimizers read both in memory's.

    `grad` has the shape of `param`, and is contiguous. It is copied only if `param` is not.
    """
    return grad if param.is_contiguous() else torch.empty_like(param).copy_(grad)


def dense(grad: torch.Tensor) -> torch.Tensor:
    """Return `grad`; raise RuntimeError if it is sparse."""
    if grad.layout is not torch.strided:
        raise RuntimeError(
            f"a gradient of shape {tuple(grad.shape)} is sparse, and sparse gradients cannot be averaged over ranks; "
            "use sparse=False"
        )
    return grad


def _nothing() -> None:
    """Return None, as a weak reference to what is freed."""


@lru_cache
def _takes_weight(all_reduce: Callable) -> bool:
    return "weight" in signature(all_reduce).parameters


def _buffer(numel: int, like: torch.Tensor, comm: Communicator) -> torch.Tensor:
    if like.device.type == comm.devices[0]:
        return comm.empty(numel, like.dtype).to(like.device)
    return torch.empty(numel, dtype=like.dtype, device=like.device)
