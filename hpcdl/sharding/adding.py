"""Several backward passes in one step at ZeRO stage 2: keep the shard of the sum, and at most one whole gradient."""

from collections.abc import Iterator
from contextlib import contextmanager

from hpcdl.comm import Background
from hpcdl.sharding.bucket import ShardBucket


class Adding:
    """How `ShardedOptimizer` accumulates the gradients of several backward passes."""

    stage: int
    buckets: list[ShardBucket]
    background: Background
    adds_up = False  # inside `adding`
    _launched: int

    def _launch(self, bucket: ShardBucket) -> None:
        raise NotImplementedError

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
        """Whether buckets are sent during backward."""
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
