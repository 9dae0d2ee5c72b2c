"""Any schedule at work: the serial gradients, the messages, the predicted seconds and the promised memory."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.flop_counter import FlopCounterMode

from hpcdl.comm import RankError, simulate
from hpcdl.cost.pipeline import play
from hpcdl.cost.timeline import Timeline
from hpcdl.memory import meter
from hpcdl.parallel.pipeline import Layers, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import SCHEDULES, Op, in_flight, one_f_one_b, zb_h1

HIDDEN = 6
ROWS = [3, 1, 2, 1, 3, 1, 2]  # of the microbatches: unequal


def network(layers=11, dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh()) for _ in range(layers))).to(dtype)


def batch(rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, sum(rows), HIDDEN, generator=generator, dtype=torch.float64)
    return x, y, list(zip(x.split(rows), y.split(rows), strict=True))


def stage(comm, schedule, microbatches, recompute=False, net=None, **options):
    """One batch through a stage: its run, and the gradients of the parameters that it has, by their numbers."""
    parts = schedule.parts(comm.size, schedule.chunks)
    net = network() if net is None else net
    chunks = cut_layers(net, parts, comm.rank)
    orders = schedule.orders(comm.size, len(microbatches))
    options = {"parts": parts, "dtype": torch.float64, **options}
    run = run_stage(
        comm, [Layers(chunk, recompute) for chunk in chunks], orders, microbatches, mse_loss, (HIDDEN,), **options
    )
    mine = {id(param) for chunk in chunks for param in chunk.parameters()}
    return run, {n: param.grad for n, param in enumerate(net.parameters()) if id(param) in mine}


def serial(x, y):
    net = network()
    loss = mse_loss(net(x), y)
    loss.backward()
    return loss.item(), {n: param.grad for n, param in enumerate(net.parameters())}


# -- values and messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_schedule_finds_the_serial_gradients(name, p, recompute):
    x, y, microbatches = batch()
    loss, gradients = serial(x, y)
    run = simulate(stage, p, SCHEDULES[name], microbatches, recompute)
    found = {n: gradient for _, mine in run.results for n, gradient in mine.items()}
    torch.testing.assert_close(found, gradients, rtol=1e-12, atol=1e-14)
    assert [r.loss for r, _ in run.results if r.loss is not None] == [pytest.approx(loss, rel=1e-12)]
    parts = SCHEDULES[name].parts(p, SCHEDULES[name].chunks)
    crossings = sum(here[0] != there[0] for here, there in pairwise(parts))
    sent = [event.nbytes for event in run.trace if event.op == "send"]
    assert sorted(sent) == sorted(rows * HIDDEN * 8 for rows in ROWS for _ in range(2 * crossings))


def test_gradients_of_microbatches_and_of_batches_add_up():
    x, y, microbatches = batch()

    def twice(comm):
        net = network()
        for half in (microbatches[:3], microbatches[3:]):
            _, found = stage(comm, SCHEDULES["zb_h1"], half, net=net, total=len(x))
        return found

    found = {n: gradient for mine in simulate(twice, 2).results for n, gradient in mine.items()}
    torch.testing.assert_close(found, serial(x, y)[1], rtol=1e-12, atol=1e-14)


def test_parts_may_differ_in_what_passes_between_them_and_begin_with_tokens():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 4), nn.Sequential(nn.Flatten(1, 2), nn.Linear(12, 5)), nn.Linear(5, 7)).double()
    tokens, target = torch.randint(9, (6, 3)), torch.randint(7, (6,))
    cross_entropy(net(tokens), target).backward()
    expected = [param.grad.clone() for param in net.parameters()]
    net.zero_grad()

    def rank(comm):
        chunks = [Layers(chunk) for chunk in cut_layers(net, [(0, 0), (1, 0), (2, 0)], comm.rank)]
        microbatches = cut_batch(tokens, target, 4)
        run_stage(comm, chunks, zb_h1(3, 4), microbatches, cross_entropy, [(3, 4), (5,)], dtype=torch.float64)

    simulate(rank, 3)
    torch.testing.assert_close([param.grad for param in net.parameters()], expected, rtol=1e-12, atol=1e-14)


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
def test_a_schedule_takes_as_long_as_predicted_and_each_op_is_when_it_was_predicted(name, p, m):
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


def test_recomputed_dropout_is_the_same():
    net = nn.Sequential(nn.Linear(HIDDEN, 64), nn.Dropout(0.5), nn.Linear(64, HIDDEN)).double()
    x = torch.randn(5, HIDDEN, dtype=torch.float64)
    found = []
    for recompute in (False, True):
        net.zero_grad()
        layers = Layers(net, recompute)
        torch.manual_seed(3)
        y = [layers.forward(k, x) for k in range(2)]
        for k in range(2):
            layers.backward(k, torch.ones_like(y[k]))
        found.append([param.grad.clone() for param in net.parameters()])
    torch.testing.assert_close(*found)


# -- B and W ----------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """A layer called twice, a weight of no layer, a weight of two layers, and one that is frozen or unused."""

    def __init__(self):
        super().__init__()
        self.twice, self.one, self.other = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.other.weight = self.one.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.frozen, self.unused = nn.Linear(HIDDEN, HIDDEN).requires_grad_(False), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        self.unused(x)
        return self.other(torch.tanh(self.one(self.frozen(self.twice(torch.tanh(self.twice(x))))))) * self.scale


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    "build",
    [Tied, lambda: nn.TransformerEncoderLayer(HIDDEN, 2, 8, dropout=0.0, batch_first=True)],
    ids=["tied", "attention"],
)
def test_b_and_w_apart_are_the_whole_backward_pass(build, recompute):
    torch.manual_seed(0)
    module, x = build().double(), torch.randn(2, 3, HIDDEN, dtype=torch.float64)
    dy = torch.randn_like(x)
    whole = x.clone().requires_grad_()
    module(whole).backward(dy)
    expected = [param.grad for param in module.parameters()]
    module.zero_grad()
    layers = Layers(module, recompute)
    layers.forward(0, x)
    layers.forward(1, 2 * x)
    torch.testing.assert_close(layers.backward_input(0, dy), whole.grad, rtol=1e-12, atol=1e-14)
    assert all(param.grad is None for param in module.parameters())
    layers.backward_weight(0)
    torch.testing.assert_close([param.grad for param in module.parameters()], expected, rtol=1e-12, atol=1e-14)


def test_b_leaves_all_products_for_the_weights_to_w():
    net, x = network(3), batch()[0]
    layers, products = Layers(net), 3 * 2 * len(x) * HIDDEN**2

    def flops(f, *args):
        with FlopCounterMode(display=False) as counter:
            f(*args)
        return counter.get_total_flops()

    assert flops(layers.forward, 0, x) == products
    assert flops(layers.backward_input, 0, torch.ones_like(x)) == products
    assert flops(layers.backward_weight, 0) == products


# -- what does not fit ------------------------------------------------------------------------------------------------


def run_with(comm, change, rows=(2, 1, 2), chunks=None, **options):
    orders = change([list(order) for order in one_f_one_b(2, 3)])
    _, _, microbatches = batch(list(rows))
    layers = [Layers(chunk) for chunk in cut_layers(network(4), [(0, 0), (1, 0)], comm.rank % 2)]
    options = {"between": (HIDDEN,), "dtype": torch.float64, **options}
    return run_stage(comm, layers if chunks is None else chunks, orders, microbatches, mse_loss, **options)


def without(stage, op):
    return lambda orders: [[o for o in order if i != stage or o != op] for i, order in enumerate(orders)]


def with_(stage, *ops):
    return lambda orders: [order + [Op(*op) for op in ops] * (i == stage) for i, order in enumerate(orders)]


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (without(0, ("B", 2, 0)), {}, r"orders\[0\] lacks \('B', 2, 0\); each of 3 microbatches"),
        (without(1, ("F", 1, 0)), {}, r"orders cannot be followed: stage \d waits for|orders\[1\] lacks"),
        (with_(1, ("F", 2, 0)), {}, r"orders\[1\] has \('F', 2, 0\) twice"),
        (with_(0, ("F", 3, 0), ("B", 3, 0)), {}, r"never comes"),
        (lambda orders: orders[::-1], {}, r"orders cannot be followed"),
        (lambda orders: orders, {"rows": (2, 0, 2)}, r"microbatches have \[2, 0, 2\] rows; .* the mean of no row"),
        (lambda orders: orders, {"rows": (2, 2)}, r"has \('F', 2, 0\), and the batch has 2 microbatches"),
        (lambda orders: orders, {"chunks": []}, r"there are 0 chunks; `parts` gives this stage 1"),
        (lambda orders: orders, {"between": [(6,), (6,)]}, r"between has 2 shapes; 2 parts have 1 boundaries"),
    ],
)
def test_what_cannot_be_run_is_said_by_every_rank_before_the_first_message(change, options, said):
    def rank(comm):
        with pytest.raises(ValueError, match=said):
            run_with(comm, change, **options)

    assert not [event for event in simulate(rank, 2).trace if event.op == "send"]


def test_a_pipeline_of_another_size_than_its_ranks_is_refused():
    with pytest.raises(RankError, match="orders has 2 stages and comm has 3 ranks"):
        simulate(run_with, 3, lambda orders: orders)


def test_a_stage_that_raises_ends_the_run_with_its_line():
    class Broken(nn.Module):
        def forward(self, x):
            raise ArithmeticError("the third layer is broken")

    def rank(comm):
        chunks = [Layers(Broken())] if comm.rank else None
        return run_with(comm, lambda orders: orders, chunks=chunks)

    with pytest.raises(RankError, match=r"rank 1 raised ArithmeticError: the third layer is broken"):
        simulate(rank, 2)


def test_layers_that_do_not_divide_are_cut_and_too_few_are_refused():
    layers = [nn.Identity() for _ in range(5)]
    sizes = [[len(chunk) for chunk in cut_layers(layers, SCHEDULES["zb_v"].parts(2, 2), i)] for i in range(2)]
    assert sizes == [[2, 1], [1, 1]]
    with pytest.raises(ValueError, match=r"there are 5 layers for 6 parts; each part needs a layer or more"):
        cut_layers(layers, SCHEDULES["zb_v"].parts(3, 2), 0)
    with pytest.raises(ValueError, match=r"m is 4, x has 3 rows and y 3"):
        cut_batch(torch.zeros(3, 1), torch.zeros(3, 1), 4)
