"""Sharded training on real ranks against one machine; started with mpiexec, this file is one of the ranks."""

import atexit
import copy
import os
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer, load, save, with_states

ROWS = (7, 12, 9)


def build():
    torch.manual_seed(0)
    sizes = (9, 133, 133, 5)  # a third of the middle one is long enough to be read where it is
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise(sizes)]
    return nn.Sequential(*layers).double()


def adam(params):
    return torch.optim.Adam(params, 0.05)


def batches(rank=0, size=1):
    """Each rank's rows of three batches."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, 9, generator=generator, dtype=torch.float64).tensor_split(size)[rank] for n in ROWS]


def serial():
    model = build()
    optimizer = adam(model.parameters())
    train(model, batches(), lambda: None, optimizer)
    return dict(model.named_parameters())


def train(model, rows, ready, optimizer):
    for x in rows:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        ready()
        optimizer.step()


def compare(found, what):
    for name, value in serial().items():
        torch.testing.assert_close(found[name].detach(), value.detach(), rtol=1e-11, atol=1e-11, msg=f"{what}: {name}")


def zero_1_and_2(comm: Communicator):
    for stage in (1, 2):
        model = build()
        optimizer = ShardedOptimizer(model.parameters(), comm, adam, stage, bucket_mb=0.1)
        for x in batches(comm.rank, comm.size):
            optimizer.count(len(x))
            model(x).square().mean().backward()
            optimizer.step()
        compare(dict(model.named_parameters()), f"stage {stage}")


def zero_3(comm: Communicator, folder: str):
    """In its middle it is saved, and continues from there with a model and an optimizer that are new."""
    rows = batches(comm.rank, comm.size)
    for first, last in ((0, 2), (2, 3)):
        model = FullyShardedDataParallel(build(), comm)
        assert any(comm.lends(unit.own) for unit in model.units)
        optimizer = adam(model.parameters())
        if first:
            saved = load(folder, comm)
            saved.fill(model.shards())
            saved.restore(optimizer, model.shards())
        train(model, rows[first:last], model.synchronize, optimizer)
        save(folder, last, with_states(model.shards(), optimizer), comm)
    compare(model.whole_state_dict(), "stage 3")


def torch_fsdp(comm: Communicator, folder: str):
    """FSDP2, over gloo, comes to the same weights."""
    from torch.distributed import fsdp

    store = torch.distributed.FileStore(f"{folder}/store", comm.size)
    torch.distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    model, equal = build(), [x[:3] for x in batches(comm.rank, comm.size)]  # FSDP2 takes ranks as equal
    ours = FullyShardedDataParallel(copy.deepcopy(model), comm)
    train(ours, equal, ours.synchronize, adam(ours.parameters()))
    mesh = torch.distributed.init_device_mesh("cpu", (comm.size,))
    for layer in model:
        fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)
    train(model, equal, lambda: None, adam(model.parameters()))
    found = ours.whole_state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found[name], value.full_tensor(), rtol=1e-11, atol=1e-11, msg=name)
    torch.distributed.destroy_process_group()


@pytest.mark.mpi
@pytest.mark.labs  # the same is asked of simulated ranks in the first tier
def test_on_three_ranks_it_is_what_one_machine_does(mpiexec, tmp_path):
    code, printed = mpiexec(3, __file__, str(tmp_path), "serial")
    assert (code, printed.count("the same")) == (0, 3), printed


@pytest.mark.mpi
@pytest.mark.labs
def test_on_two_ranks_it_is_what_torch_does(mpiexec, tmp_path):
    code, printed = mpiexec(2, __file__, str(tmp_path), "torch")
    assert (code, printed.count("the same")) == (0, 2), printed


if __name__ == "__main__":
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    torch.set_num_threads(1)
    comm, (_, folder, oracle) = MPIComm(), sys.argv
    if oracle == "torch":
        torch_fsdp(comm, folder)
    else:
        zero_1_and_2(comm)
        zero_3(comm, folder)
    print("the same", flush=True)
    atexit._run_exitfuncs()  # takes in what would make MPI's end fail
    MPI.Finalize()
    os._exit(0)  # at the interpreter's end the thread of FSDP2's group may need Python once more (pytorch #179291)
