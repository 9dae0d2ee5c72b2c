"""Collect gradients and send them; over several backward passes ZeRO stage 2 keeps only the shard of the sum."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from hpcdl.comm import Background, Communicator
from hpcdl.comm.errors import MisfitError
from hpcdl.ddp.backward_passes import Losses
from hpcdl.ddp.decisions import Decisions
from hpcdl.ddp.guarded import Gone, OfThisRank, of_this_rank
from hpcdl.ddp.postponed import own, postpone
from hpcdl.sharding.bucket import ShardBucket
from hpcdl.sharding.flat import Shard

OTHER_PASSES = (
    "ranks sent gradients of different numbers of backward passes, or of other parameters; at stage 2 every rank runs "
    "as many passes in a step, which reach parameters in the same order: cut a rank's samples into as many "
    "microbatches as the others', or use stage=1"
)
UNDER_WAY = 2  # at most this many buckets are sent and not yet summed


class SamePasses(Background):
    """A background that names the cause if ranks do not send the same."""

    def __init__(self, inner: Background):
        self._inner = inner

    def start(self, f: Callable[[Communicator], None]) -> None:
        self._inner.start(partial(_explained, f))

    def wait(self) -> None:
        self._inner.wait()

    def close(self) -> None:
        self._inner.close()


def _explained(f: Callable[[Communicator], None], comm: Communicator) -> None:
    try:
        f(comm)
    except MisfitError as error:
        raise RuntimeError(OTHER_PASSES) from error


class Adding:
    """How `ShardedOptimizer` handles gradients until they are summed."""

    stage: int
    buckets: list[ShardBucket]
    background: Background
    comm: Communicator
    adds_up = False  # inside `adding`
    _launched: int
    _reduced: bool
    _samples: float
    _total: float
    _handles: list[RemovableHandle]
    _losses: Losses
    _decisions: Decisions
    _frozen: list[torch.Tensor]
    _counts: list[int]
    _versions: dict[torch.Tensor, int]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a ShardedOptimizer cannot be copied or pickled: its communicator belongs to this process; save its "
            "shards() with hpcdl.sharding.save, or copy or save its state_dict()"
        )

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Accumulate several backward passes inside the block. At stage 2 a pass's gradients are sent when the next one
        begins.

        So at most one whole gradient is held. Every rank runs the same number of passes, which reach parameters in the
        same order.
        """
        self.adds_up = True
        try:
            yield
        finally:
            self.adds_up = False

    @property
    def sends_early(self) -> bool:
        """Return whether buckets are sent during backward."""
        return self.stage == 2 and not self.adds_up

    def keeps(self, bucket: ShardBucket, i: int) -> bool:
        """Sum the previous pass's gradients if parameter i of `bucket` has the first one of the next pass; return
        whether it does.

        Every bucket is then sent, and this rank keeps its shard of the sum. At stage 1 nothing happens.
        """
        if not (bucket.has(i) and self.adds_up and self.stage == 2):
            return False
        for each in self.buckets[self._launched :]:
            self._launch(each)
        self.background.wait()
        for each in self.buckets:
            each.keep()
        self._launched = 0
        return True

    def _launch(self, bucket: ShardBucket) -> None:
        """Send the next bucket; its weight uses the last step's N, which `release` corrects."""
        if self.stage == 2 and self._launched % UNDER_WAY == 0:
            self.background.wait()  # limits how much is whole at a time, however slow the network
        bucket.seal(free=self.stage == 2)
        self.background.start(partial(bucket.reduce, self._samples / self._total))
        self._launched += 1

    def _clear(self) -> None:
        """Begin a step."""
        for bucket in self.buckets:
            bucket.clear()
        for param in self._frozen:
            param.grad = None
        self._launched, self._reduced, self._counts, self._versions = 0, False, [], {}
        self._losses.clear()
        self._decisions.begin_step()

    def _part(self, param: torch.Tensor) -> Shard:
        """Return this rank's part of a parameter, in its bucket."""
        for bucket in self.buckets:
            for each, shard, piece in zip(bucket.params, bucket.shards, bucket.pieces(bucket.weights), strict=True):
                if each is param:
                    return piece._replace(piece=shard)
        raise KeyError(param)

    def _require_open(self, bucket: ShardBucket) -> None:
        """Raise RuntimeError if a gradient arrives after its bucket was sent, outside `adding`."""
        if self._reduced or (bucket.sealed and not self.adds_up):
            raise self._losses.came_twice(
                "a second backward came before step(), when the first one's gradients had been sent; call step() after "
                "each, or add up several at stage=1"
            )

    def _gradient_is_in(self, bucket: ShardBucket, i: int) -> None:
        self._losses.note()
        if bucket.sealed or self._reduced:
            self._require_open(bucket)
        if not self.keeps(bucket, i):
            bucket.put_in(i)
        while self.sends_early and self._launched < len(self.buckets) and self.buckets[self._launched].full:
            self._launch(self.buckets[self._launched])

    def _listen(self, bucket: ShardBucket) -> None:
        """Register a hook on every parameter of a bucket for the lifetime of this object."""
        me = weakref.ref(self)  # a hook must not keep it alive
        postpone(bucket.params, self)
        for i, param in enumerate(bucket.params):

            def hook(param, i=i):
                optimizer = me()
                assert optimizer is not None  # `_end` removes its hooks
                optimizer._gradient_is_in(bucket, i)

            def before(gradient, i=i):
                optimizer = me()
                if optimizer is not None and isinstance(bucket.params[i].grad, Gone):
                    optimizer._require_open(bucket)
                    bucket.params[i].grad = None  # nothing adds to what has left

            if self.stage == 2:
                self._handles.append(param.register_hook(own(before)))

            self._handles.append(param.register_post_accumulate_grad_hook(own(hook)))
            if self.comm.size > 1:
                self._handles.append(param.register_hook(own(partial(of_this_rank, OfThisRank))))
