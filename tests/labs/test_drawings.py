"""Schedules drawn in the labs' prose are the ones that the library plays."""

import re
from pathlib import Path

import pytest

from hpcdl.cost import pipeline
from hpcdl.parallel.schedules import SCHEDULES

SOURCES = Path(__file__).resolve().parents[2] / "labs" / "source"
DRAWN = re.compile(r"(?:^#     stage \d+ .*\n)+", re.MULTILINE)
CELL = re.compile(r"[FBW]\d|\.(?= |$)")


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of each stage, without the dots at the end."""
    rows = [CELL.findall(re.split(r" {5,}", line.split(maxsplit=3)[3])[0]) for line in text.splitlines()]
    return [row[: max(i for i, cell in enumerate(row, start=1) if cell != ".")] for row in rows]


def drawn(name: str, p: int, m: int) -> list[list[str]]:
    """Return what the library draws: ops of one second each, a dot where a stage waits."""
    orders = SCHEDULES[name].orders(p, m)
    apart = any(op == "W" for order in orders for op, *_ in order)
    timeline = pipeline.play(orders, 1.0, 1.0, 1.0 if apart else 0.0)
    rows = []
    for order, starts in zip(orders, timeline.starts, strict=True):
        row = ["."] * (round(starts[-1]) + 1)
        for (op, microbatch, _), start in zip(order, starts, strict=True):
            row[round(start)] = f"{op}{microbatch}"
        rows.append(row)
    return rows


DRAWINGS = [
    pytest.param(found[0], id=f"{path.stem}:{found.start()}")
    for path in sorted(SOURCES.glob("*.py"))
    for found in DRAWN.finditer(path.read_text(encoding="utf-8"))
]


def test_the_drawings_are_found():
    assert len(DRAWINGS) >= 3


@pytest.mark.parametrize("text", DRAWINGS)
def test_drawing_is_a_played_schedule(text):
    rows = rows_of(text)
    m = 1 + max(int(cell[1:]) for row in rows for cell in row if cell != ".")
    assert rows in [drawn(name, len(rows), m) for name in ("gpipe", "one_f_one_b", "zb_h1")]


def test_drawing_of_the_link_follows_its_rule():
    """Lab `sharding`: 4 seconds of link and 6 of computing for each of 4 layers, room for 2."""
    (source,) = SOURCES.glob("*_sharding.py")
    text = source.read_text(encoding="utf-8")
    link, compute = re.search(r"^(# +room for 2 .*)\n(.*)$", text, re.MULTILINE).groups()
    zero, come, done = link.index("0000"), [], []
    for i in range(4):
        room = done[i - 2] if i >= 2 else 0
        come.append(max(room, come[-1] + 4 if come else 0))
        done.append(max(come[i] + 4, done[-1] if done else 0) + 6)
    assert [link.index(str(i) * 4) - zero for i in range(4)] == come
    assert [compute.index(str(i) * 6) + 6 - zero for i in range(4)] == done
