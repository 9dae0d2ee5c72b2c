"""A rank's timeline: spans of a step, waits and messages.

On simulated ranks computing takes no virtual time, unless a machine is given: then `hpcdl.cost` predicts it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.training.hybrid.metering import MeteredComm
from hpcdl.training.hybrid.seconds import Pace
from hpcdl.training.hybrid.tracing import Span


class Untimed:
    """No timeline: records nothing, and no virtual time passes."""

    def span(self, name: str, samples: int = 0, microbatch: int = -1) -> AbstractContextManager:
        return nullcontext()

    def chunks(self, chunks: list) -> list:
        return chunks

    def note(self, name: str, start: float, end: float, **more: Any) -> None:
        """Record nothing."""

    def take(self) -> list[Span]:
        return []


class RankTimeline(Untimed):
    """The spans of a rank since the last `take`; all ranks create theirs at the same time.

    `shares` is each local chunk's share of the model's operations, which take virtual time by `pace`. With `whole`, B
    is the whole backward pass, even if a schedule separates W.
    """

    def __init__(self, comm: MeteredComm, shares: list[float], pace: Pace, whole: bool):
        recursive_doubling_all_reduce(torch.zeros(1, device=comm.devices[0]), comm)  # so that all clocks start together
        self.spans: list[Span] = []
        self._comm, self._shares, self._pace, self._origin = comm, shares, pace, comm.clock()
        self._whole = whole
        comm.meter.note = self.note

    def span(self, name: str, samples: int = 0, microbatch: int = -1) -> AbstractContextManager:
        """Record a span around the block, for this number of samples and all of the rank's chunks."""
        each = {"forward": self._pace.forward, "backward": self._pace.backward}.get(name, 0.0)
        seconds = self._pace.update if name == "optimizer" else samples * each * sum(self._shares)
        return self.timed(name, seconds, microbatch)

    @contextmanager
    def timed(self, name: str, seconds: float, microbatch: int = -1) -> Iterator[None]:
        """Let the block take this many seconds if time is virtual."""
        start = self._comm.clock()
        yield
        self._comm.compute(seconds)
        self.note(name, start, self._comm.clock(), microbatch=microbatch)

    def chunks(self, chunks: list) -> list:
        """Return a pipeline's chunks, with their ops recorded."""
        f, b = self._pace.forward, self._pace.backward
        return [
            TimedChunk(chunk, self.timed, share * f, share * b, self._whole)
            for chunk, share in zip(chunks, self._shares, strict=True)
        ]

    def note(self, name: str, start: float, end: float, **more: Any) -> None:
        """Add a span."""
        self.spans.append(Span(name, start - self._origin, end - self._origin, **more))

    def take(self) -> list[Span]:
        """Return the spans since the last call."""
        taken, self.spans = self.spans, []
        return taken


class TimedChunk:
    """A pipeline chunk that records F, B and W as spans, of `f` and `b` seconds per sample, forward and backward.

    Half of `b` is W, unless `whole` puts it into B.
    """

    def __init__(self, chunk: Any, timed: Callable[..., AbstractContextManager], f: float, b: float, whole: bool):
        self.inner, self.module, self.rows_first = chunk, chunk.module, chunk.rows_first
        self._timed, self._forward, self._backward, self._weights = timed, f, b, 0.0 if whole else b / 2
        self._rows: dict[int, int] = {}

    def forward(self, k: int, x: Any) -> Any:
        self._rows[k] = len(x)
        with self._timed("forward", self._forward * self._rows[k], k):
            return self.inner.forward(k, x)

    def backward(self, k: int, dy: Any) -> Any:
        with self._timed("backward", self._backward * self._rows[k], k):
            return self.inner.backward(k, dy)

    def backward_input(self, k: int, dy: Any) -> Any:
        with self._timed("backward", (self._backward - self._weights) * self._rows[k], k):
            return self.inner.backward_input(k, dy)

    def backward_weight(self, k: int) -> None:
        with self._timed("weights", self._weights * self._rows[k], k):
            self.inner.backward_weight(k)
