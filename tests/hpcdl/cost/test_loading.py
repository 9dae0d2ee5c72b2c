"""The queue model of the input: its recursion against an event simulation, its bound against long runs, and live."""

import heapq
import random
import time

import numpy as np
import pytest

from hpcdl.cost.loading import loading_rate, play_loading
from hpcdl.data.loader import Loader, Shards, write_shards


def simulated(load: list[float], train: list[float], workers: int, queue: int) -> tuple[float, float]:
    """Seconds to the end and waited, event by event: who is free takes what may begin."""
    events: list[tuple[float, int, str]] = []
    begun, loaded, taken, idle, now = 0, set(), 0, workers, 0.0
    training, waited, since = False, 0.0, 0.0
    while taken < len(load) or training:
        while idle and begun < len(load) and begun - taken < queue:
            heapq.heappush(events, (now + load[begun], begun, "loaded"))
            begun, idle = begun + 1, idle - 1
        if not training and taken in loaded:
            waited += now - since
            heapq.heappush(events, (now + train[taken], taken, "trained"))
            taken, training = taken + 1, True
            continue
        now, number, what = heapq.heappop(events)
        if what == "loaded":
            loaded.add(number)
            idle += 1
        else:
            training, since = False, now
    return now, waited


@pytest.mark.parametrize("seed", range(40))
def test_the_recursion_is_what_an_event_simulation_does(seed):
    draw = random.Random(seed)
    n, workers, queue = draw.randint(1, 40), draw.randint(1, 4), draw.randint(1, 6)
    read, decode, train = ([draw.random() for _ in range(n)] for _ in range(3))
    played = play_loading(read, decode, train, workers, queue)
    load = [a + b for a, b in zip(read, decode, strict=True)]
    assert (played.seconds, played.waited) == pytest.approx(simulated(load, train, workers, queue))
    assert played.seconds == pytest.approx(sum(train) + played.waited)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("train", [0.5, 1.0, 3.0])
def test_in_the_long_run_the_slowest_stage_sets_the_rate(workers, train):
    n = 400
    played = play_loading([0.5] * n, [1.0] * n, [train] * n, workers, queue=workers + 1)
    assert n / played.seconds == pytest.approx(loading_rate(0.5, 1.0, train, workers), rel=0.02)


def test_a_queue_evens_out_and_hides_no_stage_that_is_too_slow():
    draw = random.Random(0)
    jitter = [draw.choice([0.1, 1.5]) for _ in range(500)]
    nothing, train = [0.0] * 500, [1.0] * 500
    waits = [play_loading(jitter, nothing, train, workers=1, queue=queue).waited for queue in (1, 2, 8, 64)]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] < 0.1 * waits[0]
    slow = [play_loading([2.0] * 500, nothing, train, workers=1, queue=queue).waited for queue in (2, 64)]
    assert slow == pytest.approx([501.0, 501.0])


@pytest.mark.parametrize(
    "wrong", [{"workers": 0}, {"read": -1.0}, {"read": 0.0, "decode": 0.0, "train": 0.0}, {"cores": 0}]
)
def test_numbers_that_are_no_input_are_refused(wrong):
    with pytest.raises(ValueError, match="seconds are 0 or more"):
        loading_rate(**{"read": 1.0, "decode": 1.0, "train": 1.0, **wrong})
    for arguments in (([1.0], [1.0], [1.0, 1.0], 1, 1), ([1.0], [1.0], [1.0], 0, 1), ([1.0], [1.0], [1.0], 1, 0)):
        with pytest.raises(ValueError, match="each batch has all three"):
            play_loading(*arguments)


@pytest.mark.long  # it compares seconds, which a busy machine spoils
@pytest.mark.parametrize(("workers", "queue", "train"), [(1, 4, 0.004), (2, 2, 0.004), (4, 8, 0.02)])
def test_the_loader_waits_as_long_as_was_predicted(tmp_path, workers, queue, train):
    steps, seconds = 20, 0.015  # to decode a sample, which is a batch
    write_shards(tmp_path, ({"x": np.float32(i)} for i in range(steps)))

    def decode(sample):
        time.sleep(seconds)
        return sample

    for _ in range(5):  # a busy machine only ever adds: one run of these is nearly undisturbed
        with Loader(Shards(tmp_path), 1, decode=decode, workers=workers, queue=queue) as loader:
            for _ in loader:
                time.sleep(train)
            timed = list(loader.timed)
        loads = [each.load for each in timed]
        predicted = play_loading([0.0] * steps, loads, [train] * steps, workers, queue).waited
        measured = sum(each.waited for each in timed)
        if measured == pytest.approx(predicted, rel=0.2, abs=0.02):
            return
    pytest.fail(f"waited {measured:.3f} s, and {predicted:.3f} s were predicted")
