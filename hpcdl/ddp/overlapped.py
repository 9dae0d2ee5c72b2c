"""Data parallelism with buckets that are summed while backward still runs: torch's DDP, short enough to read in one
sitting."""

from collections.abc import Callable
from contextlib import contextmanager
from itertools import chain
from typing import Any, Literal

import torch
from torch import nn

from hpcdl.collectives import ALL_REDUCE, FAST
from hpcdl.comm import Communicator
from hpcdl.ddp.agreement import earlier_wrappers, outline, require_same
from hpcdl.ddp.buffers import BufferBroadcast, broadcast_state
from hpcdl.ddp.counting import count_samples, guessed_lengths, require_countable
from hpcdl.ddp.reducer import BucketSpan, Reducer
from hpcdl.ddp.refusals import NoneAdded, require_supported


class DistributedDataParallel(nn.Module):
    """Wrap `module`: every rank of `comm` has the same weights, and the gradients of all ranks' batches together.

        ddp = DistributedDataParallel(model, comm)
        loss_fn(ddp(x), y).backward()          # x: this rank's part of the batch
        ddp.synchronize()                      # now param.grad = sum_r (n_r / N) g_r on every rank
        optimizer.step()

    At the start every rank gets rank 0's weights and buffers. The loss is a mean over n_r samples: n_r is
    `samples(*inputs)` for the inputs of `ddp(...)`, by default the length of the first tensor among them. Ranks may
    have different n_r; a rank without samples only calls `synchronize()`. Gradients travel in buckets of up to
    `bucket_mb` (2^20 bytes), last layer first, summed by `all_reduce`: a name of `hpcdl.collectives.ALL_REDUCE` or a
    function of (x, comm). With `overlap` a bucket is sent as soon as it is full, during the rest of backward; otherwise
    `synchronize()` sends all of them. With `bucket_mb="auto"` the first four steps and a few messages are measured, and
    later steps use the buckets that finish soonest (`hpcdl.ddp.tuning`). Its state dict has the keys of torch's
    DistributedDataParallel.

    What a forward pass draws or decides for its whole batch, such as dropout or an early exit by the batch's mean, each
    rank draws or decides for its own samples: decide by sample, or by a number that you sum over the ranks. If ranks
    have taken different ways, `synchronize()` calls the module again, without gradients, for samples apart from their
    batch. It raises RuntimeError on every rank if a sample's output depends on its batch. Nothing can notice ranks that
    all take one way where one process would take another.

    Raises ValueError on every rank if models differ in names, shapes, dtypes or frozen parameters; if no parameter can
    be trained; and if n_r would be a guess: a layer inside has `batch_first=False` and there is no `samples`.
    """

    def __init__(
        self,
        module: nn.Module,
        comm: Communicator,
        bucket_mb: float | Literal["auto"] = 4.0,
        overlap: bool = True,
        all_reduce: str | Callable = "ring",
        samples: Callable[..., int] | None = None,
    ):
        super().__init__()
        self.module, self.comm, self.samples = module, comm, samples
        all_reduce = _collective(all_reduce)
        if bucket_mb != "auto" and not (isinstance(bucket_mb, (int, float)) and bucket_mb > 0):
            raise ValueError(f'bucket_mb is {bucket_mb!r}; a bucket holds more than 0 MB, such as 1, or it is "auto"')
        require_supported(module)
        require_countable(module, samples)
        require_same(
            "another model",
            outline(module) + earlier_wrappers(comm),
            comm,
            "build the same model on every rank, its weights may differ",
        )
        params = _trainable(module)
        for state in chain(module.parameters(), module.buffers()):
            broadcast_state(state.detach(), comm)  # 2-3 of Algorithm 1
        self.buffer_broadcast = BufferBroadcast(module)
        self.reducer = Reducer(params, comm, bucket_mb, overlap, all_reduce)
        self._all = list(module.parameters())
        self._none_added = NoneAdded(module, self._all)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's forward pass and count this rank's samples."""
        if not (torch.is_grad_enabled() and any(param.requires_grad for param in self._all)):
            return self.module(*args, **kwargs)
        self._none_added.require()
        self.reducer.cover(self._all)
        counted = count_samples(self.samples, args, kwargs), guessed_lengths(self.samples, args, kwargs)
        before = self.reducer.count(*counted)
        try:
            with self.reducer.decisions.forward(counted[0], self.module, args, kwargs):
                return self.module(*args, **kwargs)  # 9
        except BaseException:
            self.reducer.step.samples, self.reducer.step.lengths = before  # the caller may try again
            raise

    @contextmanager
    def no_sync(self):
        """Accumulate gradients on this rank only; the first backward outside the block sends the sum.

        Divide each of k losses by k, as on one machine; a rank's k batches must have one length.
        """
        self.reducer.syncing = False
        try:
            yield
        finally:
            self.reducer.syncing = True

    def synchronize(self, loss: float | None = None) -> float | None:
        """Average every rank's gradients over the global batch, and copy rank 0's buffers.

        Returns the mean of the ranks' `loss`; it is NaN if any rank's is NaN, so that every rank notices in time.
        A parameter that no rank used has no gradient. Raises ValueError when no rank has a sample, and RuntimeError
        when a rank alone has left out its batch or frozen a parameter.
        """
        return self.reducer.finish(loss, self.buffer_broadcast)

    @property
    def spans(self) -> list[BucketSpan]:
        """Return when each bucket of the last synchronized step was sent and summed."""
        return self.reducer.last.spans

    @property
    def waited(self) -> float:
        """Return how many seconds this rank was idle in the last `synchronize()`."""
        return self.reducer.last.waited

    def _apply(self, fn, recurse=True):  # called by `to`, `double`, `cuda` and others
        super()._apply(fn, recurse)
        self.reducer.renew()
        self.buffer_broadcast = BufferBroadcast(self.module)
        return self

    def __reduce_ex__(self, protocol):
        raise TypeError(
            "a DistributedDataParallel cannot be copied or pickled: its communicator belongs to this process; copy or "
            "save ddp.module, or save ddp.state_dict()"
        )


def _collective(all_reduce: str | Callable) -> Callable:
    if callable(all_reduce):
        return all_reduce
    if all_reduce not in ALL_REDUCE:
        raise ValueError(
            f"all_reduce is {all_reduce!r}; it is a function of (x, comm) or one of {', '.join(ALL_REDUCE)}"
        )
    return FAST.get(all_reduce, ALL_REDUCE[all_reduce])


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters; raise ValueError if there are none."""
    params = [param for param in module.parameters() if param.requires_grad]
    if not params:
        raise ValueError(
            f"{type(module).__name__} has no parameter that requires a gradient, so there is nothing to average over "
            "ranks; use the module as it is"
        )
    return params
