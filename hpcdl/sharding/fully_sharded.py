"""ZeRO's third stage: weights are whole only where a layer is at work, and every rank keeps its share of everything."""

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from hpcdl.comm import Communicator, Foreground
from hpcdl.ddp.agreement import earlier_wrappers, outline, require_same
from hpcdl.ddp.buffers import BufferBroadcast, broadcast_state
from hpcdl.ddp.overlapped import count_samples, require_countable
from hpcdl.sharding.ballot import Ballot
from hpcdl.sharding.clipping import clip
from hpcdl.sharding.flat import Shard
from hpcdl.sharding.gathering import Gathering, Layer
from hpcdl.sharding.unit import Place, Unit

Layers = tuple[type[nn.Module], ...]


class FullyShardedDataParallel(nn.Module):
    """`module`, of whose parameters, gradients and optimizer states each rank of `comm` keeps its share alone.

        model = FullyShardedDataParallel(model, comm)
        optimizer = torch.optim.AdamW(model.parameters())      # after wrapping: of this rank's pieces
        loss_fn(model(x), y).backward()                        # x: this rank's part of the batch
        model.synchronize()                                    # now piece.grad = sum_r (n_r / N) g_r
        model.clip(1.0)
        optimizer.step(), optimizer.zero_grad()

    A layer's parameters are gathered before its forward and before its backward pass and freed after each, and its
    gradients are reduce-scattered: 3 Psi (p-1)/p bytes per rank and step for Psi bytes of weights to be trained, 2 Psi
    for frozen ones, beside some numbers to agree on N. With `ahead` the next layer is gathered while one is at work,
    from the second step on, so that at most two are whole at a time, and those of the modules around them. That takes
    a thread: where the ranks have no core to spare for it, `ahead=False` is sooner.

    A layer is a module of the types `layers`, with all that is in it; and else each module that has parameters of its
    own, as far as its own ones go. Parameters are whole only inside their layers' `forward`: who uses one elsewhere
    names the module around it in `layers`. With `dtype`, such as bfloat16, weights, gradients and inputs are of that
    type in messages and in layers; the pieces, their gradients and the optimizer keep theirs.

    At the start every rank gets rank 0's weights and buffers. The loss is a mean over samples, n_r of them, counted by
    `samples(*inputs)` as in `hpcdl.ddp.DistributedDataParallel`. All ranks use the same layers in the same order; one
    without samples calls the model with an empty batch. A parameter that no rank used has no gradient. Several
    forward, backward and `synchronize` before a step add up. The optimizer works elementwise.

    Raises ValueError where models differ between ranks, or where n_r would be a guess (Rajbhandari et al. 2020, "ZeRO";
    Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel").
    """

    def __init__(
        self,
        module: nn.Module,
        comm: Communicator,
        layers: Layers = (),
        ahead: bool = True,
        dtype: torch.dtype | None = None,
        samples: Callable[..., int] | None = None,
    ):
        super().__init__()
        self.module, self.comm, self.dtype, self.samples = module, comm, dtype, samples
        require_countable(module, samples)
        require_same(
            "another model",
            outline(module) + earlier_wrappers(comm),
            comm,
            "build the same model on every rank, its weights may differ",
        )
        for buffer in module.buffers():
            broadcast_state(buffer, comm)
        self.units, needs = _cut(module, comm, layers, dtype)
        if not any(unit.trained for unit in self.units):
            raise ValueError(
                f"{type(module).__name__} has no parameter that requires a gradient, so there is nothing to reduce; "
                "use the module as it is"
            )
        self._gathering = Gathering(self.units, comm.background() if ahead else Foreground(comm), ahead)
        self._buffers_of_rank_0 = BufferBroadcast(module)
        self._samples, self._total = 0, float(comm.size)
        self._reduced: list[Unit] = []  # since the last `synchronize`
        self._calls: list[_Use] = []  # of layers, one inside the other
        self._endless: list[_Use] = []  # calls whose inputs have no gradient
        for layer, need in needs:
            layer.register_forward_pre_hook(partial(_before, weakref.ref(self), need), with_kwargs=True)
            layer.register_forward_hook(partial(_after, weakref.ref(self)))
        for unit in self.units:
            for param in unit.params if unit.trained else ():
                param.register_post_accumulate_grad_hook(partial(_gradient_is_in, weakref.ref(self), unit))
        weakref.finalize(self, self._gathering.background.close)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward pass; counts this rank's samples."""
        if torch.is_grad_enabled():
            self._samples += count_samples(self.samples, args, kwargs)
        self._gathering.begin(torch.is_grad_enabled())
        self._calls = []
        if self.dtype:
            args, kwargs = tree_map_only(torch.Tensor, self._cast, (args, kwargs))
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        """Every piece's gradient becomes its part of the mean over the global batch, and the buffers rank 0's.

        Raises ValueError when no rank has a sample.
        """
        trained = [unit for unit in self.units if unit.trained]
        for unit in trained:
            if not any(unit is done for done in self._reduced):
                self._reduce(unit)
            elif any(param.grad is not None for param in unit.params):
                raise RuntimeError(
                    f"a gradient of {', '.join(unit.paths)} came after its layer's backward had ended: call "
                    "synchronize() after each backward, and use parameters in their own layers only"
                )
        self._gathering.later(self._buffers_of_rank_0.run)
        self._gathering.end()
        ballot = Ballot(self._samples, [used for unit in trained for used in unit.used], self.comm)
        total, used = ballot.count(self._gathering.background)
        for unit in trained:
            unit.release(self._total / total, [used.pop(0) for _ in unit.params])
            unit.uses = 0
        self._total, self._samples, self._reduced, self._endless = total, 0, [], []

    def clip(self, max_norm: float) -> float:
        """Scale the gradients so that their norm over all ranks is at most `max_norm`; returns what it was."""
        grads = (shard.grad for unit in self.units for shard in unit.shards)
        return clip((grad for grad in grads if grad is not None), self.comm, max_norm)

    # -- state -------------------------------------------------------------------------------------------------------

    def shards(self) -> dict[str, Shard]:
        """What this rank has of each parameter, by the name it has in the module; buffers, which all have, whole."""
        found = {path: piece for unit in self.units for path, piece in zip(unit.paths, unit.pieces(), strict=True)}
        buffers = dict(self.module.named_buffers())
        return found | {name: Shard(value.view(-1), 0, tuple(value.shape)) for name, value in buffers.items()}

    def whole_state_dict(self) -> dict[str, torch.Tensor]:
        """The module's own state dict, whole, on every rank; every rank calls it. `shards` costs no such memory."""
        found: dict[str, torch.Tensor] = {name: value.clone() for name, value in self.module.named_buffers()}
        for unit in self.units:
            whole = unit.own.new_empty(unit.layout.numel)
            unit.layout.all_gather(whole, self.comm, unit.own)
            for places, view in zip(unit.places, unit.layout.views(whole), strict=True):
                found |= {place.path: view.clone() for place in places}
        return {name: found[name] for name in self.module.state_dict()}

    def load_whole_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take this rank's pieces of `state`, such as `whole_state_dict` gives; KeyError where a name is missing."""
        for path, shard in self.shards().items():
            shard.piece.detach().copy_(state[path].reshape(-1)[shard.start : shard.start + shard.piece.numel()])

    def __reduce_ex__(self, protocol):
        raise TypeError(
            "a FullyShardedDataParallel cannot be copied or pickled: its communicator belongs to this process; save "
            "its shards() with hpcdl.sharding.save, or its whole_state_dict()"
        )

    def _apply(self, fn, recurse=True):  # what `to`, `double`, `cuda` and their kin do
        raise RuntimeError(
            "a FullyShardedDataParallel cannot be moved or converted: its weights lie in vectors of their own; call "
            "to(), double() and the like on the module before it is wrapped"
        )

    # -- one layer's passes ------------------------------------------------------------------------------------------

    def _cast(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype) if x.is_floating_point() else x

    def _reduce(self, unit: Unit) -> None:
        """Send a unit's gradients off; the weight has the last step's N, which `release` corrects."""
        self._gathering.later(partial(unit.reduce, unit.seal(), self._samples / self._total))
        self._reduced.append(unit)


Me = weakref.ref[FullyShardedDataParallel]  # for hooks, which must not keep it alive


class _Use:
    """One call of a layer: whole from the moment when a gradient reaches its outputs, until its inputs have theirs."""

    def __init__(self, model: FullyShardedDataParallel, layer: Layer):
        self.model, self.layer, self.at_work = model, layer, False

    def begin(self, gradient: torch.Tensor) -> None:
        """Its backward pass begins."""
        if not self.at_work:
            self.at_work = True
            self.model._gathering.acquire(self.layer)

    def free(self) -> None:
        """Its weights are no longer needed."""
        if self.at_work:
            self.at_work = False
            self.model._gathering.release(self.layer)

    def end(self) -> None:
        """Its backward pass is done; of a unit that nobody else uses the gradients leave."""
        self.free()
        for unit in self.layer:
            unit.uses -= 1
            if unit.trained and not unit.uses:
                self.model._reduce(unit)


class _AtEnd(torch.autograd.Function):
    """The identity, whose backward pass is the end of a layer's."""

    @staticmethod
    def forward(ctx: Any, use: _Use, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.use = use
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        ctx.use.end()
        return None, *gradients


def _before(me: Me, layer: Layer, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """A layer's forward pass begins: its weights are whole, and its inputs will tell when its backward pass ends."""
    model = me()
    assert model is not None  # whose forward this is in
    use = _Use(model, layer)
    model._calls.append(use)
    model._gathering.acquire(layer)
    if not torch.is_grad_enabled():
        return args, kwargs
    for unit in layer:
        unit.uses += 1
    leaves, tree = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if places:
        for i, x in zip(places, _AtEnd.apply(use, *(leaves[i] for i in places)), strict=True):
            leaves[i] = x
    else:
        model._endless.append(use)
    return tree_unflatten(leaves, tree)


def _after(me: Me, module: nn.Module, args: tuple, outputs: Any) -> None:
    """A layer's forward pass is done: its weights go, and its outputs will tell when its backward pass begins."""
    model = me()
    assert model is not None  # whose forward this is in
    use = model._calls.pop()
    model._gathering.release(use.layer)
    for leaf in tree_flatten(outputs)[0]:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaf.register_hook(use.begin)


def _gradient_is_in(me: Me, unit: Unit, param: torch.Tensor) -> None:
    """A gradient is final: a layer whose inputs have none is done when all of its own are in, and freed."""
    model = me()
    if model is not None and unit.complete:
        for use in model._endless:
            if all(other.complete for other in use.layer if other.trained):
                use.free()


def _cut(
    module: nn.Module, comm: Communicator, layers: Layers, dtype: torch.dtype | None
) -> tuple[list[Unit], list[tuple[nn.Module, Layer]]]:
    """The units of `module`, and which of them each layer needs: parameters of the same layers are one unit."""
    places: dict[nn.Parameter, list[Place]] = {}
    users: dict[nn.Parameter, dict[nn.Module, None]] = {}
    for layer, place in _places(module, layers):
        param = place.module._parameters[place.name]
        assert param is not None  # `_places` leaves out what is none
        places.setdefault(param, []).append(place)
        users.setdefault(param, {})[layer] = None
    alike: dict[tuple, list[nn.Parameter]] = {}
    for param, each in users.items():
        alike.setdefault((*each, param.dtype, param.requires_grad), []).append(param)
    units: list[Unit] = []
    for group in alike.values():
        first = units[-1].layout.after if units else 0
        units.append(Unit({param: places[param] for param in group}, comm, first, dtype))
    needs: dict[nn.Module, list[Unit]] = {}
    for unit, key in zip(units, alike, strict=True):
        for layer in key[:-2]:
            needs.setdefault(layer, []).append(unit)
    return units, [(layer, tuple(need)) for layer, need in needs.items()]


def _places(module: nn.Module, layers: Layers) -> Iterator[tuple[nn.Module, Place]]:
    """Every place of a parameter in `module`, and the layer to which it belongs."""
    around: dict[nn.Module, nn.Module] = {}  # a module -> the layer in which it is
    for path, inner in module.named_modules():
        if isinstance(inner, layers):
            for below in inner.modules():
                around.setdefault(below, inner)
        for name, param in inner._parameters.items():
            if param is not None:
                yield around.get(inner, inner), Place(inner, name, f"{path}.{name}" if path else name)
