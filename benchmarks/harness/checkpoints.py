"""In each process of the benchmark `sharding`: one model's checkpoint written by two ranks, and read by three."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from benchmarks.harness.turns import rotated
from benchmarks.peers.sharding import NETWORKS, fsdp_2, mlp
from hpcdl.comm import MPIComm
from hpcdl.comm.base import Communicator
from hpcdl.sharding import FullyShardedDataParallel, load, load_dcp, save


def work(what: str, folder: str, rounds: int = 1) -> dict[str, list[float]]:
    """Seconds of the slower rank, by who did it: "save", or "load" of what another number of ranks has saved."""
    from mpi4py import MPI

    warnings.simplefilter("ignore")  # torch's own, of what it will change
    comm = MPIComm(check=False)
    arms = (_savers if what == "save" else _loaders)(Path(folder), comm)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in rotated(arms, number):
            comm.barrier()
            begin = time.perf_counter()
            arms[name]()
            times[name].append(time.perf_counter() - begin)
    return {name: [MPI.COMM_WORLD.allreduce(s, op=MPI.MAX) for s in values] for name, values in times.items()}


Arms = dict[str, Callable[[], object]]


def _savers(folder: Path, comm: Communicator) -> Arms:
    ours, theirs = FullyShardedDataParallel(mlp(), comm), fsdp_2(comm, NETWORKS["MLP"]).net
    return {
        "hpcdl": lambda: save(folder / "ours", 1, ours.shards(), comm),
        "DCP": lambda: dcp.save(get_model_state_dict(theirs), checkpoint_id=folder / "theirs"),
    }


def _loaders(folder: Path, comm: Communicator) -> Arms:
    """Return loaders that each fill a model of zeros; each is compared with the right weights before the clock runs."""
    ours, theirs = FullyShardedDataParallel(_zeros(), comm), fsdp_2(comm, NETWORKS["MLP"]).net
    arms: Arms = {
        "hpcdl": lambda: load(folder / "ours", comm).fill(ours.shards()),
        "hpcdl, unchecked": lambda: load(folder / "ours", comm, check=False).fill(ours.shards()),
        "DCP": lambda: dcp.load(get_model_state_dict(theirs), checkpoint_id=folder / "theirs"),
        "hpcdl, DCP's files": lambda: load_dcp(folder / "theirs", ours.shards(), comm),
    }
    right = mlp().state_dict()
    for name, arm in arms.items():
        with torch.no_grad():
            for param in (*ours.parameters(), *theirs.parameters()):
                param.zero_()
        arm()
        found = {key: x.full_tensor() for key, x in theirs.state_dict().items()} if name == "DCP" else None
        for key, x in (found or ours.whole_state_dict()).items():
            assert torch.equal(x, right[key]), f"{name} has other weights in {key}"
    return arms


def _zeros() -> torch.nn.Module:
    model = mlp()
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
    return model
