"""Gather layers before their use, prefetch the next one meanwhile, and free layers afterwards."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from hpcdl.collectives import naive_all_reduce, recursive_doubling_all_reduce
from hpcdl.comm import Background, Communicator
from hpcdl.comm.errors import MisfitError
from hpcdl.ddp.alike import agree, digest, votes
from hpcdl.sharding.groups import require_same_options
from hpcdl.sharding.unit import Unit

Layer = Sequence[Unit]  # the units that one layer needs whole


OTHER_ORDERS = (
    "ranks have called layers of a FullyShardedDataParallel in other orders, so that weights were mixed up; call the "
    "same layers on every rank and as often, one without samples with an empty batch, name the module that chooses "
    "between them in layers=, so that it is gathered as a whole, or use DistributedDataParallel"
)


class InOrder(Background):
    """A background in which a message that does not fit means that ranks called other layers.

    Where such a message ends the process, ranks compare the `paths` of each call's parameters before it.
    """

    def __init__(self, background: Background):
        self._inner = background

    def start(self, f: Callable[[Communicator], None], paths: Sequence[str] = ()) -> None:
        self._inner.start(partial(_in_order, f, paths))

    def wait(self) -> None:
        self._inner.wait()

    def close(self) -> None:
        self._inner.close()


def _in_order(f: Callable[[Communicator], None], paths: Sequence[str], comm: Communicator) -> None:
    if comm.misfits_abort:
        sums = torch.tensor(votes(digest(paths)), dtype=torch.float64)
        recursive_doubling_all_reduce(sums, comm)
        if not agree(sums.tolist()):
            raise RuntimeError(OTHER_ORDERS)
    try:
        f(comm)
    except MisfitError as error:
        raise RuntimeError(OTHER_ORDERS) from error


class Gathering:
    """Gathers `units` in a background that also runs reductions, in the same order on every rank.

    This pass is expected to use layers in the order of the last pass, forward and then backward: so the next layer is
    gathered while one runs. The first pass only records the order.
    """

    def __init__(self, units: list[Unit], background: Background, ahead: bool = True):
        self.units, self.background, self._prefetch = units, InOrder(background), ahead
        self._orders: dict[bool, list[Layer]] = {}  # of passes with and without a backward pass
        self._training, self._seen, self._expected = False, list[Layer](), list[Layer]()
        self._order: list[int] = []  # of the layers since `order_votes`, by their first units' numbers
        self._number = {id(unit): i for i, unit in enumerate(units)}
        self._ready: list[tuple[Callable[[Communicator], None], Sequence[str]]] = []  # reductions to be started
        self.period = 0  # changes when all units have been freed
        self._ahead: list[Unit] = []  # gathered for the next layer

    def begin(self, training: bool) -> None:
        """Begin a pass, and drop what the last one left."""
        self.end()
        self._training, self._seen = training, []
        self._expected = self._orders.get(training, [])

    def end(self) -> None:
        """Start the ready reductions, and leave every unit with only its shard."""
        self._start_ready()
        self.background.wait()
        for unit in self.units:
            if unit.whole:
                unit.free()
        if self._seen:
            self._orders[self._training] = self._seen
        self._seen, self._ahead = [], []
        self.period += 1

    def acquire(self, layer: Layer) -> None:
        """Return when the layer's units are whole; the next layer's gathers and the reductions are then running."""
        self._drop_wrong_guess(layer)
        self._start(layer)
        self.background.wait()
        for unit in layer:
            unit.enter()
        self._seen.append(layer)
        self._order.append(self._number[id(layer[0])])
        self._start_ready()
        self._ahead = self._start(self._next())

    def release(self, layer: Layer) -> None:
        """Release the layer's units."""
        for unit in layer:
            if unit.active_layers:  # otherwise `end` has freed it
                unit.leave()

    def order_votes(self, options: list[Any]) -> list[float]:
        """Return a rank's part of the sum that `require_same_order` reads: its order since the last call."""
        order, self._order = self._order, []
        return votes(digest([order, options]))

    def later(self, reduction: Callable[[Communicator], None], paths: Sequence[str] = ()) -> None:
        """Start `reduction` while the next layer runs, so that it does not delay that layer's weights."""
        self._ready.append((reduction, paths))

    def _start(self, layer: Layer) -> list[Unit]:
        missing = [unit for unit in layer if not unit.whole]
        for unit in missing:
            unit.allocate()
            self.background.start(unit.gather, ["gather", *unit.paths])
        return missing

    def _start_ready(self) -> None:
        for reduction, paths in self._ready:
            self.background.start(reduction, paths)
        self._ready = []

    def _next(self) -> Layer:
        done = len(self._seen)
        right = self._prefetch and len(self._expected) > done and self._expected[done - 1] is self._seen[-1]
        return self._expected[done] if right else ()

    def _drop_wrong_guess(self, layer: Layer) -> None:
        wrong = [unit for unit in self._ahead if not unit.active_layers and not any(unit is mine for mine in layer)]
        if wrong:
            self.background.wait()
        for unit in wrong:
            unit.free()


def require_same_order(sums: Sequence[float], options: list[Any], comm: Communicator) -> None:
    """Raise RuntimeError on every rank if ranks used layers in different orders, which mixes up their weights.

    Raises ValueError if optimizers stepped the ranks' pieces with other `options`.
    """
    if not agree(sums):
        apart = torch.tensor(votes(digest(options)), dtype=torch.float64, device=comm.devices[0])
        naive_all_reduce(apart, comm)
        require_same_options(apart.tolist())
        raise RuntimeError(OTHER_ORDERS)
