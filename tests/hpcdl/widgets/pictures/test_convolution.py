"""The pictures of lab 05: what they show is what the algorithms do, at every corner of their controls."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from autograder.exercises.convolution.counts import counted
from hpcdl.conv import Problem
from hpcdl.cost import convolution as cost
from hpcdl.widgets.pictures import conv_gradient, convolution_race, sliding_window, winograd_products
from hpcdl.widgets.pictures.convolution_race import KERNELS
from hpcdl.widgets.pictures.sliding_window import Sliding

pytestmark = pytest.mark.labs


def race(**runs):
    """The race of functions that are over at once: pictures are tested here, not speed."""
    return convolution_race.explorable(runs or {"direct": torch.add, "torch": torch.sub})


def raced():
    runs = dict.fromkeys(convolution_race.LOOKS, lambda x, w: None)
    return convolution_race.explorable(runs)


PICTURES = {
    "sliding_window": (
        sliding_window.explorable,
        {"step": (0, 1, 4), "size": (3, 4, 5), "window": (1, 2, 3), "stride": (1, 2)},
    ),
    "winograd_products": (winograd_products.explorable, {"step": (0, 13, 36), "m": (2, 4), "output": (1, 2, 4)}),
    "convolution_race": (raced, {"channels": (1, 8, 32), "batch": (1, 8), "kind": ("both", "model", "measured")}),
    "conv_gradient": (conv_gradient.explorable, {"pixel": tuple(range(1, 10)), "weight": (1, 2, 3, 4)}),
}
pictures = pytest.mark.parametrize("name", PICTURES)


@pytest.fixture(autouse=True)
def a_short_race(monkeypatch):
    monkeypatch.setattr(convolution_race, "SECONDS", 1e-4)


@pictures
def test_every_corner_is_drawn_without_warning(name, draws_its_corners):
    make, values = PICTURES[name]
    draws_its_corners(make, values, most=18)


@pictures
def test_every_control_changes_the_picture(name, answers_its_controls):
    make, values = PICTURES[name]
    answers_its_controls(make, values, **({"step": 4} if name == "sliding_window" else {}))


@pictures
def test_axes_have_titles(name):
    for axes in PICTURES[name][0]().picture.axes.values():
        assert axes.get_title(loc="left")


def caption(explorable, **changes):
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


# The window


@pytest.mark.parametrize("sliding", [Sliding(3, 2, 1), Sliding(5, 3, 2), Sliding(4, 1, 2), Sliding(5, 2, 2)])
def test_the_window_sees_what_torchs_unfold_sees(sliding):
    pixels = torch.arange(float(sliding.size**2)).view(1, 1, sliding.size, sliding.size)
    columns = torch.nn.functional.unfold(pixels, sliding.window, stride=sliding.stride)[0].T
    assert [sliding.seen(place) for place in range(sliding.across**2)] == columns.int().tolist()


def test_the_lectures_example_is_spelled_out():
    shown = sliding_window.explorable()
    assert caption(shown, step=1) == "Place 1 of 4: P = αA + βB + γD + δE."
    assert caption(shown, step=2) == "Place 2 of 4: Q = αB + βC + γE + δF."
    assert caption(shown, step=3) == "Place 3 of 4: R = αD + βE + γG + δH."
    last = caption(shown, step=4)
    assert last.startswith("Place 4 of 4: S = αE + βF + γH + δJ.")
    assert "16 copies of 9 pixels" in last
    assert "16 of 36 numbers" in last


def test_the_player_ends_where_the_window_has_no_further_place():
    shown = sliding_window.explorable()
    shown.controls["size"].value = 5
    assert all(part.max == 16 for part in shown.controls["step"].children)
    shown.controls["step"].children[1].value = 16
    shown.controls["window"].value = 3
    assert shown.state["step"] == 9


# Winograd's products


@pytest.mark.parametrize("m", [2, 4])
def test_the_signs_of_the_products_give_the_outputs(m):
    from hpcdl.kernels.winograd_transforms import DATA, TAPS

    def both(transform, x):
        rows = np.array(transform(list(x)))
        return np.array(transform(list(rows.T))).T

    rng = np.random.default_rng(0)
    d, g = rng.normal(size=(m + 2, m + 2)), rng.normal(size=(3, 3))
    products = both(TAPS[m], g) * both(DATA[m], d)
    right = conv2d(torch.tensor(d)[None, None], torch.tensor(g)[None, None]).flatten()
    assert np.allclose(winograd_products.signs(m) @ products.flatten(), right)


def test_the_sentence_compares_both_ways():
    shown = winograd_products.explorable()
    assert "Direct: 9 products for each of 4 outputs, 36. Winograd: 16" in caption(shown, step=0)
    assert "the direct way has 1 of 4 outputs, Winograd none" in caption(shown, step=15)
    assert "Winograd has all 4 outputs since product 16, the direct way 1" in caption(shown, step=16)
    assert "36 products against 16" in caption(shown, step=36)
    assert "144 products against 36" in caption(shown, step=36, m=4)


# The race


def test_a_move_measures_every_kernel_once_and_says_what_it_is_doing():
    runs, said = [], []
    shown = convolution_race.explorable({"fft": lambda x, w: runs.append(w.shape)})
    shown.picture.image.observe(lambda _: said.append(shown.picture.caption), "tooltip")
    first = len(runs)
    shown.controls["channels"].value = 4
    assert {shape[2] for shape in runs[first:]} == set(KERNELS)
    assert {shape[0] for shape in runs[first:]} == {4}
    assert said[0].startswith("Measuring: 0 of 8 kernels")
    again = len(runs)
    shown.controls["channels"].value = 8
    assert len(runs) == again, "what was measured once is kept"


def test_what_would_take_too_long_is_left_out():
    problem = Problem(1, 8, 32, 32, 8, 15, 15)
    before = {13: {"direct": 0.07, "fft": 0.07, "torch": 0.001}}
    found = convolution_race.measure(dict.fromkeys(("direct", "fft", "torch"), lambda x, w: None), problem, before)
    assert set(found) == {"fft", "torch"}
    assert convolution_race.expected("direct", problem, {1: {"fft": 1.0}}) == math.inf


def test_crossover_is_where_fourier_stays_fastest():
    times = {kernel: {"direct": kernel**2, "fft": 30.0, "torch": 0.1} for kernel in KERNELS}
    assert convolution_race.crossover(times) == 7
    times[15]["direct"] = 1.0
    assert convolution_race.crossover(times) is None
    assert convolution_race.crossover({1: {"fft": 1.0}}) is None, "not before all are measured"


def test_winograd_races_at_3x3_only():
    shown = race(winograd_4x4=lambda x, w: None, direct=lambda x, w: None)
    times = shown.measured[8, 1]
    assert [kernel for kernel in KERNELS if "winograd_4x4" in times[kernel]] == [3]


@pytest.mark.parametrize("algorithm", cost.COSTS)
@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 2, "padding": 2}])
def test_the_labs_counts_are_those_of_the_library(algorithm, options):
    if "winograd" in algorithm and "stride" in options:
        pytest.skip("Winograd's algorithm is for stride 1")
    problem = Problem(2, 3, 9, 8, 4, 3, 3, **options)
    run = counted(algorithm, torch.ones(problem.x_shape), torch.ones(problem.w_shape), **options)
    library = cost.cost(algorithm, problem)
    assert (run.multiplications, run.bytes) == (library.products, library.nbytes)


# The way back


def test_the_sums_of_the_way_back_are_those_of_autograd():
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(1, 1, n, n, generator=generator, requires_grad=True) for n in (3, 2))
    dy = torch.randn(1, 1, 2, 2, generator=generator)
    dx, dw = torch.autograd.grad(conv2d(x, w), (x, w), dy)
    pixels, weights, outputs = (t.detach().flatten() for t in (x, w, dy))
    own_dx = [sum(weights[i] * outputs[o] for i, o in conv_gradient.to_pixel(pixel)) for pixel in range(9)]
    own_dw = [sum(pixels[i] * outputs[o] for i, o in conv_gradient.to_weight(weight)) for weight in range(4)]
    assert torch.allclose(torch.stack(own_dx), dx.flatten())
    assert torch.allclose(torch.stack(own_dw), dw.flatten())


def test_the_way_back_of_the_lectures_example_is_spelled_out():
    shown = conv_gradient.explorable()
    said = caption(shown, pixel=5, weight=1)
    assert said == "dE = δ dP + γ dQ + β dR + α dS. dα = A dP + B dQ + D dR + E dS."
    assert caption(shown, pixel=9, weight=4) == "dJ = δ dS. dδ = E dP + F dQ + H dR + J dS."


def test_what_lies_under_a_window_is_what_the_sentence_adds_up(monkeypatch):
    tables = []
    monkeypatch.setattr(conv_gradient, "table", lambda axes, labels, *_, **__: tables.append(np.ravel(labels)))
    shown = conv_gradient.explorable()
    for pixel, weight in ((1, 1), (2, 2), (5, 3), (6, 4), (9, 1)):
        tables.clear()
        said = caption(shown, pixel=pixel, weight=weight)
        ringed, _, image, _ = tables
        sums = [part.partition(" = ")[2].split(" + ") for part in said.rstrip(".").split(". ")]
        assert [[label for label in labels if " d" in label] for labels in (ringed, image)] == sums
        assert sum(" 0" in label for label in ringed) == 4 - len(sums[0])
