"""The explorables of lab 04: they respond to every control, show right numbers, and say what happens at extremes."""

import numpy as np
import pytest
import torch

from hpcdl.nn import mlp
from hpcdl.nn.value import Value, backward
from hpcdl.widgets import style
from hpcdl.widgets.kit.stepper import Stepper
from hpcdl.widgets.pictures import backprop, backprop_steps, gradient_norms, three_sets, value_graph
from hpcdl.widgets.pictures.backprop_steps import STAGES, STEP, passes, short

pytestmark = pytest.mark.labs

CORNERS = {
    backprop: {
        "stage": range(STEP + 1),
        "x1": (-10.0, 1.0, 10.0),
        "x2": (-10.0, 10.0),
        "y": (0.0, 0.59, 1.0),
        "lr": (0.0, 50.0),
    },
    gradient_norms: {"depth": (2, 3, 40), "scale": (0.0, 0.1, 1.4, 8.0)},
    value_graph: {"step": range(5)},
    three_sets: {
        "training": (50, 150, 400),
        "wrong": (0.0, 0.2, 0.3),
        "hidden": (4, 32, 64),
        "decay": (0.0, 0.01, 0.03),
        "dropout": (0.0, 0.5, 0.8),
    },
}
modules = pytest.mark.parametrize("module", CORNERS, ids=lambda module: module.__name__.rpartition(".")[2])


def texts(picture) -> str:
    return "\n".join(text.get_text() for axes in picture.figure.axes for text in axes.texts)


@pytest.mark.thinned(1, 2)
@modules
def test_every_corner_is_drawn_without_warning(module, draws_its_corners):
    draws_its_corners(module.explorable, CORNERS[module], most=40)


@modules
def test_every_control_changes_the_picture(module):
    explorable = module.explorable()
    if module is backprop:  # at the last stage every number has its say
        explorable.controls["stage"].bar.value = STEP
    for name, values in reversed(CORNERS[module].items()):
        before = explorable.picture.image.value
        control = getattr(explorable.controls[name], "bar", explorable.controls[name])
        control.value = next(value for value in values if value != control.value)
        assert explorable.picture.image.value != before, name


def test_the_picture_of_backpropagation_lights_the_four_equations_in_turn():
    equations = [stage.equation for stage in STAGES]
    assert equations == sorted(equations)
    assert set(equations) >= {1, 2, 3, 4}
    assert [stage.layer for stage in STAGES[:4]] == [1, 2, 3, 4]  # forward, a layer at each click
    assert [stage.layer for stage in STAGES[4:7]] == [4, 3, 2]  # and back


def test_its_numbers_are_those_of_autograd():
    run = passes(1.0, 0.5, 0.0, 2.0)
    parameters = [p.clone().requires_grad_() for p in (*run.weights, *run.biases)]
    _, activations = mlp.feedforward(parameters[:3], parameters[3:], run.activations[0])
    cost = 0.5 * ((activations[-1] - run.target) ** 2).sum()
    torch.testing.assert_close([*run.grads, *run.deltas], list(torch.autograd.grad(cost, parameters)))
    assert run.before == pytest.approx(cost.item())
    assert run.after < run.before


def test_each_edge_shows_its_weight_then_its_gradient_then_its_new_weight(monkeypatch):
    picture, run, shown = backprop.explorable().picture, passes(1.0, 0.5, 0.0, 2.0), set()
    monkeypatch.setattr(backprop, "words", lambda axes, labels, **look: shown.update(label[2] for label in labels))
    state = {"x1": 1.0, "x2": 0.5, "y": 0.0, "lr": 2.0}
    for stage, numbers in ((0, run.weights), (STEP - 2, run.grads), (STEP, run.new_weights)):
        shown.clear()
        picture.render({**state, "stage": stage})
        for number in torch.cat([W.flatten() for W in numbers]):
            assert short(number) in shown


def test_words_are_centred_at_their_places_in_their_colours():
    from hpcdl.widgets.kit.canvas import Canvas
    from hpcdl.widgets.kit.words import words

    canvas = Canvas((2, 1))
    canvas.axes.set(xlim=(0, 2), ylim=(0, 1))
    canvas.axes.axis("off")
    words(canvas.axes, [(0.5, 0.5, "808", "#ff0000"), (1.5, 0.5, "−1.5", "#0000ff")], size=12)
    canvas.png()
    pixels = np.asarray(canvas.canvas.buffer_rgba()).astype(int)
    for x, own, other in ((0.5, 0, 2), (1.5, 2, 0)):
        rows, columns = np.nonzero(pixels[:, :, own] - pixels[:, :, other] > 60)
        place = canvas.axes.transData.transform((x, 0.5))
        assert abs((columns.min() + columns.max() + 1) / 2 - place[0]) < 2
        assert abs(pixels.shape[0] - (rows.min() + rows.max() + 1) / 2 - place[1]) < 2
        assert 7 <= rows.max() - rows.min() + 1 <= 14  # 12 points are 17 pixels, a digit three quarters of them


def test_what_the_lab_says_about_the_learning_rate_and_saturation_holds():
    assert passes(1.0, 0.5, 0.5, 12.0).after < passes(1.0, 0.5, 0.5, 12.0).before
    assert passes(1.0, 0.5, 0.5, 16.0).after > passes(1.0, 0.5, 0.5, 16.0).before
    saturated = backprop_steps.sentence(passes(10.0, 10.0, 0.0, 2.0), 6)
    assert "saturated" in saturated
    assert isinstance(saturated, style.Alarm)


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.0, "0.00"), (-0.5, "−0.50"), (0.01234, "0.012"), (12.34, "12.3"), (2e-5, "2e−5"), (-1e-12, "−1e−12")],
)
def test_numbers_in_pictures_are_short(x, text):
    assert short(torch.tensor(x, dtype=torch.float64)) == text


def test_the_gradient_of_deep_sigmoids_vanishes_and_that_of_relu_does_not():
    sigmoid, relu = (gradient_norms.measure(name, 20, 1.4)[0] for name in gradient_norms.NETWORKS)
    assert sigmoid[0] / sigmoid[-1] < 1e-8
    assert 0.1 < relu[0] / relu[-1] < 10
    deep, _ = gradient_norms.measure("ReLU", 40, 1.4)
    assert deep.min() > 0.1
    assert deep.max() < 10


def test_no_initial_size_saves_the_sigmoid():
    for scale in np.arange(0.5, 8.01, 0.5):
        norms, slopes = gradient_norms.measure("sigmoid", 40, float(scale))
        assert norms[0] / norms[-1] < 0.05
        assert slopes.mean() < 0.25
    assert gradient_norms.measure("sigmoid", 40, 8.0)[1].mean() < gradient_norms.measure("sigmoid", 40, 2.0)[1].mean()


def test_a_sentence_names_zero_weights_and_explosion():
    assert "All weights are 0" in gradient_norms.verdict(10, 0.0)
    assert "explodes to 10" in gradient_norms.verdict(40, 8.0)
    assert gradient_norms.power_of_ten(2e-9) == "10⁻⁹"


def test_step_with_dropout_is_autograds():
    data, generator = three_sets.sets(50, 0.2), torch.Generator().manual_seed(3)
    w, decayed = three_sets.start(16, generator)
    kept = (torch.rand(50, 16, generator=generator) >= 0.5) / 0.5
    assert set(kept.unique().tolist()) == {0.0, 2.0}  # those that stay say twice as much
    w.requires_grad_()
    network = three_sets.layers(w, 16)
    h, logits = three_sets.forward(network, data.x)
    truth = torch.nn.functional.one_hot(data.labels, 10)
    for mask, said in ((None, logits), (kept, (h * kept) @ network[1].T + network[3])):
        (expected,) = torch.autograd.grad(torch.nn.functional.cross_entropy(said, data.labels), w, retain_graph=True)
        torch.testing.assert_close(three_sets.gradient(network, data.x, truth, h, logits, mask), expected)
    assert (int(decayed.sum()), len(decayed)) == (64 * 16 + 16 * 10, len(w))
    assert decayed[-26:].sum() == 0, "a bias decays"


def test_three_sets_share_no_digit_and_wrong_labels_are_wrong():
    clean, taught = three_sets.sets(400, 0.0), three_sets.sets(400, 0.3)
    assert [len(labels) for labels in clean[1::2]] == [400, 359, 359]
    rows = torch.cat(clean[::2])
    assert len(rows.unique(dim=0)) == len(rows)
    assert (clean.labels != taught.labels).float().mean() == pytest.approx(0.3, abs=0.06)
    assert all(torch.equal(a, b) for a, b in zip(clean[2:], taught[2:], strict=True))


def test_the_loss_is_marked_where_it_is_lowest_on_the_validation_set():
    run = three_sets.trained(150, 0.2, 32, 0.0, 0.0)
    assert run.validation[run.best] == run.validation.min() < run.validation[-1] / 1.5
    assert run.training[-1] < run.training[run.best] / 5
    assert "Stopped at epoch 26" in three_sets.sentence(run)
    assert "lowest at the end" in three_sets.sentence(three_sets.trained(150, 0.0, 32, 0.0, 0.0)._replace(best=100))
    worst = three_sets.trained(50, 0.3, 64, 0.0, 0.0)
    assert worst.validation.max() < 3.5, "a curve runs into the legend"


def test_the_sweep_in_the_picture_ends_with_the_gradients_of_backward():
    y = value_graph.example()
    steps = value_graph.explorable().controls["step"].bar.max
    swept, _ = value_graph.gradients(y, steps)
    backward(y)
    held, _ = value_graph.gradients(y, None)
    assert swept == pytest.approx(held)


def test_the_graph_of_a_value_shows_its_gradients_or_asks_for_them():
    a, b = Value(2.0, "a"), Value(-3.0, "b")
    y = a * b + a
    assert "has backward(...) been called" in value_graph.picture(y).picture.caption
    backward(y)
    assert "grad −2.00" in texts(value_graph.picture(y).picture)


def test_a_graph_too_large_to_read_says_so():
    y = Value(1.0)
    for _ in range(5000):
        y = y + 1
    caption = value_graph.picture(y).picture.caption
    assert "10,001 nodes" in caption
    assert value_graph.picture(Value(3.0)).picture.caption  # and the smallest one is drawn


def test_the_stepper_moves_by_one_and_stops_at_its_ends():
    stepper = Stepper("stage", 0, 0, 2)
    assert stepper.back.disabled
    for expected in (1, 2, 2):
        stepper.next.click()
        assert stepper.value == expected
    assert stepper.next.disabled
    stepper.back.click()
    assert (stepper.value, stepper.bar.value, stepper.next.disabled) == (1, 1, False)
