"""The pictures of lab `model_parallel`: schedules played by the cost model, and matrices cut over ranks."""

import pytest
import torch

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import simulate
from hpcdl.cost.published.pipelines import ZERO_BUBBLE
from hpcdl.parallel import schedules
from hpcdl.widgets.pictures import cut_the_matrix, fill_the_bubble, your_design

pytestmark = pytest.mark.labs

PICTURES = {
    "bubble": (
        fill_the_bubble.explorable,
        {
            "schedule": tuple(fill_the_bubble.NAMES),
            "p": (1, 3, 8),
            "m": (1, 24),
            "v": (1, 4),
            "f": (0.5, 3.0),
            "b": (0.5, 3.0),
            "w": (0.0, 3.0),
            "message": (0.0, 1.0),
            "preset": ("", "14.6 B|64"),
        },
    ),
    "design": (
        your_design.explorable,
        {
            "p": (1, 3, 6),
            "m": (1, 12),
            "cap": (1, 12),
            "f": (0.5, 2.0),
            "b": (0.5, 2.0),
            "w": (0.25, 2.0),
        },
    ),
    "matrix": (
        cut_the_matrix.explorable,
        {"how": tuple(cut_the_matrix.NAMES), "p": (1, 3, 8), "n": (128, 8192), "d": (256, 12288)},
    ),
}
pictures = pytest.mark.parametrize("name", PICTURES)


@pictures
def test_every_corner_is_drawn_without_warning(name, draws_its_corners):
    make, values = PICTURES[name]
    draws_its_corners(make, values, most=24)


@pictures
def test_every_control_changes_the_picture(name, answers_its_controls):
    make, values = PICTURES[name]
    changes = {"bubble": {"schedule": "interleaved"}}.get(name, {})
    answers_its_controls(make, values, **changes)


def caption(explorable, **changes):
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


# Fill the bubble


def test_the_sentence_has_the_closed_form_of_the_bubble():
    said = caption(fill_the_bubble.explorable(), schedule="one_f_one_b", p=4, m=8, w=0.0)
    assert "22 s, bubble 27.27 %" in said
    assert "At most 4 microbatches" in said


@pytest.mark.parametrize("model", ZERO_BUBBLE)
def test_published_times_give_the_published_bubble(model):
    picture = fill_the_bubble.explorable()
    for m, (_, printed, _) in ZERO_BUBBLE[model][3].items():
        for name, figure in zip(fill_the_bubble.PRINTED, printed, strict=True):
            if name != "interleaved":
                said = caption(picture, schedule=name, preset=f"{model}|{m}")
                assert f"bubble {figure:.2f} % (Qi et al. 2024 printed {figure:.2f} %)" in said


def test_a_students_schedule_is_played_and_a_wrong_one_is_said_to_be():
    mine = fill_the_bubble.explorable({"one_f_one_b": schedules.gpipe})
    assert "At most 8 microbatches" in caption(mine, schedule="one_f_one_b")
    wrong = fill_the_bubble.explorable({"one_f_one_b": lambda p, m: [[("B", 0, 0), ("F", 0, 0)]] * p})
    assert "never comes" in caption(wrong, schedule="one_f_one_b")
    short = fill_the_bubble.explorable({"one_f_one_b": lambda p, m: [[("F", 0, 0), ("B", 0, 0)]]})
    assert "has 1 orders for 4 stages" in caption(short, schedule="one_f_one_b")


def test_a_picture_waits_for_a_schedule_that_is_not_written():
    def later(p, m):
        raise NotImplementedError

    assert "cannot be drawn" not in caption(fill_the_bubble.explorable({"gpipe": later}), schedule="gpipe")


# Cut the matrix


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_what_a_rank_sends_for_two_layers_is_an_all_reduce_each_way(p):
    found = cut_the_matrix.volumes("both", p, 64, 32)
    all_reduce = simulate(lambda comm: ring_all_reduce(torch.zeros(64, 32), comm), p).bytes_sent[0]
    assert found["sent forward"] == found["sent backward"] == all_reduce
    assert found["weights"] == 4 * 8 * 32 * 32 / p


def test_cutting_the_tokens_sends_as_much_forward_and_keeps_less():
    plain, cut = (cut_the_matrix.volumes(how, 4, 64, 32) for how in ("both", "sequence"))
    assert cut["sent forward"] == plain["sent forward"]
    assert cut["activations"] == 4 * (64 * 32 * 6) / 4
    assert cut["activations"] < plain["activations"]
    assert cut["sent backward"] == 1.5 * plain["sent backward"]


def test_each_cut_says_what_it_sends():
    picture = cut_the_matrix.explorable()
    assert "sends 0 bytes forward and" in caption(picture, how="column")
    assert "and 0 bytes backward" in caption(picture, how="row")
    assert "100 % of" not in caption(picture, how="sequence")


# Your design


def test_design_over_the_memory_is_marked():
    said = caption(your_design.explorable(lambda p, m, f, b, w, cap: schedules.zb_h1(p, m)))
    assert said.startswith(
        "Bubble 11.1 % with 4 microbatches held at most. Others: 1F1B 27.3 %, ZB-H1 11.1 %, ZB-V 0.0 %"
    )
    over = caption(your_design.explorable(lambda p, m, f, b, w, cap: schedules.zb_h1(p, m)), cap=3)
    assert over.startswith("Over the cap of 3.")
    stuck = caption(your_design.explorable(lambda p, m, *_: [order[::-1] for order in schedules.zb_h1(p, m)]))
    assert "cannot be followed" in stuck
