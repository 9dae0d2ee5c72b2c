"""The pictures of lab 07: chunks on a ring and buckets in time, from real traces and from the cost model."""

import numpy as np
import pytest

from hpcdl.collectives import naive_all_reduce, ring_all_reduce
from hpcdl.cost import collectives, scaling
from hpcdl.ddp import DistributedDataParallel
from hpcdl.nn.networks import NETWORKS
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.pictures import bucket_timeline, ring_passing

pytestmark = pytest.mark.labs


def library(model, comm, cap_bytes):
    return DistributedDataParallel(model, comm, cap_bytes / 2**20)


def traced():
    return bucket_timeline.explorable(library)


PICTURES = {
    "ring": (ring_passing.explorable, {"frame": (0, 20, 48), "p": (1, 4, 9), "n": (1, 36)}),
    "timeline": (
        bucket_timeline.explorable,
        {
            "megabytes": (0.1, 600),
            "gigabits": (1, 200),
            "p": (1, 8),
            "slow": (1.0, 2.0),
            "overlap": (True, False),
            "network": ("resnet50", "vgg16"),
        },
    ),
    "traced": (traced, {"layers": (1, 5, 12), "p": (2, 4)}),
}
pictures = pytest.mark.parametrize("name", PICTURES)


@pictures
def test_every_corner_is_drawn_without_warning(name, draws_its_corners):
    make, values = PICTURES[name]
    draws_its_corners(make, values, most=16)


@pictures
def test_every_control_changes_the_picture(name, answers_its_controls):
    make, values = PICTURES[name]
    answers_its_controls(make, values)


def caption(explorable, **changes):
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


# The ring


@pytest.mark.parametrize(("p", "n"), [(2, 6), (5, 20), (4, 3), (9, 9)])
def test_every_chunk_begins_with_one_rank_and_ends_with_all(p, n):
    played = ring_passing.play(ring_all_reduce, p, n)
    first, last = (ring_passing.shares(played, p, time) for time in (0.0, played.seconds))
    filled = np.isfinite(first)
    assert filled.sum() == p * min(n, p)
    assert first[filled] == pytest.approx(1 / p)
    assert (last[filled] == 1).all()


def test_half_way_each_rank_has_one_complete_chunk():
    played = ring_passing.play(ring_all_reduce, 5, 20)
    half = ring_passing.shares(played, 5, 4.1)  # a step takes a second and a little more
    assert (half == 1).sum(axis=1).tolist() == [1] * 5
    assert (half == 1).sum(axis=0).tolist() == [1] * 5


def test_the_sentence_counts_steps_and_bytes():
    said = caption(ring_passing.explorable(), p=5, n=20, frame=ring_passing.FRAMES)
    assert said.startswith("8 of 8 steps: 25 of 25 chunks are complete")
    assert "1.60 times the size of x, in 8 messages" in said


def test_what_a_students_ring_does_is_shown_wrong_or_unfinished():
    def forgets(x, comm):
        if comm.rank == 0:
            x += 1

    def unsolved(x, comm):
        raise NotImplementedError

    assert "are not the sum of all ranks" in caption(ring_passing.explorable(forgets))
    assert isinstance(ring_passing.draw({"frame": 0, "p": 3, "n": 3}, axes_of(), forgets), Alarm)
    assert caption(ring_passing.explorable(unsolved)).startswith("Waiting for your")
    assert "deadlock" in caption(ring_passing.explorable(lambda x, comm: comm.send(x, (comm.rank + 1) % comm.size)))
    assert "25 of 25 chunks" in caption(ring_passing.explorable(naive_all_reduce), frame=ring_passing.FRAMES)


def axes_of():
    return ring_passing.explorable().picture.axes


# Buckets in time


@pytest.mark.parametrize(("overlap", "megabytes", "slow"), [(True, 25, 1.0), (False, 5, 1.0), (True, 600, 1.0)])
def test_the_timeline_ends_when_the_cost_model_says(overlap, megabytes, slow):
    bars, count, messages = bucket_timeline.modelled("resnet50", 8, megabytes, 10, overlap, slow)
    ready = scaling.gradients(NETWORKS["resnet50"](), bucket_timeline.BACKWARD)
    buckets = scaling.capped(ready, cap=megabytes * 2**20)

    def all_reduce(nbytes):
        return collectives.ring(8, nbytes, bucket_timeline.ALPHA, 8e-10)

    expected = scaling.iteration(bucket_timeline.FORWARD, buckets, all_reduce, overlap=overlap)
    assert max(bar.end for bar in bars) == pytest.approx(expected.seconds)
    assert count == len(buckets)
    assert messages == pytest.approx(sum(all_reduce(bucket.nbytes) for bucket in buckets))


def test_a_bucket_leaves_when_the_slowest_rank_has_it():
    bars, *_ = bucket_timeline.modelled("resnet50", 4, 25, 100, True, 2.0)
    for bar in bars:
        if bar.kind == "message":
            alike = [other for other in bars if other.kind == "message" and other.start == bar.start]
            assert {other.rank for other in alike} == {0, 1, 2, 3}
    waits = {rank: sum(b.end - b.start for b in bars if b.rank == rank and b.kind == "wait") for rank in range(4)}
    assert waits[0] > 0.05
    assert waits[3] < 0.01


def test_a_students_class_is_traced_and_an_unsolved_one_waited_for():
    said = caption(traced(), layers=2, p=2)
    assert "for 12 s of backward pass. Rank 0's first message leaves at 2.0 s" in said
    assert caption(bucket_timeline.explorable(OverlappedDDP)).startswith("Waiting for your OverlappedDDP")


class OverlappedDDP:
    """As the lab hands it out."""

    def __init__(self, model, comm, cap_bytes):
        raise NotImplementedError


class Silent:
    """Wraps a model and never sends."""

    def __init__(self, model, comm, cap_bytes):
        self.model = model

    def __call__(self, x):
        return self.model(x)

    def synchronize(self):
        pass


def test_a_class_that_sends_nothing_raises_an_alarm():
    assert caption(bucket_timeline.explorable(Silent)) == "Rank 0 sends nothing, in 12.0 s."
