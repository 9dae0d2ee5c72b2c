"""What lab 04 says about its last experiments, measured with the lab's own solutions."""

import contextlib

import matplotlib.pyplot as plt
import pytest
import torch

from autograder.authors import build
from hpcdl.data import digits
from hpcdl.nn.mlp import initial
from hpcdl.widgets import style
from hpcdl.widgets.pictures import three_sets

pytestmark = pytest.mark.labs


@pytest.fixture(scope="module")
def lab():
    """The names of the solved lab."""
    names: dict = {}
    exec("import torch\nfrom hpcdl.nn.mlp import sigma, sigma_prime", names)
    for source in build.references("backprop").values():
        exec(source, names)
    return names


def held_out_accuracy(lab, widths, scale, batch_size, epochs) -> float:
    split, generator = digits(), torch.Generator().manual_seed(0)
    start = initial(widths, generator, scale)
    weights, biases = lab["train"](split.x.flatten(1), split.y, *start, 2.0, batch_size, epochs, generator)
    zs, _ = lab["feedforward"](weights, biases, split.x_held_out.flatten(1))
    return (zs[-1].argmax(dim=1) == split.y_held_out).float().mean().item()


@pytest.mark.parametrize(
    ("widths", "scale", "batch_size", "epochs", "low", "high"),
    [
        pytest.param((64, 32, 10), 1.0, 32, 30, 0.97, 1.0, id="as the lab trains"),
        pytest.param((64, 32, 10), 1.0, 32, 3, 0.85, 1.0, id="three epochs teach it as much"),
        pytest.param((64, 10), 1.0, 32, 30, 0.94, 0.975, id="without a hidden layer, about 96 %"),
        pytest.param((64, 32, 32, 32, 32, 10), 1.0, 32, 15, 0.0, 0.2, id="four layers of sigmoids stay at chance"),
        pytest.param((64, 32, 10), 0.0, 32, 30, 0.2, 0.45, id="zero weights stop below 45 %"),
        pytest.param((64, 32, 10), 1.0, 1438, 30, 0.8, 0.9, id="one batch an epoch ends at about 85 %"),
    ],
)
def test_the_experiments_end_where_the_lab_says(lab, widths, scale, batch_size, epochs, low, high):
    assert low <= held_out_accuracy(lab, widths, scale, batch_size, epochs) <= high


@pytest.mark.parametrize(
    ("changes", "best", "last"),
    [
        pytest.param({}, 0.85, 0.69, id="85 % at the best epoch, 69 % at the end"),
        pytest.param({"wrong": 0.0}, 0.94, 0.94, id="all labels right: 94 % at the end"),
        pytest.param({"training": 400}, 0.88, 0.84, id="400 digits: 88 % and 84 %"),
        pytest.param({"decay": 0.01}, 0.86, 0.86, id="weight decay 0.01: both 86 %"),
        pytest.param({"decay": 0.03}, 0.32, 0.31, id="weight decay 0.03: 32 % at most"),
        pytest.param({"dropout": 0.5}, 0.825, 0.80, id="dropout 0.5 ends at 80 %"),
        pytest.param({"dropout": 0.8}, 0.49, 0.50, id="dropout 0.8 ends at 50 %"),
    ],
)
def test_the_three_sets_read_what_the_lab_says(changes, best, last):
    run = three_sets.trained(**{"training": 150, "wrong": 0.2, "hidden": 32, "decay": 0.0, "dropout": 0.0, **changes})
    assert run.right["test"] == pytest.approx((best, last), abs=0.015)
    if not changes:
        assert abs(run.best - 26) <= 1
        assert run.right["training"] == pytest.approx((0.76, 0.99), abs=0.015)


@pytest.fixture(scope="module")
def stopping(lab):
    """The lab's cell that stops by patience, with some of its settings changed: its names, after it has run."""
    (cell,) = (code for code in build.code("backprop") if "PATIENCE" in code)
    functions = next(code for code in build.code("backprop") if "def accuracy" in code)
    split = digits()
    given = {"split": split, "X": split.x.flatten(1), "X_held_out": split.x_held_out.flatten(1), "initial": initial}
    accuracy = functions[functions.index("def read") : functions.index("EPOCHS =")]

    def run(**settings):
        names = {**lab, **given, "when_solved": contextlib.nullcontext}
        names.update({"guessed": lambda name: None, "reveal": lambda name, truth: None, "style": style, "plt": plt})
        exec(accuracy, names)
        line = next(line for line in cell.splitlines() if line.startswith("LR, DECAY, PATIENCE, MOST_EPOCHS, WRONG ="))
        changes = "".join(f"; {name} = {value}" for name, value in settings.items())
        exec(cell.replace("HIDDEN = (32,)\n", "").replace(line, f"HIDDEN = (32,); {line}{changes}"), names)
        return names

    return run


@pytest.mark.parametrize(
    ("settings", "stopped", "right", "right_at_the_end"),
    [
        pytest.param({}, 25, 0.947, None, id="as the lab stops"),
        pytest.param({"WRONG": 0.0}, 23, 0.969, None, id="right labels, patience 5: 97 %"),
        pytest.param({"WRONG": 0.0, "PATIENCE": 10}, 68, 0.975, None, id="patience 10: 97.5 %"),
        pytest.param({"WRONG": 0.0, "PATIENCE": 100}, 100, None, 0.98, id="never stopped: 98 %"),
        pytest.param({"PATIENCE": 100}, 100, None, 0.84, id="never stopped, wrong labels: 84 %"),
        pytest.param({"PATIENCE": 100, "DECAY": 0.02}, 100, None, 0.96, id="with the decay: 96 %"),
    ],
)
def test_training_stops_where_the_lab_says(stopping, settings, stopped, right, right_at_the_end):
    names = stopping(**settings)
    test = names["X_held_out"], names["split"].y_held_out
    assert len(names["candidates"][0][2]) == stopped
    if right:
        assert names["accuracy"](*names["best"][:2], *test) == pytest.approx(right, abs=0.008)
    if right_at_the_end:
        assert names["accuracy"](*names["last"][:2], *test) == pytest.approx(right_at_the_end, abs=0.015)


@pytest.mark.parametrize(
    ("widths", "losses", "chosen"),
    [
        pytest.param((4, 32, 128), (0.72, 0.43, 0.42), 128, id="0.72, 0.43 and 0.42"),
        pytest.param((128, 32, 4), (0.43, 0.39, 0.83), 32, id="in the opposite order 32 wins"),
    ],
)
def test_the_width_is_chosen_as_the_lab_says(stopping, widths, losses, chosen):
    names = stopping(HIDDEN=widths)
    assert [min(candidate[2]) for candidate in names["candidates"]] == pytest.approx(losses, abs=0.02)
    assert len(names["best"][0][0]) == chosen


def test_the_best_of_a_thousand_lots_is_as_lucky_as_the_lab_says(capsys):
    (cell,) = (code for code in build.code("backprop") if "scores.argmax" in code)
    split, said = digits(), {}
    names = {"torch": torch, "split": split, "X_held_out": split.x_held_out, "when_solved": contextlib.nullcontext}
    exec(cell, {**names, "guessed": lambda name: None, "reveal": said.__setitem__})
    assert said == {"backprop.lottery": 19}
    assert "and 7.0 % of 359 digits" in capsys.readouterr().out
