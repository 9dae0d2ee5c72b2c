"""The forward and backward passes of a fully sharded model: hooks gather a layer, free it, and reduce its gradients."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._guards import CompileContext
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from hpcdl.ddp.backward_passes import NOT_SYNCHRONIZED, Losses, of_inputs
from hpcdl.ddp.postponed import listen, own
from hpcdl.sharding.gathering import Gathering, Layer
from hpcdl.sharding.intact import Intact
from hpcdl.sharding.outputs import kept_in, tensors_in
from hpcdl.sharding.penalties import accept_penalties
from hpcdl.sharding.pieces import untraced
from hpcdl.sharding.unit import Unit
from hpcdl.sharding.watched import Watched


class Passes:
    """The state of one step of a fully sharded model.

    `samples` is this rank's number, `total` is the last step's N and the guess for this step.
    """

    def __init__(self, units: Sequence[Unit], gathering: Gathering, dtype: torch.dtype | None, total: float):
        self.units, self.gathering, self.dtype, self.total = units, gathering, dtype, total
        self.syncing = True
        self.samples, self.losses, self.of_inputs = 0, Losses(), of_inputs()
        self.lengths: list[int] = []  # of the inputs, without `samples`
        self.calls: list[Use] = []  # of layers, one inside the other
        self._reduced: list[Unit] = []  # since the last `synchronize`
        self._endless: list[Use] = []  # calls whose inputs have no gradient
        # Layers that stay whole until the end of the step, as no hook can tell when backward needs them.
        self._held: dict[tuple[Unit, ...], None] = {}
        self._in_forward = False

    def listen(self, needs: Sequence[tuple[nn.Module, Layer]]) -> None:
        """Register hooks on layers and parameters; no hook keeps this object alive."""
        me = weakref.ref(self)
        for layer, need in needs:
            # Before all other pre-hooks: weight norm, pruning and others compute with whole parameters in theirs.
            layer.register_forward_pre_hook(partial(_before, me, need), with_kwargs=True, prepend=True)
            layer.register_forward_hook(partial(_after, me, _owners(layer, need)), always_call=True)
        owners: dict[nn.Module, dict[str, Unit]] = {}
        for unit in self.units:
            unit.postpone_hooks()
            for i, (param, places) in enumerate(zip(unit.params, unit.places, strict=True)):
                if param.is_floating_point() or param.is_complex():
                    listen(param.register_post_accumulate_grad_hook, param, own(partial(_gradient_is_in, me, unit, i)))
                    accept_penalties(unit, i, self.losses)
                for place in places:
                    owners.setdefault(place.module, {})[place.name] = unit
        for module, names in owners.items():
            module._parameters = Watched(module._parameters, partial(_used, me, names))

    def count(self, samples: int, lengths: list[int]) -> None:
        """Count the samples of a forward pass that begins, and its inputs' lengths."""
        if any(True in unit.announced for unit in self.units):
            raise RuntimeError(NOT_SYNCHRONIZED)
        self.samples, self.lengths = self.samples + samples, self.lengths + lengths
        self.losses.begin(samples)
        self.of_inputs = of_inputs()

    @contextmanager
    def forward(self, intact: Intact, counted: tuple[int, list[int]] | None) -> Iterator[None]:
        """Run the module's forward pass; `counted` are its samples and its inputs' lengths, if gradients follow."""
        counts = self.samples, self.lengths
        if counted:
            self.count(*counted)
        held, self._held = self._held, {}
        pending, endless = [unit.pending_backward for unit in self.units], list(self._endless)
        torch.clear_autocast_cache()  # it keeps casts of weights, with their graph, to the end of its region
        self.gathering.begin(torch.is_grad_enabled())
        intact.require()
        self.calls, self._in_forward = [], True
        try:
            yield
        except BaseException:  # the caller may try again
            (self.samples, self.lengths), self._endless = counts, endless
            for unit, before in zip(self.units, pending, strict=True):
                unit.pending_backward = before
            raise
        finally:
            self._in_forward, self.calls = False, []
            for layer in self._held if not torch.is_grad_enabled() else ():
                self.gathering.release(layer)
            self._held = held | self._held if torch.is_grad_enabled() else held
        self.hold()

    def hold(self) -> None:
        """Gather again what backward needs of earlier forward passes of this step, if something has freed it since."""
        for layer in self._held:
            if not all(unit.whole for unit in layer):
                self.gathering.acquire(layer)

    def read(self, unit: Unit) -> None:
        """Note that a parameter of `unit` is read: in forward or backward the whole one, at other times the piece.

        If a module uses it outside its layers in forward, `unit` stays whole until the end of the step.
        """
        in_backward = torch._C._current_graph_task_id() != -1  # a checkpoint or a hook reads it
        if self._in_forward and not unit.active_layers:
            self._held[(unit,)] = None
            self.gathering.acquire((unit,))
            unit.pending_backward += torch.is_grad_enabled()
        elif in_backward and unit.active_layers and not unit.shows_whole:
            unit.show_whole()
        elif unit.shows_whole and not (self._in_forward or self.calls or in_backward):
            unit.show_pieces()

    def begin(self, layer: Layer) -> "Use":
        """Gather a layer's parameters before its forward pass."""
        use = Use(self, layer)
        self.calls.append(use)
        self.gathering.acquire(layer)
        return use

    def never_ends(self, use: "Use") -> None:
        """Note a call without an input gradient that would tell when its backward pass ends."""
        self._endless.append(use)

    def announce(self, unit: Unit, i: int) -> None:
        """Note that the gradient of a unit's i-th parameter is final, and free complete calls."""
        unit.arrived[i] = True
        self.losses.note()
        unit.promise(i)
        if self.syncing and unit.announced[i]:
            raise self.losses.came_twice(
                "a second backward came before synchronize(); call synchronize() after each, or put all but the last "
                "under `with model.no_sync():`"
            )
        unit.announced[i] = self.syncing
        if unit.complete:
            for use in self._endless:
                if all(other.complete for other in use.layer if other.trained):
                    use.free()

    def reduce(self, unit: Unit) -> None:
        """Send a unit's gradients; the weight uses the last step's N, which `release` corrects."""
        self.gathering.later(partial(unit.reduce, unit.seal(), self.samples / self.total), unit.paths)
        self._reduced.append(unit)

    def reduce_rest(self) -> list[Unit]:
        """Send the remaining gradients; return the units whose gradients were sent."""
        for unit in self.units:
            done = any(unit is other for other in self._reduced)
            if not done and unit.trained:
                self.reduce(unit)
            elif done and any(param.grad is not None for param in unit.params):
                raise RuntimeError(
                    f"a gradient of {', '.join(unit.paths)} came after its layer's backward had ended: call "
                    "synchronize() after each backward, and use parameters in their own layers only"
                )
        return [unit for unit in self.units if any(unit is other for other in self._reduced)]

    def end_step(self, total: float) -> None:
        """End a step after all its gradients have arrived; `total` is its N."""
        for unit in self.units:
            unit.pending_backward = 0
        self.total, self.samples, self.lengths = total, 0, []
        self.losses.clear()
        self._reduced, self._endless, self._held = [], [], {}


Me = weakref.ref[Passes]


class Use:
    """One call of a layer: in backward, its weights are whole from the first gradient of its outputs until its inputs
    have their gradients."""

    def __init__(self, passes: Passes, layer: Layer):
        self.passes, self.layer = passes, layer
        self._since = -1  # the gathering's period in which it was begun
        self.differs = False  # an input has a gradient

    @property
    def at_work(self) -> bool:
        """Its backward pass has begun, and its weights are still whole."""
        return self._since == self.passes.gathering.period

    def begin(self, gradient: torch.Tensor) -> None:
        """Begin its backward pass."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True under FullyShardedDataParallel: weights are freed after each layer's backward pass, "
                "so there is no second derivative; use DistributedDataParallel or hpcdl.sharding.ShardedOptimizer"
            )
        if not self.at_work:
            self._since = self.passes.gathering.period
            self.passes.gathering.acquire(self.layer)
            for unit in self.layer:
                unit.begin_backward()

    def free(self) -> None:
        """Free its weights."""
        if self.at_work:
            self._since = -1
            self.passes.gathering.release(self.layer)

    def end(self) -> None:
        """End its backward pass; send a unit's gradients if no other call uses the unit, and there are some."""
        self.free()
        only = self.passes.of_inputs
        for unit in self.layer if only.frees or not only.runs else ():
            unit.pending_backward = max(0, unit.pending_backward - 1)
            if unit.trained and not unit.pending_backward and self.passes.syncing and not only.runs:
                self.passes.reduce(unit)


class _AtEnd(torch.autograd.Function):
    """The identity; its backward marks the end of a layer's backward pass."""

    @staticmethod
    def forward(ctx: Any, use: Use, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.use = use
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        ctx.use.end()
        return None, *gradients


def _before(me: Me, layer: Layer, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Prepare a layer's forward pass: gather its weights, and watch its inputs for the end of backward."""
    passes = me()
    assert passes is not None  # this runs inside its forward
    use = passes.begin(layer)
    if passes.dtype:
        args, kwargs = tree_map_only(torch.Tensor, partial(_cast, passes.dtype), (args, kwargs))
    if not torch.is_grad_enabled():
        return args, kwargs
    for unit in layer:
        unit.pending_backward += 1
    leaves, tree = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    use.differs = bool(places)
    if places:
        for i, x in zip(places, _AtEnd.apply(use, *(leaves[i] for i in places)), strict=True):
            leaves[i] = x
    else:
        passes.never_ends(use)
    return tree_unflatten(leaves, tree)


def _after(me: Me, inside: Sequence[nn.Module], module: nn.Module, args: tuple, outputs: Any) -> None:
    """Finish a layer's forward pass: free its weights, and watch its outputs for the start of backward."""
    passes = me()
    assert passes is not None  # this runs inside its forward
    use = passes.calls.pop()
    found = [x for x in tensors_in(outputs) if _has_graph(x)]
    for x in chain(found, filter(_has_graph, kept_in(inside))):
        x.register_hook(use.begin)
    hidden = not found and torch.is_grad_enabled() and (use.differs or any(unit.trained for unit in use.layer))
    if hidden:  # no hook can reach its results
        passes._held[tuple(use.layer)] = None
    else:
        passes.gathering.release(use.layer)


untraced(_before, _after)


def _has_graph(x: torch.Tensor) -> bool:
    return x.requires_grad and x.grad_fn is not None


def _owners(layer: nn.Module, units: Layer) -> list[nn.Module]:
    """Return the layer, and the submodules that have its parameters."""
    inside = {place.module: None for unit in units for places in unit.places for place in places}
    return list({layer: None} | inside)


def _cast(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def _gradient_is_in(me: Me, unit: Unit, i: int, param: torch.Tensor) -> None:
    passes = me()
    if passes is not None:
        passes.announce(unit, i)


def _used(me: Me, units: dict[str, Unit], name: str) -> None:
    passes = me()
    if passes is not None and name in units and CompileContext.try_get() is None:  # torch.compile lists parameters
        passes.read(units[name])
