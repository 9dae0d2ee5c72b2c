"""The picture of `sharding`: what a rank holds is ZeRO's and Korthikanti's, what it sends the simulated machine's."""

import pytest
import torch

from hpcdl.collectives import all_gather, reduce_scatter
from hpcdl.comm import simulate
from hpcdl.cost import memory
from hpcdl.widgets.pictures import does_it_fit

pytestmark = pytest.mark.labs

VALUES = {
    "model": tuple(does_it_fit.MODELS),
    "stage": (0, 1, 3),
    "p": (1, 64, 1024),
    "batch": (1, 16),
    "recompute": tuple(does_it_fit.RECOMPUTE.values()),
    "t": (1, 8),
    "cut": (False, True),
    "precision": tuple(does_it_fit.PRECISIONS),
}


def test_every_corner_is_drawn_without_warning(draws_its_corners):
    draws_its_corners(does_it_fit.explorable, VALUES, most=24)


def test_every_control_changes_the_picture(answers_its_controls):
    answers_its_controls(does_it_fit.explorable, VALUES, t=8)


@pytest.fixture
def state():
    return does_it_fit.explorable().state


def caption(**changes):
    explorable = does_it_fit.explorable()
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


@pytest.mark.parametrize("stage", range(4))
def test_what_a_rank_holds_is_the_cost_models(state, stage):
    model = does_it_fit.MODELS[state["model"]]
    kinds = does_it_fit.held(state, stage)
    assert sum(kinds.values()) - kinds["activations"] == pytest.approx(memory.zero(model.parameters, 64, stage))
    each = memory.activations(model.sequence, 1, model.hidden, model.heads)
    assert kinds["activations"] == pytest.approx(model.layers * each)


def test_tensor_parallelism_divides_what_a_rank_has_of_the_model(state):
    alone, cut = does_it_fit.held(state, 0), does_it_fit.held({**state, "t": 8, "cut": True}, 0)
    assert all(cut[kind] == pytest.approx(alone[kind] / 8) for kind in alone)


@pytest.mark.parametrize("stage", [0, 3])
def test_what_a_rank_sends_for_weights_is_what_the_machine_counts(state, stage):
    p, state = 4, {**state, "p": 4}
    model = does_it_fit.MODELS[state["model"]]

    def rank(comm):
        x = torch.zeros(1000, dtype=torch.bfloat16)
        reduce_scatter(x, comm)
        for _ in range(2 if stage == 3 else 1):
            all_gather(x, comm)

    counted = simulate(rank, p).bytes_sent[0] / 1000
    assert does_it_fit.paid(state, stage)["sent for weights"] == pytest.approx(counted * model.parameters, rel=1e-6)


def test_one_rank_sends_nothing(state):
    paid = does_it_fit.paid({**state, "p": 1}, 3)
    assert not paid["sent for weights"]
    assert not paid["sent within layers"]


def test_the_sentence_says_whether_it_fits():
    assert "it does not fit. Most of it is optimizer states" in caption(stage=0)
    assert "it fits" in caption(stage=3)
    assert "computes nothing twice" in caption()
    assert "3" in caption(recompute="full").split("computes")[1]
