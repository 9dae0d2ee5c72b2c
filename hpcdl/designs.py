"""Students' own pipeline schedules: the file that keeps one, and a table of a class's designs.

A design is a function of (p, m, f, b, w, cap) that returns one order for each stage. The file `NAME` next to the
notebook holds its orders for `PROBLEMS`. It stays on the student's machine until `hpcdl submit --design` hands it in. A
reader plays the orders again, so no score in a file is believed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpcdl.cost.pipeline import play
from hpcdl.files import write_whole
from hpcdl.parallel.schedules import SCHEDULES, Op, Order, in_flight
from hpcdl.parallel.searched import searched

NAME = ".design.json"
LAB = "model_parallel"
MOST_BYTES = 1 << 18
KNOWN = {"1F1B": "one_f_one_b", "ZB-H1": "zb_h1", "ZB-V": "zb_v"}


class ScheduleProblem(NamedTuple):
    """Stages, microbatches, seconds of F, B and W, and the most microbatches that a stage may hold."""

    p: int
    m: int
    f: float
    b: float
    w: float
    cap: int


PROBLEMS = (
    ScheduleProblem(4, 8, 1.0, 1.0, 1.0, 4),
    ScheduleProblem(4, 12, 1.0, 1.25, 0.75, 7),
    ScheduleProblem(6, 18, 1.0, 1.5, 1.0, 4),
)


class DesignError(ValueError):
    """A design or its file cannot be used; the message says why and what to do."""


class Score(NamedTuple):
    """The bubble, a share of the time, and the most microbatches that a stage holds."""

    bubble: float
    held: float


@dataclass(frozen=True)
class Design:
    """A student's orders for each of `PROBLEMS`, under a name of their choice."""

    name: str
    schedules: tuple[list[Order], ...]

    @property
    def scores(self) -> list[Score]:
        """Return the score for each problem; raise DesignError for orders that break the rules."""
        return [score(problem, orders) for problem, orders in zip(PROBLEMS, self.schedules, strict=True)]


def score(problem: ScheduleProblem, orders: list[Order]) -> Score:
    """Play orders of one chunk on each stage; raise DesignError if they are incomplete, stuck, or over the cap."""
    p, m, f, b, w, cap = problem
    wanted = {(op, k, 0) for op in "FBW" for k in range(m)}
    if len(orders) != p or any(len(order) != len(wanted) or set(order) != wanted for order in orders):
        raise DesignError(f"the design for p = {p}, m = {m} is not complete; each stage does every F, B and W once")
    try:
        played = play(orders, f, b, w)
    except ValueError as error:
        raise DesignError(f"the design for p = {p}, m = {m} cannot be followed: {error}") from None
    most = max(map(in_flight, orders))
    if most > cap:
        raise DesignError(
            f"the design for p = {p}, m = {m} holds {most} microbatches; the cap is {cap}, so do W sooner"
        )
    return Score(played.bubble, most)


def made(design: Callable[..., Sequence[Sequence[tuple]]], name: str = "yours") -> Design:
    """Call `design` for each problem; raise DesignError if its orders break the rules."""
    found = Design(name, tuple([[Op(*op) for op in order] for order in design(*problem)] for problem in PROBLEMS))
    assert found.scores
    return found


def keep(design: Design, folder: Path) -> Path:
    """Write the design into `folder` and return the file."""
    texts = [[" ".join(f"{op}{k}" for op, k, _ in order) for order in orders] for orders in design.schedules]
    path = folder / NAME
    write_whole(path, json.dumps({"name": design.name, "schedules": texts}, indent=1))
    return path


def read(path: Path) -> Design:
    """Read a design; raise DesignError if the file is not one, or if its orders break the rules."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 10} KiB")
        content = json.loads(path.read_text(encoding="utf-8"))
        found = Design(
            str(content["name"])[:40], tuple([_order(text) for text in each] for each in content["schedules"])
        )
        assert found.scores
    except DesignError as error:
        raise DesignError(f"{path}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DesignError(f"{path} is not a design ({error}); run the lab's cell that writes {NAME} again") from None
    return found


def kept_in(folder: Path) -> list[Design]:
    """Read the designs in a folder: your own, and other students' in files such as ada.design.json."""
    return [read(path) for path in sorted(folder.glob(f"*{NAME}"))]


def _order(text: str) -> Order:
    return [Op(op[0], int(op[1:])) for op in text.split()]


def known(problem: ScheduleProblem) -> dict[str, Score]:
    """Return the scores of known schedules and of the library's search; ZB-V and 1F1B may be over the cap."""
    p, m, f, b, w, cap = problem
    found = {}
    for label, name in KNOWN.items():
        schedule = SCHEDULES[name]
        each = [seconds / schedule.chunks for seconds in (f, b, w)]
        orders = schedule.orders(p, m)
        bubble = play(orders, *each, parts=schedule.parts(p)).bubble
        found[label] = Score(bubble, max(map(in_flight, orders)) / schedule.chunks)
    orders = searched(p, m, f, b, w, limit=cap)
    return {**found, "searched": Score(play(orders, f, b, w).bubble, max(map(in_flight, orders)))}


def table(designs: Sequence[Design]) -> list[str]:
    """Return the lines of a table of (bubble, memory) by problem; the smallest sum of bubbles comes first."""
    heads = [f"p={p} m={m} F,B,W={f:g},{b:g},{w:g} cap={cap}" for p, m, f, b, w, cap in PROBLEMS]
    others = [known(problem) for problem in PROBLEMS]
    rows = [(name, [each[name] for each in others]) for name in others[0]]
    rows += [(design.name, design.scores) for design in designs]
    rows.sort(key=lambda row: sum(score.bubble for score in row[1]))
    width = max(len(name) for name, _ in rows) + 2
    lines = ["bubble and most microbatches held, (!) over the cap".ljust(width), " " * width + "   ".join(heads)]
    for name, scores in rows:
        cells = [
            f"{100 * each.bubble:5.1f} % {each.held:4g} {'(!)' if each.held > problem.cap else '   '}".ljust(len(head))
            for each, problem, head in zip(scores, PROBLEMS, heads, strict=True)
        ]
        lines.append((name.ljust(width) + "   ".join(cells)).rstrip())
    return lines
