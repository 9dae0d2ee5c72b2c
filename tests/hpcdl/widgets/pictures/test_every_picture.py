"""The registry of pictures: every module with an `explorable` is in it, and each of them draws and says something."""

import ast
import random
from pathlib import Path

import numpy as np
import pytest

from hpcdl.widgets import pictures
from hpcdl.widgets.pictures import PICTURES

pytestmark = pytest.mark.labs

SIZES = 4.0 * 8 ** np.arange(8)
GIVEN = {"message_cost": ({"one message": (SIZES, 8e-6 + SIZES * 2e-10)},)}  # what a picture needs to be made
every_picture = pytest.mark.parametrize("name", PICTURES)


def made(name: str):
    return PICTURES[name](*GIVEN.get(name, ()))


def has_explorable(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == "explorable" for node in tree.body)


def test_the_registry_names_every_picture():
    folder = Path(pictures.__file__).parent
    assert {path.stem for path in folder.glob("[!_]*.py") if has_explorable(path)} == set(PICTURES)


@every_picture
def test_pictures_have_sentences_and_labels(name):
    shown = made(name)
    assert shown.picture.caption
    assert "cannot be drawn" not in shown.picture.caption
    assert shown.picture.image.tooltip == shown.picture.caption
    labels = [label(control) for control in shown.controls.values()]
    assert all(labels)
    assert len(set(labels)) == len(labels), labels


@pytest.mark.parametrize("name", ["message_cost", "more_workers"])
def test_model_and_measured_share_axes(name):
    """One switch shows either, and nothing but the curves changes."""
    shown, seen = made(name), {}
    for kind in ("both", "model", "measured"):
        shown.controls["kind"].value = kind
        axes = shown.picture.figure.axes[0]
        seen[kind] = len(axes.lines), (axes.get_xlim(), axes.get_ylim())
    assert seen["model"][0] < seen["both"][0] > seen["measured"][0]
    assert len({limits for _, limits in seen.values()}) == 1


@pytest.mark.thinned(1, 3)
@every_picture
def test_after_moves_it_is_to_the_pixel_what_is_drawn_from_nothing(name):
    shown, chance = made(name), random.Random(name)
    canvas = shown.picture.canvas
    for _ in range(6):
        if not move(chance.choice(list(shown.controls.values())), chance):
            continue
        kept = np.array(canvas.canvas.buffer_rgba())
        canvas.forget()
        shown.picture.render(shown.state)
        assert np.array_equal(kept, np.asarray(canvas.canvas.buffer_rgba()))


def move(control, chance: random.Random) -> bool:
    """Move a control to another of its values; False for one that is no slider, choice or tick."""
    if hasattr(control, "index"):
        control.index = chance.randrange(len(control.options))
    elif hasattr(control, "step") and hasattr(control, "max"):
        steps = round((control.max - control.min) / control.step)
        control.value = type(control.value)(control.min + control.step * chance.randint(0, steps))
    elif isinstance(control.value, bool):
        control.value = not control.value
    else:
        return False
    return True


def label(control) -> str:
    """The text beside a control; of a slider with buttons, beside the slider."""
    bar = next((part for part in getattr(control, "children", ()) if hasattr(part, "readout")), control)
    return getattr(bar, "description", "") or getattr(bar, "help", "")
