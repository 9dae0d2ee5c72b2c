"""The pictures of lab `consistency`: waiting is the clocks', bounds are the roots' and gaps', their answers hold."""

import math

import pytest
import torch

from hpcdl.consistency.gossip import TOPOLOGIES, shrinks
from hpcdl.widgets.pictures import gossip, how_late, who_waits

pytestmark = pytest.mark.labs

WAITS = {
    "s": (0, 3, math.inf),
    "factor": (1.0, 3.0, 6.0),
    "jitter": (0.0, 0.5, 1.0),
    "pull": (0.0, 0.5),
    "over": ("time", "updates"),
}
LATE = {"lr": (0.02, 0.5, 2.2), "delay": (0, 3, 20)}
MEAN = {"round": (0, 3, 40), "topology": tuple(TOPOLOGIES), "p": (4, 17, 32), "over": ("rounds", "messages")}
EVERY = [(who_waits, WAITS), (how_late, LATE), (gossip, MEAN)]


@pytest.mark.parametrize(("picture", "values"), EVERY)
def test_every_corner_is_drawn_without_warning(picture, values, draws_its_corners):
    draws_its_corners(picture.explorable, values, most=24)


@pytest.mark.parametrize(("picture", "values"), EVERY)
def test_every_control_changes_the_picture(picture, values, answers_its_controls):
    answers_its_controls(picture.explorable, values)


def caption(explorable, **changes):
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


def test_a_little_staleness_is_better_than_none_and_than_any():
    when = {s: who_waits.reached(*who_waits.run(s, 3.0, 0.5, 0.1)[1:]) for s in who_waits.STALENESS}
    assert min(when.values()) < when[0]
    assert when[math.inf] == math.inf
    assert "below 6 % from" in caption(who_waits.explorable(), s=2)
    assert "does not stay below 6 %" in caption(who_waits.explorable(), s=math.inf)


def test_nobody_waits_in_asp_and_all_wait_in_bsp():
    spans = [who_waits.run(s, 3.0, 0.5, 0.1)[0] for s in (0, math.inf)]
    assert who_waits.shares(spans[0])[1] > 0.4
    assert who_waits.shares(spans[1])[1] == pytest.approx(0)
    assert who_waits.shares(spans[1])[0] > who_waits.shares(spans[0])[0]


def test_an_iteration_takes_a_second_on_average():
    seconds = torch.tensor(who_waits.seconds_of(1.0, 0.5, 0.0))
    assert seconds.mean().item() == pytest.approx(1.0, abs=0.1)
    assert torch.tensor(who_waits.seconds_of(2.0, 0.0, 0.5)).tolist()[3][0] == 2.5


@pytest.mark.parametrize("delay", [0, 1, 4, 20])
def test_run_does_what_the_sentence_says(delay):
    limit = how_late.bound(delay)
    assert how_late.growth(limit, delay) == pytest.approx(1.0)
    assert "shrinks" in caption(how_late.explorable(), delay=delay, lr=0.5 * limit)
    assert "grows" in caption(how_late.explorable(), delay=delay, lr=1.1 * limit)
    for factor, grows in ((0.9, False), (1.1, True)):
        _, ws = how_late.run_of(None, factor * limit, delay)
        assert (max(ws[150:]) > max(ws[50:100])) == grows


def test_the_run_is_the_students_where_there_is_one():
    def own(w, grad, lr, delay, steps):
        return [w] * (steps + 1)

    assert how_late.run_of(own, 0.3, 2) == ("Your", [1.0] * (how_late.STEPS + 1))
    assert how_late.run_of(None, 0.3, 2)[0] == "A"


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_gossip_keeps_within_the_gaps_bound(topology):
    values, far, sent = gossip.run(topology, 16)
    assert values.mean(axis=1) == pytest.approx(0.5)
    if topology != "random peers":
        assert (far <= shrinks(topology, 16) ** torch.arange(gossip.ROUNDS + 1).numpy() + 1e-12).all()
    each = {"ring": 2, "wheel": 15, "random peers": 1, "everyone": 15}[topology]
    assert sent[-1] == each * gossip.ROUNDS
    said = caption(gossip.explorable(), topology=topology)
    when = (far <= gossip.CLOSE).argmax()
    assert ("After 40 rounds" if topology == "ring" else f"{when} rounds: {sent[when]} messages") in said


def test_of_few_messages_random_peers_make_the_most():
    def left(topology):
        _, far, sent = gossip.run(topology, 32)
        return far[(sent <= 15).nonzero()[0][-1]]

    assert left("random peers") < 0.5 * min(left("ring"), left("wheel"), left("everyone"))
