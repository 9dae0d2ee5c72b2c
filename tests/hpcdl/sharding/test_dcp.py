"""Checkpoints of torch's DCP: what we write torch reads, and the other way round, on other numbers of ranks."""

import subprocess
import sys
from math import prod

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.nn.functional import cross_entropy

from hpcdl.comm import simulate
from hpcdl.sharding import FullyShardedDataParallel, Shard, load_dcp, save_dcp, with_states
from hpcdl.sharding.dcp import boxes

SHAPES = [(), (1,), (7,), (3, 5), (4, 1, 3), (2, 3, 4), (2, 2, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_boxes_are_the_range_in_its_order_and_few(shape):
    numbers = torch.arange(prod(shape)).view(shape)
    for start in range(prod(shape) + 1):
        for stop in range(start, prod(shape) + 1):
            found = list(boxes(start, stop, shape))
            parts = [
                numbers[tuple(slice(at, at + size) for at, size in zip(*box, strict=True))].reshape(-1) for box in found
            ]
            assert torch.cat([torch.empty(0, dtype=torch.int64), *parts]).tolist() == list(range(start, stop))
            assert len(found) <= max(1, 2 * len(shape) - 1)


def trained(comm, training, kind, folder=None):
    """A model two steps on, its optimizer and its whole state; saved, if there is a folder."""
    model = FullyShardedDataParallel(training.build(kind), comm)
    optimizer = training.makes["adamw"](model.parameters())
    for n in training.batches[:2]:
        x, y = training.mine(n, comm)
        cross_entropy(model(x), y).backward()
        model.synchronize()
        optimizer.step()
        optimizer.zero_grad()
    if folder:
        save_dcp(folder, with_states(model.shards(), optimizer), comm)
    return model.whole_state_dict()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # it is: one process reads
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "tied", "tiny"])
def test_torch_reads_what_we_write_and_we_read_it_on_other_ranks(training, tmp_path, kind, p):
    states = simulate(trained, p, training, kind, tmp_path).results[0]
    names = names_of(training, kind)
    found = {name: torch.full_like(states[name], torch.nan) for name in names}
    moments = {f"{name}/exp_avg": torch.full_like(states[name], torch.nan) for name in names}
    numbers = {f"{name}//step": torch.zeros(()) for name in names}
    dcp.load({**found, **moments, **numbers}, checkpoint_id=tmp_path, no_dist=True)
    assert all(torch.equal(found[name], states[name]) for name in names)
    assert not any(moment.isnan().any() for moment in moments.values())
    assert {int(number) for number in numbers.values()} == {2}

    def again(comm):
        model = FullyShardedDataParallel(training.build(kind, seed=5), comm)
        load_dcp(tmp_path, model.shards(), comm)
        return model.whole_state_dict()

    for other in simulate(again, 4).results:
        assert all(torch.equal(other[name], states[name]) for name in states)


def names_of(training, kind):
    """The names under which parameters are kept: one of each."""
    return [name for name, _ in training.build(kind).named_parameters()]


FSDP2 = """
import os
import sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

ours, theirs = sys.argv[1:]
dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2,))

def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

model = build(1)
state = get_model_state_dict(model)
dcp.load(state, checkpoint_id=ours)
for name, x in state.items():
    assert type(x).__name__ == "DTensor", type(x)
    assert torch.equal(x.full_tensor(), torch.arange(x.numel(), dtype=torch.float32).view(x.shape) + x.numel()), name
dcp.save(get_model_state_dict(build(2)), checkpoint_id=theirs)
dist.destroy_process_group()
# FSDP2 keeps the group, whose thread may need Python once more to let go of a tensor: at the interpreter's end that
# would be SIGABRT (pytorch #179291).
os._exit(0)
"""
MODEL = {"0.weight": (7, 5), "0.bias": (7,), "2.weight": (3, 7), "2.bias": (3,)}


def pieces(comm, fill):
    """This rank's shards of the model's tensors, cut unequally."""
    found = {}
    for name, shape in MODEL.items():
        n = prod(shape)
        edges = [n * i * i // comm.size**2 for i in range(comm.size + 1)]
        part = fill(name, shape).reshape(-1)[edges[comm.rank] : edges[comm.rank + 1]]
        found[name] = Shard(part.clone(), edges[comm.rank], shape)
    return found


@pytest.mark.labs  # starts processes that import torch's FSDP2
def test_fsdp2_reads_ours_on_two_ranks_of_gloo_and_we_read_its_on_three(tmp_path):
    def numbers(name, shape):
        return torch.arange(prod(shape), dtype=torch.float32).view(shape) + prod(shape)

    simulate(lambda comm: save_dcp(tmp_path / "ours", pieces(comm, numbers), comm), 3)
    (tmp_path / "fsdp2.py").write_text(FSDP2)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "fsdp2.py", "ours", "theirs"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    torch.manual_seed(2)
    right = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).state_dict()

    def read(comm):
        mine = pieces(comm, lambda name, shape: torch.zeros(shape))
        load_dcp(tmp_path / "theirs", mine, comm)
        return all(
            torch.equal(shard.piece, right[name].reshape(-1)[shard.start : shard.start + len(shard.piece)])
            for name, shard in mine.items()
        )

    assert simulate(read, 3).results == [True] * 3


def test_what_is_wrong_is_said_on_every_rank_and_changes_nothing(tmp_path):
    def run(comm):
        save_dcp(
            tmp_path / "a", {"x": Shard(torch.ones(2), 2 * comm.rank, (5,)), "y": Shard(torch.ones(3), 0, (3,))}, comm
        )
        with pytest.raises(OSError, match="has a checkpoint already; give a new folder"):
            save_dcp(tmp_path / "a", {}, comm)
        with pytest.raises(FileNotFoundError, match="metadata"):
            load_dcp(tmp_path / "b", {}, comm)
        y = torch.zeros(3)
        for other, error, said in [
            (Shard(torch.zeros(5), 0, (5,)), ValueError, "lacks elements of x"),
            (Shard(torch.zeros(4), 0, (4,)), ValueError, r"x has shape \(5,\) in the checkpoint, and \(4,\) here"),
        ]:
            with pytest.raises(error, match=said):
                load_dcp(tmp_path / "a", {"y": Shard(y, 0, (3,)), **({"x": other} if comm.rank else {})}, comm)
        with pytest.raises(KeyError, match="no tensor 'z'"):
            load_dcp(tmp_path / "a", {"y": Shard(y, 0, (3,)), "z": Shard(y, 0, (3,))}, comm)
        assert not y.any()
        load_dcp(tmp_path / "a", {"y": Shard(y, 0, (3,))}, comm)
        assert y.all()

    simulate(run, 2)
