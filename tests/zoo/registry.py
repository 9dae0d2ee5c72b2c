"""The zoo's entries and wrappers: each entry is a model and a training loop, each wrapper trains it on several ranks.

An entry's loop asks a `Kit` for what differs between one process and many: it wraps a model, takes this rank's share of
a batch, and synchronizes. The same loop with a `Serial` kit is the reference. To add a wrapper, subclass `Kit` and
register it with `@wrapper("NAME")`; to add an entry, call `add(...)` in an `entries*.py`.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

Batch = tuple[Any, ...]
Weights = dict[str, torch.Tensor]


class Kit:
    """What a training loop needs of a wrapper. The base class is the reference: one process with the whole batch."""

    def __init__(self, comm: Any = None, entry: "Entry | None" = None):
        self.comm, self.entry = comm, entry
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)

    def wrap(self, module: nn.Module, **options: Any) -> nn.Module:
        """The model to call in the loop; `options` are those that every wrapper takes, such as `samples`."""
        return module

    def inner(self, model: nn.Module) -> nn.Module:
        """The module inside a wrapped model."""
        return model

    elsewhere: frozenset[str] = frozenset()  # entries that are about other wrappers
    alone = False  # a rank may be refused alone, and ends the others
    first: tuple[str, ...] = ()  # what sentences say by which one rank ends the others

    @classmethod
    def trains(cls, entry: "Entry") -> bool:
        """Whether the entry's loop is about this wrapper."""
        return entry.name not in cls.elsewhere

    @classmethod
    def reference(cls, entry: "Entry") -> Weights:
        """The weights after training in one process."""
        return entry.loop(entry, Kit(entry=entry))

    def train(self) -> Weights:
        """The weights after training on several ranks."""
        assert self.entry is not None
        return self.entry.loop(self.entry, self)

    def optimizer(self, model: nn.Module, make: Callable[..., Any], *others: nn.Module) -> Any:
        """`make(parameters)` for what this rank updates of `model`, and of `others` that are wrapped, too."""
        return make(dict.fromkeys(param for each in (model, *others) for param in each.parameters()))

    def share(self, batch: Batch) -> Batch:
        """This rank's rows of the batch; all of them if the entry says `same`."""
        if self.entry is not None and self.entry.same:
            return batch
        return tuple(x.tensor_split(self.size)[self.rank] if isinstance(x, torch.Tensor) else x for x in batch)

    def synchronize(self, *models: nn.Module) -> None:
        """After backward: average the gradients over the ranks."""

    def no_sync(self, model: nn.Module) -> Any:
        """Backward in here only accumulates."""
        return nullcontext()

    def clip(self, model: nn.Module, max_norm: float) -> Any:
        return nn.utils.clip_grad_norm_(model.parameters(), max_norm)

    def weights(self, model: nn.Module) -> Weights:
        """The whole state of `model` by the module's own names, on every rank."""
        return {name: x.detach().clone() for name, x in model.state_dict().items() if isinstance(x, torch.Tensor)}


class Entry(NamedTuple):
    """A model and its training: `batches()` are global, samples first; `loss(model, *batch)` is a mean over samples."""

    name: str
    make: Callable[[], nn.Module]
    batches: Callable[[], list[Batch]]
    loss: Callable[..., torch.Tensor]
    loop: Callable[["Entry", Kit], Weights]
    optimizer: Callable[..., Any]
    options: dict[str, Any]
    same: bool
    tolerance: float

    def build(self) -> nn.Module:
        """The model in float64, the same on every call."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.make()


ENTRIES: dict[str, Entry] = {}
WRAPPERS: dict[str, type[Kit]] = {}


def wrapper(name: str) -> Callable[[type[Kit]], type[Kit]]:
    """Register a kit under its column's name in docs/support.md."""

    def register(kit: type[Kit]) -> type[Kit]:
        WRAPPERS[name] = kit
        return kit

    return register


def sgd(params: Iterable) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, 0.1, momentum=0.9)


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers, the same on every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def words(*shape: int, below: int = 10) -> torch.Tensor:
    """Integers in an order that looks random."""
    return (torch.arange(torch.Size(shape).numel()) * 7 % below).view(shape)


def vectors(width: int = 6, counts: tuple[int, ...] = (7, 6, 8)) -> Callable[[], list[Batch]]:
    """Batches of vectors, of different lengths."""
    return lambda: [(rows(n, width, seed=n),) for n in counts]


def squares(model: nn.Module, *inputs: Any) -> torch.Tensor:
    """The mean over samples of the outputs' mean square, complex outputs too."""
    y = model(*inputs)
    return y.abs().square().mean()


def plain(entry: Entry, kit: Kit) -> Weights:
    """Backward, synchronize, step."""
    model = kit.wrap(entry.build(), **entry.options)
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        optimizer.zero_grad()
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        optimizer.step()
    return kit.weights(model)


def add(
    name: str,
    make: Callable[[], nn.Module],
    batches: Callable[[], list[Batch]] | None = None,
    loss: Callable[..., torch.Tensor] = squares,
    loop: Callable[[Entry, Kit], Weights] = plain,
    optimizer: Callable[..., Any] = sgd,
    options: dict[str, Any] | None = None,
    same: bool = False,
    tolerance: float = 1e-12,
) -> None:
    """Register an entry; its name is its row in docs/support.md."""
    assert name not in ENTRIES, name
    ENTRIES[name] = Entry(name, make, batches or vectors(), loss, loop, optimizer, options or {}, same, tolerance)
