"""Pipelines as the checks see them: an event simulation of their own, and what a stage holds.

It shares no line with `hpcdl.cost.pipeline`: stages are tried in turn until none can continue.
"""

from collections import Counter
from typing import NamedTuple

from autograder import checks, show
from autograder.checks.elements import items

Orders = list[list[tuple[str, int, int]]]

WORDS = {"F": "the forward pass", "B": "the backward pass", "W": "the gradient of the weights"}


class Played(NamedTuple):
    """When each op ends, when each stage's first op starts and its last one ends, and who is stuck before which op."""

    ends: dict
    starts: list[float]
    stops: list[float]
    stuck: list[tuple[int, tuple]]

    @property
    def makespan(self) -> float:
        return max(self.stops)

    @property
    def seconds(self) -> float:
        """Of the stage that takes longest from its first op to its last."""
        return max(stop - start for start, stop in zip(self.starts, self.stops, strict=True))


def play(orders: Orders, f: float, b: float, w: float = 0.0, message: float = 0.0) -> Played:
    """f, b and w are seconds of one chunk; where a schedule has no W, its B takes b + w."""
    p, v = len(orders), 1 + max((chunk for order in orders for *_, chunk in order), default=0)
    split = any(op == "W" for order in orders for op, *_ in order)
    seconds = {"F": f, "B": b if split else b + w, "W": w}
    ends: dict[tuple, float] = {}
    starts: list[float | None] = [None] * p
    at, clocks = [0] * p, [0.0] * p
    moved = True
    while moved:
        moved = False
        for i in range(p):
            while at[i] < len(orders[i]):
                op, k, chunk = orders[i][at[i]]
                ready = _ready(ends, op, k, chunk * p + i, p * v, message if p > 1 else 0.0)
                if ready is None:
                    break
                start = max(clocks[i], ready)
                starts[i] = start if starts[i] is None else starts[i]
                clocks[i] = ends[op, k, chunk * p + i] = start + seconds[op]
                at[i], moved = at[i] + 1, True
    waiting = [(i, orders[i][at[i]]) for i in range(p) if at[i] < len(orders[i])]
    return Played(ends, [start or 0.0 for start in starts], clocks, waiting)


def _ready(ends, op: str, k: int, part: int, parts: int, message: float) -> float | None:
    """Return when the input of an op is ready; None while no stage has computed it."""
    if op == "F":
        made = 0.0 if part == 0 else ends.get(("F", k, part - 1))
        return made if made is None or part == 0 else made + message
    if op == "W":
        return ends.get(("B", k, part))
    own = ends.get(("F", k, part))
    if own is None or part == parts - 1:
        return own
    later = ends.get(("B", k, part + 1))
    return None if later is None else max(own, later + message)


def held(order: list) -> int:
    """The most microbatches, by chunk, that a stage holds at a time: each from its F to its W, or its B without W."""
    last = "W" if any(op == "W" for op, *_ in order) else "B"
    now = most = 0
    for op, *_ in order:
        now += (op == "F") - (op == last)
        most = max(most, now)
    return most


def orders_of(got, p: int, m: int, v: int, ops: str, call: str) -> Orders:
    """What `call` returned, if it is one order for each of p stages, with each op of each microbatch and chunk once."""
    if type(got) in (list, tuple):
        got = [_as_list(order) for order in got]
    checks.that(
        type(got) is list and all(type(order) is list for order in got),
        f"{call} is {_short_of(got)}, expected a list with {items(p, 'list')} of ops: one for each stage.",
    )
    checks.length(got, p, name=call, noun="order", why="One for each stage.")
    wanted = {(op, k, chunk) for op in ops for k in range(m) for chunk in range(v)}
    for i, order in enumerate(got):
        _are_ops(order, wanted, f"{call}[{i}]", ops)
    return got


def _short_of(got) -> str:
    """Say what is returned where a list of lists is wanted: of a list, an item that is no list."""
    if type(got) is not list:
        return show.an(show.type_name(got))
    wrong = next((order for order in got if type(order) is not list), None)
    return f"a list of {items(len(got))}, and one of these is {show.show(wrong, 40)}"


def _as_list(order):
    """An order of lists or tuples as a list of tuples; what else it may be as it is."""
    if type(order) is tuple and any(type(op) not in (list, tuple) for op in order):
        return order
    return [tuple(op) if type(op) is list else op for op in order] if type(order) in (list, tuple) else order


def _are_ops(order: list, wanted: set, name: str, ops: str) -> None:
    first = order[: len(wanted) + 1]  # if there are so many, one of them is not wanted or occurs twice
    for op in first:
        checks.that(
            type(op) is tuple and len(op) == 3 and type(op[0]) is str and {type(op[1]), type(op[2])} == {int},
            f'{name} has {show.show(op)}, expected (op, microbatch, chunk), as ("F", 0, 0).',
        )
        checks.that(
            op in wanted,
            f"{name} has {show.show(op)}: the ops are {', '.join(ops)}, microbatches and chunks count from 0.",
        )
    for op, times in Counter(first).items():
        checks.that(times == 1, f"{name} has {op} {times} times: a stage does each op once.")
    missing = sorted(wanted - set(order), key=lambda op: (ops.index(op[0]), op))
    if missing:
        checks.fail(
            f"{name} lacks {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "") + ": "
            f"{WORDS[missing[0][0]]} of microbatch {missing[0][1]} is never done on this stage.",
            got=f"{len(order)} ops",
            expected=f"{len(wanted)} ops",
        )


def can_be_followed(orders: Orders, call: str) -> Played:
    """No stage waits forever; the sentence says which does, and for what."""
    played = play(orders, 1.0, 1.0, 1.0)
    if not played.stuck:
        return played
    p, v = len(orders), 1 + max(chunk for order in orders for *_, chunk in order)
    i, (op, k, chunk) = min(played.stuck, key=lambda stuck: not _needs_own(played, stuck[0], stuck[1], p, v))
    part = chunk * p + i
    own = _needs_own(played, i, (op, k, chunk), p, v)
    needed = ("B" if op == "W" else "F", i, chunk) if own else (op, *divmod(part + (1 if op == "B" else -1), p)[::-1])
    raise checks.CheckFailure(
        f"{call}: no stage can continue. Stage {i} waits before {(op, k, chunk)}, which needs {needed[0]} of "
        f"microbatch {k} "
        + ("on the same stage first." if own else f"from stage {needed[1]}, chunk {needed[2]}; that stage waits, too."),
        got=f"stage {i}: " + " ".join(f"{op}{k}" + (f".{chunk}" if v > 1 else "") for op, k, chunk in orders[i][:12]),
        why="F needs the F of the previous part; B needs the B of the next part and its own F; W needs its own B.",
    )


def _needs_own(played: Played, i: int, op: tuple, p: int, v: int) -> bool:
    """Whether what this op lacks is an op of the same stage, which its order has later."""
    name, k, chunk = op
    part = chunk * p + i
    return name == "W" or (name == "B" and (("F", k, part) not in played.ends or part == p * v - 1))
