"""A simulated pipeline schedule: when each op ran, how long each stage idled, and what it held."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Seconds or sizes: one number for all stages, one per stage, or one per chunk of each stage.
PerChunk = float | Sequence[float] | Sequence[Sequence[float]]
Orders = Sequence[Sequence[tuple[str, int, int]]]


class TimelineEvent(NamedTuple):
    """One op of a stage, from `start` to `end` in seconds since the batch began."""

    stage: int
    op: str
    microbatch: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A simulated schedule: when each op of each stage's order started and ended."""

    orders: Orders
    starts: list[list[float]]
    ends: list[list[float]]
    parts: Sequence[tuple[int, int]]

    @property
    def makespan(self) -> float:
        """Return the seconds from the start of the first op to the end of the last."""
        return max(end[-1] for end in self.ends)

    @property
    def seconds(self) -> float:
        """Return the seconds of the slowest stage from its first op to its last: the time between two optimizer
        steps."""
        return max(end[-1] - start[0] for start, end in zip(self.starts, self.ends, strict=True))

    @property
    def bubble(self) -> float:
        """Return the share of `seconds` in which that stage is idle."""
        spans = [end[-1] - start[0] for start, end in zip(self.starts, self.ends, strict=True)]
        longest = spans.index(max(spans))
        busy = sum(end - start for start, end in zip(self.starts[longest], self.ends[longest], strict=True))
        return 1.0 - busy / spans[longest]

    def events(self) -> Iterator[TimelineEvent]:
        """Return every op with its times, stage by stage."""
        for stage, order in enumerate(self.orders):
            for op, start, end in zip(order, self.starts[stage], self.ends[stage], strict=True):
                yield TimelineEvent(stage, *op, start, end)

    def memory(self, activation: PerChunk = 1.0, weight_share: float = 1.0) -> list[float]:
        """Return the most that each stage holds at any time for its backward passes.

        `activation` is what one microbatch leaves in a chunk, from its F to the end of its backward pass. If B and W
        are separate, W still needs `weight_share` of it after B. With the defaults the result counts microbatches in
        flight, by chunk.
        """
        return [
            max(held for _, held in self.memory_curve(i, activation, weight_share)) for i in range(len(self.orders))
        ]

    def memory_curve(
        self, stage: int, activation: PerChunk = 1.0, weight_share: float = 1.0
    ) -> list[tuple[float, float]]:
        """Return (second, held) for each change of what a stage holds; arguments as for `memory`."""
        order, chunks = self.orders[stage], len(self.parts) // len(self.orders)
        size, split = per_chunk("activation", activation, len(self.orders), chunks)[stage], split_backward(order)
        held, curve = 0.0, [(0.0, 0.0)]
        for (op, k, chunk), start, end in zip(order, self.starts[stage], self.ends[stage], strict=True):
            change = {"F": 1.0, "W": -weight_share, "B": weight_share - 1.0 if (k, chunk) in split else -1.0}[op]
            held += change * size[chunk]
            curve.append((start if op == "F" else end, held))
        return curve


def split_backward(order: Sequence[tuple[str, int, int]]) -> set[tuple[int, int]]:
    """Return the (microbatch, chunk) pairs with W separate from B."""
    return {(k, chunk) for op, k, chunk in order if op == "W"}


def per_chunk(name: str, value: PerChunk, stages: int, chunks: int) -> list[list[float]]:
    """Return `value` for each chunk of each stage."""
    rows: list[float | Sequence[float]] = [value] * stages if isinstance(value, (int, float)) else list(value)
    table = [[row] * chunks if isinstance(row, (int, float)) else list(row) for row in rows]
    if len(table) != stages or any(len(row) != chunks for row in table):
        raise ValueError(
            f"{name} is {value!r}; for {stages} stages with {chunks} chunks each it is a number, {stages} numbers, "
            f"or {stages} lists of {chunks}"
        )
    return table
