"""Parameters that are gathered, freed and reduced together: one shard at rest, whole while a layer uses them."""

from typing import NamedTuple

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.ddp.alike import bits
from hpcdl.ddp.bucketed import dense
from hpcdl.ddp.buffers import broadcast_state
from hpcdl.ddp.decisions import is_power_of_2
from hpcdl.ddp.guarded import GradientPart, NotYet, numbers_of
from hpcdl.ddp.postponed import SEVERAL, changed, hooked, is_additive, postpone, users_hooks
from hpcdl.sharding import steps
from hpcdl.sharding.changes import shape_and_hash
from hpcdl.sharding.flat import FlatLayout, Shard
from hpcdl.sharding.pieces import PieceOfWeight
from hpcdl.sharding.watched import refuse_copy

CHANGE = "change the module first, then wrap it and make the optimizer"


class Place(NamedTuple):
    """A place of a parameter: `module` has it as `name`; `path` is its name in the whole model."""

    module: nn.Module
    name: str
    path: str


class Unit:
    """Parameters of one dtype, all trainable or all frozen, with the `places` of each.

    At rest a place holds this rank's flat piece, a parameter for the optimizer; between `enter` and `leave` it holds
    the whole parameter (`shows_whole`), unless `show_pieces` is called between passes. Whole parameters live in one
    vector, which `resize_` allocates and frees: tensors that autograd saved for backward point into it, and are valid
    again when the vector has been gathered again. With `dtype` whole parameters and their gradients have that type,
    also in messages; pieces and sums keep their own type.
    """

    def __init__(
        self,
        params: dict[nn.Parameter, list[Place]],
        comm: Communicator,
        first: int,
        dtype: torch.dtype | None,
    ):
        self.params, self.places = list(params), list(params.values())
        trained, self.paths = self.params[0].requires_grad, [places[0].path for places in self.places]
        self.comm, self.layout = comm, FlatLayout([param.shape for param in self.params], comm, first)
        numbers = [numbers_of(param.detach()).resolve_conj().resolve_neg() for param in self.params]
        whole = torch.cat([x.reshape(-1) for x in numbers])
        broadcast_state(whole, comm)
        share = self.layout.share(whole)  # kept at rest, where neighbours may read it
        self.own = comm.empty(share.numel(), share.dtype).copy_(share)
        self.vector = whole.to(dtype) if dtype else whole
        for param, view in zip(self.params, self.layout.views(self.vector), strict=True):
            param.data = view
        pieces = [shard.piece.as_subclass(PieceOfWeight) for shard in self.layout.pieces(self.own)]
        self.shards = [nn.Parameter(piece, trained) for piece in pieces]
        for shard, param in zip(self.shards, self.params, strict=True):
            steps.know(shard, param)
        self.active_layers = 0  # layers that use it now
        self._times, self._by_data = 0, False  # how often it was whole; whether a forward pass changed `param.data`
        self._sums: list[int] = []
        self.pending_backward = 0  # layers whose backward pass is still to come
        self.whole, self.shows_whole = True, True
        self.sums: torch.Tensor | None = None  # this rank's share of the gradients' sum
        self.has_grad = [False] * len(self.params)  # on this rank, since the last `release`
        self.announced = [False] * len(self.params)  # its gradient is to be sent, since the last `release`
        self.arrived = [False] * len(self.params)  # its gradient is in, in this backward pass
        self._passes = [0] * len(self.params)  # backward passes that computed its gradient, since the last `release`
        self._earlier: dict[int, torch.Tensor | None] = {}  # gradients of earlier steps, while NotYet is there
        self._penalties: dict[int, torch.Tensor | None] = {}  # gradients of pieces from outside the model's forward
        self._aside: torch.Tensor | None = None
        self._not_yet = [_not_yet(shard) for shard in self.shards]
        self.changes = [""] * len(self.params)  # by a forward pass since the last `release`: digests
        self._versions: list[int] = []  # of the whole parameters when they were put in place
        self.put(self.shards, self.params)
        self.shows_whole = False
        self.free()

    __reduce_ex__ = refuse_copy

    def pieces(self) -> list[Shard]:
        """Return this rank's piece of each parameter."""
        kept = self.layout.pieces(self.own)
        return [shard._replace(piece=param) for shard, param in zip(kept, self.shards, strict=True)]

    # -- weights -----------------------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Allocate memory for the whole parameters, which `gather` fills."""
        self.vector.untyped_storage().resize_(self.vector.numel() * self.vector.element_size())
        self.whole = True

    def gather(self, comm: Communicator) -> None:
        """Fill in all ranks' shares; called in the background."""
        self.layout.all_gather(self.vector, comm, self.own)

    def enter(self) -> None:
        """Let one more layer use the whole parameters."""
        self.active_layers += 1
        if not self.shows_whole:
            self.show_whole()

    def show_whole(self) -> None:
        """Put the whole parameters in place; they are gathered."""
        self.put(self.params, self.shards)
        self.shows_whole = True
        self._times += 1
        self._sums = self._checksums() if self._by_data or is_power_of_2(self._times) else []
        self._versions = [param._version for param in self.params]

    def show_pieces(self) -> None:
        """Put this rank's pieces in place; the whole parameters may stay in memory."""
        self._require_in_place()
        self.put(self.shards, self.params)
        self.shows_whole = False
        self._keep_changes()

    def leave(self) -> None:
        """Count one layer less; the last one frees the memory."""
        if self.active_layers > 1:
            self.active_layers -= 1
        else:
            self.free()

    def free(self) -> None:
        """Leave only this rank's pieces."""
        if self.shows_whole:
            self.show_pieces()
        self.vector.untyped_storage().resize_(0)
        self.whole, self.active_layers = False, 0

    def put(self, params: list[nn.Parameter], others: list[nn.Parameter]) -> None:
        """Replace `others` by `params`, frozen where the others are."""
        for param, other, places in zip(params, others, self.places, strict=True):
            if param.requires_grad != other.requires_grad:
                param.requires_grad_(other.requires_grad)
            for place in places:
                place.module._parameters[place.name] = param

    def _keep_changes(self) -> None:
        """Copy in-place changes of a forward pass into this rank's pieces."""
        versions, self._versions = self._versions, []
        sums, self._sums = self._sums, []
        by_data = {i for i, (x, y) in enumerate(zip(sums, self._checksums() if sums else (), strict=True)) if x != y}
        changed = [i for i, version in enumerate(versions) if self.params[i]._version != version or i in by_data]
        self._by_data |= bool(by_data)
        if changed and self.vector.dtype != self.own.dtype:
            raise RuntimeError(
                f"forward changed {self.paths[changed[0]]} in place, and its change in {self.vector.dtype} would be "
                "lost; change parameters after optimizer.step()"
            )
        for i in changed:
            self.changes[i] = shape_and_hash(self.params[i])
        if changed:
            self.own.copy_(self.layout.share(self.vector))

    def _checksums(self) -> list[int]:
        """Return a number for each whole parameter, since a change of `param.data` has no version."""
        return [int(bits(param).sum(dtype=torch.int64)) for param in self.params]

    def _require_in_place(self) -> None:
        """Raise RuntimeError if a forward pass has replaced a whole parameter."""
        for param, places in zip(self.params, self.places, strict=True):
            if any(dict.get(place.module._parameters, place.name) is not param for place in places):
                raise RuntimeError(f"{places[0].path} was replaced after wrapping; {CHANGE}")

    # -- gradients ---------------------------------------------------------------------------------------------------

    @property
    def trained(self) -> bool:
        """Any of its parameters requires a gradient."""
        return not all(self.frozen)

    @property
    def frozen(self) -> list[bool]:
        """Return whether each parameter requires no gradient."""
        return [not param.requires_grad for param in (self.params if self.shows_whole else self.shards)]

    @property
    def complete(self) -> bool:
        """Return whether every trained parameter has its gradient of this backward pass."""
        pairs = zip(self.params, self.arrived, strict=True)
        return all(arrived or not param.requires_grad for param, arrived in pairs)

    def postpone_hooks(self) -> None:
        """Postpone users' hooks, on pieces until `release`; ValueError for hooks that would find a freed parameter."""
        for path, param in zip(self.paths, self.params, strict=True):
            if users_hooks(getattr(param, "_post_accumulate_grad_hooks", None)):
                raise ValueError(
                    f"{path} has a hook of register_post_accumulate_grad_hook from before wrapping, and its gradient "
                    "will be in pieces; register the hook on model.parameters() after wrapping"
                )
        postpone([param for param in self.params if _has_gradients(param)], self)
        # Autograd computes gradients of pieces only for penalties, which `release` adds to the mean.
        postpone([shard for shard in self.shards if _has_gradients(shard)], self, aside=True)

    def promise(self, i: int) -> None:
        """Refuse to read or change the gradient of piece i until `release`; backward has computed this rank's."""
        self._passes[i] += 1
        if i not in self._earlier:
            self._earlier[i], self.shards[i].grad = self.shards[i].grad, self._not_yet[i]

    def begin_penalty(self, i: int) -> None:
        """Prepare for a gradient of piece i that autograd is about to accumulate."""
        self._aside, self.shards[i].grad = self.shards[i].grad, self._penalties.get(i)

    def keep_penalty(self, i: int) -> None:
        """Keep that gradient until `release`."""
        self._penalties[i], self.shards[i].grad, self._aside = self.shards[i].grad, self._aside, None

    def begin_backward(self) -> None:
        """Begin a backward pass that computes its gradients."""
        self.arrived = [False] * len(self.params)

    def seal(self) -> torch.Tensor:
        """Move the gradients into one vector, with zeros for missing ones, and return it for `reduce`."""
        gradients = torch.empty_like(self.vector, memory_format=torch.contiguous_format)
        for i, (param, view) in enumerate(zip(self.params, self.layout.views(gradients), strict=True)):
            if param.grad is None:
                view.zero_()
            else:
                view.copy_(dense(param.grad))
                self.has_grad[i] = True
            param.grad = None
        return gradients

    def reduce(self, gradients: torch.Tensor, weight: float, comm: Communicator) -> None:
        """Add this rank's share of the sum over ranks of weight * gradients; called in the background."""
        share = self.layout.reduce_scatter(gradients, comm, weight)
        self.sums = share.to(self.own.dtype, copy=True) if self.sums is None else self.sums.add_(share)

    def release(self, scale: float, used: list[bool]) -> None:
        """Add the sums times `scale` to the gradients of the pieces that any rank used."""
        assert self.sums is not None  # every step reduces every unit
        sums, self.sums, self.has_grad = self.sums, None, [False] * len(self.params)
        passes, self._passes = self._passes, [0] * len(self.params)
        self.announced, self.changes = [False] * len(self.params), [""] * len(self.params)
        if scale != 1:
            sums.mul_(scale)
        pieces = self.layout.pieces(sums)
        for i, penalty in self._penalties.items():
            if penalty is not None:
                pieces[i].piece.add_(penalty)
        used = [was_used or i in self._penalties for i, was_used in enumerate(used)]
        self._penalties = {}
        self._run_hooks(sums, used)
        for i, earlier in self._earlier.items():
            if self.shards[i].grad is not self._not_yet[i]:
                raise RuntimeError(NotYet.sentence)
            self.shards[i].grad = earlier
        self._earlier = {}
        for i, kept in enumerate(pieces):
            if used[i]:
                _accumulate(self.shards[i], kept, passes[i] > 1)

    def _run_hooks(self, sums: torch.Tensor, used: list[bool]) -> None:
        """Call users' hooks of whole parameters with whole mean gradients, and keep this rank's part of theirs."""
        if not any(map(hooked, self.params)):
            return
        whole = sums.new_empty(self.layout.numel)
        self.layout.all_gather(whole, self.comm, sums)
        for param, view, was_used in zip(self.params, self.layout.views(whole), used, strict=True):
            if was_used and hooked(param):
                view.copy_(changed(param, view))
        sums.copy_(self.layout.share(whole))


def _has_gradients(param: nn.Parameter) -> bool:
    return param.is_floating_point() or param.is_complex()


def _not_yet(shard: nn.Parameter) -> torch.Tensor:
    return torch.zeros((), dtype=shard.dtype, device=shard.device).expand(shard.shape).as_subclass(NotYet)


def _accumulate(shard: nn.Parameter, kept: Shard, several: bool) -> None:
    """Add a gradient, the sum of `several` passes, to that of `shard`; call the hooks that autograd would."""
    before = users_hooks(shard._backward_hooks)
    after = users_hooks(shard._post_accumulate_grad_hooks)
    grad: torch.Tensor = kept.piece.as_subclass(GradientPart)
    if several and (after or not all(is_additive(hook, kept.piece) for hook in before)):
        raise RuntimeError(SEVERAL.format(kept.shape))
    for hook in before:
        new = hook(grad)
        grad = grad if new is None else new.as_subclass(GradientPart)
    grad = grad.as_subclass(torch.Tensor)
    shard.grad = (grad if shard.grad is None else shard.grad + grad).as_subclass(GradientPart)
    for hook in after:
        hook(shard)
