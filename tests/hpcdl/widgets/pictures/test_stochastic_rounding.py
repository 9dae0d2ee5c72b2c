"""The pictures of lab 06: every control matters, what they say is true, and the stored runs are what they claim."""

import itertools

import numpy as np
import pytest
import torch

from hpcdl.nn.low_precision import MODES, Epoch
from hpcdl.numerics.rounding import BF16, FP8_E4M3, Fixed
from hpcdl.training import low_precision_runs
from hpcdl.widgets.kit.number_formats import FORMATS, numbers
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.pictures import low_precision_training, number_line, running_mean, stalling_sum

pytestmark = pytest.mark.labs

SOME = ("fixed point ⟨4, 4⟩", "FP8 E4M3", "float16")
PICTURES = {
    "number_line": (number_line, {"format": SOME, "x": (-10.0, -0.3, 0.0, 1.25, 10.0), "width": (0.002, 1.0, 20.0)}),
    "running_mean": (running_mean, {"n": (1, 400), "x": (-2.0, 0.0, 1.3), "format": SOME, "seed": (0, 20)}),
    "stalling_sum": (stalling_sum, {"steps": (1, 600), "term": (0.0005, 0.04), "format": tuple(stalling_sum.FORMATS)}),
    "low_precision_training": (
        low_precision_training,
        {
            "wl": (8, 16),
            "fl": (5, 6),
            "mode": ("both", *MODES),
            "live": ({}, {"16 6 nearest": [[Epoch(1, 2, 0.1, 0)]]}),
        },
    ),
}
pictures = pytest.mark.parametrize("name", PICTURES)


@pytest.mark.thinned(1, 2)
@pictures
def test_every_corner_is_drawn_without_warning(name, draws_its_corners):
    module, values = PICTURES[name]
    make = module.explorable
    draws_its_corners(make, values, most=12)


@pictures
def test_every_control_changes_the_picture(name, answers_its_controls):
    module, values = PICTURES[name]
    make = module.explorable
    answers_its_controls(make, values, **({"fl": 6} if name == "low_precision_training" else {}))


@pictures
def test_axes_have_titles_and_units(name):
    for axes in PICTURES[name][0].explorable().picture.axes.values():
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()
        assert axes.get_ylabel()


def caption(module, **changes):
    explorable = module.explorable()
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


# Numbers


@pytest.mark.parametrize(("fmt", "count"), [(Fixed(4, 4), 256), (FP8_E4M3, 253), (BF16, 65279), (Fixed(4, 12), 65536)])
def test_a_format_has_as_many_numbers_as_its_codes_say(fmt, count):
    # E4M3: 256 codes less 2 NaN and one of two zeros; BF16: 65,536 less 2 x 128 of infinity's exponent, and a zero.
    found = numbers(fmt)
    assert len(found) == count
    assert (np.diff(found) > 0).all()
    assert (found[0], found[-1]) == (fmt.min, fmt.max)


def test_the_number_line_names_neighbours_odds_and_what_saturates():
    said = caption(number_line, format="fixed point ⟨4, 4⟩", x=1.30)
    assert "between 1.25 and 1.3125" in said
    assert said.endswith("To nearest: 1.3125. At random: up with odds 80 %, down with 20 %.")
    assert "It stays what it is" in caption(number_line, format="fixed point ⟨4, 4⟩", x=1.25)
    explorable = number_line.explorable()
    assert isinstance(number_line.draw({**explorable.state, "x": 9.0}, explorable.picture.axes), Alarm)


def test_the_random_mean_beats_the_nearest_one_in_the_end():
    said = caption(running_mean, x=1.30, n=400, format="FP8 E4M3")
    assert "at random is better by now" in said
    assert "to nearest by 0.05" in said


# Sums


@pytest.mark.parametrize("name", stalling_sum.FORMATS)
def test_sums_at_random_stay_near_the_exact_one_in_every_format(name):
    nearest, stochastic = stalling_sum.sums(stalling_sum.FORMATS[name])
    for place, term in enumerate(stalling_sum.TERMS):
        exact = term * stalling_sum.STEPS
        gap = float(stalling_sum.FORMATS[name].quantum(torch.tensor([exact]))[0])
        spread = 5 * gap * (stalling_sum.STEPS / stalling_sum.SUMS) ** 0.5 / 2  # 5 sigma of the mean, at the widest gap
        assert abs(stochastic[-1, place].mean() - exact) < spread
        assert (np.diff(nearest[:, place, 0]) >= 0).all()


def test_nearest_sum_stalls_at_half_a_spacing():
    nearest, _ = stalling_sum.sums(BF16)
    assert (
        nearest[-1, stalling_sum.TERMS.index(0.01), 0] == 4.0
    )  # 2^-6 is half the spacing from 4 on, and more than 0.01
    assert "4, stalled since term" in caption(stalling_sum, steps=600, term=0.01, format="bfloat16")
    assert "it never began" in caption(stalling_sum, steps=600, term=0.01, format="fixed point ⟨6, 4⟩")


# Training


def test_with_16_bits_nearest_stalls_where_stochastic_trains():
    final = low_precision_training.final
    float32 = final(32, 0, low_precision_runs.FLOAT32)
    assert float32 > 0.95
    for fl in (6, 7, 8):
        assert final(16, fl, "nearest") < float32 - 0.2
        assert final(16, fl, "stochastic") > float32 - 0.02


def test_the_button_adds_a_run_of_the_chosen_setting_epoch_by_epoch(monkeypatch):
    made = [Epoch(1, 2.0, 0.3, 0.1), Epoch(2, 1.0, 0.6, 0.1)]
    asked = []
    monkeypatch.setattr(low_precision_runs, "make", lambda *setting: asked.append(setting) or iter(made))
    explorable = low_precision_training.explorable()
    button, pictures_shown = explorable.controls["live"], []
    button.observe(lambda _: pictures_shown.append(explorable.picture.image.value), "value")
    button.click()
    button.click()
    assert [setting[:3] for setting in asked] == [(16, 8, "stochastic")] * 2
    assert asked[0][3] != asked[1][3], "another seed for each run"
    assert button.value == {"16 8 stochastic": [made, made]}
    assert len(set(pictures_shown)) == 4
    assert not button.disabled


def test_impossible_length_raises_an_alarm():
    said = caption(low_precision_training, wl=8, fl=12)
    assert said == "Words of 8 bits were trained with FL from 3 to 6. Move FL there."
    assert low_precision_training.chosen(8, 12, "both") == (8, 6, "stochastic")
    assert low_precision_training.chosen(16, 3, "nearest") == (16, 4, "nearest")


@pytest.mark.parametrize("name", FORMATS)
def test_the_odds_stand_beside_their_bars_and_hide_nothing(name):
    explorable = number_line.explorable()
    for x, width in itertools.product([1.3, -9.5, 0.004, 9.9], number_line.WIDTHS[::3]):
        explorable.picture.render({"format": name, "x": x, "width": width})
        hides_nothing(explorable.picture.axes["line"])


def hides_nothing(line) -> None:
    boxes = [text.get_window_extent() for text in line.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    for text in line.texts:
        assert any(bar.get_height() for bar in line.patches) or {"◀", "▶"} & set(text.get_text())
    assert not any(line.get_legend().get_window_extent().overlaps(box) for box in boxes)
