"""Notice that ranks decide by their own batches, such as an early exit by the batch's mean.

Ranks whose forward passes take the same way build graphs with equally many nodes, and use the same parameters. If not,
then either samples have gone different ways, which is right, or whole batches have. `mixes` tells which: it calls the
module again, with single samples and with others beside them.
"""

import contextlib
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from hpcdl.collectives import naive_all_reduce
from hpcdl.comm import Communicator

SINGLE = 8  # at most this many samples are tried without the others
FACTORS = (-1.0, 10.0, -10.0, 0.0)  # of samples that are tried beside the batch's
PRIME, SQUARES, VOTE = 61, 2.0**16, 2.0**12  # a vote is added to a small number, and travels with it

Call = tuple[nn.Module, tuple, dict]
Trial = tuple[Callable, slice, slice]  # how inputs change, and which rows of the outputs are the same before and after


class Decisions:
    """The graph nodes that this rank's forward passes build in a step, and the last of their calls."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.samples: float | None = None  # of that call, where they were counted
        self._nodes, self._begun = 0, nodes_made()
        self._differing = 0  # steps in which ranks built other graphs
        self._watching = False

    @contextlib.contextmanager
    def forward(self, samples: int, *call: Any) -> Iterator[None]:
        """Count the nodes of a forward pass: `call` is the module, its arguments and keyword arguments."""
        begun = nodes_made()
        yield
        self._nodes, self.call, self.samples = self._nodes + nodes_made() - begun, call, samples

    def begin_step(self) -> None:
        """Forget the last step."""
        self.call, self._nodes, self._begun = None, 0, nodes_made()

    def vote(self, samples: float, nodes: int | None = None) -> float:
        """Return what a rank adds to a sum of small numbers, for `differ`; a rank without samples abstains."""
        number = (self._nodes if nodes is None else nodes) % PRIME if samples else 0
        return VOTE * (number + SQUARES * number**2)

    def since_begin(self) -> int:
        """Return how many nodes this thread has made since `begin_step`."""
        return nodes_made() - self._begun

    def differ(self, ranks: int, votes: float, used: Iterable[float]) -> bool:
        """Return whether `ranks` ranks built other graphs, in a step whose differences are looked into.

        `votes` is the sum of their votes, and `used` says how many ranks have a gradient of each parameter.
        """
        squares, number = divmod(votes, SQUARES)
        if ranks * squares == number**2 and all(each in (0, ranks) for each in used):
            return False
        self._differing += 1
        return is_power_of_2(self._differing)

    def watch(self, params: Iterable[torch.Tensor]) -> None:
        """Note the calls of the module that next uses one of `params`, where no wrapper is called."""
        if self._watching:
            return
        self._watching = True
        mine, me = {id(param) for param in params}, weakref.ref(self)
        thread = weakref.ref(threading.current_thread())  # numbers of threads are used again

        def note(module: nn.Module, args: tuple, kwargs: dict) -> None:
            decisions = me()
            if decisions is not None and torch.is_grad_enabled():
                decisions.call = module, args, kwargs

        def find(module: nn.Module, args: tuple) -> None:
            if thread() is threading.current_thread() and any(id(param) in mine for param in _params(module)):
                handle.remove()
                module.register_forward_pre_hook(note, with_kwargs=True)
                note(module, args, {})

        handle = register_module_forward_pre_hook(find)
        weakref.finalize(self, handle.remove)

    def require(self, ranks: float, votes: float, used: Iterable[float], comm: Communicator) -> bool:
        """Return whether to `watch`: the ranks' graphs differ. All ranks call it with the same sums, as in `differ`.

        Raises RuntimeError on every rank if the last call decided by its whole batch on one.
        """
        if comm.silent or not self.differ(int(ranks), votes, used):
            return False
        found = torch.tensor([float(self.call is not None and mixes(*self.call, self.samples))], device=comm.devices[0])
        naive_all_reduce(found, comm)
        if found.item():
            raise RuntimeError(
                "ranks have taken different ways in forward, each by its whole batch, as an early exit by the batch's "
                "mean does, and one process would take one way for all samples; decide by sample, or by a number that "
                "you sum over the ranks; if the first axis of its input is not that of the samples, say how many there "
                "are: samples=lambda x: x.shape[1], or count() of a ShardedOptimizer"
            )
        return True


def _params(module: nn.Module) -> Iterator[torch.Tensor | None]:
    """Yield the parameters of `module` where they are, without a wrapper's notice."""
    return (param for layer in module.modules() for param in dict.values(layer._parameters))


def is_power_of_2(n: int) -> bool:
    return not n & (n - 1)


def split_vote(total: float) -> tuple[float, float]:
    """Return the small number and the votes in their sum."""
    votes, number = divmod(total, VOTE)
    return number, votes


def nodes_made() -> int:
    """Return how many graph nodes this thread has made; 0 in compiled code, which makes the same ones in each call."""
    return 0 if torch.compiler.is_compiling() else torch.autograd._get_sequence_nr()


# -- a sample without its batch ----------------------------------------------------------------------------------------
def mixes(module: nn.Module, args: tuple, kwargs: dict, samples: float | None = None) -> bool:
    """Return whether a sample's output depends on the rest of its batch, in eval mode; False if that cannot be told.

    Rows that are not as many as the `samples` are something else, such as the steps of sequences.
    """
    first = next((x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)), None)
    if first is None or not first.dim() or not len(first) or _has_other_rows(module):
        return False
    n = len(first)
    if samples not in (None, n):
        return False
    trials: list[Trial] = [
        *((partial(_rows, i), slice(i, i + 1), slice(1)) for i in range(min(SINGLE, n))),
        *((partial(_beside, factor, False), slice(n), slice(n)) for factor in FACTORS),
        *((partial(_beside, factor, True), slice(n), slice(n, 2 * n)) for factor in FACTORS),
    ]
    kept = Kept(module)
    with torch.no_grad():
        try:
            drawn = _drawn(module)
            with Coarsest() as coarsest:
                whole = _outputs(module, args, kwargs, n, torch.clone)
            is_random = _drawn(module) != drawn
            depends = partial(_depends, kept, module, args, kwargs, n, whole, coarsest.eps)
            return not is_random and any(map(depends, trials))
        finally:
            kept.put_back()


def _depends(
    kept: "Kept",
    module: nn.Module,
    args: tuple,
    kwargs: dict,
    n: int,
    whole: list[torch.Tensor],
    eps: float,
    trial: Trial,
) -> bool:
    """Return whether a trial's samples have other outputs than in the `whole` batch, computed with rounding `eps`."""
    change, rows, same = trial
    kept.put_back()
    found = _outputs(module, args, kwargs, n, change)
    pairs = [(x, y) for x, y in zip(whole, found, strict=False) if _has_rows(x, n) and y.dim()]
    return any(_differs(x[rows], y[same], eps) for x, y in pairs)


def _rows(i: int, x: torch.Tensor) -> torch.Tensor:
    return x[i : i + 1].clone()


def _beside(factor: float, ahead: bool, x: torch.Tensor) -> torch.Tensor:
    """Return `x`, and behind it or ahead of it as many samples again: `factor` times its floats."""
    others = factor * x if x.is_floating_point() else x
    return torch.cat([others, x] if ahead else [x, others])


def _has_other_rows(module: nn.Module) -> bool:
    """Return whether rows may be no samples, or whether a call would send messages."""
    layers = list(module.modules())
    sends = any(isinstance(x, Communicator) for layer in layers for x in vars(layer).values())
    return sends or any(getattr(layer, "batch_first", True) is False for layer in layers)


def _outputs(module: nn.Module, args: tuple, kwargs: dict, n: int, change: Callable) -> list[torch.Tensor]:
    """Return the output's tensors in eval mode, for a `change` of all tensors of `n` samples; none if it raises."""

    def changed(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return change(x.detach()) if _has_rows(x, n) else x.detach().clone()

    for layer in module.modules():
        layer.training = False
    try:
        outputs = module(*tree_map(changed, args), **tree_map(changed, kwargs))
    except Exception:  # it takes no other number of samples
        return []
    return [x for x in tree_flatten(outputs)[0] if isinstance(x, torch.Tensor)]


def _has_rows(x: torch.Tensor, n: int) -> bool:
    return x.dim() > 0 and len(x) == n


class Coarsest(TorchFunctionMode):
    """Note the rounding `eps` of the coarsest type that a call computes with, also inside an autocast region."""

    eps = 0.0

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, list | tuple) else (found,):
            if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
                self.eps = max(self.eps, torch.finfo(x.dtype).eps)
        return found


def _differs(x: torch.Tensor, y: torch.Tensor, eps: float) -> bool:
    """Return whether two outputs of the same samples are not nearly equal; if they have other shapes, it is unknown."""
    if x.shape != y.shape:
        return False
    exact = not (x.is_floating_point() or x.is_complex())
    near = 0.0 if exact else max(eps, torch.finfo(x.dtype).eps) ** 0.5
    return not torch.allclose(x, y, rtol=near, atol=0.0 if exact else near * float(x.abs().max()), equal_nan=True)


class Kept:
    """What calls of `module` may change: attributes, numbers, and the random numbers that are next."""

    def __init__(self, module: nn.Module):
        self._layers = [(layer, dict(vars(layer)), list(map(dict, _tables(layer)))) for layer in module.modules()]
        self._numbers = [(x, x._version, x.detach().clone()) for x in (*module.parameters(), *module.buffers())]
        self._generators = [(generator, generator.get_state()) for generator in _generators(module)]
        self._drawn = random.getstate(), np.random.get_state()

    def put_back(self) -> None:
        """Undo the changes; to be called without gradients."""
        random.setstate(self._drawn[0])
        np.random.set_state(self._drawn[1])
        for generator, state in self._generators:
            generator.set_state(state)
        for layer, attributes, tables in self._layers:
            vars(layer).clear()
            vars(layer).update(attributes)
            for table, before in zip(_tables(layer), tables, strict=True):
                table.clear()
                table.update(before)
        for i, (x, version, copy) in enumerate(self._numbers):
            if x._version != version:
                x.copy_(copy)
                self._numbers[i] = x, x._version, copy


def _drawn(module: nn.Module) -> list[Any]:
    """Return what changes whenever `module` draws random numbers."""
    states = [x.get_state().numpy().tobytes() for x in _generators(module)]
    return [*states, random.getstate(), str(np.random.get_state(legacy=False))]


def _generators(module: nn.Module) -> list[torch.Generator]:
    """Return torch's generators from which `module` may draw."""
    own = {x: None for layer in module.modules() for x in vars(layer).values() if isinstance(x, torch.Generator)}
    devices = {param.device for param in module.parameters() if param.device.type == "cuda"}
    return [torch.default_generator, *own, *(torch.cuda.default_generators[device.index] for device in devices)]


def _tables(layer: nn.Module) -> Iterable[dict]:
    return layer._parameters, layer._buffers, layer._modules
