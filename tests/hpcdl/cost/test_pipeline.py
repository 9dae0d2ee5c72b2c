"""Any schedule played: published bubbles, closed forms, the simulated machine, and what a stage holds."""

import itertools
import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.comm import simulate
from hpcdl.cost import pipeline
from hpcdl.cost.pipeline import BUBBLES, balance, play

# Orders are data, so that this file needs the functions that make them; `hpcdl.cost` does not.
from hpcdl.parallel.schedules import SCHEDULES, gpipe, interleaved, one_f_one_b, v_shaped, zb_h1, zb_h2, zb_v


def scheduled(stages, microbatches):
    """When the last microbatch leaves the last stage, each stage taking one at a time in order."""
    free, end = [0.0] * len(stages), 0.0
    for _ in range(microbatches):
        end = 0.0
        for stage, seconds in enumerate(stages):
            free[stage] = end = max(end, free[stage]) + seconds
    return end


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=6), st.integers(1, 9))
@settings(deadline=None)
def test_a_batch_takes_what_its_schedule_takes(stages, microbatches):
    forward, backward = stages, [2 * seconds for seconds in reversed(stages)]
    expected = scheduled(forward, microbatches) + scheduled(backward, microbatches)
    assert pipeline.seconds(forward, backward, microbatches) == pytest.approx(expected)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 3), (4, 8), (5, 2)])
def test_the_simulated_machine_runs_a_pipeline_in_the_formulas_time(stages, microbatches):
    def stage(comm):
        x = torch.zeros(1)
        for _ in range(microbatches):
            if comm.rank:
                comm.recv(x, comm.rank - 1)
            comm.compute(1.0)
            if comm.rank < comm.size - 1:
                comm.send(x, comm.rank + 1)

    seconds = simulate(stage, stages).seconds
    assert pipeline.seconds([1.0] * stages, [0.0] * stages, microbatches) == pytest.approx(seconds)
    assert pipeline.speedup(stages, microbatches) == pytest.approx(stages * microbatches / seconds)
    assert pipeline.bubble(stages, microbatches) == pytest.approx(1 - microbatches / seconds)


def test_messages_delay_the_first_microbatch_once_per_boundary():
    assert pipeline.seconds([1, 1, 1], [2, 2, 2], 4, message=0.5) == pipeline.seconds([1, 1, 1], [2, 2, 2], 4) + 2.0


# Qi et al. 2024, table 9 (ms of F, B, W and a message) and table 5 (bubble rates of 1F1B, 1F1B-I, ZB-H1, ZB-H2).
ZERO_BUBBLE = {
    (8, 24): ((18.522, 18.086, 9.337, 0.601), (0.2431, 0.1055, 0.1585, 0.1083)),
    (8, 32): ((18.513, 18.086, 9.331, 0.626), (0.1985, 0.0818, 0.1242, 0.0837)),
    (8, 64): ((18.546, 18.097, 9.321, 0.762), (0.1240, 0.0443, 0.0674, 0.0444)),
    (16, 48): ((11.347, 11.248, 8.132, 0.377), (0.2552, 0.1104, 0.1397, 0.0672)),
    (16, 64): ((11.307, 11.254, 8.101, 0.379), (0.2082, 0.0852, 0.1088, 0.0516)),
    (16, 128): ((11.325, 11.308, 8.109, 0.378), (0.1251, 0.0445, 0.0576, 0.0266)),
}


@pytest.mark.parametrize(("p", "m"), ZERO_BUBBLE)
def test_the_bubbles_are_the_printed_ones(p, m):
    (f, b, w, message), printed = ZERO_BUBBLE[p, m]
    chunks = 3  # (layers + 2) / p of both models
    orders = (one_f_one_b(p, m), zb_h1(p, m), zb_h2(p, m))
    ours = [round(play(order, f, b, w, message=message).bubble, 4) for order in orders]
    assert ours == [printed[0], printed[2], printed[3]]
    part = [seconds / chunks for seconds in (f, b, w)]
    assert play(interleaved(p, m, chunks), *part, message=message).bubble == pytest.approx(printed[1], abs=0.004)


SECONDS = st.floats(0.5, 4)
RUNS = st.tuples(st.integers(1, 7), st.integers(1, 16), SECONDS, SECONDS, SECONDS)


def played(name, p, m, f, b, w, **options):
    schedule = SCHEDULES[name]
    f, b, w = (seconds / schedule.chunks for seconds in (f, b, w))
    return play(schedule.orders(p, m), f, b, w, parts=schedule.parts(p, schedule.chunks), **options)


@pytest.mark.parametrize("name", SCHEDULES)
@given(RUNS, st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_a_played_schedule_keeps_every_dependency(name, run, message):
    timeline = played(name, *run, message=message)
    p, m, *seconds = run
    end = {
        (event.op, event.microbatch, timeline.parts.index((event.stage, event.chunk))): event
        for event in timeline.events()
    }
    for (op, k, g), event in end.items():
        needed = {"F": ("F", k, g - 1), "B": ("B", k, g + 1), "W": ("B", k, g)}[op]
        if op == "B" and g == len(timeline.parts) - 1:
            needed = ("F", k, g)
        if needed in end:
            before = end[needed]
            assert event.start >= before.end + message * (before.stage != event.stage) - 1e-9
        if op == "B":
            assert event.start >= end["F", k, g].end - 1e-9
    for starts, ends in zip(timeline.starts, timeline.ends, strict=True):
        assert all(start >= end - 1e-9 for start, end in zip(starts[1:], ends, strict=False))
        assert sum(ends) - sum(starts) == pytest.approx(m * sum(seconds))
    assert [math.ceil(held) for held in timeline.memory()] <= [SCHEDULES[name].in_flight(p, m, i) for i in range(p)]


def same_bubble(name, p, m, f, b, w, chunks):
    whole = m * (f + b + w)
    parts = {"interleaved": interleaved(p, m, chunks)}.get(name) or SCHEDULES[name].orders(p, m)
    timeline = play(parts, f / chunks, b / chunks, w / chunks, parts=SCHEDULES[name].parts(p, chunks))
    assert BUBBLES[name](p, m, f, b, w, chunks) == pytest.approx(timeline.seconds - whole, abs=1e-9 * whole)


@pytest.mark.parametrize("name", SCHEDULES)
def test_bubbles_are_those_of_the_played_schedule(name):
    """All stages and microbatches; B and W as long, as a prediction has them, and F shorter, as long, or longer."""
    for p, m, f in itertools.product(range(2, 9), range(1, 17), (0.5, 1.0, 1.75)):
        same_bubble(name, p, m, f, 1.0, 1.0, SCHEDULES[name].chunks)


@pytest.mark.parametrize("name", SCHEDULES)
@given(RUNS, st.integers(2, 4))
@settings(max_examples=60, deadline=None)
def test_no_lengths_of_ops_break_a_bubble(name, run, chunks):
    p, m, f, b, w = run
    b = {"zb_h2": max(b, min(f, w)), "zb_v": w}.get(name, b)  # where there is a closed form
    same_bubble(name, p, m, f, b, w, chunks if name == "interleaved" else SCHEDULES[name].chunks)


def test_lengths_without_a_closed_form_are_refused():
    with pytest.raises(ValueError, match=r"b is 1\.0 and w 2\.0; zb_v's bubble has a closed form where they are equal"):
        BUBBLES["zb_v"](4, 8, 1.0, 1.0, 2.0, 2)
    with pytest.raises(ValueError, match=r"b is 1\.0, shorter than f, 2\.0, and w, 3\.0; zb_h2's bubble"):
        BUBBLES["zb_h2"](4, 8, 2.0, 1.0, 3.0)


@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 7), (8, 15), (8, 64)])
def test_zb_v_has_no_bubble_for_equal_parts(p, m):
    timeline = play(zb_v(p, m), 1.0, 1.0, 1.0, parts=v_shaped(p))
    assert timeline.bubble == 0
    assert timeline.memory(0.5) == [p] * p
    assert max(play(one_f_one_b(p, m), 2.0, 2.0, 2.0).memory()) == p


@given(st.integers(1, 6), st.integers(1, 8), SECONDS, SECONDS, st.floats(0, 2))
@settings(max_examples=40, deadline=None)
def test_gpipe_takes_what_its_closed_form_says(p, m, f, b, message):
    assert play(gpipe(p, m), f, b, message=message).makespan == pytest.approx(
        pipeline.seconds([f] * p, [b] * p, m, message)
    )
    if not message:
        assert play(gpipe(p, m), f, b).bubble == pytest.approx(pipeline.bubble(p, m))


def test_slow_stages_set_the_pace_of_a_pipeline():
    forward, backward = [1.0, 3.0, 2.0], [2.0, 4.0, 1.0]
    assert play(gpipe(3, 5), forward, backward).makespan == pipeline.seconds(forward, backward, 5)
    assert play(one_f_one_b(3, 50), forward, backward).seconds == pytest.approx(50 * 7, rel=0.05)
    per_chunk = [[1.0, 2.0], [3.0, 4.0]]
    timeline = play(interleaved(2, 2), per_chunk, 1.0)
    seconds = {(e.stage, e.chunk): e.end - e.start for e in timeline.events() if e.op == "F"}
    assert seconds == {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 4.0}


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "zb_h1", "zb_h2"])
@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 6), (3, 9)])
def test_the_simulated_machine_takes_as_long(name, p, m):
    f, b, w, message = 1.0, 1.25, 0.75, 0.125
    orders = SCHEDULES[name].orders(p, m)

    def stage(comm):
        i = comm.rank
        inputs, gradients = [torch.zeros(1) for _ in range(m)], [torch.zeros(1) for _ in range(m)]
        forwards = [comm.irecv(x, i - 1, tag=k) for k, x in enumerate(inputs)] if i else []
        backwards = [comm.irecv(x, i + 1, tag=m + k) for k, x in enumerate(gradients)] if i < p - 1 else []
        sent = []
        for op, k, _ in orders[i]:
            waits, neighbour = {"F": (forwards, i + 1), "B": (backwards, i - 1), "W": ([], -1)}[op]
            if waits:
                waits[k].wait()
            whole = b if any(done.op == "W" for done in orders[i]) else b + w
            comm.compute({"F": f, "B": whole, "W": w}[op])
            if op != "W" and 0 <= neighbour < p:
                sent.append(comm.isend(torch.zeros(1), neighbour, tag=k if op == "F" else m + k))
        for request in sent:
            request.wait()

    machine = simulate(stage, p, alpha=message, beta=0.0)
    assert play(orders, f, b, w, message=message).makespan == pytest.approx(machine.seconds)


def test_a_message_that_occupies_its_sender_costs_every_microbatch():
    free = play(one_f_one_b(2, 8), 1.0, 1.0, message=0.5)
    busy = play(one_f_one_b(2, 8), 1.0, 1.0, message=0.5, blocking=True)
    assert play(gpipe(2, 8), 1.0, 1.0, message=0.5).makespan == 19.0
    assert play(gpipe(2, 8), 1.0, 1.0, message=0.5, blocking=True).makespan == 18.0 + 16 * 0.5
    assert busy.makespan > free.makespan


def test_boundaries_have_their_own_messages():
    timeline = play(gpipe(3, 1), 1.0, 1.0, message=[0.25, 0.5])
    assert timeline.makespan == 6 + 2 * 0.75
    assert play(zb_v(2, 1), 1.0, 1.0, 0.0, parts=v_shaped(2), message=10.0).makespan == 8 + 4 * 10


def test_memory_counts_what_waits_for_b_and_what_waits_for_w():
    timeline = play(zb_h1(4, 8), 1.0, 1.0, 1.0)
    assert timeline.memory() == [4] * 4
    assert timeline.memory(weight_share=0.0) == [4, 3, 2, 1]  # as 1F1B, if W needed nothing
    assert play(one_f_one_b(4, 8), 1.0, 1.0).memory([10, 20, 30, 40]) == [40, 60, 60, 40]
    curve = play(gpipe(1, 2), 1.0, 2.0).memory_curve(0)
    assert curve == [(0.0, 0.0), (0.0, 1.0), (1.0, 2.0), (4.0, 1.0), (6.0, 0.0)]


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=9), st.data())
@settings(max_examples=80, deadline=None)
def test_no_other_cut_into_stages_is_better_balanced(layers, data):
    stages = data.draw(st.integers(1, len(layers)))

    def slowest(limits):
        return max(sum(layers[start:stop]) for start, stop in itertools.pairwise(limits))

    limits = balance(layers, stages)
    cuts = itertools.combinations(range(1, len(layers)), stages - 1)
    assert slowest(limits) == pytest.approx(min(slowest([0, *cut, len(layers)]) for cut in cuts))
    assert len(limits) == stages + 1
    assert limits == sorted(set(limits))


@pytest.mark.labs
@pytest.mark.parametrize("name", SCHEDULES)
def test_256_stages_and_1024_microbatches_take_less_than_10_seconds(name):
    begin = time.process_time()  # of this process: others may use the machine
    timeline = played(name, 256, 1024, 1.0, 1.0, 1.0)
    assert timeline.bubble < 0.2
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ([[("B", 0, 0), ("F", 0, 0)]], "stage 0 waits for the input of B of microbatch 0"),
        ([[("F", 0, 0)], [("F", 1, 0)]], "stage 1 waits for the input of F of microbatch 1"),
        ([[("F", 0, 0), ("F", 0, 0)]], r"orders\[0\] has \('F', 0, 0\) twice"),
        ([[("X", 0, 0)]], r"orders\[0\] has \('X', 0, 0\); an op is F, B or W"),
    ],
)
def test_orders_that_cannot_be_followed_are_named(orders, said):
    with pytest.raises(ValueError, match=said):
        play(orders, 1.0, 1.0)


def test_seconds_and_messages_must_fit_the_stages():
    with pytest.raises(ValueError, match=r"forward is \[1.0, 2.0\]; for 3 stages with 1 chunks each"):
        play(gpipe(3, 2), [1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="message has 1 values; 3 parts have 2 boundaries"):
        play(gpipe(3, 2), 1.0, 1.0, message=[1.0])
    with pytest.raises(ValueError, match="stages is 4; 3 layers make 1 to 3 stages"):
        balance([1.0, 2.0, 3.0], 4)
