"""The explorables of lab 02: they respond to every control, label their axes, and say what happens at extremes."""

import itertools

import pytest
import torch

from hpcdl.numerics.descent import mse_loss
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.pictures import descent_path, learning_rates, more_workers, shards

PICTURES = {
    descent_path: {"lr": (0.0, 0.1, 1.0), "beta": (0.0, 0.99), "batch_size": (1, 32), "steps": (0, 60)},
    learning_rates: {"steps": (1, 100), "condition": (1, 30), "beta": (0.0, 0.95)},
    more_workers: {"workers": (1, 32), "slow": (1.0, 8.0), "error": (0.05, 0.5), "kind": ("both", "model", "measured")},
    shards: {"p": (1, 2, 6), "skew": (0.0, 1.0), "rule": (shards.WEIGHTED, shards.PLAIN)},
}
modules = pytest.mark.parametrize("module", PICTURES, ids=lambda module: module.__name__.rpartition(".")[2])


@modules
def test_every_corner_is_drawn_without_warning(module, draws_its_corners):
    draws_its_corners(module.explorable, PICTURES[module])


@modules
def test_every_control_changes_the_picture(module, answers_its_controls):
    # weighted arrows keep their sum whatever the sizes; the plain mean moves
    changes = {"rule": shards.PLAIN} if module is shards else {}
    answers_its_controls(module.explorable, PICTURES[module], **changes)


@modules
def test_axes_have_labels_and_titles(module):
    for axes in module.explorable().picture.axes.values():
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_title(loc="left")


def say(**changes):
    state = {"lr": 0.1, "beta": 0.0, "batch_size": 32, "steps": 30, **changes}
    picture = descent_path.explorable().picture
    picture.render(state)
    return picture


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": 0.0}, "never move"),
        ({"lr": 10.0}, "exceeds 2/λmax = 0.40"),
        ({"lr": 10.0, "beta": 0.99, "steps": 60}, "exceeds 2(1+β)/λmax"),
        ({"lr": 0.45}, "The path diverges"),
        ({"lr": 0.3}, "jumps across the valley"),
        ({"lr": 0.1}, "it would diverge"),
        ({"lr": 0.1, "batch_size": 4}, "downhill only on average"),
        ({"lr": 0.35, "batch_size": 1, "steps": 60}, "some batches of 1 are steeper"),
    ],
)
def test_the_descent_path_says_what_happens(changes, words):
    assert words in say(**changes).caption


def test_the_path_diverges_above_the_stated_limit_and_converges_below_it():
    limit = descent_path.max_stable_lr(descent_path.problem().H)
    above, below = (descent_path.walk(share * limit, 0.0, 32, 60)[1] for share in (1.03, 0.9))
    assert above[-1] > 10 * above[0]
    assert below[-1] < 1e-3 * below[0]


def test_the_curve_is_the_loss_on_all_data_above_its_minimum():
    data = descent_path.problem()
    path, excess = descent_path.walk(0.1, 0.5, 4, 9)
    losses = torch.stack([mse_loss(w, data.X, data.y) for w in path])
    torch.testing.assert_close(excess, losses - mse_loss(data.best, data.X, data.y))


def test_contours_are_lines_of_equal_loss():
    data = descent_path.problem()
    for level, ring in zip(descent_path.LEVELS, data.contours, strict=True):
        offset = torch.from_numpy(ring) - data.best
        height = 0.5 * ((offset @ data.H) * offset).sum(1)
        torch.testing.assert_close(height, torch.full_like(height, level))


def test_losses_turn_upward_just_above_the_limit_only():
    shares = torch.tensor([0.98, 1.02], dtype=torch.float64)
    for beta in (0.0, 0.5, 0.9):
        trace = learning_rates.losses(shares, 400, 5, beta)
        assert trace[-1, 0] < 1e-2
        assert trace[-1, 1] > 1e3


def test_in_a_round_valley_half_the_limit_arrives_in_one_step():
    final = learning_rates.losses(learning_rates.SWEEP, 1, 1, 0.0)[-1]
    assert float(learning_rates.SWEEP[final.argmin()]) == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("p", range(1, shards.MOST + 1))
@pytest.mark.parametrize("skew", [0.0, 0.35, 1.0])
def test_shards_cover_the_data_and_weighted_gradients_add_up(p, skew):
    sizes, contributions, full = shards.arrows(p, skew, shards.WEIGHTED)
    assert sum(sizes) == shards.SAMPLES
    assert min(sizes) >= 1
    assert len(sizes) == p
    torch.testing.assert_close(contributions.sum(0), full)


def test_mean_of_unequal_shards_raises_an_alarm():
    unequal, equal = (
        shards.verdict({"p": 4, "skew": skew, "rule": shards.PLAIN}, sizes, parts.sum(0), full)
        for skew in (1.0, 0.0)
        for sizes, parts, full in [shards.arrows(4, skew, shards.PLAIN)]
    )
    assert isinstance(unequal, Alarm)
    assert not isinstance(equal, Alarm)


@pytest.mark.parametrize(
    ("module", "state"),
    [
        (shards, {"p": 0, "skew": 0.5, "rule": shards.WEIGHTED}),
        (shards, {"p": 99, "skew": 0.5, "rule": shards.WEIGHTED}),
        (learning_rates, {"steps": 0, "condition": 5, "beta": 0.0}),
        (learning_rates, {"steps": 5, "condition": 0, "beta": 0.0}),
    ],
)
def test_impossible_settings_are_a_sentence_in_the_picture(module, state):
    picture = module.explorable().picture
    picture.render(state)
    assert "must" in picture.caption or "cannot share" in picture.caption


BOTH_ENDS = {"steps": 40, "beta": 0.6}  # curves end at the floor and at the ceiling


@pytest.mark.parametrize(
    "state", [{}, {"steps": 1}, {"steps": 100, "condition": 30}, {"steps": 100, "beta": 0.95}, BOTH_ENDS]
)
def test_all_six_learning_rates_are_labelled_and_no_label_hides_another(state):
    explorable = learning_rates.explorable()
    explorable.picture.render({**explorable.state, **state})
    texts = explorable.picture.axes["curves"].texts
    assert sorted(text.get_text() for text in texts) == ["10 %", "102 %", "2 %", "30 %", "60 %", "90 %"]
    boxes = [text.get_window_extent() for text in texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    inside = explorable.picture.axes["curves"].bbox
    assert all(inside.y0 <= box.y0 and box.y1 <= inside.y1 and box.x1 <= inside.x1 for box in boxes)
