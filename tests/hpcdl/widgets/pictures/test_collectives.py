"""The pictures of lab 08: played from real traces, they respond to every control and say what happens at extremes."""

import re

import numpy as np
import pytest
import torch

from hpcdl.collectives import ALL_REDUCE, reduce, ring_all_reduce
from hpcdl.cost import collectives as cost
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.pictures import best_algorithm, message_cost, topology

pytestmark = pytest.mark.labs

SIZES = 4.0 * 8 ** np.arange(8)
MEASURED = {
    "one message": (np.tile(SIZES, 2), np.concatenate([8e-6 + SIZES * 2e-10, 3 * (8e-6 + SIZES * 2e-10)])),
    "ring": (SIZES, 16e-6 + SIZES * 2e-10),
}


def predict(name, nbytes, alpha, beta):
    return (2 if name == "ring" else 1) * alpha + nbytes * beta


def measured():
    return message_cost.explorable(MEASURED, predict)


PICTURES = {
    "topology": (
        topology.explorable,
        {
            "frame": (0, 30),
            "algorithm": tuple(topology.NAMES),
            "p": (2, 7, 16),
            "nbytes": (100, 1_000_000),
            "k": (1, 8),
        },
    ),
    "message_cost": (
        measured,
        {
            "alpha": (0.1, 10.0, 1e4),
            "beta": (1e-3, 100.0),
            "shown": (message_cost.ALL, "ring"),
            "kind": ("both", "model", "measured"),
        },
    ),
    "best_algorithm": (
        best_algorithm.explorable,
        {"p": (2, 12, 1024), "nbytes": (1e2, 1e9), "alpha": (0.1, 1e4), "beta": (1e-3, 100.0)},
    ),
}
pictures = pytest.mark.parametrize("name", PICTURES)


@pytest.mark.thinned(1, 2)
@pictures
def test_every_corner_is_drawn_without_warning(name, draws_its_corners):
    make, values = PICTURES[name]
    draws_its_corners(make, values, most=24)


@pictures
def test_every_control_changes_the_picture(name, answers_its_controls):
    make, values = PICTURES[name]
    answers_its_controls(make, values, **({"algorithm": "hierarchical", "frame": 20} if name == "topology" else {}))


@pictures
def test_axes_have_titles_and_units(name):
    for key, axes in PICTURES[name][0]().picture.axes.items():
        assert axes.get_title(loc="left")
        if key != "network":  # places on a plane without a scale
            assert axes.get_xlabel()
            assert axes.get_ylabel()


# Messages, played


@pytest.mark.parametrize("name", ALL_REDUCE)
@pytest.mark.parametrize("p", [2, 6, 9, 16])
def test_what_is_played_takes_the_time_and_the_messages_of_the_algorithm(name, p):
    played = topology.play(ALL_REDUCE[name], p, 1000)
    n = topology.elements(p)
    assert played.seconds == pytest.approx(
        cost.ALL_REDUCE[name](p, 4 * n, topology.ALPHA, topology.BETA * 1000 / (4 * n))
    )
    assert len(played.transfers) == cost.TRAFFIC[name](p, 4 * n).messages
    assert played.transfers[:, 1].max() == pytest.approx(played.seconds)
    assert (played.transfers[:, 1] > played.transfers[:, 0]).all()


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_every_rank_begins_with_its_own_share_and_ends_with_the_whole_sum(name):
    for levels in topology.play(ALL_REDUCE[name], 6, 1000).levels:
        assert levels[0] == (0.0, 1 / 6)
        assert levels[-1][1] == pytest.approx(1.0)
        assert [time for time, _ in levels] == sorted(time for time, _ in levels)


def test_a_tree_puts_every_rank_below_the_one_it_talks_to():
    xy = topology.places("tree", 16, 1)
    for rank in range(1, 16):
        parent = rank & ~(1 << (rank.bit_length() - 1))
        assert xy[rank, 1] < xy[parent, 1]
    assert len({tuple(place) for place in xy.round(6)}) == 16


@pytest.mark.parametrize("algorithm", topology.NAMES)
def test_no_two_ranks_stand_in_one_place_or_outside(algorithm):
    for p, k in ((1, 1), (5, 2), (16, 1), (16, 4), (16, 8), (9, 8)):
        xy = topology.places(algorithm, p, min(k, p))
        assert len({tuple(place) for place in xy.round(6)}) == p
        assert np.abs(xy).max() < 1.1


def caption(explorable, **changes):
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


def test_the_sentence_counts_messages_in_a_row_and_bytes():
    said = caption(topology.explorable(), algorithm="ring", p=8, nbytes=10_000)
    assert said.startswith("112 messages, 14 in a row on the longest path: 14α + 1.75nβ = 140 + 17.5 µs.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"p": 1}, "One rank has the sum already"),
        ({"algorithm": "parameter_server", "p": 3, "k": 8}, "of p = 3 ranks no 8 can be servers"),
    ],
)
def test_extreme_settings_are_a_sentence(changes, words):
    assert words in caption(topology.explorable(), **changes)


def test_a_students_own_function_is_played():
    assert caption(topology.explorable(ring_all_reduce), p=4).startswith("24 messages")


def test_a_students_function_that_leaves_someone_out_raises_an_alarm():
    assert "some rank does not hold the whole sum" in caption(topology.explorable(lambda x, comm: reduce(x, comm)))
    assert "No rank sends anything" in caption(topology.explorable(lambda x, comm: None))


def test_a_students_unsolved_function_is_waited_for():
    def all_reduce(x, comm):
        raise NotImplementedError

    assert caption(topology.explorable(all_reduce)).startswith("Waiting for your")


def test_a_students_deadlock_is_a_sentence():
    assert "deadlock" in caption(topology.explorable(lambda x, comm: comm.send(x, comm.rank ^ 1)))


# Measured and predicted


def test_the_fastest_of_each_size_counts():
    sizes, least = message_cost.fastest(np.array([8.0, 4.0, 8.0, 4.0]), np.array([3.0, 1.0, 2.0, 9.0]))
    assert sizes.tolist() == [4.0, 8.0]
    assert least.tolist() == [1.0, 2.0]


def test_wrong_alpha_and_beta_raise_an_alarm():
    assert "100 % of the marks" in caption(measured(), alpha=8.0, beta=0.2)
    assert "bytes" in caption(measured(), alpha=8.0, beta=0.2)
    assert "The machine is faster than that" in caption(measured(), alpha=1e3, beta=10.0)
    assert "The machine is slower than that" in caption(measured(), alpha=0.1, beta=1e-3)


def test_measurements_may_come_as_tensors_lists_or_not_yet():
    tensors = {"one message": (torch.tensor([4.0, 8.0]), torch.tensor([1e-5, 1e-5]))}
    assert message_cost.explorable(tensors).picture.caption
    assert message_cost.explorable({"one message": ([], [])}).picture.caption == "Nothing is measured yet."


# The map


def test_the_map_shows_the_cheapest_of_the_library():
    lines = best_algorithm.CostLines(best_algorithm.library_cost)
    for p in best_algorithm.RANKS[:8]:
        for nbytes in (100, 100_000, 100_000_000):
            shown = lines.seconds(p, nbytes, 1e-5, 1e-10)[:, 0]
            for name, seconds in zip(best_algorithm.NAMES, shown, strict=True):
                exact = cost.ALL_REDUCE[name](p, nbytes, 1e-5, 1e-10)
                assert seconds == pytest.approx(exact, rel=0.01)  # the library rounds chunks to whole elements


@pytest.mark.parametrize("make", [measured, best_algorithm.explorable])
@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 1e-3), (10.0, 1.0), (1e4, 100.0)])
def test_sentences_have_no_powers_of_ten(make, alpha, beta):
    assert not re.search(r"\de[+-]?\d", caption(make(), alpha=alpha, beta=beta))


def test_the_sentence_has_the_units_of_the_sliders():
    explorable = measured()
    assert explorable.controls["alpha"].description == "α, µs per message"
    assert "α = 10,000 µs, β = 0.001 ns per byte (1 TB/s)" in caption(explorable, alpha=1e4, beta=1e-3)


def test_only_the_ratio_of_alpha_and_beta_moves_the_map():
    lines = best_algorithm.CostLines(best_algorithm.library_cost)

    def winners(alpha, beta):
        return lines.seconds(12, best_algorithm.SIZES, alpha, beta).argmin(0).tolist()

    assert winners(1e-5, 1e-10) == winners(1e-4, 1e-9)
    assert winners(1e-5, 1e-10) != winners(1e-4, 1e-10)


def test_the_map_asks_a_students_cost_a_few_times_only():
    calls = []

    def counted(*args):
        calls.append(args)
        return best_algorithm.library_cost(*args)

    explorable = best_algorithm.explorable(counted)
    first = len(calls)
    explorable.picture.render({**explorable.state, "alpha": 1e3})
    assert len(calls) == first
    assert not isinstance(explorable.picture.caption, Alarm)


def test_the_map_waits_for_an_unsolved_cost():
    def cost(algorithm, p, nbytes, alpha, beta):
        raise NotImplementedError

    assert best_algorithm.explorable(cost).picture.caption.startswith("Waiting for your")


def test_map_marks_and_names_do_not_overlap():
    explorable = best_algorithm.explorable()
    explorable.controls["p"].value, explorable.controls["nbytes"].value = 4, 1e4
    places, costs = (explorable.picture.axes[name] for name in ("map", "costs"))
    (mark,) = [line for line in places.lines if line.get_marker() == "X"]
    assert mark.zorder > max(text.zorder for text in places.texts)
    legend = costs.get_legend()
    assert legend.get_frame_on()
    assert legend.get_frame().get_alpha() > 0.8
    assert legend.zorder > max(line.zorder for line in costs.lines)
