"""What cannot be run is one sentence, on simulated ranks and on engines; no rank hangs, and the engines work again."""

import sys
import warnings

import cloudpickle
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning
from hpcdl.cluster.launcher import LauncherError, find_launcher
from hpcdl.comm import CommError, simulate
from hpcdl.nn.stage import Stage
from hpcdl.parallel import Layers, Mesh, run_stage
from hpcdl.parallel.pipeline import cut_layers
from hpcdl.parallel.schedules import one_f_one_b
from hpcdl.parallel.tensor import ChannelConv2d, FilterConv2d

PARTS, M, WIDTH = [(0, 0), (1, 0)], 3, 4


class Broken(nn.Linear):
    def forward(self, x):
        raise ArithmeticError("this layer is broken")


def layers(n: int = 3) -> list[nn.Module]:
    """Three layers for two stages: they do not divide, and are cut two and one."""
    torch.manual_seed(0)
    return [nn.Linear(WIDTH, WIDTH) for _ in range(n)]


def batch(sizes=(2, 1, 2)) -> list:
    torch.manual_seed(1)
    return [(torch.randn(n, WIDTH), torch.randn(n, WIDTH)) for n in sizes]


def train(comm, change=lambda orders: orders, sizes=(2, 1, 2), n=3, module=None) -> float | None:
    """A step of the library's pipeline: the loss, on the last stage."""
    (chunk,) = cut_layers(layers(n), PARTS, comm.rank)
    chunk = module if module and comm.rank else chunk
    orders = change([list(order) for order in one_f_one_b(2, M)])
    return run_stage(comm, [Layers(chunk)], orders, batch(sizes), mse_loss, (WIDTH,)).loss


def by_hand(comm, change=lambda orders: orders, sizes=(2, 1, 2), module=None) -> None:
    """What a student writes around a `Stage`: it does what its order says, and knows no other's."""
    orders, last = change([list(order) for order in one_f_one_b(2, M)]), comm.rank == 1
    (chunk,) = cut_layers(layers(), PARTS, comm.rank)
    x, y = zip(*batch(sizes), strict=True)
    stage = Stage(
        module if module and last else chunk,
        [len(part) for part in x],
        inputs=None if last else x,
        targets=y if last else None,
        loss=mse_loss if last else None,
        takes=(WIDTH,),
        gives=(WIDTH,),
    )
    came = {op: stage.empty(*op[:2]) for op in orders[comm.rank] if op[0] == "FB"[1 - last]}
    posted = {op: comm.irecv(out, 1 - comm.rank, tag=op[1]) for op, out in came.items()}
    sent = []
    for op in orders[comm.rank]:
        if op in posted:
            posted[op].wait()
        made = stage.forward(op[1], came.get(op)) if op[0] == "F" else stage.backward(op[1], came.get(op, 1 / M))
        if (op[0] == "B") == last:
            sent.append(comm.isend(made, 1 - comm.rank, tag=op[1]))
    for request in sent:
        request.wait()


def lacks(*op):
    return lambda orders: [[o for o in order if i == 0 or tuple(o) != op] for i, order in enumerate(orders)]


def doubles(*op):
    return lambda orders: [orders[0], [o for o in orders[1] for _ in range(1 + (tuple(o) == op))]]


LAST = ("B", M - 1, 0)
CASES = {
    "too few layers": (lambda comm: train(comm, n=1), "there are 1 layers for 2 parts; each part needs a layer"),
    "too few filters": (
        lambda comm: FilterConv2d.of(nn.Conv2d(2, 1, 3), comm),
        "out_channels is 1 on 2 ranks; each rank has one or more: use fewer ranks",
    ),
    "too few channels": (lambda comm: ChannelConv2d.of(nn.Conv2d(1, 2, 3), comm), "in_channels is 1 on 2 ranks"),
    "a mesh of other ranks": (lambda comm: Mesh(comm, data=3), "is 3; it must be the 2 ranks of comm"),
    "a missing op": (lambda comm: train(comm, lacks(*LAST)), r"orders\[1\] lacks \('B', 2, 0\)|cannot be followed"),
    "an op twice": (lambda comm: train(comm, doubles(*LAST)), r"orders\[1\] has \('B', 2, 0\) twice"),
    "no rows": (lambda comm: train(comm, sizes=(2, 0, 2)), r"microbatches have \[2, 0, 2\] rows"),
    "a stage that raises": (
        lambda comm: train(comm, module=Broken(WIDTH, WIDTH)),
        "rank 1 raised ArithmeticError: this layer is broken",
    ),
    "by hand, an op twice": (
        lambda comm: by_hand(comm, doubles("F", 1, 0)),
        "rank 1 raised ValueError: F of microbatch 1 comes twice; a stage does it once",
    ),
    "by hand, no rows": (
        lambda comm: by_hand(comm, sizes=(2, 0, 2)),
        r"ValueError: rows is \[2, 0, 2\]; a microbatch has 1 or more",
    ),
    "by hand, a stage that raises": (
        lambda comm: by_hand(comm, module=Broken(WIDTH, WIDTH)),
        "rank 1 raised ArithmeticError: this layer is broken",
    ),
}
every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_bad_input_is_one_sentence_on_simulated_ranks(name):
    work, said = CASES[name]
    with pytest.raises(CommError, match=said) as error:
        simulate(work, 2)
    assert "\n" not in str(error.value)


def test_a_missing_op_by_hand_says_who_waits_for_what():
    with pytest.raises(CommError, match=r"rank 0 waits in irecv\(source=1, tag=2\).*\nrank 1 returned"):
        simulate(lambda comm: by_hand(comm, lacks(*LAST)), 2)


@pytest.fixture(scope="module")
def engines(need):
    try:
        find_launcher()
    except LauncherError as error:
        need("mpi", False, str(error))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        with Cluster(2) as running:
            yield running
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def work_again(engines):
    """After the test: three layers on two engines have the loss of one machine."""
    yield
    x, y = (torch.cat(part) for part in zip(*batch(), strict=True))
    expected = mse_loss(nn.Sequential(*layers())(x), y).item()
    assert engines.run(train, timeout=20.0) == [None, pytest.approx(expected)]


@pytest.mark.mpi
@pytest.mark.labs  # engines of their own, and a wait that ends by its time limit
@pytest.mark.usefixtures("work_again")
class TestOnEngines:
    @every_case
    def test_bad_input_is_one_sentence_and_the_engines_go_on(self, engines, name):
        work, said = CASES[name]
        with pytest.raises(ClusterError, match=said) as error:
            engines.run(work, timeout=20.0)
        assert "Traceback" not in str(error.value)

    def test_a_missing_op_by_hand_ends_with_the_time_limit(self, engines):
        with pytest.raises(ClusterError, match=r"rank 0 stood in irecv\(source=1, tag=2\)") as error:
            engines.run(by_hand, lacks(*LAST), timeout=15.0)
        assert "Traceback" not in str(error.value)
