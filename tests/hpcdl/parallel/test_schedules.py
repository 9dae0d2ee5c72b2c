"""Pipeline schedules: every op once and in an order that can be followed, in the memory that each promises."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torchs

from hpcdl.parallel import schedules
from hpcdl.parallel.schedules import SCHEDULES, in_flight, interleaved, looped, one_f_one_b, v_shaped, zb_v

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 24))


def follow(orders, parts):
    """Do the ops in any order that the stages' orders and the network allow; how many could be done."""
    done, position = set(), [0] * len(orders)
    place = {part: g for g, part in enumerate(parts)}

    def allowed(stage, op, k, chunk):
        g = place[stage, chunk]
        if op == "F":
            return g == 0 or ("F", k, g - 1) in done
        if op == "W":
            return ("B", k, g) in done
        return ("F", k, g) in done and (g == len(parts) - 1 or ("B", k, g + 1) in done)

    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while position[stage] < len(order) and allowed(stage, *order[position[stage]]):
                op, k, chunk = order[position[stage]]
                done.add((op, k, place[stage, chunk]))
                position[stage] += 1
                moved = True
    return len(done)


@pytest.mark.parametrize("name", SCHEDULES)
@given(SHAPES)
@settings(max_examples=60, deadline=None)
def test_every_op_comes_once_and_in_an_order_that_can_be_followed(name, shape):
    schedule, (p, m) = SCHEDULES[name], shape
    orders = schedule.orders(p, m)
    assert len(orders) == p
    for order in orders:
        kinds = "FBW" if any(op.op == "W" for op in order) else "FB"
        assert sorted(order) == sorted((op, k, c) for op in kinds for k in range(m) for c in range(schedule.chunks))
    assert follow(orders, schedule.parts(p, schedule.chunks)) == sum(map(len, orders))


@pytest.mark.parametrize("name", SCHEDULES)
@given(SHAPES)
@settings(max_examples=60, deadline=None)
def test_no_stage_holds_more_than_the_schedule_promises(name, shape):
    schedule, (p, m) = SCHEDULES[name], shape
    held = [in_flight(order) for order in schedule.orders(p, m)]
    bounds = [schedule.in_flight(p, m, i) for i in range(p)]
    assert all(ours <= bound for ours, bound in zip(held, bounds, strict=True))
    assert max(held) == max(bounds) or m < 2 * p  # with enough microbatches the bound is reached


@given(SHAPES, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_interleaving_works_for_any_number_of_microbatches_and_chunks(shape, v):
    p, m = shape
    orders = interleaved(p, m, v)
    assert follow(orders, looped(p, v)) == 2 * p * m * v


def test_orders_that_can_be_read():
    assert [" ".join(f"{op}{k}" for op, k, _ in order) for order in one_f_one_b(2, 3)] == [
        "F0 F1 B0 F2 B1 B2",
        "F0 B0 F1 B1 F2 B2",
    ]
    assert [" ".join(f"{op}{k}" for op, k, _ in order) for order in schedules.zb_h1(2, 3)] == [
        "F0 F1 B0 W0 F2 B1 W1 B2 W2",
        "F0 B0 F1 B1 W0 F2 B2 W1 W2",
    ]
    assert [" ".join(f"{op}{k}{'ab'[c]}" for op, k, c in order) for order in zb_v(2, 3)] == [
        "F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a W0a F2b B2b W2b B1a W1a B2a W2a",
        "F0a F0b F1a F1b B0b W0b F2a B0a W0a F2b B1b B1a B2b W1b B2a W1a W2b W2a",
    ]


def test_the_v_comes_back_to_the_first_stage():
    assert v_shaped(3) == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]
    assert looped(2, 2) == [(0, 0), (1, 0), (0, 1), (1, 1)]


# -- torch.distributed.pipelining, as a second opinion ----------------------------------------------------------------

KINDS = {torchs.FORWARD: "F", torchs.FULL_BACKWARD: "B", torchs.BACKWARD_INPUT: "B", torchs.BACKWARD_WEIGHT: "W"}


def translated(actions, parts):
    """torch's actions of one rank as our ops."""
    known = [action for action in actions if action is not None and action.computation_type in KINDS]
    return [(KINDS[a.computation_type], a.microbatch_index, parts[a.stage_index][1]) for a in known]


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 2), (2, 5), (4, 4), (4, 9), (8, 32)])
def test_1f1b_and_gpipe_are_torchs(p, m):
    shape = SimpleNamespace(_num_stages=p, _n_microbatches=m)
    for theirs, ours in ((torchs.Schedule1F1B, one_f_one_b), (torchs.ScheduleGPipe, schedules.gpipe)):
        orders = [translated(order, looped(p)) for order in theirs._get_pipeline_order(shape).values()]
        if theirs is torchs.Schedule1F1B:  # whose picture numbers the last stage's forward passes from 1
            orders[-1] = [(op, k - (op == "F"), chunk) for op, k, chunk in orders[-1]]
        assert orders == ours(p, m)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (2, 6, 3), (4, 8, 2), (4, 10, 2), (4, 3, 2), (8, 32, 3)])
def test_interleaved_is_torchs(p, m, v):
    rounds = max(1, m // p)
    shape = SimpleNamespace(pp_group_size=p, n_local_stages=v, _n_microbatches=m, microbatches_per_round=m // rounds)
    parts = looped(p, v)
    theirs = [
        translated(torchs.ScheduleInterleaved1F1B._calculate_single_rank_operations(shape, i), parts) for i in range(p)
    ]
    ours = interleaved(p, m, v)
    assert theirs == ours


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 4), (4, 7), (4, 16), (8, 24)])
def test_zb_v_holds_no_more_than_torchs_and_is_as_long(p, m):
    shape = SimpleNamespace(pp_group_size=p, num_stages=2 * p, _n_microbatches=m)
    parts = v_shaped(p)
    theirs = [
        translated(torchs.ScheduleZBVZeroBubble._calculate_single_rank_operations(shape, i), parts) for i in range(p)
    ]
    ours = zb_v(p, m)
    assert [len(order) for order in ours] == [len(order) for order in theirs]
    assert [in_flight(order) for order in ours] == [in_flight(order) for order in theirs]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m", "said"), [(0, 4, "p is 0"), (2, 0, "m is 0"), (2, -1, "m is -1")])
def test_a_pipeline_without_stages_or_microbatches_is_refused(name, p, m, said):
    with pytest.raises(ValueError, match=said):
        SCHEDULES[name].orders(p, m)
