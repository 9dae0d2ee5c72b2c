"""Data parallelism with buckets whose sums are under way while backward still works: torch's DDP, in one sitting.

Numbers in comments are the lines of Algorithm 1 of Li et al. 2020, "PyTorch Distributed", as the lecture has it.
"""

import time
import weakref
from array import array
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import nn

from hpcdl.collectives import ALL_REDUCE, FAST, recursive_doubling_all_reduce
from hpcdl.comm import Foreground
from hpcdl.ddp.agreement import outline, require_same
from hpcdl.ddp.bucketed import Bucket, make_buckets
from hpcdl.ddp.buffers import all_buffers, broadcast_state


class Span(NamedTuple):
    """A bucket's way, by `comm.clock()`: `ready` when its last gradient was in, under way from `start` to `end`."""

    bucket: int
    nbytes: int
    ready: float
    start: float
    end: float


_OF_A_STEP = {"spans", "waited", "_samples", "_next", "_usual", "_syncing"}


class DistributedDataParallel(nn.Module):
    """`module` with the same weights on every rank of `comm`, and gradients of the batches of all of them together.

        ddp = DistributedDataParallel(model, comm)
        loss_fn(ddp(x), y).backward()          # x: this rank's part of the batch
        ddp.synchronize()                      # now param.grad = sum_r (n_r / N) g_r on every rank
        optimizer.step()

    At the start every rank gets rank 0's weights and buffers. n_r is the length of the first tensor that `ddp(...)` is
    given, and the loss a mean over samples. Ranks may have different n_r; one with none only synchronizes. Gradients
    travel in buckets of up to `bucket_mb` (2^20 bytes), last layer first, summed by `all_reduce`: a name of
    `hpcdl.collectives.ALL_REDUCE` or a function of (x, comm). With `overlap` a bucket leaves as soon as it is full,
    beside the rest of backward; else all of them in `synchronize()`. After that `spans` tells when each was under way,
    and `waited` for how many seconds this rank stood still. Raises ValueError on every rank where models differ in
    names, shapes, dtypes or in what is frozen.
    """

    def __setattr__(self, name: str, value) -> None:
        """A step's own numbers pass by the module's, which looks for parameters: 10 us each, when it is in no cache."""
        setter = object.__setattr__ if name in _OF_A_STEP else nn.Module.__setattr__
        setter(self, name, value)

    def __init__(
        self,
        module: nn.Module,
        comm,
        bucket_mb: float = 4.0,
        overlap: bool = True,
        all_reduce: str | Callable = "ring",
    ):
        super().__init__()
        self.module, self.comm, self.overlap = module, comm, overlap
        self.all_reduce = _collective(all_reduce)
        if not bucket_mb > 0:
            raise ValueError(f"bucket_mb is {bucket_mb!r}; a bucket holds more than 0 MB, such as 1")
        require_same(
            "another model", outline(module), comm, "build the same model on every rank, its weights may differ"
        )
        for state in chain(module.parameters(), module.buffers()):
            broadcast_state(state.detach(), comm)  # 2-3
        params = [param for param in module.parameters() if param.requires_grad]
        cap = bucket_mb * 2**20
        self.buckets = [Bucket(group, cap, comm) for group in make_buckets(params, cap)]  # 4
        self._buffers_alike = all_buffers(module)
        self.spans: list[Span] = []
        self.waited = 0.0
        self._lane = comm.background() if overlap else Foreground(comm)
        self._syncing, self._usual = True, 1  # N of the last step, the guess for the next: usually the same
        self._begin()
        self._listen()

    def forward(self, *args, **kwargs):
        """The module's forward pass; counts this rank's samples."""
        if torch.is_grad_enabled():
            self._samples = (self._samples or 0) + _samples(chain(args, kwargs.values()))
        return self.module(*args, **kwargs)  # 9

    @contextmanager
    def no_sync(self):
        """Backward in here only adds to this rank's gradients; the first one outside sends the sum.

        Divide each of k losses by k, as on one machine; a rank's k batches are of one length.
        """
        self._syncing = False
        try:
            yield
        finally:
            self._syncing = True

    def synchronize(self, loss: float | None = None) -> float | None:
        """Every rank's gradients become the mean over the global batch, and its buffers rank 0's.

        Returns the mean of the ranks' `loss`, NaN where one of them is NaN: a mistake that each rank can see in time.
        A parameter that no rank used has no gradient. Raises ValueError when no rank has a sample.
        """
        begin = self.comm.clock()
        for bucket in self.buckets:
            bucket.take_rest()  # 10: what has no gradient by now is unused, so no walk through the graph is needed
        self._launch()
        ballot = self._ballot(loss)
        self._lane.start(partial(self._settle, ballot))
        self._lane.wait()  # 20-21
        total, losses, *used = ballot.tolist()
        if not total:
            raise ValueError("synchronize: no rank has a sample, so there is no mean; give each step a batch")
        for bucket in self.buckets:
            bucket.release(self._usual / total, [used.pop(0) > 0 for _ in bucket.params])
        self._usual = total
        self._begin()
        self.waited = self.comm.clock() - begin
        return None if loss is None else losses / total

    def get_extra_state(self) -> int:
        return self._usual  # part of the state: with another guess the same gradients may round differently

    def set_extra_state(self, state: int) -> None:
        self._usual = state

    # -- a step -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._samples: int | None = None  # of this rank, in this step
        self._next = 0  # the bucket that leaves next

    def _listen(self) -> None:
        """Be told of every gradient, for as long as this object lives."""
        me, handles = weakref.ref(self), []
        for bucket in self.buckets:
            for i, param in enumerate(bucket.params):  # 5

                def hook(param, bucket=bucket, i=i):
                    me()._gradient_is_in(bucket, i)

                handles.append(param.register_post_accumulate_grad_hook(hook))  # 6-7
        weakref.finalize(self, _end, handles, self._lane)

    def _gradient_is_in(self, bucket: Bucket, i: int) -> None:  # 12-14
        if not self._syncing:
            return
        if bucket.announced[i]:
            raise RuntimeError(
                "a second backward came before synchronize(); call synchronize() after each, or put all but the last "
                "under `with ddp.no_sync():`"
            )
        bucket.announced[i] = True
        if self.overlap:  # else all at once later: between two layers no line of this is in a cache
            bucket.take(i)  # 15-16
            self._launch()

    def _launch(self) -> None:
        """Send the buckets that are full, in order: every rank sums the same bucket at the same time."""
        if self._next == 0:
            self.spans = []
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:  # 17-18
            self._lane.start(partial(self._reduce, self._next, self._weight(), _clock(self.comm)()))  # 19
            self._next += 1

    def _reduce(self, number: int, weight: float, ready: float, comm) -> None:
        clock, bucket = _clock(comm), self.buckets[number]
        start = clock()
        bucket.reduce(weight, self.all_reduce, comm)
        self.spans.append(Span(number, bucket.nbytes, ready, start, clock()))

    def _weight(self) -> float:
        """n_r / N, with last step's N: where this step's is another, `release` corrects the sums."""
        if self._samples is None and any(any(bucket.present) for bucket in self.buckets):
            raise RuntimeError("there are gradients, but ddp(x) was not called: call the wrapper, not its module")
        return (self._samples or 0) / self._usual

    def _ballot(self, loss: float | None) -> torch.Tensor:
        """What ranks must tell each other beside gradients: n_r, n_r times its loss, and which parameters it used."""
        samples = self._samples or 0
        used = chain.from_iterable(bucket.present for bucket in self.buckets)
        numbers = [samples, samples * loss if loss is not None and samples else 0, *used]
        return torch.frombuffer(array("d", numbers), dtype=torch.float64).to(self.comm.devices[0])

    def _settle(self, ballot: torch.Tensor, comm) -> None:
        """Sum up the ballot, and give all ranks rank 0's buffers."""
        recursive_doubling_all_reduce(ballot, comm)  # a few numbers: what counts is the number of rounds
        for buffers in self._buffers_alike:
            buffers.spread(comm)


def _collective(all_reduce: str | Callable) -> Callable:
    if callable(all_reduce):
        return all_reduce
    if all_reduce not in ALL_REDUCE:
        raise ValueError(
            f"all_reduce is {all_reduce!r}; it is a function of (x, comm) or one of {', '.join(ALL_REDUCE)}"
        )
    return FAST.get(all_reduce, ALL_REDUCE[all_reduce])


def _samples(inputs: Iterable) -> int:
    """The length of the first tensor among `inputs`; 1 where there is none."""
    return next((len(x) if x.dim() else 1 for x in inputs if isinstance(x, torch.Tensor)), 1)


def _clock(comm) -> Callable[[], float]:
    """`comm.clock`; on GPUs the host's, since that of NCCL would wait for all that is queued."""
    return comm.clock if "cpu" in comm.devices else time.perf_counter


def _end(handles: list, lane) -> None:
    for handle in handles:
        handle.remove()
    lane.close()
