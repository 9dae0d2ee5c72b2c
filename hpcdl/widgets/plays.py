"""What moves in each picture when it plays without a kernel: `steps(name, picture)` gives the settings, frame by frame.

A picture that is not named here moves its first slider from one end to the other, so that a new one plays at once.
"""

import ast
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MOST = 20  # frames of one sweep

Setting = dict[str, Any]  # of controls, by name


def sweep(control: str, *ends: float, count: int = MOST, **others: Any) -> Callable:
    """Move `control` from the first of `ends` to the second (default: from end to end), with `others` set."""
    return lambda controls: [{**others, control: value} for value in _between(controls[control], ends, count)]


def each(control: str, *values: Any, **others: Any) -> Callable:
    """Set `control` to each of `values`, by default to all its options, with `others` set."""
    return lambda controls: [{**others, control: value} for value in values or _options(controls[control])]


PLAYS: dict[str, list[Callable]] = {
    "strides": [each("view")],
    "broadcasting": [each("a", b=(4,))],
    "row_sums": [each("dim", keepdim=False), each("dim", keepdim=True)],
    "bits": [each("x")],
    "grad_steps": [sweep("steps", forget=False), sweep("steps", forget=True)],
    "handing_out": [sweep("asked")],
    "secant": [sweep("h", 1.0, 0.01), sweep("h", 1e-9, 1e-16, count=8)],
    "step_error": [sweep("h")],
    "surface": [sweep("heading")],
    "descent_path": [sweep("steps", 0, 30, lr=0.12), sweep("lr", 0.12, 0.42, count=10, steps=30)],
    "learning_rates": [sweep("steps", 0, 60)],
    "perceptron_plane": [sweep("update", 0, 20)],
    "perceptron_lift": [sweep("t", 0.0, 1.5), sweep("turn", 35, 90, count=8, t=1.5)],
    "perceptron_mlp": [sweep("b2", -1.25, -1.5, count=2, b3=0.0), sweep("b3", -2.0, 2.0, b1=-0.5, b2=-1.5)],
    "any_function": [each("n", 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)],
    "gradient_norms": [sweep("scale", 0.2, 6.0)],
    "three_sets": [each("decay"), each("dropout")],
    "sliding_window": [sweep("step", size=5)],
    "number_line": [sweep("x", 1.0, 2.0)],
    "running_mean": [sweep("n", 1, 200)],
    "low_precision_training": [sweep("fl")],
    "bucket_timeline": [each("megabytes")],
    "topology": [sweep("frame", algorithm="ring"), sweep("frame", algorithm="recursive_doubling")],
    "best_algorithm": [sweep("alpha")],
    "attention_weights": [sweep("temperature", mask=True), each("p", n=1048576)],
    "cut_the_matrix": [each("how")],
    "fill_the_bubble": [sweep("m", 1, 16, schedule="one_f_one_b"), each("schedule", m=8)],
    "who_waits": [each("s")],
    "how_late": [sweep("lr", 0.05, 1.0, count=12, delay=2), sweep("delay", 2, 14, count=12, lr=0.3)],
    "lost_updates": [sweep("p", 1, 6, n=6), each("n", p=4)],
    "under_the_roof": [each("batch"), each("chip", batch=32)],
    "does_it_fit": [each("stage", 0, 1, 2, 3), each("p", stage=3)],
    "speed_up": [each("p")],
    "six_tools": [each("tool")],
    "own_stack": [sweep("solved")],
}


def texts() -> dict[str, str]:
    """The moves of each picture as they are written here."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    table = next(
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
    )
    assert isinstance(table, ast.Dict)  # PLAYS, the only one with a type
    return {ast.literal_eval(key): ast.unparse(move) for key, move in zip(table.keys, table.values, strict=True) if key}


def steps(name: str, controls: dict) -> list[Setting]:
    """The settings of one round, in order."""
    moves = PLAYS.get(name) or [_first_move(controls)]
    return [setting for move in moves for setting in move(controls)]


def apply(controls: dict, setting: Setting) -> None:
    """Set each named control, last the one that moves."""
    for name, value in setting.items():
        controls[name].value = value


def label(name: str, controls: dict) -> str:
    """What moves, in words: "h", "stages p"."""
    moved = [list(setting)[-1] for setting in steps(name, controls)]
    words = [_bar(controls[control]).description.strip(" :=") for control in dict.fromkeys(moved)]
    return " and ".join(filter(None, words))


def _first_move(controls: dict) -> Callable:
    """A player or a stepper before a slider, a slider before a list."""
    ranked = sorted(controls, key=lambda name: _rank(controls[name]))
    return each(ranked[0]) if hasattr(_bar(controls[ranked[0]]), "options") else sweep(ranked[0])


def _rank(control: Any) -> int:
    if hasattr(control, "bar"):
        return 0
    return 1 if hasattr(control, "min") or "Slider" in type(control).__name__ else 2


def _bar(control: Any) -> Any:
    return getattr(control, "bar", control)


def _options(control: Any) -> list:
    found = list(control.options)
    return [option[1] if _is_pair(option) else option for option in found]


def _is_pair(option: Any) -> bool:
    """Whether the option is a label with its value, as a list of ipywidgets may have them."""
    return isinstance(option, tuple) and len(option) == 2 and isinstance(option[0], str)


def _between(control: Any, ends: Iterable[float], count: int) -> list:
    bar = _bar(control)
    is_log = hasattr(bar, "base")
    low, high = tuple(ends) or (bar.min, bar.max)
    if is_log and tuple(ends):
        low, high = math.log10(low), math.log10(high)
    if isinstance(low, int) and isinstance(high, int) and isinstance(bar.value, int):
        return _whole(low, high, count)
    values = [low + (high - low) * k / (count - 1) for k in range(count)]
    return [bar.base**value for value in values] if is_log else values


def _whole(low: int, high: int, count: int) -> list[int]:
    """At most `count` whole numbers from `low` to `high`, both included."""
    count = min(count, abs(high - low) + 1)
    return [round(low + (high - low) * k / max(1, count - 1)) for k in range(count)]
