"""A hybrid of data, pipeline and tensor parallelism is the serial training, on simulated ranks and over MPI."""

import math
import runpy
from collections import Counter
from pathlib import Path

import pytest

from hpcdl.comm import RankError, simulate
from hpcdl.memory import meter
from hpcdl.parallel import Mesh, cut_layers, split_transformer
from hpcdl.parallel.schedules import SCHEDULES

PROGRAM = runpy.run_path(str(Path(__file__).parent / "hybrid.py"))
hybrid, decoder = PROGRAM["hybrid"], PROGRAM["decoder"]
TOKENS, HIDDEN, STEPS = PROGRAM["TOKENS"], PROGRAM["HIDDEN"], PROGRAM["STEPS"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_eight_ranks_train_as_one(name):
    run = simulate(lambda comm: hybrid(comm, name, 3, data=2, pipeline=2, tensor=2), 8)
    known = {(replica, part): found for replica, part, found, _ in run.results if found[0] is not None}
    assert len(known) == 4
    for part in range(2):  # each replica has its part of the loss
        total = [a + b for a, b in zip(known[0, part], known[1, part], strict=True)]
        assert total == pytest.approx(run.results[0][3], rel=1e-12)


@pytest.mark.parametrize("sizes", [(1, 3, 1), (3, 1, 1), (1, 1, 3), (1, 2, 3), (3, 2, 1)])
def test_other_meshes_train_as_one(sizes):
    named = dict(zip(("data", "pipeline", "tensor"), sizes, strict=True))
    simulate(lambda comm: hybrid(comm, "one_f_one_b", 2, **named), math.prod(sizes))


def test_messages_stay_in_lines_of_the_grid():
    run = simulate(lambda comm: hybrid(comm, "zb_h1", 3, data=2, pipeline=2, tensor=2), 8)
    sent, rows = Counter(), {0: 4, 1: 3}  # of a replica
    for event in run.trace:
        if event.op == "send":
            sent[event.rank ^ event.peer, event.rank >> 1 & 1] += event.nbytes
    x, words = TOKENS * HIDDEN * 8, TOKENS * 8  # bytes of a row, of one number for each token
    for replica in (0, 1):
        n = STEPS * rows[replica]
        # An all-reduce of two ranks sends 2 n: the embedding, twice a block each way, the gradient of the output's
        # input; of the loss two numbers for each token, from each.
        assert sent[1, replica] == n * (2 * x * (1 + 2 * 2 * 2 + 1) + 2 * 2 * words)
        assert sent[4, replica] == n * 2 * 2 * x  # there and back, for both parts
    held = [sum(param.numel() for param in split(decoder(), part)) for part in range(2)]
    assert sent[2, 0] + sent[2, 1] == STEPS * 2 * 8 * sum(held)
    assert sum(sent.values()) == sum(run.bytes_sent)


def split(net, part):
    """The parameters of one of two parts."""
    return simulate(lambda comm: list(split_transformer(net, comm).parameters()), 2).results[part]


def test_a_rank_holds_its_stages_share():
    def rank(comm):
        mesh = Mesh(comm, pipeline=2, tensor=2)
        chunks = cut_layers(split_transformer(decoder(), mesh.tensor), [(0, 0), (1, 0)], mesh.stage)
        with meter(*chunks) as m:
            return m.live["parameters"]

    held = simulate(rank, 4).results
    assert sum(held) == sum(sum(p.nbytes for p in split(decoder(), part)) for part in range(2))
    assert max(held) < 0.4 * sum(param.nbytes for param in decoder().parameters())


def test_the_groups_are_the_lines_of_the_grid():
    def rank(comm):
        mesh = Mesh(comm, data=2, pipeline=3, tensor=2)
        assert comm.rank == (mesh.stage * 2 + mesh.replica) * 2 + mesh.part
        assert (mesh.pipeline.rank, mesh.data.rank, mesh.tensor.rank) == (mesh.stage, mesh.replica, mesh.part)
        return mesh.tensor.ranks, mesh.data.ranks, mesh.pipeline.ranks

    assert simulate(rank, 12).results[7] == ([6, 7], [5, 7], [3, 7, 11])


@pytest.mark.parametrize("sizes", [{"data": 2}, {"tensor": 3}, {"pipeline": 4, "data": 0}])
def test_a_mesh_that_is_not_the_ranks_is_refused(sizes):
    with pytest.raises(RankError, match=r"tensor=\d is \d+; it must be the 4 ranks of comm"):
        simulate(lambda comm: Mesh(comm, **sizes), 4)


def test_sequence_ranks_stand_between_tensor_and_data():
    """Of 16 ranks each axis is a line, and the replicas are all ranks with the same weights."""

    def rank(comm):
        mesh = Mesh(comm, data=2, pipeline=2, tensor=2, sequence=2)
        place = mesh.stage, mesh.replica, mesh.position, mesh.part
        return place, [group.ranks for group in (mesh.pipeline, mesh.data, mesh.sequence, mesh.tensor, mesh.replicas)]

    for number, (place, lines) in enumerate(simulate(rank, 16).results):
        stage, replica, position, part = place
        assert number == ((stage * 2 + replica) * 2 + position) * 2 + part
        assert all(number in line for line in lines)
        for line, stride in zip(lines, (8, 4, 2, 1), strict=False):
            assert line[1] - line[0] == stride
        assert lines[4] == [stage * 8 + part + step for step in (0, 2, 4, 6)]
