"""Choose the device on which a rank computes, and the backend for its messages."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch

from hpcdl.comm import Communicator


def choose(rank: int, ranks: int, gpus: int) -> tuple[str, str, str]:
    """Return torch.distributed's backend, the device and a remark for the user, for rank `rank` of `ranks` on one
    machine.

    One GPU per rank: NCCL. Fewer GPUs than ranks: the ranks share them, and gloo carries the messages through the
    processor's memory, since NCCL refuses two ranks on one GPU. No GPU: gloo.
    """
    if gpus == 0:
        return "gloo", "cpu", ""
    if gpus >= ranks:
        return "nccl", f"cuda:{rank}", ""
    shared = f"{ranks} ranks share {gpus} GPU{'s' * (gpus > 1)}: gloo carries the messages, NCCL needs a GPU per rank"
    return "gloo", f"cuda:{rank % gpus}", f"{shared}; more ranks than GPUs gain nothing but practice"


def connected(backend: str, device: str) -> Communicator:
    """Return the communicator of this process's default group, for messages on `device`."""
    from hpcdl.comm import TorchComm  # only where it is needed: it imports torch.distributed
    from hpcdl.comm.staged import StagedComm

    if backend != "gloo" or device == "cpu":
        return TorchComm()
    return StagedComm(device="cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def on_devices(comm: Communicator, gpus: int | None = None) -> Iterator[tuple]:
    """Return `(comm, device, remark)` for an MPI rank, such as an engine: itself and "cpu" if no machine has a GPU.

    Otherwise the same ranks use torch.distributed, on the GPUs of their machines, as `choose` says; rank 0 hosts the
    rendezvous. The backend is NCCL only if every rank has its own GPU. `gpus` is the number of GPUs here.
    """
    gpus = torch.cuda.device_count() if gpus is None else gpus
    here = (socket.gethostname(), gpus)
    mpi: Any = getattr(comm, "mpi", None)
    everywhere = mpi.allgather(here) if mpi else [("", 0)]
    if not any(count for _, count in everywhere):
        yield comm, "cpu", ""
        return
    neighbours = [rank for rank, (host, _) in enumerate(everywhere) if host == here[0]]
    backend, device, remark = choose(neighbours.index(comm.rank), len(neighbours), gpus)
    shared = [said for backend_, said in mpi.allgather((backend, remark)) if backend_ == "gloo"]
    with _group(mpi, "gloo" if shared else "nccl", device) as group:
        yield group, device, next(filter(None, shared), "")


@contextmanager
def _group(mpi: Any, backend: str, device: str) -> Iterator:
    """Connect the ranks of the mpi4py communicator `mpi` by torch.distributed."""
    store_of = partial(
        torch.distributed.TCPStore, world_size=mpi.size, timeout=timedelta(seconds=60), wait_for_workers=False
    )
    own = store_of("0.0.0.0", 0, is_master=True) if mpi.rank == 0 else None
    host, port = mpi.bcast((socket.gethostname(), own and own.port))
    store = own or store_of(host, port, is_master=False)
    torch.distributed.init_process_group(backend, store=store, rank=mpi.rank, world_size=mpi.size)
    try:
        yield connected(backend, device)
    finally:
        torch.distributed.destroy_process_group()
