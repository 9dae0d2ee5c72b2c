"""A process group's list of its collectives counts only if the machine carried their messages."""

import pytest
import torch
import torch.distributed as dist

from autograder.checks import CheckFailure
from autograder.checks.collectives import carried_calls
from hpcdl.comm import simulate
from hpcdl.training.process_group import process_group


def all_kinds(comm):
    with process_group(comm) as group:
        x = torch.arange(7.0).double()
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_gather([torch.empty(7).double() for _ in range(comm.size)], x)
        group.reduce_scatter_single(torch.empty(5).double(), torch.ones(5 * comm.size).double())
        dist.scatter(torch.empty(3), [torch.ones(3)] * comm.size if comm.rank == 0 else None, src=0)
        return list(group.calls)


@pytest.fixture(scope="module", params=(2, 3))
def run(request):
    return simulate(all_kinds, request.param)


def test_a_true_list_is_believed(run):
    for rank, calls in enumerate(run.results):
        found = carried_calls(run, rank, calls, "here")
        assert [(call.name, call.nbytes) for call in found] == calls
        assert [name for name, _ in calls] == ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "scatter"]


LIES = {
    "nothing was sent": lambda calls: [],
    "one is left out": lambda calls: calls[1:],
    "the last is left out": lambda calls: calls[:3],
    "one is smaller": lambda calls: [("all_reduce", 8), *calls[1:]],
    "one is another": lambda calls: [("all_gather", calls[0][1]), *calls[1:]],
    "two are one": lambda calls: [*calls[:2], ("all_gather", calls[2][1] + calls[3][1]), *calls[4:]],
    "one is made up": lambda calls: [*calls, ("all_gather", 800)],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_false_list_is_not(run, lie):
    with pytest.raises(CheckFailure, match="not those of the collectives that its process group has noted"):
        carried_calls(run, 0, lie(run.results[0]), "here")
