"""The shell of every picture: what it sends to the page, when it redraws, what it says when drawing fails."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from hpcdl.widgets import Explorable, LiveFigure, style
from hpcdl.widgets.kit import palette
from hpcdl.widgets.kit.controls import checkbox, choice, columns, log_slider, player, slider, stops
from hpcdl.widgets.kit.picture import Picture


def draw_line(state, axes):
    axes.plot([0, 1], [0, state["slope"]])
    axes.set(xlim=(0, 1), ylim=(-5, 5), xlabel="time (s)", ylabel="height (m)")
    return f"The slope is {state['slope']}."


def pixels(picture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.image.value)))


@pytest.fixture
def line():
    return Explorable(draw_line, {"slope": slider("slope", 1, -5, 5)})


def test_moving_a_slider_redraws_the_same_canvas_into_the_same_image(line):
    figure, image, before = line.picture.figure, line.picture.image, pixels(line.picture)
    line.controls["slope"].value = 4
    assert not np.array_equal(before, pixels(line.picture))
    assert line.picture.figure is figure
    assert line.picture.image is image
    assert len(figure.axes) == 1


def test_the_same_state_gives_the_same_pixels_whatever_was_drawn_before(line):
    before = pixels(line.picture)
    for value in (5, -3, 1):
        line.controls["slope"].value = value
    assert np.array_equal(before, pixels(line.picture))


def test_drawing_over_the_frame_equals_a_fresh_one():
    def moving(state, axes):
        axes.bar([0, 1], [1, state["height"]], label="bars")
        axes.scatter([0.2, 0.8], [1, 2])
        axes.set_title(f"height {state['height']}")  # the frame changes with every state
        axes.legend()

    kept, fresh = Picture(moving), Picture(moving)
    for height in (1, 2, 30):
        kept.render({"height": height})
    fresh.render({"height": 1})  # layout is found at the first picture: the same one for both
    fresh.canvas.forget()
    fresh.render({"height": 30})
    assert np.array_equal(pixels(kept), pixels(fresh))


@pytest.mark.parametrize(
    "change",
    [
        lambda axes: axes.set_xlim(0, 9),
        lambda axes: axes.set_yscale("log"),
        lambda axes: axes.set_ylabel("other"),
        lambda axes: axes.set_title("other", loc="left"),
        lambda axes: axes.grid(False),
        lambda axes: axes.set_xticks([0.5], ["half"]),
        lambda axes: axes.spines["left"].set_visible(False),
        lambda axes: axes.set_axis_off(),
        lambda axes: axes.set(aspect="equal", anchor="W"),
        lambda axes: axes.set_title("other", color="red"),
        lambda axes: axes.xaxis.label.set_color("red"),
        lambda axes: axes.tick_params(labelrotation=45),
        lambda axes: axes.invert_yaxis(),
        lambda axes: axes.bar([1], [1]),
        lambda axes: axes.set_facecolor("red"),
    ],
    ids=[
        *("limits", "scale", "label", "title", "grid", "ticks", "spine", "off", "aspect", "title's colour", "colour"),
        *("looks of ticks", "direction", "colour cycle", "background"),
    ],
)
def test_changes_around_the_data_are_redrawn(change):
    def draw(state, axes):
        axes.plot([0.2, 0.4], [0.2, 0.4])
        axes.set(xlim=(0, 1), ylim=(0.1, 1), xlabel="one", ylabel="one", title="one")
        if state["changed"]:
            change(axes)

    picture = Picture(draw)
    picture.render({"changed": False})
    before = pixels(picture)
    picture.render({"changed": True})
    assert not np.array_equal(before, pixels(picture))
    picture.render({"changed": False})
    assert np.array_equal(before, pixels(picture))


def test_unchanged_axes_are_not_redrawn(monkeypatch):
    def two(state, axes):
        axes["left"].plot([0, 1], [0, state["x"]])
        axes["left"].set(xlim=(0, 1), ylim=(0, 9), title=f"x = {state['x']}", ylabel="height")
        axes["right"].plot([0, 1], [1, state["x"]])
        axes["right"].set(xlim=(0, 1), ylim=(0, 9))

    kept, fresh = (Picture(two, layout=[["left", "right"]]) for _ in range(2))
    kept.render({"x": 1})
    fresh.render({"x": 1})
    drawn = []
    for name, axes in kept.axes.items():
        monkeypatch.setattr(
            axes.xaxis, "draw", lambda *a, name=name, draw=axes.xaxis.draw: (drawn.append(name), draw(*a))
        )
    for x in (2, 3, 1000):
        kept.render({"x": x})
    assert drawn == ["left", "right", "left", "left"]  # the first time it is found out where each of them lies
    fresh.canvas.forget()
    fresh.render({"x": 1000})
    assert np.array_equal(pixels(kept), pixels(fresh))


def test_overlapping_axes_are_all_redrawn():
    def wide(state, axes):
        axes["left"].set_title("wide " * state["words"], loc="left")
        axes["right"].plot([0, 1], [1, 2])

    kept, fresh = (Picture(wide, layout=[["left", "right"]]) for _ in range(2))
    for words in (1, 30, 2):
        kept.render({"words": words})
    fresh.render({"words": 1})
    fresh.canvas.forget()
    fresh.render({"words": 2})
    assert np.array_equal(pixels(kept), pixels(fresh))


def test_the_pixels_sent_are_the_pixels_drawn(line):
    drawn = np.asarray(line.picture.canvas.canvas.buffer_rgba())
    assert np.array_equal(pixels(line.picture), drawn[:, :, :3])


def test_the_sentence_is_the_text_of_the_image_and_of_the_saved_notebook(line):
    assert line.picture.image.tooltip == "The slope is 1."
    assert line._repr_mimebundle_()["text/plain"] == "The slope is 1."


def test_without_a_front_end_the_notebook_holds_the_picture_itself(line):
    bundle = line._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == line.picture.image.value
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_exception_in_draw_becomes_a_sentence():
    def fragile(state, axes):
        if state["n"] == 0:
            raise ValueError("no points to draw; add one")
        return draw_line({"slope": state["n"]}, axes)

    explorable = Explorable(fragile, {"n": slider("n", 1, 0, 3)})
    before = pixels(explorable.picture)
    explorable.controls["n"].value = 0
    assert explorable.picture.caption == "This picture cannot be drawn: ValueError: no points to draw; add one"
    explorable.controls["n"].value = 1
    assert np.array_equal(before, pixels(explorable.picture))


def gradient_descent():
    raise NotImplementedError


def test_picture_names_the_function_it_waits_for():
    picture = Picture(lambda state, axes: gradient_descent())
    picture.render({})
    assert picture.caption.startswith("Waiting for your gradient_descent")


def test_alarm_has_its_own_colour():
    picture = Picture(lambda state, axes: state["sentence"])
    picture.render({"sentence": "all is well"})
    calm = picture.figure.texts[0].get_color()
    picture.render({"sentence": style.Alarm("it diverges")})
    assert (calm, picture.figure.texts[0].get_color()) == (style.INK, style.ALARM)


def test_dollars_are_kept_and_sentences_wrapped():
    picture = Picture(lambda state, axes: "costs $5 and $6 " * 12)
    picture.render({})
    lines = picture.figure.texts[0].get_text().splitlines()
    assert len(lines) > 1
    width = picture.figure.texts[0].get_window_extent().width
    assert width < picture.figure.bbox.width


def test_named_axes_come_as_a_dict():
    seen = {}
    Picture(lambda state, axes: seen.update(axes), layout=[["left", "right"]]).render({})
    assert set(seen) == {"left", "right"}


def test_every_control_passes_its_value_to_draw():
    states = []
    controls = {
        "a": slider("whole", 2, 0, 5),
        "b": slider("real", 0.5, 0.0, 1.0, 0.1),
        "c": log_slider("log", 0.1, 0.001, 10),
        "d": choice("choice", ["x", "y"], "y"),
        "e": stops("stops", [1, 2, 4], 4),
        "f": checkbox("box", True),
        "g": player("steps", 3, 0, 9),
    }
    explorable = Explorable(lambda state, axes: states.append(state), controls)
    assert states == [{"a": 2, "b": 0.5, "c": 0.1, "d": "y", "e": 4, "f": True, "g": 3}]
    controls["g"].children[1].value = 7  # the bar beside the play button
    assert states[-1]["g"] == explorable.state["g"] == 7


def test_a_live_figure_merges_updates_and_draws_the_last_one():
    drawn = []
    live = LiveFigure(lambda state, axes: drawn.append(state["n"]), seconds=60)
    for n in range(5):
        live.update({"n": n})
    assert drawn == [0]
    live.finish()
    assert drawn == [0, 4]


def test_live_figure_says_that_it_waits(capsys):
    live = LiveFigure(lambda state, axes: "something")
    live.show()
    assert live.caption == "Waiting for the first numbers."
    assert len(live.image.value) > 1000
    capsys.readouterr()


def test_a_live_figure_of_an_unsolved_exercise_leaves_no_empty_frame(monkeypatch):
    shown = []
    handle = type("Handle", (), {"update": lambda self, bundle, raw: shown.append(bundle)})()
    monkeypatch.setattr("hpcdl.widgets.kit.live.display", lambda bundle, **_: shown.append(bundle) or handle)
    with pytest.raises(NotImplementedError), LiveFigure(lambda state, axes: ""):
        gradient_descent()
    assert shown[-1] == {"text/plain": ""}


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("colour", [style.INK, style.ALARM, style.GREY])
def test_text_has_the_contrast_that_wcag_asks_for(colour, dark):
    text, card = (luminance(palette.value(name, dark)) for name in (colour, style.CARD))
    darker, lighter = sorted([text, card])
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("colour", style.CYCLE)
def test_lines_and_marks_stand_out_from_the_card(colour, dark):
    line, card = (luminance(palette.value(name, dark)) for name in (colour, style.CARD))
    assert max(line, card) + 0.05 >= 2.0 * (min(line, card) + 0.05)


def test_controls_form_columns_of_one_width():
    """Drop-down lists and checkboxes line up with the sliders; a slider with buttons gets its own row."""
    shown = [slider("x", 1, 0, 2), choice("much longer", ["a"], "a"), checkbox("forget", False), player("t", 0, 0, 9)]
    layout = columns(shown, "960px")
    assert [control.style.description_width for control in shown[:2]] == ["94px"] * 2
    assert [control.layout.width for control in shown[:2]] == ["auto", "max-content"]
    assert [control.layout.grid_area for control in shown] == [None, None, None, "auto / 1 / auto / -1"]
    assert layout.grid_template_columns == "repeat(auto-fill, minmax(min(100%, 294px), 1fr))"
    assert "310px" in columns([choice("a", ["b" * 40], "b" * 40)], "").grid_template_columns
    assert "200px" in columns([], "").grid_template_columns
