"""Buckets of ZeRO-1 and -2: parameters that are sent together, with weights in one vector and gradients in another."""

import weakref
from functools import partial

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.collectives import broadcast
from hpcdl.comm import Communicator
from hpcdl.ddp.guarded import Gone, GradientShare, InStep, OfThisRank
from hpcdl.ddp.postponed import run
from hpcdl.sharding.flat import FlatLayout, Shard

_owners: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameter -> its latest bucket


class ShardBucket:
    """Parameters of one dtype with their weights in one vector and their gradients in another."""

    def __init__(self, params: list[torch.Tensor], comm: Communicator, first: int, stage: int):
        self.params = params
        # Shared memory is slow to allocate: stage 2 allocates in each step, so it uses ordinary memory.
        self._empty = comm.empty if stage == 1 else partial(torch.empty, device=comm.devices[0])
        self.layout = FlatLayout([param.shape for param in params], comm, first)
        self.weights = comm.empty(self.layout.numel, params[0].dtype)
        for param, view in zip(params, self.layout.views(self.weights), strict=True):
            view.copy_(param.detach())
            param.data = view
            _owners[param] = weakref.ref(self)
        broadcast(self.weights, comm)
        self.shards = [nn.Parameter(shard.piece) for shard in self.pieces(self.weights)]
        for shard, param in zip(self.shards, params, strict=True):
            shard.whole_shape = tuple(param.shape)  # type: ignore[attr-defined]  # `LayerWise` optimizers need it
        self._in_step = [
            torch.zeros((), dtype=x.dtype, device=x.device).expand(x.shape).as_subclass(InStep) for x in self.shards
        ]
        self._any = self.weights[0] if self.weights.numel() else self.weights.new_empty(())  # never read
        self._gradients: torch.Tensor | None = None
        self._views: list[torch.Tensor] = []  # views of the gradients, while they exist
        self._used = self._zeros = [False] * len(params)  # in the last step; to have zeros where no rank uses it
        self.clear()

    def pieces(self, vector: torch.Tensor) -> list[Shard]:
        return self.layout.pieces(self.layout.share(vector))

    def clear(self) -> None:
        """Empty the bucket before a step."""
        self._in: set[int] = set()
        self.present: list[bool] = []  # known once it is sealed
        self._kept: tuple[torch.Tensor, list[bool]] | None = None  # of earlier passes: shard, `present`
        self.sealed, self._share = False, torch.empty(0)
        for param, shard in zip(self.params, self.shards, strict=True):
            param.grad = shard.grad = None

    def forget(self, set_to_none: bool) -> None:
        """Forget which parameters had a gradient, or let them have a zero one from now on."""
        had = zip(self._used, self._zeros, strict=True)
        self._zeros = [not set_to_none and any(each) for each in had]
        self._used = [False] * len(self.params)

    @property
    def begun(self) -> bool:
        """Return whether a gradient of this step has arrived."""
        return bool(self._in)

    def has(self, i: int) -> bool:
        """Return whether the gradient of a parameter has arrived."""
        return i in self._in

    @property
    def full(self) -> bool:
        return len(self._in) == len(self.params)

    def put_in(self, i: int) -> None:
        """Move a gradient into the vector; another backward adds to it there."""
        self._vector()
        param, view = self.params[i], self._views[i]
        if param.grad is not None and param.grad.is_sparse:
            param.grad = param.grad.to_dense()  # from here gradients are parts of one vector
        if param.grad is not None and param.grad.data_ptr() != view.data_ptr():
            view.copy_(param.grad)
            param.grad = view.as_subclass(OfThisRank)
        self._in.add(i)
        if param.grad is not None and self.shards[i].numel():
            self.shards[i].grad = self._in_step[i]

    def seal(self, free: bool) -> None:
        """Fill in zeros for missing gradients; from now on the vector belongs to the communicator."""
        for param, view in zip(self.params, self.layout.views(self.weights), strict=True):
            if param.data_ptr() != view.data_ptr():
                raise RuntimeError(f"a parameter of shape {tuple(param.shape)} {self._why_it_left(param)}")
        now = [param.grad is not None and not isinstance(param.grad, Gone) for param in self.params]
        before = self._kept[1] if self._kept else [False] * len(now)
        self.present = [was or present for was, present in zip(before, now, strict=True)]
        for i, (param, present) in enumerate(zip(self.params, now, strict=True)):
            if not present:
                param.grad = None  # perhaps one that has left in an earlier pass
            self.put_in(i)  # also a gradient from before its hook
            if not present:
                self._views[i].zero_()
            param.grad = self._any.expand(param.shape).as_subclass(Gone) if present and free else None
        vector = self._vector()
        self._under_way, self.sealed, self._left = vector, True, [free and present for present in now]
        # The part of the sum to keep: at stage 2 only the shard, in separate memory.
        self._share = torch.empty_like(self.layout.share(vector)) if free else self.layout.share(vector)
        if free:
            self._gradients, self._views = None, []

    def require_kept(self) -> None:
        """Raise RuntimeError if a gradient of the last pass was dropped or replaced after it had left."""
        if self.sealed and self._left != [isinstance(param.grad, Gone) for param in self.params]:
            raise RuntimeError(Gone.sentence)

    def reduce(self, weight: float, comm: Communicator) -> None:
        """Sum the ranks' vectors; called in the background."""
        share = self.layout.reduce_scatter(self._under_way, comm, weight)
        if share.data_ptr() != self._share.data_ptr():
            self._share.copy_(share)
        del self._under_way

    def keep(self) -> None:
        """Add the shard to earlier backward passes' shards, after `reduce`, and accept the next pass's gradients."""
        if self._kept is None:
            self._kept = self._share, self.present
        else:
            self._kept[0].add_(self._share)
            self._kept = self._kept[0], self.present
        self._in, self.sealed, self._share = set(), False, torch.empty(0)

    def release(self, scale: float, used: list[bool]) -> None:
        """Give each shard its sum times `scale`; a shard that no rank used gets no gradient, or zeros."""
        if self._kept is not None:
            self._share.add_(self._kept[0])
            self._kept = None
        if scale != 1:
            self._share.mul_(scale)
        self._used = used
        for shard, piece, *present in zip(self.shards, self.layout.pieces(self._share), used, self._zeros, strict=True):
            shard.grad = piece.piece.as_subclass(GradientShare) if any(present) else None

    def run_hooks(self, hooks: list[bool], comm: Communicator) -> None:
        """Call the users' `hooks` with whole mean gradients, after `release`, and keep this rank's part of theirs."""
        if not any(hooks):
            return
        whole = self._share.new_empty(self.layout.numel)
        self.layout.all_gather(whole, comm, self._share)
        for param, shard, view, here in zip(self.params, self.shards, self.layout.views(whole), hooks, strict=True):
            if here:
                param.grad = view
                run(param)
                if param.grad is None:
                    shard.grad = None
                elif param.grad is not view:
                    view.copy_(param.grad)
                param.grad = None
        self._share.copy_(self.layout.share(whole))

    def _why_it_left(self, param: torch.Tensor) -> str:
        if _owners[param]() is not self:
            return "is in another ShardedOptimizer, which was made later; give each parameter to one of them"
        return (
            "has left the memory in which its optimizer updates it; call to(), double() and the like on the model "
            "before ShardedOptimizer is made"
        )

    def _vector(self) -> torch.Tensor:
        if self._gradients is None:
            self._gradients = self._empty(self.layout.numel, dtype=self.params[0].dtype)
            self._views = self.layout.views(self._gradients)
        return self._gradients
