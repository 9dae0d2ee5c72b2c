"""The memory meter: a dispatch mode that sees every operation's tensors, and weak references that see them go."""

import threading
import weakref
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

from hpcdl.memory.opaque import opaque
from hpcdl.memory.resizing import watch_resizes

KINDS = ("parameters", "buffers", "gradients", "optimizer states", "activations", "temporaries", "others")
PLAIN = (torch.Tensor, nn.Parameter, FakeTensor)


class Bytes(dict[str, int]):
    """Bytes by kind, and their `total`."""

    @property
    def total(self) -> int:
        return sum(self.values())


class MemoryMeter(TorchDispatchMode):
    """Live and peak bytes of this thread's tensors by kind; see `hpcdl.memory`. A context manager, entered once."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; torch would import its compiler at the first operation, which takes seconds."""
        return False

    def __init__(self, *known: nn.Module | torch.optim.Optimizer | torch.Tensor):
        super().__init__()
        self.highest = Bytes.fromkeys(KINDS, 0)
        self._live = Bytes.fromkeys(KINDS, 0)
        self._total = 0
        self._peak, self._peak_total = Bytes(self._live), 0
        self._sizes: dict[int, tuple[str, int]] = {}  # kind and bytes of a storage, by its address in C++
        self._alive: dict[int, weakref.ref] = {}
        self._parameters: dict[int, torch.Tensor] = {}
        self._optimizers: list[torch.optim.Optimizer] = []
        self._removals: list = []
        for item in known:
            self._learn(item)

    # -- what is read ------------------------------------------------------------------------------------------------

    @property
    def live(self) -> Bytes:
        """Bytes by kind that this thread's tensors hold now."""
        self._recognize()
        return Bytes(self._live)

    @property
    def peak(self) -> Bytes:
        """Bytes by kind when the total was highest."""
        return Bytes(self._peak)

    def is_own(self, storage: torch.UntypedStorage) -> bool:
        """Return whether it counts this memory, and not among what was only read."""
        return self._sizes.get(storage._cdata, ("others",))[0] != "others"

    def reset_peak(self) -> None:
        """Forget earlier peaks: count them from what is live now."""
        self._recognize()
        self.highest = Bytes(self._live)
        self._peak, self._peak_total = Bytes(self._live), self._total

    def mark(self, kind: str, *tensors: torch.Tensor) -> None:
        """Count `tensors` as of `kind` from now on; ValueError for a kind that is not in `KINDS`."""
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; the kinds are {', '.join(KINDS)}")
        for tensor in tensors:
            for storage in _storages(tensor):
                self._count(storage, kind, anew=True)
        self._note_peak()

    # -- what is seen ------------------------------------------------------------------------------------------------

    def __enter__(self):
        self._thread = threading.get_ident()
        for parameter in self._parameters.values():
            if parameter.requires_grad and parameter.is_leaf:
                hook = opaque(self._has_gradient)
                hook.of_hpcdl = True  # wrappers postpone others' hooks
                self._removals.append(parameter.register_post_accumulate_grad_hook(hook).remove)
        self._removals.append(register_optimizer_step_post_hook(opaque(self._has_stepped)).remove)
        self._removals.append(watch_resizes(self._resized))
        self._recognize()
        self._note_peak()
        return super().__enter__()

    def __exit__(self, *error):
        while self._removals:
            self._removals.pop()()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(
            kind not in PLAIN for kind in types
        ):  # a subclass, such as DTensor, first decomposes this into operations on plain tensors
            return NotImplemented
        for tensor in _tensors(args):
            self._see(tensor, "others")
        result = func(*args, **(kwargs or {}))
        kind = "activations" if torch.is_grad_enabled() else "temporaries"
        for tensor in _tensors(result if isinstance(result, (tuple, list)) else (result,)):
            self._see(tensor, kind)
        self._note_peak()
        return result

    def _see(self, tensor: torch.Tensor, kind: str) -> None:
        for storage in _storages(tensor):
            if storage._cdata not in self._sizes:
                self._count(storage, kind)

    def _count(self, storage: torch.UntypedStorage, kind: str, anew: bool = False) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self._alive[key] = weakref.ref(storage, opaque(lambda _: self._gone(key)))
        elif anew:
            self._change(*self._sizes[key], sign=-1)
        self._sizes[key] = (kind, nbytes)
        self._change(kind, nbytes)

    def _change(self, kind: str, nbytes: int, sign: int = 1) -> None:
        self._total += sign * nbytes
        self._live[kind] += sign * nbytes
        if self._live[kind] > self.highest[kind]:
            self.highest[kind] = self._live[kind]

    def _gone(self, key: int) -> None:
        self._alive.pop(key, None)
        self._change(*self._sizes.pop(key), sign=-1)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._sizes:
            self._count(storage, self._sizes[storage._cdata][0], anew=True)
            self._note_peak()

    def _note_peak(self) -> None:
        if self._total > self._peak_total:
            self._peak, self._peak_total = Bytes(self._live), self._total

    # -- what it is --------------------------------------------------------------------------------------------------

    def _learn(self, item: nn.Module | torch.optim.Optimizer | torch.Tensor) -> None:
        if isinstance(item, nn.Module):
            self._parameters |= {id(parameter): parameter for parameter in item.parameters()}
            self.mark("parameters", *item.parameters())
            self.mark("buffers", *item.buffers())
        elif isinstance(item, torch.optim.Optimizer):
            self._optimizers.append(item)
        elif isinstance(item, nn.Parameter):
            self._parameters[id(item)] = item
            self.mark("parameters", item)
        elif isinstance(item, torch.Tensor):
            self.mark("others", item)
        else:
            raise TypeError(f"meter: {item!r} is a {type(item).__name__}; give it modules, optimizers and tensors")

    def _recognize(self) -> None:
        """Find gradients and states that were set without autograd and `step`."""
        for parameter in self._parameters.values():
            self._mark_gradient(parameter)
        for optimizer in self._optimizers:
            self.mark("optimizer states", *_states(optimizer))

    def _has_gradient(self, parameter: torch.Tensor) -> None:
        if threading.get_ident() == self._thread or parameter.is_cuda:  # CUDA's backward has a thread of its own
            self._mark_gradient(parameter)

    def _mark_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is None:  # an earlier hook has removed it
            return
        if not any(self._sizes.get(s._cdata, ("",))[0] == "parameters" for s in _storages(parameter.grad)):
            self.mark("gradients", parameter.grad)  # one that lies in a parameter's memory takes none

    def _has_stepped(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        if threading.get_ident() == self._thread:
            self.mark("optimizer states", *_states(optimizer))


def meter(*known: nn.Module | torch.optim.Optimizer | torch.Tensor) -> MemoryMeter:
    """Return a meter of this thread's tensors; `known` are existing modules, optimizers and tensors.

    Raises TypeError for anything else.
    """
    return MemoryMeter(*known)


def _states(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _tensors(values: Iterable) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _storages(tensor: torch.Tensor) -> tuple[torch.UntypedStorage, ...]:
    """The memory behind a tensor: one storage, its parts' storages if it is sparse, none if it is only a shape."""
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        return ()
    if tensor.layout is torch.strided:
        return (tensor.untyped_storage(),)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices().untyped_storage(), tensor._values().untyped_storage()
    if tensor.layout is torch.sparse_csr:
        parts = tensor.crow_indices(), tensor.col_indices(), tensor.values()
        return tuple(part.untyped_storage() for part in parts)
    raise TypeError(f"the memory meter knows no tensors of layout {tensor.layout}")
