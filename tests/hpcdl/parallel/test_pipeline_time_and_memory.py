"""Schedules at work take the predicted seconds, and hold the promised microbatches."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from hpcdl.comm import simulate
from hpcdl.cost.pipeline import play
from hpcdl.cost.timeline import Timeline
from hpcdl.memory import meter
from hpcdl.parallel.pipeline import Layers, cut_batch, run_stage
from hpcdl.parallel.schedules import SCHEDULES, in_flight

HIDDEN = 6

# -- seconds ----------------------------------------------------------------------------------------------------------


class Timed:
    """A chunk that takes so long."""

    def __init__(self, comm, forward, backward, weight):
        self.comm, self.seconds = comm, (forward, backward, weight)

    def forward(self, k, x):
        self.comm.compute(self.seconds[0])
        return torch.zeros(1, 1)

    def backward(self, k, dy):
        self.comm.compute(self.seconds[1] + self.seconds[2])
        return torch.zeros(1, 1)

    def backward_input(self, k, dy):
        self.comm.compute(self.seconds[1])
        return torch.zeros(1, 1)

    def backward_weight(self, k):
        self.comm.compute(self.seconds[2])


def timed(name, p, m, message, **options):
    """A stage of each rank, and what is predicted."""
    schedule = SCHEDULES[name]
    orders, parts = schedule.orders(p, m), schedule.parts(p, schedule.chunks)
    seconds = [t / schedule.chunks for t in (1.0, 1.25, 0.75)]

    def rank(comm):
        chunks = [Timed(comm, *seconds) for _ in range(schedule.chunks)]
        rows = [(torch.zeros(1, 1), torch.zeros(1, 1))] * m
        return run_stage(comm, chunks, orders, rows, lambda y, _: y.sum(), (1,), parts=parts, **options)

    return simulate(rank, p, alpha=message), play(orders, *seconds, message=message, parts=parts)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 3), (3, 7), (4, 6), (4, 12), (5, 11)])
def test_schedule_runs_as_predicted(name, p, m):
    run, predicted = timed(name, p, m, message=0.125)
    assert run.seconds == pytest.approx(predicted.makespan)
    starts, ends = [r.starts for r in run.results], [r.ends for r in run.results]
    measured = Timeline(predicted.orders, starts, ends, predicted.parts)
    assert measured.bubble == pytest.approx(predicted.bubble)
    assert [pytest.approx(mine) for mine in predicted.ends] == ends


def test_receives_posted_ahead_are_what_lets_messages_travel_meanwhile():
    makespans = [timed("one_f_one_b", 4, 9, message=0.5, ahead=ahead)[0].seconds for ahead in (0, 1, None)]
    assert makespans[0] > makespans[1] == makespans[2]


# -- memory -----------------------------------------------------------------------------------------------------------


class Keep(torch.autograd.Function):
    """Keeps `FACTOR` tensors like the input for the backward pass."""

    FACTOR = 256

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.repeat(Keep.FACTOR, 1))
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0][: len(dy)].cos()


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN, dtype=torch.float64))

    def forward(self, x):
        return Keep.apply(x * self.weight)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(2, 9), (3, 12), (4, 5)])
def test_a_stage_holds_as_many_microbatches_as_its_schedule_promises(name, p, m):
    schedule = SCHEDULES[name]
    parts, rows = schedule.parts(p, schedule.chunks), 8
    x = torch.randn(m * rows, HIDDEN, dtype=torch.float64)

    def rank(comm):
        chunks = [Layers(Kept()) for _ in range(schedule.chunks)]
        with meter(x) as m_:
            orders = schedule.orders(p, m)
            run_stage(comm, chunks, orders, cut_batch(x, x, m), mse_loss, (HIDDEN,), parts=parts, dtype=torch.float64)
            return m_.highest["temporaries"] / (Keep.FACTOR * rows * HIDDEN * 8)

    held = simulate(rank, p).results
    orders = schedule.orders(p, m)
    assert [int(microbatches) for microbatches in held] == [in_flight(order) for order in orders]
    assert all(microbatches <= schedule.in_flight(p, m, i) + 0.3 for i, microbatches in enumerate(held))


def test_recomputation_keeps_inputs_and_one_microbatch():
    rows, m = 8, 6
    x = torch.randn(m * rows, HIDDEN, dtype=torch.float64)

    def rank(comm, recompute):
        with meter(x) as m_:
            chunk = Layers(Kept(), recompute)
            run_stage(comm, [chunk], SCHEDULES["gpipe"].orders(1, m), cut_batch(x, x, m), mse_loss, (HIDDEN,))
            return m_.highest["temporaries"] / (rows * HIDDEN * 8)

    (whole,), (again,) = (simulate(rank, 1, recompute).results for recompute in (False, True))
    assert whole >= m * Keep.FACTOR
    assert again <= 2 * Keep.FACTOR + 4 * m  # of one microbatch, beside what is made again
