"""Ranks die, others continue, new ones come in: losses are those of a plain loop of torch, each step once."""

import os
import random

import pytest
import torch

from hpcdl.cluster import Cluster
from hpcdl.comm import RankError
from hpcdl.comm.simulated.communicator import SimulatedComm
from hpcdl.data.loader import epoch_order
from hpcdl.training import Configuration, train_elastic
from hpcdl.training.hybrid.configuration import ConfigurationError, parse_mesh
from hpcdl.training.hybrid.elastic import RankLostError
from hpcdl.training.hybrid.models import build

CLOSE = 1e-12
OPTIONS = {"model": "mlp", "precision": "fp64", "optimizer": "adam", "batch": 12, "seed": 2}


def quiet(line):
    """Print no line."""


def serial(steps: int) -> list[float]:
    """The losses by torch alone. A step has the same batch on any ranks, so no membership changes them."""
    model, losses = build("mlp"), []
    with torch.random.fork_rng():
        torch.manual_seed(2)
        net = model.dense().double()
    optimizer, (x, y) = torch.optim.Adam(net.parameters(), lr=1e-3), model.data
    for chosen in epoch_order(len(y), 2, 0).split(12)[:steps]:
        loss = torch.nn.functional.cross_entropy(net(x[chosen].double()), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(records: list[dict], steps: int) -> list[int]:
    """Each step is there once, with the oracle's loss; return the ranks of each."""
    assert [record["step"] for record in records] == list(range(1, steps + 1))
    assert [record["loss"] for record in records] == pytest.approx(serial(steps), rel=CLOSE, abs=CLOSE)
    return [Configuration(mesh=parse_mesh(record["mesh"])).ranks for record in records]


@pytest.mark.parametrize(
    ("mesh", "sharding", "every"),
    [
        ("data=4", 1, 1),
        ("data=4", 0, 5),
        pytest.param("data=4", 1, 5, marks=pytest.mark.long),
        pytest.param("data=2,pipeline=2", 0, 5, marks=pytest.mark.long),
        pytest.param("data=2,tensor=2", 3, 5, marks=pytest.mark.long),
    ],
)
def test_others_continue_and_a_new_rank_comes_in(mesh, sharding, every, tmp_path):
    """Rank 1 dies in step 3, and its replacement comes in for step 5; in step 6 two die, one after the other."""
    options, said = {**OPTIONS, "mesh": mesh, "sharding": sharding, "steps": 9, "every": every}, []
    folder, kills = str(tmp_path / "state"), {3: 1, 6: 3, 7: 0}
    records = train_elastic(None, checkpoint=folder, kills=kills, say=said.append, **options)
    assert check(records, 9) == [4, 4, 3, 3, 4, 3, 2, 2, 4]
    lines = [line for line in said if line.startswith("on from step")]
    assert [line.split(":")[0] for line in lines] == [
        f"on from step {step} with {ranks} ranks" for step, ranks in [(2, 3), (4, 4), (5, 3), (6, 2), (8, 4)]
    ]
    assert all(line.endswith(", from the ranks' memory") == (every > 1) for line in lines)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))])
def test_a_kill_at_any_moment(seed, tmp_path, monkeypatch):
    """At any message and any write to the disk, on a mesh of four ranks with any sharding."""
    rng = random.Random(seed)
    mesh, sharding = rng.choice(["data=4", "data=2,pipeline=2", "data=2,tensor=2", "tensor=4"]), rng.randrange(4)
    moments = [rng.randint(1, 300), rng.randint(301, 500)]
    every, steps = rng.choice([(1, 5), (5, 9)])
    isend, fsync, now, killed = SimulatedComm._isend, os.fsync, [0], []

    def tick(work, *arguments):
        now[0] += 1
        if now[0] in moments:
            killed.append(now[0])
            raise RankLostError
        return work(*arguments)

    monkeypatch.setattr(SimulatedComm, "_isend", lambda *message: tick(isend, *message))
    monkeypatch.setattr(os, "fsync", lambda file: tick(fsync, file))
    options = {**OPTIONS, "mesh": mesh, "sharding": sharding, "steps": steps, "say": quiet, "every": every}
    check(train_elastic(None, checkpoint=str(tmp_path / "state"), **options), steps)
    assert killed == moments


def test_fewer_than_a_quorum_stop_and_can_start_again(tmp_path):
    options = {**OPTIONS, "steps": 4, "checkpoint": str(tmp_path / "state"), "say": quiet}
    with pytest.raises(ConfigurationError) as raised:
        train_elastic(None, mesh="data=3", kills={2: 2, 3: 0}, quorum=2, **options)
    said = "1 rank is left after step 2, and quorum is 2; the checkpoint has step 2: start again with a mesh that"
    assert said in str(raised.value)
    records = train_elastic(None, mesh="pipeline=2", **options)
    assert [record["step"] for record in records] == [3, 4]
    assert [record["loss"] for record in records] == pytest.approx(serial(4)[2:], rel=CLOSE)


def test_an_error_is_no_death(tmp_path):
    """A rank that raises would raise again on any mesh."""
    options = {**OPTIONS, "mesh": "data=2", "lr": 1e200, "optimizer": "sgd", "steps": 9}
    with pytest.raises(RankError, match="FloatingPointError"):
        train_elastic(None, checkpoint=str(tmp_path / "state"), say=quiet, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quorum": 0}, "quorum is 0; it is a number of ranks, 1 to 2"),
        ({"quorum": 3}, "quorum is 3; it is a number of ranks, 1 to 2"),
        ({"rejoin_after": 0}, "rejoin_after is 0; it is a number of steps, 1 or more"),
        ({"every": 0}, "every is 0; it is a number of steps, 1 or more"),
    ],
)
def test_options_out_of_range_are_a_sentence(options, said, tmp_path):
    with pytest.raises(ConfigurationError, match=said):
        train_elastic(None, checkpoint=str(tmp_path), mesh="data=2", model="mlp", **options)


@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.long  # engines start again after each of 20 kills
@pytest.mark.filterwarnings("ignore::hpcdl.cluster.OversubscribedWarning")  # nothing is timed
@pytest.mark.parametrize("seed", range(10))
def test_kills_on_four_engines(seed, tmp_path):
    rng = random.Random(seed)
    kills = {step: rng.randrange(4) for step in (2, 4)}
    options = {**OPTIONS, "mesh": rng.choice(["data=4", "data=2,pipeline=2"]), "sharding": rng.randrange(4)}
    options |= {"every": 1 if seed % 3 else 5, "rejoin_after": 1, "steps": 5}
    said: list[str] = []
    with Cluster(n=4) as cluster:
        folder = str(tmp_path / "state")
        records = train_elastic(cluster, checkpoint=folder, kills=kills, say=said.append, **options)
    assert check(records, 5) == [4, 3, 4, 3, 4]
    assert len([line for line in said if line.endswith(", from the ranks' memory")]) == (0 if seed % 3 else 4)
