"""The explorables of lab 03: clicks, steps and every corner of their controls; what the pictures claim is true."""

import itertools

import pytest
import torch

from hpcdl.nn.perceptron import predict, with_bias
from hpcdl.widgets.kit.clicks import data_position
from hpcdl.widgets.pictures import any_function, perceptron_lift, perceptron_mlp, perceptron_plane
from hpcdl.widgets.pictures.perceptron_plane import DATA, MAX_EPOCHS, MAX_POINTS, STARTS, Plane, run

pytestmark = pytest.mark.labs

PICTURES = {
    perceptron_plane: {
        "points": (*DATA.values(), ((0.0, 0.0, -1),), ((1.0, 1.0, 1), (1.0, 1.0, -1)), ((2.9, -2.9, 1),)),
        "update": (0, 10**6),
        "lr": (0.01, 10.0),
        "start": tuple(STARTS),
    },
    perceptron_lift: {"t": (0.0, 0.05, 1.5), "epoch": (0, 1, 40), "turn": (0, 90)},
    perceptron_mlp: {"b1": (-3.0, 0.0), "b2": (-3.0, 0.0), "b3": (-3.0, 3.0)},
    any_function: {"curve": tuple(any_function.FUNCTIONS), "neuron": ("step", "ramp"), "n": (1, 3, any_function.MOST)},
}
modules = pytest.mark.parametrize("module", PICTURES, ids=lambda module: module.__name__.rpartition(".")[2])


@pytest.mark.thinned(1, 2)
@modules
def test_every_corner_of_the_controls_is_drawn_with_a_sentence_that_fits(module, draws_its_corners):
    draws_its_corners(module.explorable, PICTURES[module])


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (perceptron_plane, "data", "XOR"),
        (perceptron_plane, "update", 7),
        (perceptron_plane, "start", "somewhere"),
        (perceptron_lift, "t", 0.0),
        (perceptron_lift, "epoch", 0),
        (perceptron_lift, "turn", 60),
        (perceptron_mlp, "b1", 2.0),
        (perceptron_mlp, "b2", 2.0),
        (perceptron_mlp, "b3", 2.0),
    ],
)
def test_every_control_changes_the_picture(module, name, value):
    explorable = module.explorable()
    before = explorable.picture.image.value
    explorable.controls[name].value = value
    assert explorable.picture.image.value != before


def test_the_rate_matters_only_when_the_start_is_not_zero():
    points = DATA["two clouds"]
    slow, fast = (run(points, lr, STARTS["zero"]) for lr in (0.125, 8.0))
    assert torch.allclose(64 * slow.weights, fast.weights)
    slow, fast = (run(points, lr, STARTS["somewhere"]) for lr in (0.125, 8.0))
    assert slow.samples != fast.samples


@modules
def test_axes_have_labels_and_titles(module):
    for axes in module.explorable().picture.axes.values():
        assert axes.get_title(loc="left")
        if axes.axison:  # the lifted points are seen from the side, without axes
            assert axes.get_xlabel()
            assert axes.get_ylabel()


# Clicks


def click(plane: Plane, x1: float, x2: float, shift: bool = False) -> None:
    """What the page sends for a click at (x1, x2)."""
    axes = plane.picture.axes["plane"]
    px, py = axes.transData.transform((x1, x2))
    width, height = axes.figure.canvas.get_width_height()
    message = {"x": px / width, "y": 1 - py / height, "shift": shift}
    plane.picture.image._handle_custom_msg(message, [])


def test_a_click_adds_a_point_where_it_was_made():
    plane = Plane("nothing yet")
    click(plane, -1.5, 2.0)
    assert plane.points == ((pytest.approx(-1.5), pytest.approx(2.0), 1),)


def test_the_chosen_class_and_shift_decide_the_label():
    plane = Plane("nothing yet")
    click(plane, 1, 1)
    click(plane, -1, -1, shift=True)
    plane.label.value = -1
    click(plane, -1, 1)
    click(plane, 1, -1, shift=True)
    assert [label for _, _, label in plane.points] == [1, -1, -1, 1]


def test_click_on_a_point_removes_it():
    plane = Plane("nothing yet")
    click(plane, 1, 1)
    click(plane, 2, 2)
    click(plane, 1.05, 0.95)
    assert len(plane.points) == 1
    click(plane, 3.4, 0)
    plane.picture.image._handle_custom_msg({"x": 0.99, "y": 0.01, "shift": False}, [])
    assert len(plane.points) == 1


def test_each_click_shows_the_finished_run_on_the_new_points():
    plane = Plane("nothing yet")
    for x1, x2, label in ((1.0, 1.0, -1), (-1.0, 1.0, 1), (-1.0, -1.0, -1), (1.0, -1.0, 1)):
        click(plane, x1, x2, shift=label < 0)
        assert plane.controls["update"].value == plane.controls["update"].children[1].max
    assert "does not settle" in plane.picture.caption


def test_buttons_take_back_and_clear():
    plane = Plane("two clouds")
    n = len(plane.points)
    plane.back.click()
    assert len(plane.points) == n - 1
    plane.clear.click()
    assert plane.points == ()
    assert "Click into the plane" in plane.picture.caption


def test_there_is_an_end_to_clicking():
    plane = Plane("nothing yet")
    plane.set_points(tuple((0.01 * k, 0.0, 1) for k in range(2 * MAX_POINTS)))
    assert len(plane.points) == MAX_POINTS


def test_a_position_outside_of_the_axes_is_none():
    axes = Plane("XOR").picture.axes["plane"]
    assert data_position(axes, 0.0, 0.0) is None


# Sentences


def test_one_class_alone_is_named():
    plane = Plane("nothing yet")
    click(plane, 1, 1)
    assert "only one class" in plane.picture.caption


def test_the_plane_says_how_it_ends():
    plane = Plane("far from the origin")
    assert "It will settle after 20 updates" in plane.picture.caption
    plane.controls["update"].value = 20
    assert "It has settled: epoch 4 passes without an update" in plane.picture.caption
    assert f"It does not settle: epoch {MAX_EPOCHS} still makes" in Plane("XOR").picture.caption
    assert "It does not settle" in Plane("overlapping").picture.caption


def test_the_lift_settles_within_its_bound_at_every_height():
    for t in perceptron_lift.LIFTS:
        history = perceptron_lift.run(t)
        assert history.settled
        assert len(history.samples) <= perceptron_lift.bound(t)


def test_three_thresholds_solve_xor_and_the_picture_says_so():
    network = perceptron_mlp.explorable()
    assert "0 of 4" in network.picture.caption
    network.controls["b1"].value, network.controls["b2"].value = 1.0, 1.0
    assert "sees the classes apart" in network.picture.caption
    network.controls["b3"].value = -1.0
    assert "All four corners are right" in network.picture.caption


def test_the_cut_lies_in_its_plane_and_inside_the_box():
    w = torch.tensor([0.3, -0.5, 0.8, 1.1])
    corners = torch.tensor(perceptron_lift._cut(w))
    assert 3 <= len(corners) <= 6
    assert (w[0] + corners @ w[1:]).abs().max() < 1e-5
    assert corners.abs().max() <= 2.0
    assert perceptron_lift._cut(torch.zeros(4)) == []


@pytest.mark.parametrize("b3", [-0.5, 0.5, -1.75, 1.75])
def test_points_that_land_together_stand_on_their_side_of_the_line(b3):
    for b1, b2 in itertools.product((-3.0, -0.5, 3.0), repeat=2):
        W, v = perceptron_mlp.weights(b1, b2, b3)
        H = perceptron_mlp.hidden(W, torch.tensor(perceptron_mlp.CORNERS)[:, :2])
        places = torch.tensor(perceptron_mlp.beside(H.tolist()))
        assert torch.equal(predict(v, with_bias(places)), predict(v, with_bias(H)))
        assert torch.pdist(places).min() > 0.3, "none hides another"


@pytest.mark.parametrize(("neuron", "order"), [("step", 1), ("ramp", 2)])
def test_twice_the_neurons_halve_the_error(neuron, order):
    for name in ("a wave", "a bell"):
        ratio = any_function.error(name, neuron, 32) / any_function.error(name, neuron, 64)
        assert ratio == pytest.approx(2**order, rel=0.15)


def test_the_networks_of_ramps_meet_the_curve_at_every_threshold():
    for f in any_function.FUNCTIONS.values():
        bias, thresholds, weights = any_function.network(f, "ramp", 9)
        met = any_function.output(bias, thresholds, weights, "ramp", thresholds)
        torch.testing.assert_close(met, f(thresholds))


def test_at_a_jump_ramps_are_no_better_than_steps():
    step, ramp = (any_function.error("a jump", neuron, 64) for neuron in ("step", "ramp"))
    assert 0.5 < step / ramp < 2, "64 or 63 neurons: a third lies between two of them in both"
    for neuron in ("step", "ramp"):
        assert any_function.error("a jump", neuron, 16) / any_function.error("a jump", neuron, 64) < 6, "no order 2"
