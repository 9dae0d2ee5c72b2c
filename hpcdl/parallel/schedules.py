"""Pipeline schedules as data: for each stage, what it computes and in which order.

An order is a list of `Op(op, microbatch, chunk)`, and a schedule one order per stage. F is a forward pass, B a backward
pass and W the gradient of the weights. If a schedule has W, its B is only the gradient of the input; otherwise B is the
whole backward pass. A stage may hold several chunks of layers; `looped` and `v_shaped` say which.

All follow one pattern: some warm-up forward passes, then alternating backward and forward passes, then the remaining
backward passes. They differ in the number of warm-up passes (bubble against memory), in the order of the chunks, and in
how long W is delayed to fill gaps.

| schedule | bubble, equal stages and free messages | microbatches in flight on stage i |
|---|---|---|
| `gpipe` | (p - 1)(F + B + W) | m |
| `one_f_one_b` | (p - 1)(F + B + W) | p - i |
| `interleaved` | (p - 1)(F + B + W) / v | p + (p - 1 - 2i) / v, at most p (1 + (p - 1) / (p v)) |
| `zb_h1` | (p - 1)(F + B - W) | p |
| `zb_h2` | (p - 1)(F + B - 2W) | 2p - 1 |
| `zb_v` | 0 if F = B = W | p |

`hpcdl.parallel.searched` finds an order for other seconds of F, B and W and for a limit of memory.

m microbatches on p stages with v chunks each; F, B and W are seconds of a whole stage. In flight: from a microbatch's F
to its W. For m >= p (`zb_h2` and `zb_v`: m >= 2p - 1), and W no longer than F and B.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple


class Op(NamedTuple):
    """One step of a stage: "F", "B" or "W" of a microbatch through one of the stage's chunks of layers."""

    op: str
    microbatch: int
    chunk: int = 0


_op = lru_cache(1 << 16)(Op)  # all stages do the same ops: creating each once is faster and saves memory

Order = list[Op]
Turn = tuple[int, int] | None  # microbatch and chunk; None: an empty turn
Place = tuple[int, int]  # stage and chunk


# -- which layers are where -------------------------------------------------------------------------------------------


def looped(p: int, v: int = 1) -> list[Place]:
    """(stage, chunk) of each of the v p parts of the network: 0 to p - 1, and again from 0 for the next chunk."""
    return [(stage, chunk) for chunk in range(v) for stage in range(p)]


def v_shaped(p: int, v: int = 2) -> list[Place]:
    """(stage, chunk) of each of the v p parts: there and back, so stage 0 has the first and the last part."""
    return [(p - 1 - stage if chunk % 2 else stage, chunk) for chunk in range(v) for stage in range(p)]


# -- schedules --------------------------------------------------------------------------------------------------------


def gpipe(p: int, m: int) -> list[Order]:
    """All forward passes, then all backward passes (Huang et al. 2019)."""
    return [_order(*_plain(m), warmup=m) for _ in _stages(p, m)]


def one_f_one_b(p: int, m: int) -> list[Order]:
    """p - i forward passes, then backward and forward in turn (PipeDream-flush, Narayanan et al. 2021)."""
    return [_order(*_plain(m), warmup=p - i) for i in _stages(p, m)]


def interleaved(p: int, m: int, v: int = 2) -> list[Order]:
    """1F1B with v chunks on each stage, `looped`; the microbatches pass in groups of p (Narayanan et al. 2021).

    If p does not divide m, which Megatron-LM does not allow, the groups are as even as possible, with p or more each.
    """
    stages, groups = _stages(p, m, v), _groups(p, m)
    forwards = [(k, chunk) for group in groups for chunk in range(v) for k in group]
    backwards = [(k, v - 1 - chunk) for k, chunk in forwards]
    first = (v - 1) * len(groups[0]) + 1
    return [_order(forwards, backwards, warmup=2 * (p - i - 1) + first) for i in stages]


def zb_h1(p: int, m: int) -> list[Order]:
    """1F1B with W delayed by i microbatches on stage i, so that B reaches earlier stages sooner (Qi et al. 2024)."""
    return [_order(*_plain(m), warmup=p - i, delay=i) for i in _stages(p, m)]


def zb_h2(p: int, m: int) -> list[Order]:
    """`zb_h1` with 2(p - i) - 1 forward passes to warm up, W waiting for 2i microbatches (Qi et al. 2024)."""
    return [_order(*_plain(m), warmup=2 * (p - i) - 1, delay=2 * i) for i in _stages(p, m)]


def zb_v(p: int, m: int) -> list[Order]:
    """Two chunks on each stage, `v_shaped`: no bubble if F = B = W, in the memory of 1F1B (Qi et al. 2024).

    The loss is on stage 0, which had the first part, too. Stage i first fills its share of 2p passes, then does F, B
    and W of one chunk and of the other in turn. At the end 2i of its W passes wait, so that no B waits.
    """
    return [_order(*_there_and_back(p, m, i), warmup=2 * p, delay=0, last_delay=2 * i) for i in _stages(p, m)]


def forward_only(p: int, m: int, v: int = 1) -> list[Order]:
    """No backward passes: evaluation. The microbatches pass in groups of p, as in `interleaved`."""
    order = [_op("F", k, chunk) for group in _groups(p, m) for chunk in range(v) for k in group]
    return [order for _ in _stages(p, m, v)]


def _groups(p: int, m: int) -> list[range]:
    """m microbatches in groups of p or a little more, the first as large as any; one group if they are fewer."""
    count = max(1, m // p)
    ends = [-(-m * n // count) for n in range(count + 1)]
    return [range(*ends[n : n + 2]) for n in range(count)]


def _plain(m: int) -> tuple[list[Turn], list[Turn]]:
    microbatches: list[Turn] = [(k, 0) for k in range(m)]
    return microbatches, microbatches


def _there_and_back(p: int, m: int, i: int) -> tuple[list[Turn], list[Turn]]:
    """Forward and backward passes of stage i by chunk; a turn that falls to a microbatch beyond m stays empty."""
    forwards = [0] * (2 * (p - i) - 1) + [1, 0] * i + [1] * (p - i) + [0, 1] * (m - p)
    backwards = [1] * (p - i) + [0, 1] * (m - p + i) + [0] * (p - i)
    return _numbered(forwards, m), _numbered(backwards, m)


def _numbered(chunks: list[int], m: int) -> list[Turn]:
    """Number the turns of each chunk as its microbatches."""
    counts = [0, 0]
    turns: list[Turn] = []
    for chunk in chunks:
        turns.append((counts[chunk], chunk) if counts[chunk] < m else None)
        counts[chunk] += 1
    return turns


def _order(
    forwards: Sequence[Turn],
    backwards: Sequence[Turn],
    warmup: int,
    delay: int | None = None,
    last_delay: int | None = None,
) -> Order:
    """`warmup` turns forward, then backward and forward in turn.

    With a `delay`, B and W are separate, and W stays that many passes behind; `last_delay` when no forward turn is
    left.
    """
    order = [_op("F", *turn) for turn in forwards[:warmup] if turn]
    waiting: Order = []
    behind = delay  # passes by which W stays behind B; None: they are one
    for n, turn in enumerate(backwards, start=warmup):
        if n >= len(forwards) and last_delay is not None:
            behind = last_delay
        if turn:
            order.append(_op("B", *turn))
            waiting.append(_op("W", *turn))
        if behind is not None and len(waiting) > behind:
            order.append(waiting.pop(0))
        if n < len(forwards) and (turn := forwards[n]):
            order.append(_op("F", *turn))
    return order if delay is None else order + waiting


def _stages(p: int, m: int, v: int = 1) -> range:
    for name, value in (("p", p), ("m", m), ("v", v)):
        if value < 1 or value != int(value):
            raise ValueError(f"{name} is {value!r}; a pipeline has one stage, one microbatch and one chunk or more")
    return range(p)


# -- registry ---------------------------------------------------------------------------------------------------------


class Schedule(NamedTuple):
    """`orders(p, m)` is one order per stage, `parts(p)` is the place of each part of the network; `chunks` is their
    number per stage."""

    orders: Callable[..., list[Order]]
    in_flight: Callable[[int, int, int], int]  # p, m, stage: bound on the chunks between their F and their W
    parts: Callable[..., list[Place]] = looped
    chunks: int = 1


SCHEDULES: dict[str, Schedule] = {
    "gpipe": Schedule(gpipe, lambda p, m, i: m),
    "one_f_one_b": Schedule(one_f_one_b, lambda p, m, i: min(m, p - i)),
    "interleaved": Schedule(interleaved, lambda p, m, i: min(2 * m, len(_groups(p, m)[0]) + 2 * (p - i) - 1), chunks=2),
    "zb_h1": Schedule(zb_h1, lambda p, m, i: min(m, p)),
    "zb_h2": Schedule(zb_h2, lambda p, m, i: min(m, 2 * p - 1)),
    "zb_v": Schedule(zb_v, lambda p, m, i: min(2 * m, 2 * p), v_shaped, chunks=2),
}


def in_flight(order: Sequence[Op]) -> int:
    """Return the most chunks of microbatches that a stage holds at once, each from its F to its W (B if no W)."""
    split = {op[1:] for op in order if op[0] == "W"}
    held = most = 0
    for op, *passed in order:
        held += (op == "F") - (op == "W" or (op == "B" and tuple(passed) not in split))
        most = max(most, held)
    return most
