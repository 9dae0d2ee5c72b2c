"""Measure the constants of `hpcdl.training.hybrid.here` on this processor: a few seconds, once.

All ranks of a run measure together, because cores share caches, memory and clock. Samples are timed in turns, and
medians count. The cache folder keeps the constants for each processor, version of torch and number of ranks; constants
of a busy machine are used, but not kept. `hpcdl reset speeds` forgets them.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d, gelu

from hpcdl.cluster.launcher import find_launcher
from hpcdl.comm import Communicator
from hpcdl.conv.calibration import PROCESSOR, read, store
from hpcdl.machine import Quiet, cores, processor
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError
from hpcdl.training.hybrid.dry import DryComm
from hpcdl.training.hybrid.here import Call, Curve, Here, Listed

MODEL = 1  # one more if the constants change their meaning
ROUNDS, SECONDS = 21, 5e-4  # of each sample: how often, and how long each time at least
SIZES = (1, 16, 32, 64, 128, 256, 384)  # rows, columns and inner dimension of a product
CHANNELS = (1, 4, 8, 16, 32, 64)  # of a convolution of 3 x 3 on 8 images of 14 x 14
ELEMENTS = (1, 2**10, 2**12, 2**14, 2**16, 2**18, 2**20)
MESSAGE = 2**16  # elements of a long message

Timed = dict[str, Callable[[], object]]


def rates(comm: Communicator) -> Here:
    """Return this processor's constants, kept or measured; every rank calls it, and rank 0's result counts."""
    key = json.dumps([MODEL, processor(), torch.__version__, comm.size])
    known = read(PROCESSOR).get(key) if comm.rank == 0 else None
    found = torch.tensor([float(known is not None)], dtype=torch.float64)
    comm.broadcast(found, 0)
    if found.item():
        return Here(**known) if known else Here()
    quiet = Quiet()
    here = measured(comm)
    if comm.rank == 0 and quiet:
        store(PROCESSOR, read(PROCESSOR) | {key: here._asdict()})
    return here


def measured(comm: Communicator) -> Here:
    """Measure all constants, on one thread of each rank."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        samples = _samples() | _chain()[0]
        seconds = _medians(samples, comm)
        alpha, beta = _messages(comm)
    finally:
        torch.set_num_threads(threads)
    constants: dict[str, Any] = {**_calls(seconds), **_curves(seconds), "alpha": alpha, "beta": beta}
    return Here(**constants)


def _samples() -> Timed:
    """Return calls of products, convolutions and operators on elements, of growing amounts, and of a view."""
    found: Timed = {}
    for n in SIZES:
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        found[f"product {n}"] = partial(torch.mm, a, b, out=out)
    for c in CHANNELS:
        x, w = torch.randn(8, c, 14, 14), torch.randn(c, c, 3, 3)
        found[f"convolution {c}"] = partial(conv2d, x, w, padding=1)
    for n in ELEMENTS:
        x, y = torch.randn(n), torch.randn(n)
        found[f"moved {n}"] = partial(torch.add, x, y)
        found[f"function {n}"] = partial(gelu, x)
    matrix = torch.randn(2, 2, requires_grad=True)
    return found | {"view": matrix.t}


def _chain() -> tuple[Timed, dict[str, list[Call]]]:
    """Return the passes of a chain of tiny layers, which take next to no work, and each pass's calls."""
    net = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())))
    x, optimizer = torch.randn(4, 8), torch.optim.AdamW(net.parameters())

    def both() -> None:
        net(x).sum().backward()

    both()
    passes: Timed = {"forward": lambda: net(x).sum(), "both": both, "update": optimizer.step}
    calls = {}
    for name, run in passes.items():
        run()
        with Listed() as listed:
            run()
        calls[name] = listed.calls
    return passes, calls


def _medians(samples: Timed, comm: Communicator) -> dict[str, float]:
    """Return the median seconds of each sample, timed in turns while all ranks time theirs."""
    often = {name: max(1, int(SECONDS // _seconds(run, 3))) for name, run in samples.items()}
    comm.barrier()
    times = [{name: _seconds(run, often[name]) for name, run in samples.items()} for _ in range(ROUNDS)]
    comm.barrier()
    return {name: statistics.median(each[name] for each in times) for name in samples}


def _seconds(run: Callable[[], object], often: int) -> float:
    begin = time.perf_counter()
    for _ in range(often):
        run()
    return (time.perf_counter() - begin) / often


def _calls(seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds of calls: of a view, and of every other in each pass of the chain."""
    calls, view = _chain()[1], seconds["view"]
    spans = {"forward": seconds["forward"], "backward": seconds["both"] - seconds["forward"]}
    spans["update"] = seconds["update"]
    found = {"view": view}
    for name, span in spans.items():
        own = [call.name == "view" for call in calls["both" if name == "backward" else name] if call.phase == name]
        found[name] = max(0.0, span - sum(own) * view) / own.count(False)
    return found


def _curves(seconds: dict[str, float]) -> dict[str, Curve]:
    """Return the seconds per unit of work, from which the first sample's call is subtracted."""
    amounts = {
        "product": {n: 2 * n**3 for n in SIZES},
        "convolution": {c: 2 * 8 * 14 * 14 * 9 * c * c for c in CHANNELS},
        "moved": {n: 12 * n for n in ELEMENTS},
        "function": {n: 8 * n for n in ELEMENTS},
    }
    found: dict[str, Curve] = {}
    for name, work in amounts.items():
        start, *rest = work
        least = seconds[f"{'product' if name == 'convolution' else name} {start}"]
        found[name] = [(work[n], max(0.0, seconds[f"{name} {n}"] - least) / work[n]) for n in rest]
    return found


def _messages(comm: Communicator) -> tuple[float, float]:
    """Return the seconds of a message between ranks 0 and 1, and of each byte more; zeros for one rank."""
    if comm.size == 1:
        return 0.0, 0.0
    short, long = torch.zeros(1), torch.zeros(MESSAGE)
    times: dict[int, list[float]] = {1: [], MESSAGE: []}
    for _, x in product(range(10 * ROUNDS), (short, long)):
        begin = time.perf_counter()
        for turn in range(2):
            if comm.rank < 2:
                (comm.send if turn == comm.rank else comm.recv)(x, 1 - comm.rank)
        times[x.numel()].append((time.perf_counter() - begin) / 2)
    alpha, more = (statistics.median(each) for each in times.values())
    return alpha, max(0.0, more - alpha) / (4 * (MESSAGE - 1))


def of_run(configuration: Configuration, comm: Communicator) -> Here:
    """Return `rates`; raise ConfigurationError if this processor cannot predict the configuration."""
    if configuration.precision != "fp32":
        raise ConfigurationError(f"--machine here measures fp32, and precision is {configuration.precision}")
    if configuration.ranks > cores():
        needed = f"{configuration.ranks} ranks, {cores()} cores"
        raise ConfigurationError(f"--machine here needs a core for each rank: {needed}")
    return rates(comm)


def of_ranks(configuration: Configuration) -> Here:
    """Return the constants for a plan, from ranks that MPI starts here to measure; raise like `of_run`."""
    if (ranks := configuration.ranks) == 1 or ranks > cores() or configuration.precision != "fp32":
        return of_run(configuration, DryComm(0, 1))
    launcher = find_launcher()
    command = [str(launcher.path), *launcher.options_here, "-n", str(ranks), sys.executable, "-m", __name__]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    except subprocess.SubprocessError:
        raise ConfigurationError(
            f"--machine here could not start {ranks} ranks to measure on: `hpcdl doctor` says why, or run under mpiexec"
        ) from None
    return Here(**json.loads(printed))


def _as_rank() -> None:
    from hpcdl.comm import MPIComm

    comm = MPIComm()
    here = rates(comm)
    if comm.rank == 0:
        print(json.dumps(here._asdict()))


if __name__ == "__main__":
    _as_rank()
