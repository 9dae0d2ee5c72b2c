"""Any schedule at work: the serial gradients, the messages, the predicted seconds and the promised memory."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from hpcdl.comm import RankError, simulate
from hpcdl.parallel.pipeline import Layers, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import SCHEDULES, Op, one_f_one_b, zb_h1

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


def test_parts_may_pass_different_tensors():
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
        (lambda _: without(1, ("W", 1, 0))(zb_h1(2, 3)), {}, r"orders\[1\] lacks \('W', 1, 0\); .* passes F, B, W of"),
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
def test_every_rank_refuses_before_any_message(change, options, said):
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
