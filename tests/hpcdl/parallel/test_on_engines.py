"""Four live engines: a hybrid trains as one, and whatever goes wrong in a stage is said once, and no rank hangs."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from hpcdl.cluster import Cluster, ClusterError, OversubscribedWarning
from hpcdl.cluster.launcher import LauncherError, find_launcher
from hpcdl.parallel import Layers, run_stage
from hpcdl.parallel.schedules import one_f_one_b

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def engines(need):
    try:
        find_launcher()
    except LauncherError as error:
        need("mpi", False, str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscribedWarning)
        with Cluster(4) as running:
            yield running


@pytest.fixture(scope="module")
def program():
    """What engines run, which cannot import the tests."""
    return (Path(__file__).parent / "hybrid.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("schedule", "sizes"),
    [
        ("one_f_one_b", {"pipeline": 2, "tensor": 2}),
        ("zb_h1", {"data": 2, "pipeline": 2}),
        ("zb_v", {"data": 2, "pipeline": 2}),
        ("gpipe", {"data": 2, "tensor": 2}),
    ],
)
def test_four_engines_train_as_one(engines, program, schedule, sizes):
    def train(comm, program, schedule, sizes):
        names = {"__name__": "program"}
        exec(program, names)
        return names["hybrid"](comm, schedule, 3, **sizes)[0]

    assert len(engines.run(train, program, schedule, sizes, timeout=60.0)) == 4


@pytest.fixture
def work():
    """A stage of four, on an engine; `change` does something to orders, microbatches or the module of stage 2."""

    def work(comm, change):
        class Broken(nn.Module):
            def forward(self, x):
                raise ArithmeticError("the third stage is broken")

        orders = one_f_one_b(comm.size, 6)
        microbatches = [(torch.ones(2, 3), torch.ones(2, 3)) for _ in range(6)]
        module = Broken() if change == "module" and comm.rank == 2 else nn.Linear(3, 3)
        if change == "orders":
            orders[1].remove(("B", 4, 0))
        if change == "rows":
            microbatches[5] = (torch.ones(0, 3), torch.ones(0, 3))
        return run_stage(comm, [Layers(module)], orders, microbatches, mse_loss, (3,)).loss

    return work


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("module", "rank 2 raised ArithmeticError: the third stage is broken"),
        ("orders", "ranks 0 to 3 raised ValueError: orders cannot be followed"),
        ("rows", r"ranks 0 to 3 raised ValueError: microbatches have \[2, 2, 2, 2, 2, 0\] rows"),
    ],
)
def test_what_goes_wrong_is_said_once_and_the_engines_go_on(engines, work, change, said):
    with pytest.raises(ClusterError, match=said):
        engines.run(work, change, timeout=20.0)
    assert [loss is None for loss in engines.run(work, None, timeout=20.0)] == [True, True, True, False]
