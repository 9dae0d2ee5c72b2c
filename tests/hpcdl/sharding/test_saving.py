"""Sharded checkpoints: onto any number of ranks, the new state or the previous one, and what is missing by its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from hpcdl.comm import RankError, simulate
from hpcdl.memory import meter
from hpcdl.sharding import FullyShardedDataParallel, Shard, ShardedOptimizer, load, save, with_states


def step(model, optimizer, training, comm, n):
    optimizer.zero_grad()
    x, y = training.mine(n, comm)
    cross_entropy(model(x), y).backward()
    model.synchronize()
    optimizer.step()


def train(comm, training, path, kind, make, first, last, seed=0):
    """Steps `first` to `last` of a training that is saved at `path`, and continues from there unless it begins."""
    model = FullyShardedDataParallel(training.build(kind, seed), comm)
    optimizer = training.makes[make](model.parameters())
    if first:
        saved = load(path, comm)
        assert saved.step == first
        saved.fill(model.shards())
        saved.restore(optimizer, model.shards())
    for i in range(first, last):
        step(model, optimizer, training, comm, training.batches[i])
    save(path, last, with_states(model.shards(), optimizer), comm)
    return model.whole_state_dict()


GOES_ON = [("plain", "adamw", *ranks) for ranks in ((3, 3), (4, 3), (2, 5), (1, 2), (5, 1))]
GOES_ON += [("tied", "sgd", 4, 3), ("tiny", "adamw", 3, 8), ("frozen", "adamw", 2, 5)]


@pytest.mark.parametrize(("kind", "make", "before", "after"), GOES_ON)
def test_a_training_goes_on_on_another_number_of_ranks(training, tmp_path, kind, make, before, after):
    simulate(train, before, training, tmp_path, kind, make, 0, 2)
    results = simulate(train, after, training, tmp_path, kind, make, 2, 4, 9).results
    for name, value in training.serial(kind, make)[0].items():
        for found in results:
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-12, atol=1e-12)
    assert len(list(tmp_path.glob("step-*"))) == 1  # the previous state is removed when there is a new one


def test_a_rate_that_a_schedule_changed_is_kept(training, tmp_path):
    def run(comm, lr):
        model = training.build("plain")
        make = lambda shards: torch.optim.SGD(shards, lr, momentum=0.9)  # noqa: E731
        optimizer = ShardedOptimizer(model.parameters(), comm, make)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        if lr != 0.4:
            load(tmp_path, comm).restore(optimizer.optimizer, optimizer.shards())
        rate = optimizer.param_groups[0]["lr"]
        model(training.batch(5)[0]).sum().backward()
        optimizer.step()
        schedule.step()
        save(tmp_path, 1, with_states(optimizer.shards(), optimizer.optimizer), comm)
        return rate

    assert simulate(run, 2, 0.4).results == [0.4] * 2
    assert simulate(run, 3, 9.0).results == [0.2] * 3


def test_zero_1_goes_on_on_another_number_of_ranks(training, tmp_path):
    def run(comm, first, last):
        model = training.build("plain", seed=first)
        optimizer = ShardedOptimizer(model.parameters(), comm, training.makes["adamw"])
        assert [shard.shape for shard in optimizer.shards().values()] == [p.shape for p in model.parameters()]
        if first:
            training.resume(tmp_path, optimizer, comm)
        training.learn(model, optimizer, comm, training.batches[first:last])
        save(tmp_path, last, with_states(optimizer.shards(), optimizer.optimizer), comm)
        return model

    simulate(run, 4, 0, 2)
    training.assert_as_serial(simulate(run, 3, 2, 4).results)


N = 300_000  # elements: more than a block of a file


def shares(comm, value, p=None):
    parts = (torch.arange(N, dtype=torch.float64) + value).tensor_split(p or comm.size)
    start = sum(len(part) for part in parts[: comm.rank])
    return {"x": Shard(parts[comm.rank].clone(), start, (N,))}


def write(comm, path, number):
    save(path, number, shares(comm, number), comm)


def whole(path, p=2):
    """The step and the values that p ranks find, which are to be those of that step."""

    def run(comm):
        saved, mine = load(path, comm), shares(comm, 0)
        mine["x"].piece.zero_()
        saved.fill(mine)
        assert torch.equal(mine["x"].piece, shares(comm, saved.step)["x"].piece)
        return saved.step

    (step,) = set(simulate(run, p).results)
    return step


def test_no_rank_holds_the_whole(tmp_path):
    simulate(write, 4, tmp_path, 1)

    def run(comm):
        mine = shares(comm, 0)
        with meter(mine["x"].piece) as m:
            saved = load(tmp_path, comm)
            saved.fill(mine)
            assert saved.read("x", 7, 9).tolist() == [8, 9]
            save(tmp_path / "again", 2, mine, comm)
        return m.peak.total

    assert max(simulate(run, 5).results) < 2.1 * 8 * N / 5


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_where_a_write_fails_the_previous_state_stays(tmp_path, monkeypatch, call):
    """Each call that settles something on the disk fails once; all ranks hear of it."""
    simulate(write, 2, tmp_path, 1)
    last, failed, happened = 1, 0, []
    for failing in range(12):
        owner, original, calls = (os, os.fsync, [0]) if call == "fsync" else (Path, Path.replace, [0])

        def broken(*args, original=original, calls=calls, failing=failing):
            calls[0] += 1
            if calls[0] == failing + 1:
                raise OSError(28, "No space left on device")
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(owner, call, broken)
            try:
                simulate(write, 2, tmp_path, failing + 2)
                last = failing + 2
            except RankError as error:
                failed += "No space left on device" in str(error)
        assert whole(tmp_path, 3) in (last, failing + 2)
        last = whole(tmp_path)
        happened.append(calls[0] > failing)
    assert failed == sum(happened) >= 3  # each is told to every rank
    assert last == 13


KILLED = """
import os, random, signal, sys, time
import torch
torch.set_num_threads(1)
from hpcdl.comm import simulate
from hpcdl.sharding import Shard, load, save

N = 50_000

def write(comm, path, number):
    x = torch.full((N,), float(number)).tensor_split(comm.size)
    start = sum(len(part) for part in x[: comm.rank])
    save(path, number, {"x": Shard(x[comm.rank], start, (N,))}, comm)

def found(comm, path):
    saved = load(path, comm)
    assert saved.read("x", 0, N).eq(saved.step).all()
    return saved.step

path, kills, number = sys.argv[1], int(sys.argv[2]), 1
simulate(write, 2, path, number)
begin = time.perf_counter()
simulate(write, 2, path, number)
took = time.perf_counter() - begin
random.seed(0)
for _ in range(kills):
    child = os.fork()
    if not child:
        while True:
            number += 1
            simulate(write, 2, path, number)
    time.sleep(random.uniform(0.001, 0.03 + 5 * took))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    step = max(simulate(found, 3, path).results)
    assert step >= number
    number = step
print("whole", number)
"""


def test_killed_at_any_moment_a_whole_state_is_there(tmp_path):
    run = [sys.executable, "-c", KILLED, str(tmp_path), "30"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 5  # some were written between the kills


# -- what is missing or damaged ---------------------------------------------------------------------------------------


def damage_missing(folder):
    (folder / "rank-1-of-3").unlink()


def damage_short(folder):
    os.truncate(folder / "rank-1-of-3", 1000)


def damage_data(folder):
    raw = bytearray((folder / "rank-1-of-3").read_bytes())
    raw[-5] ^= 1
    (folder / "rank-1-of-3").write_bytes(raw)


def damage_header(folder):
    raw = bytearray((folder / "rank-1-of-3").read_bytes())
    raw[20] ^= 1
    (folder / "rank-1-of-3").write_bytes(raw)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_missing, "file of rank 1 is missing"),
        (damage_short, "has 1000 bytes"),
        (damage_data, "rank-1-of-3 is damaged: the checksum of x"),
        (damage_header, "rank-1-of-3 is damaged: its header"),
    ],
)
def test_damaged_checkpoint_is_named_on_every_rank(tmp_path, damage, words):
    simulate(write, 3, tmp_path, 1)
    damage(next(tmp_path.glob("step-*")))

    def run(comm):
        mine = shares(comm, 5)
        with pytest.raises((OSError, ValueError), match=words):
            load(tmp_path, comm).fill(mine)
        assert torch.equal(mine["x"].piece, shares(comm, 5)["x"].piece)
        return True

    assert simulate(run, 2).results == [True, True]


def test_without_check_damage_goes_unnoticed_and_a_short_file_does_not(tmp_path):
    simulate(write, 3, tmp_path, 1)
    folder = next(tmp_path.glob("step-*"))

    def run(comm):
        mine = shares(comm, 5)
        load(tmp_path, comm, check=False).fill(mine)
        return mine["x"].piece

    expected = torch.arange(N, dtype=torch.float64) + 1
    assert torch.equal(torch.cat(simulate(run, 4).results), expected)
    damage_data(folder)
    differs = torch.cat(simulate(run, 4).results) != expected
    assert differs.nonzero().tolist() == [[2 * N // 3 - 1]]  # the last element of the second file
    damage_short(folder)
    with pytest.raises(RankError, match="has 1000 bytes"):
        simulate(run, 2)


def test_errors_of_the_caller_are_named(tmp_path):
    def run(comm):
        with pytest.raises(FileNotFoundError, match="no state was saved there"):
            load(tmp_path / "nowhere", comm)
        save(tmp_path, 3, {"x": Shard(torch.zeros(2), 0, (4,)), "none": Shard(torch.zeros(0), 0, (4,))}, comm)
        saved = load(tmp_path, comm)
        assert saved.shapes == {"x": (4,)}
        with pytest.raises(ValueError, match="no element 2 of x"):
            saved.read("x", 1, 4)
        with pytest.raises(KeyError, match="no tensor 'y'"):
            saved.fill({"y": Shard(torch.zeros(1), 0, (1,))})
        with pytest.raises(ValueError, match=r"shape \(4,\) in the checkpoint, and \(5,\) here"):
            saved.fill({"x": Shard(torch.zeros(1), 0, (5,))})

    simulate(run, 2)
    assert json.loads((tmp_path / "manifest.json").read_text())["step"] == 3
