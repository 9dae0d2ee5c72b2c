"""A schedule searched for given seconds and a limit of memory, since the fixed ones suit F = B = W best.

Each stage follows one rule: a backward pass as soon as its input is there, else a forward pass, else a W that waits. A
forward pass may run ahead of the backward passes by `lead` of its stage, and a stage holds no more than its limit. A W
is done first if it fits before the next input arrives, or nearly: a share `patience` of its seconds may be lost. The
search plays the rule with many leads and patiences, and takes the best order (after Qi et al. 2024, "Zero bubble
pipeline parallelism", section 3.1, who search with similar rules).
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import product

from hpcdl.cost.pipeline import play
from hpcdl.cost.timeline import PerChunk, per_chunk
from hpcdl.parallel.schedules import SCHEDULES, Op, Order, in_flight, looped, v_shaped

SLOPES = (4, 5, 6, 7, 8, 12)  # of the leads: quarters of a pass for each stage that follows
PATIENCES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)  # shares of a W's seconds
SWEEPS = 2  # over the stages, with changes to the best choice
Choice = tuple[tuple[int, ...], tuple[float, ...]]  # each stage's lead and patience


def searched(
    p: int,
    m: int,
    forward: PerChunk,
    backward: PerChunk,
    weight: PerChunk,
    *,
    message: float = 0.0,
    limit: int | None = None,
    chunks: int = 1,
) -> list[Order]:
    """Return the orders of `p` stages for `m` microbatches that take the fewest seconds of those tried.

    `forward`, `backward` (of the input), `weight` and `message` are seconds, as for `hpcdl.cost.pipeline.play`. A stage
    holds at most `limit` microbatches at a time, from F to W (default: p, as 1F1B and ZB-H1; 2p is enough for no
    bubble). With `chunks=2` stages have two chunks, `v_shaped`, each half of a microbatch's memory. Raises ValueError
    for a limit below 1 and for other numbers of chunks.
    """
    limit = p if limit is None else limit
    if limit < 1 or limit != int(limit):
        raise ValueError(f"limit is {limit!r}; a stage holds one microbatch or more, such as p = {p}")
    if chunks not in (1, 2):
        raise ValueError(f"chunks is {chunks!r}; a searched schedule has one chunk on each stage, or two in a V")
    costs = [per_chunk(name, each, p, chunks) for name, each in zip("FBW", (forward, backward, weight), strict=True)]
    parts = looped(p) if chunks == 1 else v_shaped(p)

    def orders(choice: Choice) -> list[Order]:
        return _Rule(p, m, costs, message, parts, limit, *choice).orders()

    def seconds(orders: list[Order]) -> float:
        return play(orders, forward, backward, weight, message=message, parts=parts).seconds

    tried: dict[Choice, float] = {}

    def best_of(choices: Iterable[Choice]) -> Choice:
        tried.update({choice: seconds(orders(choice)) for choice in choices if choice not in tried})
        return min(tried, key=lambda choice: tried[choice])

    best = best_of((leads, (patience,) * p) for leads, patience in product(_leads(p, limit, chunks), PATIENCES))
    for i in [*reversed(range(p))] * SWEEPS:
        best = best_of(_changed_at(i, best, limit * chunks))
    return min((*_fixed(p, m, limit, chunks), orders(best)), key=seconds)


def _fixed(p: int, m: int, limit: int, chunks: int) -> Iterator[list[Order]]:
    """Return the fixed schedules of this shape that keep to the limit."""
    for name in ("one_f_one_b", "zb_h1", "zb_h2", "zb_v"):
        orders = SCHEDULES[name].orders(p, m)
        if SCHEDULES[name].chunks == chunks and max(map(in_flight, orders)) <= limit * chunks:
            yield orders


def _leads(p: int, limit: int, chunks: int) -> list[tuple[int, ...]]:
    """Return straight lines of leads, steeper and higher; at most the limit."""
    lines = (
        tuple(min(limit * chunks, chunks * (slope * (p - 1 - i) + 4) // 4 + more) for i in range(p))
        for slope, more in product(SLOPES, (0, 1, 2))
    )
    return list(dict.fromkeys(lines))


def _changed_at(i: int, choice: Choice, most: int) -> Iterator[Choice]:
    """Return what differs from a choice in stage i's patience, or in its lead by one."""
    leads, patiences = choice
    yield from ((leads, (*patiences[:i], other, *patiences[i + 1 :])) for other in PATIENCES)
    for lead in (leads[i] - 1, leads[i] + 1):
        if 1 <= lead <= most:
            yield (*leads[:i], lead, *leads[i + 1 :]), patiences


class _Rule:
    """The rule of this module for one choice of `leads` and `patiences`, played until every op is done."""

    def __init__(self, p, m, costs, message, parts, limit, leads, patiences):
        self.p, self.m, self.costs, self.message, self.parts = p, m, costs, message, parts
        self.limit, self.leads, self.patiences = limit * (len(parts) // p), leads, patiences
        self.mine = [[g for g, (stage, _) in enumerate(parts) if stage == i] for i in range(p)]
        self.arrivals: dict[tuple[str, int], list[float]] = {(op, g): [] for op in "FB" for g in range(len(parts))}
        self.arrivals["F", 0] = [0.0] * m
        self.done = dict.fromkeys(self.arrivals, 0)  # microbatches that passed, by op and part
        self.waiting: list[deque[tuple[int, int]]] = [deque() for _ in range(p)]  # W: microbatch and part
        self.clock, self.held = [0.0] * p, [0] * p

    def orders(self) -> list[Order]:
        """Play the rule: of all stages' next ops, the one that starts soonest comes first."""
        found: list[Order] = [[] for _ in range(self.p)]
        turns = [self._turn(i) for i in range(self.p)]
        while (i := min(range(self.p), key=lambda i: turns[i][0])) is not None and turns[i][0] < math.inf:
            start, op, k, g = turns[i]
            found[i].append(Op(op, k, self.parts[g][1]))
            changed = self._do(i, start, op, k, g)
            for j in {i, changed}:
                turns[j] = self._turn(j)
        return found

    def _turn(self, i: int) -> tuple[float, str, int, int]:
        """Return the next op of stage i with its start; at infinity while it has none."""
        now = self.clock[i]
        ready = []
        for g in self.mine[i]:
            for op in "BF":
                if self.done[op, g] < len(self.arrivals[op, g]) and (op == "B" or self._room(i, g)):
                    start = max(now, self.arrivals[op, g][self.done[op, g]])
                    ready.append((start, op != "B", -g, op))
        start, _, minus_g, op = min(ready, default=(math.inf, True, 0, "W"))
        if self.waiting[i]:
            k, g = self.waiting[i][0]
            if start > now + self.patiences[i] * self.costs[2][i][self.parts[g][1]]:
                return now, "W", k, g
        return start, op, self.done.get((op, -minus_g), 0), -minus_g

    def _room(self, i: int, g: int) -> bool:
        """Return whether stage i may do one more F of its part g: by its lead and by its limit.

        In a V the first chunk leaves room for the second one of each microbatch on its way.
        """
        ahead = sum(self.done["F", each] - self.done["B", each] for each in self.mine[i])
        first, last = self.mine[i][0], self.mine[i][-1]
        reserved = self.done["F", first] + 1 - self.done["F", last] if g == first != last else 0
        return ahead < self.leads[i] and self.held[i] + reserved < self.limit

    def _do(self, i: int, start: float, op: str, k: int, g: int) -> int:
        """Do an op, and return the stage that gets its result."""
        end = self.clock[i] = start + self.costs["FBW".index(op)][i][self.parts[g][1]]
        self.held[i] += (op == "F") - (op == "W")
        if op == "W":
            self.waiting[i].popleft()
            return i
        self.done[op, g] += 1
        if op == "B":
            self.waiting[i].append((k, g))
        there = ("B", g) if (op, g) == ("F", len(self.parts) - 1) else (op, g + (1 if op == "F" else -1))
        if there not in self.arrivals:
            return i
        stage = self.parts[there[1]][0]
        self.arrivals[there].append(end + (self.message if stage != i else 0.0))
        return stage
