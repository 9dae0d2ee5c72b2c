"""Sum gradients over the ranks while backward still runs: when each bucket is sent, and the totals of a step.

Numbers in comments are the lines of Algorithm 1 of Li et al. 2020, "PyTorch Distributed", as in the lecture.
"""

import time
import weakref
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Background, Communicator, Foreground
from hpcdl.ddp.alike import ReplicaComparison
from hpcdl.ddp.backward_passes import NOT_SYNCHRONIZED, Losses, look_for_batch_norm
from hpcdl.ddp.bucketed import Bucket, make_buckets
from hpcdl.ddp.buffers import BufferBroadcast
from hpcdl.ddp.counting import COUNTS, count_votes, require_one_mean
from hpcdl.ddp.decisions import Decisions, split_vote
from hpcdl.ddp.guarded import Guarded, OfThisRanksPass, of_this_rank
from hpcdl.ddp.left_out import require_none_left_out, with_left_out, without_left_out
from hpcdl.ddp.postponed import hooked, listen, own, postpone, run
from hpcdl.ddp.tuning import FIRST_MB, Arrivals, best_groups

_reducers: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameter -> the reducers that sum its gradient


class BucketSpan(NamedTuple):
    """A bucket's times by `comm.clock()`: `ready` when its last gradient was in, in flight from `start` to `end`."""

    bucket: int
    nbytes: int
    ready: float
    start: float
    end: float


class Step:
    """The state of one step: a separate object, so that nothing of it carries over into the next."""

    def __init__(self):
        self.samples: int | None = None  # of this rank; None before the first forward pass
        self.lengths: list[int] = []  # of the inputs of all forward passes, without `samples`
        self.losses = Losses()
        self.launched = 0  # buckets that have left
        self.spans: list[BucketSpan] = []
        self.waited = 0.0  # seconds in which this rank was idle


class Reducer:
    """Sums gradients of `params` over the ranks of `comm` as buckets fill; arguments as in `DistributedDataParallel`.

    `step` is the current step, `last` the one before it. `total` is N, the samples of all ranks in the last step; it is
    also the guess for this step, and usually right.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        comm: Communicator,
        bucket_mb: float | Literal["auto"],
        overlap: bool,
        all_reduce: Callable,
    ):
        cap = self._cap = (FIRST_MB if bucket_mb == "auto" else bucket_mb) * 2**20
        self.comm, self.overlap, self.all_reduce = comm, overlap, all_reduce
        self.buckets = [Bucket(group, cap, comm) for group in make_buckets(params, cap)]  # 4
        measure = bucket_mb == "auto" and comm.size > 1  # a single rank has nothing to wait for
        self.arrivals = Arrivals([p for bucket in self.buckets for p in bucket.params]) if measure else None
        self.background = comm.background() if overlap else Foreground(comm)
        self.syncing = True
        self.total: float = 1
        self.step, self.last = Step(), Step()
        self.decisions = Decisions()
        self._handles: list[RemovableHandle] = []
        self._listen()
        look_for_batch_norm(comm.size)
        weakref.finalize(self, _end, self._handles, self.background)

    def count(self, samples: int, lengths: list[int]) -> tuple[int | None, list[int]]:
        """Count the samples of a forward pass that begins, and its inputs' lengths; return the earlier counts."""
        self._require_alone()
        if any(True in bucket.announced for bucket in self.buckets):
            raise RuntimeError(NOT_SYNCHRONIZED)
        before = self.step.samples, self.step.lengths
        self.step.losses.begin(samples)
        self.step.samples, self.step.lengths = (self.step.samples or 0) + samples, self.step.lengths + lengths
        if self.arrivals:
            self.arrivals.begin(_clock(self.comm)())
        return before

    def cover(self, params: list[torch.nn.Parameter]) -> None:
        """Make new buckets if one of `params` was frozen and is now trainable."""
        if any(param.requires_grad and id(param) not in self._covered for param in params):
            self._make_buckets([param for param in params if param.requires_grad or id(param) in self._covered])

    def renew(self) -> None:
        """Make new buckets between two steps, after parameters changed their dtype or device."""
        if self.step.launched:
            raise RuntimeError("gradients are on their way; call to(), double() and the like after synchronize()")
        self._make_buckets([param for bucket in self.buckets for param in bucket.params][::-1])

    def _make_buckets(self, params: list) -> None:
        self.buckets = [Bucket(group, self._cap, self.comm) for group in make_buckets(params, self._cap)]
        self.arrivals = None
        self._listen()

    def _require_alone(self) -> None:
        """Raise RuntimeError if another live wrapper also sums the gradient of one of the parameters."""
        params = [param for bucket in self.buckets for param in bucket.params]
        if any(len(_reducers.get(param, ())) > 1 for param in params):
            raise RuntimeError(
                "a parameter is in two DistributedDataParallel models, and its gradient would be summed twice; wrap "
                "one module that has both models, or delete the earlier wrapper"
            )

    def finish(self, loss: float | None, buffers: BufferBroadcast) -> float | None:
        """Send the remaining buckets, wait for all, and distribute the means; return the mean of the ranks' `loss`."""
        begin = self.comm.clock()
        for bucket in self.buckets:
            bucket.put_in_rest()  # 10: a parameter without a gradient by now is unused; no need to walk the graph
        self._launch()
        ballot = self._ballot(loss)
        mine = ballot[COUNTS + 5 :].tolist()
        self.background.start(partial(_settle, ballot, buffers))
        self.background.wait()  # 20-21
        total, losses, *alike = ballot[: COUNTS + 5].tolist()
        used = ballot[COUNTS + 5 :].tolist()
        if not total:
            raise ValueError("synchronize: no rank has a sample, so there is no mean; give each step a batch")
        alike[COUNTS], votes = split_vote(alike[COUNTS])
        shapes = [tuple(param.shape) for bucket in self.buckets for param in bucket.params]
        require_none_left_out(used, mine, shapes, alike[0], self.comm)
        used = without_left_out(used, self.comm)
        require_one_mean(alike[:COUNTS], self.comm, self.step.losses if any(used) else None)
        self.decisions.require(alike[0], votes, used, self.comm)
        self.replicas.require(alike[COUNTS:], self.comm)
        for bucket in self.buckets:
            announced = bucket.announced
            bucket.release(self.total / total, [used.pop(0) > 0 for _ in bucket.params])
            for param, was_announced in zip(bucket.params, announced, strict=True):
                if hooked(param):
                    run(param, was_announced)
        self.total = total
        self.last, self.step = self.step, Step()
        self.decisions.begin_step()
        self.last.waited = self.comm.clock() - begin
        self._tune()
        return None if loss is None else losses / total

    def _listen(self) -> None:
        """Register a hook on every parameter for the lifetime of this object."""
        me = weakref.ref(self)  # a hook must not keep it alive
        params = [param for bucket in self.buckets for param in bucket.params]
        self._covered, self.replicas = {id(param) for param in params}, ReplicaComparison(params)
        for bucket in self.buckets:
            for param in bucket.params:
                _reducers.setdefault(param, weakref.WeakSet()).add(self)
        _remove(self._handles)
        postpone(params, self)
        for bucket in self.buckets:
            for i, param in enumerate(bucket.params):  # 5

                def hook(param, bucket=bucket, i=i):
                    reducer = me()
                    assert reducer is not None  # `_end` removes its hooks
                    reducer._gradient_is_in(bucket, i)

                self._handles.append(listen(param.register_post_accumulate_grad_hook, param, own(hook)))  # 6-7
                if self.comm.size > 1:
                    guard = own(partial(of_this_rank, OfThisRanksPass))
                    self._handles.append(listen(param.register_hook, param, guard))

    def _tune(self) -> None:
        """Choose the best buckets from the first steps' times, with `bucket_mb="auto"`."""
        if self.arrivals is None:
            return
        self.arrivals.end_step()
        if self.arrivals.enough:
            arrivals, self.arrivals = self.arrivals, None
            groups: list[list[torch.Tensor]] = []
            self.background.start(
                lambda comm: groups.extend(best_groups(arrivals, self.all_reduce, comm, _clock(comm)))
            )
            self.background.wait()
            whole = sum(param.nbytes for param in arrivals.params)
            self.buckets = [Bucket(group, whole, self.comm) for group in groups]
            self._listen()

    def _gradient_is_in(self, bucket: Bucket, i: int) -> None:  # 12-14
        self.step.losses.note()
        if not self.syncing:
            return
        if bucket.announced[i]:
            raise self.step.losses.came_twice(
                "a second backward came before synchronize(); call synchronize() after each, or put all but the last "
                "under `with ddp.no_sync():`"
            )
        bucket.announced[i] = True
        if self.arrivals:
            self.arrivals.note(bucket.params[i], _clock(self.comm)())
        if self.overlap:  # otherwise all at once later: between two layers this code is not in a cache
            bucket.put_in(i)  # 15-16
            self._launch()
        else:
            bucket.guard(i)

    def _launch(self) -> None:
        """Send the full buckets in order: every rank sums the same bucket at the same time."""
        step = self.step
        while step.launched < len(self.buckets) and not self.buckets[step.launched].missing:  # 17-18
            ready = _clock(self.comm)()
            self.background.start(partial(self._reduce, step, step.launched, self._weight(), ready))  # 19
            step.launched += 1

    def _reduce(self, step: Step, number: int, weight: float, ready: float, comm: Communicator) -> None:
        clock, bucket = _clock(comm), self.buckets[number]
        start = clock()
        bucket.reduce(weight, self.all_reduce, comm.labelled("gradients"))
        step.spans.append(BucketSpan(number, bucket.nbytes, ready, start, clock()))

    def _weight(self) -> float:
        """Return n_r / N with the last step's N; if this step's N differs, `release` corrects the sums."""
        if self.step.samples is None and any(bucket.brought for bucket in self.buckets):
            raise RuntimeError(
                "there are gradients, but ddp(x) was not called: call the wrapper, not its module, and not in no_grad()"
            )
        return (self.step.samples or 0) / self.total

    def _used(self, samples: float) -> list[float]:
        """Return this rank's votes on each parameter, whether there is a gradient of it, and what it leaves out."""
        present = [float(each or 0) for bucket in self.buckets for each in bucket.present]
        frozen = [not param.requires_grad for bucket in self.buckets for param in bucket.params]
        has_pass = self.step.losses.had_pass or any(bucket.brought for bucket in self.buckets)
        return with_left_out(present, frozen, samples, not has_pass)

    def _ballot(self, loss: float | None) -> torch.Tensor:
        """Return what ranks sum in addition to gradients: n_r, n_r times the loss, votes, used parameters."""
        samples = self.step.samples or 0
        used = self._used(samples)
        alike = count_votes(self.step.lengths, samples, self.step.losses) + self.replicas.votes(self.comm)
        alike[COUNTS] += self.decisions.vote(samples)
        numbers = [samples, samples * loss if loss is not None and samples else 0, *alike, *used]
        return torch.frombuffer(array("d", numbers), dtype=torch.float64).to(self.comm.devices[0])


def _require_wrapped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise RuntimeError if an optimizer steps parameters of a wrapped model together with others."""
    params = [param for group in optimizer.param_groups for param in group["params"]] if _reducers else []
    if any(_reducers.get(param) for param in params):
        for param in params:
            if param.grad is not None and not _reducers.get(param) and not isinstance(param.grad, Guarded):
                raise RuntimeError(
                    f"the optimizer has a parameter of shape {tuple(param.shape)} that no wrapper has, so its gradient "
                    "comes from this rank only; wrap one module that contains it, too"
                )


register_optimizer_step_pre_hook(_require_wrapped)


def _settle(ballot: torch.Tensor, buffers: BufferBroadcast, comm: Communicator) -> None:
    """Sum the ballot over the ranks, and give all ranks rank 0's buffers."""
    recursive_doubling_all_reduce(ballot, comm)  # only a few numbers: the number of rounds decides the time
    buffers.run(comm)


def _clock(comm: Communicator) -> Callable[[], float]:
    """Return `comm.clock`; on GPUs the host's clock, since NCCL's would wait for all queued work."""
    return comm.clock if "cpu" in comm.devices else time.perf_counter


def _end(handles: list[RemovableHandle], background: Background) -> None:
    _remove(handles)
    background.close()


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
