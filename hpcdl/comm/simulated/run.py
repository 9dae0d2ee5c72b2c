"""One run of a function on p simulated ranks, and what it returns."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hpcdl.comm.simulated.communicator import SimulatedComm
from hpcdl.comm.simulated.machine import Links, SimulatedMachine
from hpcdl.comm.simulated.reports import deadlock, failure, lost_message
from hpcdl.comm.tracing import Trace


@dataclass(frozen=True)
class Simulation:
    """The results of p ranks, by rank, and their cost: virtual `seconds`, the `trace`, bytes sent by each rank."""

    results: list[Any]
    seconds: float
    trace: Trace
    bytes_sent: list[int]

    def __repr__(self):
        return (
            f"<Simulation of {len(self.results)} ranks: {self.seconds:.3g} s virtual, "
            f"{sum(self.bytes_sent):,} bytes sent, {len(self.trace):,} events>"
        )


def simulate(
    f: Callable,
    p: int,
    *args: Any,
    alpha: float = 0.0,
    beta: float = 0.0,
    gamma: float = 0.0,
    seed: int = 0,
    per_node: int | None = None,
    within: tuple[float, float] | None = None,
    slow: Mapping[int, float] | None = None,
) -> Simulation:
    """Call `f(comm, *args)` on each of `p` ranks, 1 to 1024, and return their results and the cost.

    `alpha` s per message, `beta` s per byte, `gamma` s per byte accumulated. With `per_node` (ranks 0 to `per_node`-1
    share the first node, and so on) and `within`, a separate (alpha, beta), messages inside a node cost that.
    `slow` maps ranks to factors, which multiply the time of `compute` and gamma on them.
    Ranks at the same virtual time run in an order given by `seed`; the same seed replays the same run.
    The ranks share this process: its global variables, the arguments, and torch's global generator (give each rank a
    `torch.Generator` of its own). Raises DeadlockError, CommError, and RankError (from a rank's error).
    """
    if type(p) is not int or not 1 <= p <= 1024:
        raise ValueError(f"simulate: p is {p!r}; the number of ranks is an int from 1 to 1024")
    _check_slow(slow, p)
    links = _links(alpha, beta, gamma, per_node, within)
    threads = torch.get_num_threads()
    # Only one rank runs at a time, but each thread would start its own pool for large tensors.
    torch.set_num_threads(1)
    try:
        return _run(SimulatedMachine(p, links, seed, slow), f, args)
    finally:
        torch.set_num_threads(threads)


def _check_slow(slow: Mapping[int, float] | None, p: int) -> None:
    for rank, factor in ({} if slow is None else slow).items():
        if type(rank) is not int or not 0 <= rank < p:
            raise ValueError(f"simulate: slow names rank {rank!r}; ranks are 0 to {p - 1}")
        if not 0 < factor < math.inf:
            raise ValueError(f"simulate: slow[{rank}] is {factor!r}; a factor is above 0, and 2 is half as fast")


def _links(alpha: float, beta: float, gamma: float, per_node: int | None, within: tuple[float, float] | None) -> Links:
    if (per_node is None) != (within is None) or (per_node is not None and per_node < 1):
        raise ValueError(
            f"simulate: per_node is {per_node!r} and within {within!r}; nodes need both: ranks per node, 1 or more, "
            "and (alpha, beta) between the ranks of one node"
        )
    links = Links(alpha, beta, gamma, per_node or 1, *(within or (alpha, beta)))
    for name, value in links._asdict().items():
        if not value >= 0:
            raise ValueError(f"simulate: {name} is {value!r}; a cost is 0 or more seconds")
    return links


def _run(machine: SimulatedMachine, f: Callable, args: tuple) -> Simulation:
    results = [None] * machine.p

    def body(rank):
        results[rank] = f(SimulatedComm(machine, rank), *args)

    machine.turns.run(body, partial(deadlock, machine))
    if machine.turns.failed:
        number, error = machine.turns.failed
        raise failure(machine.owners[number], error)
    if machine.first_error:
        raise machine.first_error
    if lost := lost_message(machine):
        raise lost
    return Simulation(results, max(machine.turns.clocks), machine.trace, machine.bytes_sent)
