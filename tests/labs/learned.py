"""That a lab which trains on engines has learned: a cell for its end, and what this must have printed."""

import re

PROBES = {
    "ddp": "print('AT THE END', engines, accuracy, replicas_identical)",
    "own_stack": "print('AT THE END', *((right, same) for right, _, same in results), lines, sep=';')",
}


def assert_learned(slug: str, printed: str) -> None:
    """Fail where the ranks of `slug` learned less than 95 of 100, or not the same, by all that the lab printed."""
    LEARNED[slug](printed, printed.rsplit("AT THE END", 1)[1].strip())


def _ddp(_: str, last: str) -> None:
    engines, accuracy, identical = last.split()
    assert int(engines) == 4
    assert float(accuracy) >= 0.95
    assert identical == "True"


def _own_stack(printed: str, last: str) -> None:
    _, *ranks, lines = last.split(";")
    assert len(ranks) == 4
    for rank in ranks:
        accuracy, same = rank.strip("()").split(", ")
        assert float(accuracy) >= 0.95
        assert same == "True"
    assert lines.endswith("lines, all yours.")
    first, last = (int(count.replace(",", "")) for count in re.findall(r"steps: ([\d,]+) of the weights", printed))
    assert last < 3000 < first, "as one process in float64, after an epoch; no longer after eight"


LEARNED = {"ddp": _ddp, "own_stack": _own_stack}
