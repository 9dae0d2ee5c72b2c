"""Pipeline parallelism: layers split into stages, a batch into microbatches, and the bubble.

Closed forms for equal stages, and `play`, which times any schedule: orders of (op, microbatch, chunk), as in
`hpcdl.parallel.schedules`, with measured seconds of each stage and each message.

Sources: Huang et al. 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism"; Narayanan
et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM"; Qi et al. 2024, "Zero
bubble pipeline parallelism".
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from hpcdl.cost.timeline import Orders, PerChunk, Timeline, per_chunk
from hpcdl.cost.work import check_number, check_numbers

# -- closed forms -----------------------------------------------------------------------------------------------------


def speedup(stages: int, microbatches: int) -> float:
    """K M / (M + K - 1): how much faster K equal stages are than one, for M microbatches. Raises ValueError
    for less than 1."""
    check_numbers(1, stages=stages, microbatches=microbatches)
    return stages * microbatches / (microbatches + stages - 1)


def bubble(stages: int, microbatches: int) -> float:
    """(K - 1) / (M + K - 1): the share of time in which a stage has nothing to do. Raises ValueError for
    less than 1."""
    check_numbers(1, stages=stages, microbatches=microbatches)
    return (stages - 1) / (microbatches + stages - 1)


def seconds(forward: Sequence[float], backward: Sequence[float], microbatches: int, message: float = 0.0) -> float:
    """Return the seconds of one batch forward and then backward, from the seconds of one microbatch on each stage.

    Each way takes sum(t) + (M - 1) max(t): the slowest stage sets the pace. A message between neighbours takes
    `message` seconds. Raises ValueError without a stage, for less than a microbatch, and for seconds below 0.
    """
    for name, stages in (("forward", forward), ("backward", backward)):
        if not stages:
            raise ValueError(f"{name} is {stages!r}; it has the seconds of each stage")
        for i, stage in enumerate(stages):
            check_number(f"{name}[{i}]", stage)
    check_numbers(1, microbatches=microbatches)
    check_numbers(message=message)
    return sum(
        sum(stages) + (microbatches - 1) * max(stages) + (len(stages) - 1) * message for stages in (forward, backward)
    )


def _interleaved(p: int, m: int, f: float, b: float, w: float, v: int = 1) -> float:
    """Return (p - 1)/v of F + B + W; with fewer microbatches than stages there are also gaps between chunks."""
    return (f + b + w) * ((p - 1) / v if m >= p else p - m + (m - 1) / v)


def _zb_h1(p: int, m: int, f: float, b: float, w: float, v: int = 1) -> float:
    """Return ZB-H1's bubble: W fills each gap up to the length of F, except p - m gaps if m < p."""
    fills = min(f, w)
    return (p - 1) * (f + b - fills) + fills * max(0, p - m)


def _zb_h2(p: int, m: int, f: float, b: float, w: float, v: int = 1) -> float:
    """Return ZB-H2's bubble, which has twice as many gaps filled as ZB-H1's."""
    fills = min(f, w)
    if fills > b:
        raise ValueError(f"b is {b}, shorter than f, {f}, and w, {w}; zb_h2's bubble has no closed form then: play it")
    return max(0.0, (p - 1) * (f + b - 2 * fills)) + fills * max(0, 2 * p - 1 - m)


def _zb_v(p: int, m: int, f: float, b: float, w: float, v: int = 2) -> float:
    """Return ZB-V's bubble, by the longest path through both chunks of all stages: 0 if F = B = W and m suffices."""
    if b != w:
        raise ValueError(f"b is {b} and w {w}; zb_v's bubble has a closed form where they are equal: play it")
    few, m = m < p, min(m, 2 * p - 1)
    gaps, turn = 2 * p - 1 - m, 2 * p - 1 - 2 * m  # turn: from the first chunk to the second
    if f <= b:
        swaps = (m - 1) // 2  # of a forward pass for a backward pass, which takes longer
        ways = [(p - m) * f + (p - 1) * b]
        if few:
            ways = [(gaps - swaps) * f + (turn + swaps) * b, (3 * (p - m) - 1) * f + (p - 1) * b]
    else:
        behind = max(1 - p, p - 2 * m + 0.5) if few else 1 - p
        ways = [gaps * f + few * turn * b, 2 * ((p - 1) * f + behind * b)]
    return max(ways) / 2


# Seconds that a stage idles: `f(p, m, F, B, W, v)` for p equal stages, m microbatches and free messages, exactly as
# `play` finds them. F, B and W are of a whole stage with its v chunks; in a prediction B = W. More than
# 2p - 1 microbatches change nothing. Sources: Narayanan et al. 2021; Qi et al. 2024, who have W no longer than F and B.
BUBBLES: dict[str, Callable[..., float]] = {
    "gpipe": lambda p, m, f, b, w, v=1: (p - 1) * (f + b + w),
    "one_f_one_b": lambda p, m, f, b, w, v=1: (p - 1) * (f + b + w),
    "interleaved": _interleaved,
    "zb_h1": _zb_h1,
    "zb_h2": _zb_h2,
    "zb_v": _zb_v,
}


def balance(layers: Sequence[float], stages: int) -> list[int]:
    """Split layers into stages so that the slowest stage is as fast as possible; return `stages + 1` limits, from 0 to
    len.

    `layers` is the seconds of each layer; stage i has layers[limits[i] : limits[i + 1]]. Dynamic programming over the
    first layer of the last stage. Raises ValueError for more stages than layers.
    """
    if not 1 <= stages <= len(layers):
        raise ValueError(f"stages is {stages}; {len(layers)} layers make 1 to {len(layers)} stages")
    before = [0.0]
    for layer in layers:
        before.append(before[-1] + layer)
    best = [(total, [0, stop]) for stop, total in enumerate(before)]  # on one stage: its seconds and limits
    for stage in range(2, stages + 1):
        best = [
            min(
                (max(best[cut][0], before[stop] - before[cut]), [*best[cut][1], stop])
                for cut in range(stage - 1, max(stop, stage))
            )
            for stop in range(len(before))
        ]
    return best[-1][1]


# -- any schedule -----------------------------------------------------------------------------------------------------


def play(
    orders: Orders,
    forward: PerChunk,
    backward: PerChunk,
    weight: PerChunk = 0.0,
    *,
    message: float | Sequence[float] = 0.0,
    parts: Sequence[tuple[int, int]] | None = None,
    blocking: bool = False,
) -> Timeline:
    """Simulate a pipeline: every stage follows its order, and each op starts as soon as its input has arrived.

    `orders` lists each stage's ops (op, microbatch, chunk): F, B, and W if the weights' gradient is separate.
    `forward`, `backward` (of the input) and `weight` are seconds of one microbatch through one chunk; a B without a
    separate W takes backward + weight. `parts` is (stage, chunk) of each part of the network, from first to last
    (default: chunk 0 of all stages, then chunk 1, ...). Between parts on different stages a message takes `message`
    seconds (one number, or one per boundary), while the stages compute; if `blocking`, the sender waits for its end.

    Raises ValueError for an op that appears twice, does not belong to the network, or waits forever.
    """
    p = len(orders)
    parts = _looped(orders) if parts is None else list(parts)
    costs = [
        per_chunk(name, value, p, len(parts) // p)
        for name, value in (("forward", forward), ("backward", backward), ("weight", weight))
    ]
    microbatches = 1 + max((k for order in orders for _, k, _ in order), default=0)
    steps = _steps(parts, costs, _messages(parts, message), microbatches)
    _check(orders, steps)
    starts, ends = _run(orders, steps, microbatches, blocking)
    return Timeline(orders, starts, ends, parts)


class _Step(NamedTuple):
    """An op of a chunk for microbatch 0: `needs` and `sends` are slots in which inputs arrive."""

    needs: int
    seconds: float
    sends: int | None  # microbatch k: k slots further
    message: float
    weight: float = 0.0  # for a B: seconds of W, if W is not a separate op
    allows: int | None = None  # for a B: the slot of its W


def _steps(parts, costs, messages, microbatches) -> dict[tuple[int, str, int], _Step]:
    """Map (stage, op, chunk) to its step."""
    slots = {(op, g): (n * len(parts) + g) * microbatches for n, op in enumerate("FBW") for g in range(len(parts))}
    steps, last = {}, len(parts) - 1
    for g, (i, c) in enumerate(parts):
        forward, backward, weight = (cost[i][c] for cost in costs)
        ahead: tuple[int, float] = (slots["F", g + 1], messages[g]) if g < last else (slots["B", g], 0.0)
        back: tuple[int | None, float] = (slots["B", g - 1], messages[g - 1]) if g else (None, 0.0)
        steps[i, "F", c] = _Step(slots["F", g], forward, *ahead)
        steps[i, "B", c] = _Step(slots["B", g], backward, *back, weight, slots["W", g])
        steps[i, "W", c] = _Step(slots["W", g], weight, None, 0.0)
    return steps


def _run(orders, steps, microbatches, blocking) -> tuple[list[list[float]], list[list[float]]]:
    """Return starts and ends of each stage's ops; a stage that lacks an input continues when it arrives."""
    came: list[float | None] = [None] * (len(steps) * microbatches)
    came[:microbatches] = [0.0] * microbatches  # the batch itself
    starts: list[list[float]] = [[] for _ in orders]
    ends: list[list[float]] = [[] for _ in orders]
    free = [0.0] * len(orders)
    waiting: dict[int, int] = {}  # slot to the stage that waits for it
    ready = deque(range(len(orders)))
    apart = _weights_apart(orders, steps, len(came))
    while ready:
        stage = ready.popleft()
        order, now = orders[stage], free[stage]
        for n in range(len(starts[stage]), len(order)):
            op, k, chunk = order[n]
            needs, duration, sends, message, weight, allows = steps[stage, op, chunk]
            arrival = came[needs + k]
            if arrival is None:
                waiting[needs + k] = stage
                break
            start = max(now, arrival)
            now = start + duration
            if allows is not None:
                if not apart[allows + k]:
                    now += weight
                came[allows + k] = now
            starts[stage].append(start)
            ends[stage].append(now)
            if sends is not None:
                came[sends + k] = now + message
                if sends + k in waiting:
                    ready.append(waiting.pop(sends + k))
                now += message * blocking
        free[stage] = now
    if waiting:
        stage = min(waiting.values())
        op, k, chunk = orders[stage][len(starts[stage])]
        raise ValueError(
            f"orders cannot be followed: stage {stage} waits for the input of {op} of microbatch {k}, chunk {chunk}, "
            f"which never comes; some stage has it too late or not at all"
        )
    return starts, ends


def _weights_apart(orders, steps, slots: int) -> bytearray:
    """Mark the slot of each separate W with 1; a set of a million entries would keep the garbage collector busy."""
    apart = bytearray(slots)
    for stage, order in enumerate(orders):
        for op, k, chunk in order:
            if op == "W":
                apart[steps[stage, op, chunk].needs + k] = 1
    return apart


def _looped(orders) -> list[tuple[int, int]]:
    chunks = 1 + max((chunk for order in orders for *_, chunk in order), default=0)
    return [(stage, chunk) for chunk in range(chunks) for stage in range(len(orders))]


def _messages(parts, message) -> list[float]:
    """Return the seconds between part g and g + 1; 0 between parts on one stage."""
    boundaries = list(pairwise(parts))
    each = [message] * len(boundaries) if isinstance(message, (int, float)) else list(message)
    if len(each) != len(boundaries):
        raise ValueError(f"message has {len(each)} values; {len(parts)} parts have {len(boundaries)} boundaries")
    return [value if here[0] != there[0] else 0.0 for value, (here, there) in zip(each, boundaries, strict=True)]


def _check(orders, steps) -> None:
    for stage, order in enumerate(orders):
        if len(set(order)) < len(order):
            twice = next(op for n, op in enumerate(order) if op in order[:n])
            raise ValueError(f"orders[{stage}] has {tuple(twice)} twice; a stage does each op once")
        for op, k, chunk in order:
            if k < 0 or (stage, op, chunk) not in steps:
                raise ValueError(
                    f"orders[{stage}] has {(op, k, chunk)}; an op is F, B or W of a microbatch from 0 and a chunk that "
                    f"`parts` gives to this stage"
                )
