"""A run continues from its checkpoint on another mesh, after a kill at any moment, and in torch alone."""

import errno
import json
import os
import random
import shutil

import pytest
import torch

from hpcdl.comm import RankError, simulate
from hpcdl.comm.simulated.communicator import SimulatedComm
from hpcdl.data.loader import epoch_order
from hpcdl.training import Configuration, Trainer
from hpcdl.training.hybrid.command import RunOptions, train_on

BASE = Configuration(model="mlp", precision="fp64", batch=12, steps=5, optimizer="adam", seed=2)
CLOSE = 1e-12
MESHES = [
    {"mesh": (2, 1, 1, 1), "sharding": 1},
    {"mesh": (1, 2, 1, 1), "microbatches": 3},
    {"mesh": (2, 1, 2, 1), "sharding": 3},
    {"mesh": (3, 1, 1, 1), "sharding": 2},
    {"mesh": (1, 1, 2, 1), "sharding": 0},
]


def quiet(line):
    """Ignore a record."""


def run(configuration, folder=None, every=1, log=None, export=None):
    """The losses of the steps that are left to do."""

    def rank(comm):
        return train_on(comm, configuration, RunOptions(folder and str(folder), every, log, export), say=quiet)

    return simulate(rank, configuration.ranks).results[0]


@pytest.fixture(scope="module")
def undisturbed():
    return run(BASE)


@pytest.mark.parametrize("number", [0, 2, *(pytest.param(n, marks=pytest.mark.labs) for n in (1, 3, 4))])
def test_a_checkpoint_goes_from_one_mesh_to_another(number, undisturbed, tmp_path):
    here, there = MESHES[number], MESHES[number - 1]
    losses = run(BASE.changed(steps=2, **here), tmp_path / "state") + run(BASE.changed(**there), tmp_path / "state")
    assert losses == pytest.approx(undisturbed, rel=CLOSE, abs=CLOSE)


@pytest.mark.labs  # eight ranks
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_gpt_goes_from_three_dimensions_to_sequences(optimizer, tmp_path):
    start = Configuration(model="gpt", precision="fp64", batch=6, steps=4, optimizer=optimizer)
    here, there = {"mesh": (2, 2, 2, 1), "sharding": 3}, {"mesh": (1, 2, 1, 2), "microbatches": 3}
    losses = run(start.changed(steps=2, **here), tmp_path / "s") + run(start.changed(**there), tmp_path / "s")
    assert losses == pytest.approx(run(start), rel=CLOSE, abs=CLOSE)


def test_torch_alone_goes_on_from_an_exported_file(undisturbed, tmp_path):
    run(BASE.changed(steps=3, mesh=(2, 1, 2, 1), sharding=3), export=str(tmp_path / "all.pt"))
    state = torch.load(tmp_path / "all.pt", weights_only=True)
    assert state["step"] == 3
    trainer = simulate(lambda comm: Trainer(comm, BASE), 1).results[0]
    net, (x, y) = trainer.fresh_model(), trainer.model.data
    optimizer = torch.optim.Adam(net.parameters())
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for step in range(3, 5):
        chosen = epoch_order(len(y), BASE.seed, 0).split(BASE.batch)[step]
        loss = torch.nn.functional.cross_entropy(net(x[chosen].double()), y[chosen])
        assert loss.item() == pytest.approx(undisturbed[step], rel=CLOSE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# Kills


class KillError(RuntimeError):
    """The process has ended here."""


@pytest.fixture
def moments(monkeypatch):
    """A counter of what the ranks do: messages, and writes that reach the disk; at `last` one of them is killed."""
    counter = {"now": 0, "last": -1}
    isend, fsync = SimulatedComm._isend, os.fsync

    def tick():
        counter["now"] += 1
        if counter["now"] == counter["last"]:
            raise KillError

    monkeypatch.setattr(SimulatedComm, "_isend", lambda *message: (tick(), isend(*message))[1])
    monkeypatch.setattr(os, "fsync", lambda file: (tick(), fsync(file)))
    return counter


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.labs) for n in (1, 2, 3, 4))])
def test_kills_at_any_moment_lose_and_double_no_sample(seed, undisturbed, moments, tmp_path):
    """Three kills, each on another mesh, at any message or write; then the log has each step once, with its loss."""
    rng = random.Random(seed)
    for _ in range(3):
        moments.update(now=0, last=rng.randint(1, 60))
        with pytest.raises(RankError) as raised:
            run(BASE.changed(**rng.choice(MESHES)), tmp_path / "state", log=tmp_path / "log")
        assert isinstance(raised.value.__cause__, KillError)
    moments["last"] = -1
    run(BASE.changed(mesh=(2, 1, 1, 1)), tmp_path / "state", log=tmp_path / "log")
    records = [json.loads(line) for line in (tmp_path / "log" / "rank-0.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    assert [record["loss"] for record in records] == pytest.approx(undisturbed, rel=CLOSE, abs=CLOSE)


def test_half_a_line_of_the_log_is_written_again(tmp_path):
    run(BASE.changed(steps=2), tmp_path / "state", log=tmp_path / "log")
    file = tmp_path / "log" / "rank-0.jsonl"
    with file.open("a") as log:
        log.write('{"step": 3, "lo')
    run(BASE, tmp_path / "state", log=tmp_path / "log")
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3, 4, 5]


PROGRAM = """
import os
import signal
import sys
import torch
from hpcdl.comm import MPIComm
from hpcdl.training import Configuration, Trainer

torch.set_num_threads(1)
comm, last = MPIComm(), int(sys.argv[2])
trainer = Trainer(comm, Configuration(
    model="mlp", precision="fp64", batch=12, steps=5, optimizer="adam", seed=2, mesh=eval(sys.argv[3])))
trainer.resume(sys.argv[1])


def kill(step):
    if (step, comm.rank) == (last, 1):
        os.kill(os.getpid(), signal.SIGKILL)




def say(record):
    if comm.rank == 0:
        print("loss", record["loss"], flush=True)


trainer.train(say, kill, checkpoint=sys.argv[1], every=1)
"""


@pytest.mark.mpi
@pytest.mark.labs  # starts processes twice
def test_mpi_ranks_go_on_after_a_kill_on_another_mesh(mpiexec, undisturbed, tmp_path):
    code, first = mpiexec(2, "-c", PROGRAM, str(tmp_path / "state"), "3", "(2, 1, 1, 1)")
    assert code != 0, first
    code, second = mpiexec(2, "-c", PROGRAM, str(tmp_path / "state"), "9", "(1, 2, 1, 1)")
    assert code == 0, second
    losses = [float(line.split()[1]) for line in (first + second).splitlines() if line.startswith("loss ")]
    assert losses == pytest.approx(undisturbed, rel=CLOSE, abs=CLOSE)


# What cannot be used


def refusal(configuration, folder) -> str:
    with pytest.raises(RankError) as raised:
        run(configuration, folder)
    assert isinstance(raised.value.__cause__, (ValueError, OSError))
    assert "\n" not in str(raised.value.__cause__)
    return str(raised.value.__cause__)


def test_a_full_disk_is_a_sentence_and_the_state_stays(undisturbed, tmp_path, monkeypatch):
    run(BASE.changed(steps=2), tmp_path / "state")

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        said = refusal(BASE.changed(mesh=(2, 1, 1, 1)), tmp_path / "state")
    assert said.startswith("the checkpoint of step 3 cannot be written (rank 0: [Errno 28] No space left on device")
    assert "the one before is whole: make room" in said
    assert run(BASE, tmp_path / "state") == pytest.approx(undisturbed[2:], rel=CLOSE, abs=CLOSE)


def test_a_second_run_in_a_folder_is_a_sentence(undisturbed, tmp_path):
    """It would remove the first one's states."""

    def first(comm):
        def second(step):
            said = "another run saves its checkpoints in"
            assert said in refusal(BASE.changed(mesh=(2, 1, 1, 1)), tmp_path / "state")

        return Trainer(comm, BASE).train(before_step=second, checkpoint=str(tmp_path / "state"), every=1)

    assert simulate(first, 1).results[0] == pytest.approx(undisturbed, rel=CLOSE, abs=CLOSE)
    assert run(BASE.changed(steps=BASE.steps), tmp_path / "state") == []


def break_manifest(folder):
    (folder / "manifest.json").write_text("{}")


def lose_a_file(folder):
    (next(folder.glob("step-*")) / "rank-0-of-1").unlink()


def flip_bits(folder):
    file = next(folder.glob("step-*")) / "rank-0-of-1"
    content = bytearray(file.read_bytes())
    content[-9] ^= 255
    file.write_bytes(content)


def write_another_programs(folder):
    from hpcdl.sharding import Shard, save

    shutil.rmtree(folder)
    simulate(lambda comm: save(folder, 3, {"w": Shard(torch.ones(3), 0, (3,))}, comm), 1)


def put_something_else(folder):
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")


def put_a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("x")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (break_manifest, "is not that of a checkpoint; give a folder that is new or empty"),
        (lose_a_file, "the file of rank 0 is missing"),
        (flip_bits, "is damaged"),
        (write_another_programs, "it has no configuration, so another program wrote it"),
        (put_something_else, "has 'thesis.tex' and no checkpoint; give a folder that is new or empty"),
        (put_a_file, "is a file; a checkpoint is a folder"),
    ],
)
def test_a_checkpoint_that_is_none_is_a_sentence(harm, said, tmp_path):
    run(BASE.changed(steps=1), tmp_path / "state")
    harm(tmp_path / "state")
    assert said in refusal(BASE.changed(mesh=(2, 1, 1, 1)), tmp_path / "state")


@pytest.mark.parametrize(
    ("other", "said"),
    [({"seed": 3}, "was written with seed=2, and this run has seed=3"), ({"batch": 13}, "batch=12, and this run has")],
)
def test_a_run_with_other_samples_is_refused(other, said, tmp_path):
    run(BASE.changed(steps=1), tmp_path / "state")
    assert said in refusal(BASE.changed(**other), tmp_path / "state")
