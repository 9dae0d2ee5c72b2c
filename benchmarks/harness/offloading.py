"""An optimizer's step with its states on disk, beside what `hpcdl.cost.offload` says of the link that was measured."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hpcdl.cost import offload
from hpcdl.sharding import Disk, Offloaded


def measure(sizes: list[int], folder: Path, rounds: int) -> dict:
    """Median seconds of Adam's step on parameters of `sizes` elements: in memory, offloaded, and plainly so.

    `predicted` takes updates and the link as each was measured alone, in turns with the steps; what lies between them
    and the figure is what two things at once take from each other: cores, memory's bandwidth, Python's lock.
    """
    params = [nn.Parameter(torch.ones(size)) for size in sizes]
    for param in params:
        param.grad = torch.ones_like(param)
    arms: dict[str, Callable[[], object]] = {
        "in memory": torch.optim.Adam(params).step,
        "offloaded": Offloaded(torch.optim.Adam(params), Disk(folder)).step,
        "offloaded, plainly": Offloaded(torch.optim.Adam(params), Disk(folder), ahead=False).step,
        "link": _there_and_back(max(sizes), folder),
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds + 1):
        for name, step in arms.items():
            times[name].append(_seconds(step))
    median = {name: statistics.median(values[1:]) for name, values in times.items()}
    link = 2 * 8 * max(sizes) / median.pop("link")
    compute = [median["in memory"] * size / sum(sizes) for size in sizes]
    states = [8 * size + 4 for size in sizes]
    predicted = {
        "offloaded": offload.seconds(compute, states, link),
        "offloaded, plainly": offload.seconds(compute, states, link, ahead=False),
    }
    return {"seconds": median, "predicted": predicted, "bytes": sum(states), "bytes per second": link}


def _there_and_back(numel: int, folder: Path) -> Callable[[], None]:
    """Adam's states of a parameter, written to the store and read again."""
    store, states = Disk(folder), [torch.ones(numel), torch.ones(numel)]

    def there_and_back() -> None:
        store.write(0, states)
        store.read(0, states)

    return there_and_back


def _seconds(f: Callable[[], object]) -> float:
    begin = time.perf_counter()
    f()
    return time.perf_counter() - begin
