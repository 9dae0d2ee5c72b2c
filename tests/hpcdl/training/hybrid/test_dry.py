"""Four truths of a mesh: what a rank sends and holds, alone, simulated and over MPI, is equal to the byte."""

import re

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.memory import meter
from hpcdl.training import Configuration
from hpcdl.training.hybrid.dry import COUNTED, NUMBERS, corners, dry_run, dry_step, simulated_step, truths
from hpcdl.training.hybrid.metering import BY_KIND

labs = pytest.mark.labs


def counted(records: list[dict]) -> list[dict]:
    return [{name: record[name] for name in NUMBERS} for record in records]


@pytest.mark.parametrize(
    "options",
    [
        {"model": "mlp", "mesh": (3, 1, 1, 1), "sharding": 3},
        {"model": "lenet", "mesh": (1, 2, 1, 1), "schedule": "zb_h1", "microbatches": 3},
        pytest.param({"model": "mlp", "mesh": (3, 1, 1, 1), "sharding": 1}, marks=labs),
        pytest.param({"model": "mlp", "mesh": (2, 1, 1, 1), "sharding": 2, "microbatches": 2}, marks=labs),
        pytest.param({"model": "gpt", "mesh": (1, 1, 3, 2)}, marks=labs),
        pytest.param({"model": "gpt", "mesh": (2, 2, 2, 1), "sharding": 1, "microbatches": 2}, marks=labs),
    ],
    ids=str,
)
def test_a_rank_alone_counts_what_it_does_among_others(options):
    configuration = Configuration(batch=9, **options)
    alone = [dry_step(configuration, rank) for rank in range(configuration.ranks)]
    assert counted(alone) == counted(simulated_step(configuration))
    assert all(record["bytes_sent"] and record["messages"] and record["peak_bytes"] for record in alone)
    assert all(record["bytes_sent"] == sum(record[name] for name in BY_KIND) for record in alone)


@labs  # sixteen ranks, each alone and all simulated
def test_the_corners_of_a_mesh_have_its_largest_ranks():
    configuration = Configuration(model="mlp", mesh=(5, 2, 2, 1), sharding=1, batch=12)
    chosen = [dry_step(configuration, rank) for rank in corners(configuration)]
    everyone = simulated_step(configuration)
    assert len(chosen) < len(everyone)
    for name in COUNTED:
        assert max(record[name] for record in chosen) == max(record[name] for record in everyone)


def test_a_thousand_ranks_are_tried_by_few(monkeypatch):
    configuration = Configuration(model="mlp", mesh=(256, 2, 2, 1), batch=512)
    assert len(corners(configuration)) == 12
    monkeypatch.setattr("hpcdl.training.hybrid.dry.QUIET", -1.0)
    told: list[str] = []
    lines = dry_run(configuration.changed(mesh=(512, 1, 1, 1)), told.append)
    assert told == [f"dry run    {done} of 3 ranks tried" for done in range(3)]
    assert lines[0] == "dry run    3 of 512 ranks, one after the other; 8 can be simulated together"
    assert re.search(r"bytes sent +[\d,]{6,}$", lines[2])


def test_the_table_has_the_difference():
    lines = truths({"dry": dict.fromkeys(COUNTED, 1000), "run": dict.fromkeys(COUNTED, 998)})
    assert lines[0].split()[-3:] == ["dry", "run", "difference"]
    assert [line.split()[-3:] for line in lines[1:]] == [["1,000", "998", "2"]] * 3


def test_the_table_shows_each_kind_and_any_rank_that_differs():
    """Two ranks that exchange their roles have the same maximum."""
    columns = {"dry": dict.fromkeys(NUMBERS, 1000) | {"tensor_bytes": 0}}
    lines = truths(columns | {"run": columns["dry"]}, dict.fromkeys(NUMBERS, 0) | {"control_bytes": 7})
    assert [line.split()[1] for line in lines[4:]] == ["gradients", "parameters", "activations", "sequence", "control"]
    assert [line.split()[-1] for line in lines[1:]] == ["0"] * 7 + ["7"]


def test_a_meter_sees_no_tensor_of_another_rank():
    """A message is copied in the thread of the rank that comes last, which may be its sender."""

    def rank(comm):
        x = torch.zeros(1000)
        with meter(x) as memory:
            comm.compute(comm.rank)
            if comm.rank:
                comm.send(x, 0)
            else:
                comm.recv(x, 1)
        return memory.peak.total

    assert simulate(rank, 2).results == [4000, 4000]


@labs  # starts processes
@pytest.mark.mpi
def test_a_live_run_says_how_it_differs_and_does_not(mpiexec, tmp_path):
    options = [
        "--model",
        "gpt",
        "--mesh",
        "data=2,pipeline=2",
        "--sharding",
        "2",
        "--microbatches",
        "2",
        "--steps",
        "2",
    ]
    code, printed = mpiexec(4, "-m", "hpcdl", "train", *options, "--log", str(tmp_path / "log"))
    assert code == 0, printed
    kinds = re.findall(r"^sent: (\w+) +([\d,]+) +([\d,]+) +([\d,]+)$", printed, re.MULTILINE)
    assert [(kind, apart) for kind, _, _, apart in kinds] == [
        (kind, "0") for kind in ("gradients", "parameters", "activations", "control")
    ]
    said = ", ".join(f"{kind} {sent}" for kind, sent, _, _ in kinds)
    assert f"dry run    a rank sends at most these bytes in a step: {said}\n" in printed.partition("step 1: loss")[0]
    found = re.findall(r"^(bytes sent|messages|peak bytes) +([\d,]+) +([\d,]+) +([\d,]+)$", printed, re.MULTILINE)
    assert [(name, apart) for name, _, _, apart in found] == [(name.replace("_", " "), "0") for name in COUNTED]
