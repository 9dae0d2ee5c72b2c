"""ZeRO's first two stages: every rank has all weights, and the optimizer's states of its own share alone."""

import weakref
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hpcdl.collectives import broadcast
from hpcdl.comm import Background, Communicator, Foreground
from hpcdl.ddp.agreement import require_same
from hpcdl.ddp.bucketed import make_buckets
from hpcdl.ddp.buffers import broadcast_state
from hpcdl.sharding.ballot import Ballot
from hpcdl.sharding.clipping import clip
from hpcdl.sharding.flat import Layout, Shard
from hpcdl.sharding.offload import Offloaded

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer | Offloaded]

UNDER_WAY = 2  # buckets that have left and whose sums are not there yet, at most
NOT_ELEMENTWISE = ("Adafactor", "LBFGS", "Muon", "SparseAdam")  # of torch: an element's update needs its neighbours


class ShardedOptimizer:
    """Steps of an elementwise optimizer on the mean gradient of all ranks, of which each rank does its share.

        optimizer = ShardedOptimizer(model.parameters(), comm, lambda shards: torch.optim.AdamW(shards, lr=1e-3))
        optimizer.count(len(x))            # before backward; without it all ranks' batches count alike
        loss_fn(model(x), y).backward()
        optimizer.clip(1.0)                # if you like: by the norm of the whole gradient, which it returns
        optimizer.step()

    At the start every rank gets rank 0's weights. `step` makes sum_r (n_r / N) g_r of the ranks' gradients by a
    reduce-scatter, lets the optimizer that `make` built update this rank's share, and all-gathers the new weights: with
    Psi bytes of weights 2 Psi (p-1)/p per rank, as an all-reduce would send, and some numbers to agree on N. Each
    element's states are on one rank. At `stage` 1 gradients stay until the step, so that several backward passes add
    up; at 2 they leave in buckets of up to `bucket_mb` (2^20 bytes) while backward goes on, and are freed: afterwards
    this rank has its share of the sum alone. After a step there are no gradients: `zero_grad` is not needed.

    A parameter that no rank used stays as it is. A rank without samples calls `count(0)` and `step()`.
    `optimizer.optimizer` is what `make` returned, for schedules of the learning rate; it may be `Offloaded`.

    Raises ValueError where ranks have other parameters, none is to be trained, or the optimizer is known not to work
    elementwise (Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models").
    """

    def __init__(
        self, params: Iterable[nn.Parameter], comm: Communicator, make: Make, stage: int = 1, bucket_mb: float = 4.0
    ):
        if stage not in (1, 2):
            raise ValueError(f"stage is {stage!r}; it is 1 or 2, and stage 3 is FullyShardedDataParallel")
        if not bucket_mb > 0:
            raise ValueError(f"bucket_mb is {bucket_mb!r}; a bucket holds more than 0 MB, such as 4")
        self.comm, self.stage = comm, stage
        params = list(dict.fromkeys(params))  # each once
        self.buckets = _buckets(_trainable(params, comm), comm, bucket_mb, stage)
        for frozen in (param for param in params if not param.requires_grad):
            broadcast_state(frozen.detach(), comm)
        shards = [shard for bucket in self.buckets for shard in bucket.shards if shard.numel()]
        self.optimizer = make(shards or [nn.Parameter(torch.empty(0))])  # a rank may own nothing
        made = self.optimizer.optimizer if isinstance(self.optimizer, Offloaded) else self.optimizer
        if type(made).__name__ in NOT_ELEMENTWISE:
            raise ValueError(
                f"{type(made).__name__} needs a parameter's elements together, and here each rank has a part "
                "of them; take one that works elementwise, such as SGD, Adam or AdamW"
            )
        self.background = comm.background() if stage == 2 else Foreground(comm)
        self._samples, self._total = 1.0, float(comm.size)
        self._launched, self._reduced = 0, False
        self._listen()

    def count(self, samples: int) -> None:
        """This rank's part of the step's batch has so many samples, 0 or more; called before backward."""
        if self._launched:
            raise RuntimeError("count: gradients are on their way already; call it before backward")
        if samples < 0:
            raise ValueError(f"count: samples is {samples!r}; it is this rank's number of samples, 0 or more")
        self._samples = float(samples)

    def reduce(self) -> None:
        """Make this rank's share of the mean gradient: what `clip` and `step` begin with, unless it is done already."""
        if self._reduced:
            return
        for bucket in self.buckets[self._launched :]:
            self._launch(bucket)
        used = [present for bucket in self.buckets for present in bucket.present]
        total, used = Ballot(self._samples, used, self.comm).count(self.background)
        for bucket in self.buckets:
            bucket.release(self._total / total, [used.pop(0) for _ in bucket.params])
        self._total, self._reduced = total, True

    def clip(self, max_norm: float) -> float:
        """Scale the mean gradient so that its norm over all ranks is at most `max_norm`; returns what it was."""
        self.reduce()
        shares = (shard.grad for bucket in self.buckets for shard in bucket.shards)
        return clip((share for share in shares if share is not None), self.comm, max_norm)

    def step(self) -> None:
        """Update all weights on every rank; called by every rank."""
        self.reduce()
        self.optimizer.step()
        self.gather()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drop the gradients, of this rank and summed: so a step is left out, after `clip`, on all ranks."""
        if self._launched and not self._reduced:
            raise RuntimeError(
                "zero_grad: gradients are on their way, and the other ranks wait for the rest; call step(), or clip() "
                "and then zero_grad(), on every rank"
            )
        for bucket in self.buckets:
            bucket.clear()
        self._launched, self._reduced = 0, False

    def shards(self) -> dict[str, Shard]:
        """What this rank owns of each parameter to be trained: "0", "1", ... in the order in which they were given.

        After `Checkpoint.fill` of these, `gather` brings the other ranks' weights.
        """
        found = [
            shard._replace(piece=param)
            for bucket in self.buckets
            for shard, param in zip(bucket.pieces(bucket.weights), bucket.shards, strict=True)
        ]
        return {str(i): shard for i, shard in enumerate(reversed(found))}  # buckets are in backward's order

    def gather(self) -> None:
        """Give every rank all weights, each from the rank that owns it; called by every rank."""
        for bucket in self.buckets:
            bucket.layout.all_gather(bucket.weights, self.comm)

    # -- gradients ---------------------------------------------------------------------------------------------------

    def _launch(self, bucket: "_Bucket") -> None:
        """Send the next bucket off; its weight has the last step's N, which `release` corrects."""
        if self.stage == 2 and self._launched % UNDER_WAY == 0:
            self.background.wait()  # so much is whole at a time, however slow the network
        bucket.seal(free=self.stage == 2)
        self.background.start(partial(bucket.reduce, self._samples / self._total))
        self._launched += 1

    def _gradient_is_in(self, bucket: "_Bucket", i: int) -> None:
        if self._reduced or bucket.sealed:
            raise RuntimeError(
                "a second backward came before step(), when the first one's gradients had been sent; call step() after "
                "each, or add up several at stage=1"
            )
        bucket.put_in(i)
        while self.stage == 2 and self._launched < len(self.buckets) and self.buckets[self._launched].full:
            self._launch(self.buckets[self._launched])

    def _listen(self) -> None:
        """Register a hook on every parameter, for as long as this object lives."""
        me = weakref.ref(self)  # a hook must not keep it alive
        handles: list[RemovableHandle] = []
        for bucket in self.buckets:
            for i, param in enumerate(bucket.params):

                def hook(param, bucket=bucket, i=i):
                    optimizer = me()
                    assert optimizer is not None  # `_end` takes its hooks away with it
                    optimizer._gradient_is_in(bucket, i)

                handles.append(param.register_post_accumulate_grad_hook(hook))
        weakref.finalize(self, _end, handles, self.background)


class _Bucket:
    """Parameters of one dtype whose weights lie in one vector, and their gradients in another."""

    def __init__(self, params: list[torch.Tensor], comm: Communicator, first: int, stage: int):
        self.params = params
        # Memory that neighbours see is dear to make: stage 2, which has it anew in each step, takes ordinary one.
        self._empty = comm.empty if stage == 1 else partial(torch.empty, device=comm.devices[0])
        self.layout = Layout([param.shape for param in params], comm, first)
        self.weights = comm.empty(self.layout.numel, params[0].dtype)
        for param, view in zip(params, self.layout.views(self.weights), strict=True):
            view.copy_(param.detach())
            param.data = view
        broadcast(self.weights, comm)
        self.shards = [nn.Parameter(shard.piece) for shard in self.pieces(self.weights)]
        self._gradients: torch.Tensor | None = None
        self._views: list[torch.Tensor] = []  # of the gradients, while there are any
        self.clear()

    def pieces(self, vector: torch.Tensor) -> list[Shard]:
        return self.layout.pieces(self.layout.share(vector))

    def clear(self) -> None:
        """Before a step: no gradient is in."""
        self._in: set[int] = set()
        self.present: list[bool] = []  # known once it is sealed
        self.sealed, self._share = False, torch.empty(0)
        for param, shard in zip(self.params, self.shards, strict=True):
            param.grad = shard.grad = None

    @property
    def full(self) -> bool:
        return len(self._in) == len(self.params)

    def put_in(self, i: int) -> None:
        """Move a gradient into the vector; another backward adds to it there."""
        self._vector()
        param, view = self.params[i], self._views[i]
        if param.grad is not None and param.grad.data_ptr() != view.data_ptr():
            view.copy_(param.grad)
            param.grad = view
        self._in.add(i)

    def seal(self, free: bool) -> None:
        """Fill in zeros for what has no gradient; from now on the vector is the communicator's."""
        for param, view in zip(self.params, self.layout.views(self.weights), strict=True):
            if param.data_ptr() != view.data_ptr():
                raise RuntimeError(
                    f"a parameter of shape {tuple(param.shape)} has left the memory in which its optimizer updates it; "
                    "call to(), double() and the like on the model before ShardedOptimizer is made"
                )
        self.present = [param.grad is not None for param in self.params]
        for i, present in enumerate(self.present):
            self.put_in(i)  # also one that was there before its hook
            if not present:
                self._views[i].zero_()
            self.params[i].grad = None
        vector = self._vector()
        self._under_way, self.sealed = vector, True
        # What is kept of the sum: of stage 2 the share alone, in memory of its own.
        self._share = torch.empty_like(self.layout.share(vector)) if free else self.layout.share(vector)
        if free:
            self._gradients, self._views = None, []

    def reduce(self, weight: float, comm: Communicator) -> None:
        """Sum the ranks' vectors; called in the background."""
        share = self.layout.reduce_scatter(self._under_way, comm, weight)
        if share.data_ptr() != self._share.data_ptr():
            self._share.copy_(share)
        del self._under_way

    def release(self, scale: float, used: list[bool]) -> None:
        """Hand the sums times `scale` to the shards; one that no rank used gets no gradient."""
        if scale != 1:
            self._share.mul_(scale)
        for shard, piece, was_used in zip(self.shards, self.layout.pieces(self._share), used, strict=True):
            shard.grad = piece.piece if was_used else None

    def _vector(self) -> torch.Tensor:
        if self._gradients is None:
            self._gradients = self._empty(self.layout.numel, dtype=self.params[0].dtype)
            self._views = self.layout.views(self._gradients)
        return self._gradients


def _trainable(params: Iterable[nn.Parameter], comm: Communicator) -> list[nn.Parameter]:
    """The parameters to be trained; ValueError where there is none, or other ranks have others."""
    found = [param for param in params if param.requires_grad]
    if not found:
        raise ValueError(
            "no parameter requires a gradient, so there is nothing to step; give those of a model to train"
        )
    for param in found:
        comm.check_tensor("ShardedOptimizer", "a parameter", param.detach().contiguous())
    lines = [f"{tuple(param.shape)} {str(param.dtype).removeprefix('torch.')}" for param in found]
    require_same("other parameters", lines, comm, "build the same model on every rank, its weights may differ")
    return found


def _buckets(params: list[nn.Parameter], comm: Communicator, bucket_mb: float, stage: int) -> list[_Bucket]:
    found: list[_Bucket] = []
    for group in make_buckets(params, bucket_mb * 2**20):
        found.append(_Bucket(group, comm, found[-1].layout.after if found else 0, stage))
    return found


def _end(handles: list[RemovableHandle], background: Background) -> None:
    for handle in handles:
        handle.remove()
    background.close()
