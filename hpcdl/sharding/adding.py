"""Several backward passes of a step at ZeRO's stage 2: the share of the sum is kept, and no more than one gradient."""

from collections.abc import Iterator
from contextlib import contextmanager

from hpcdl.comm import Background
from hpcdl.sharding.bucket import ShardBucket


class Adding:
    """What `ShardedOptimizer` does with gradients of several backward passes."""

    stage: int
    buckets: list[ShardBucket]
    background: Background
    adds_up = False  # inside `adding`
    _launched: int

    def _launch(self, bucket: ShardBucket) -> None:
        raise NotImplementedError

    @contextmanager
    def adding(self) -> Iterator[None]:
        """In it several backward passes add up, at stage 2 too: there a pass's gradients leave when the next one comes.

        So no more than one whole gradient is held. Every rank does as many passes, which reach parameters in one order.
        """
        self.adds_up = True
        try:
            yield
        finally:
            self.adds_up = False

    @property
    def sends_early(self) -> bool:
        """Whether buckets leave while backward goes on."""
        return self.stage == 2 and not self.adds_up

    def keeps(self, bucket: ShardBucket, i: int) -> bool:
        """Sum the gradients of the pass before, if parameter i of `bucket` has the first one of the next; whether so.

        Every bucket leaves, with that first gradient, and this rank keeps its share of the sum. Not at stage 1.
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
