"""Which device a rank computes on, and what carries its messages."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

from hpcdl.comm import Communicator


def choose(rank: int, ranks: int, gpus: int) -> tuple[str, str, str]:
    """Backend of torch.distributed, device, and what the user should know, for rank `rank` of `ranks` on one machine.

    A GPU each: NCCL. Fewer GPUs than ranks: they share them, and gloo carries the messages through the processor's
    memory, since NCCL refuses two ranks on one GPU. No GPU: gloo.
    """
    if gpus == 0:
        return "gloo", "cpu", ""
    if gpus >= ranks:
        return "nccl", f"cuda:{rank}", ""
    shared = f"{ranks} ranks share {gpus} GPU{'s' * (gpus > 1)}: gloo carries the messages, NCCL needs a GPU per rank"
    return "gloo", f"cuda:{rank % gpus}", f"{shared}; more ranks than GPUs gain nothing but practice"


@contextmanager
def on_devices(comm: Communicator, gpus: int | None = None) -> Iterator[tuple]:
    """`(comm, device, remark)` for an MPI rank, such as an engine: itself and "cpu" where no machine has a GPU.

    Else the same ranks over torch.distributed, on the GPUs of their machines, as `choose` says; rank 0 keeps the
    meeting point. The backend is NCCL only where every rank has a GPU of its own. `gpus` stands for those here.
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
    with _group(mpi, "gloo" if shared else "nccl") as group:
        yield group, device, next(filter(None, shared), "")


@contextmanager
def _group(mpi: Any, backend: str) -> Iterator:
    """The ranks of the mpi4py communicator `mpi` over torch.distributed."""
    from hpcdl.comm import TorchComm  # only where there is a GPU: it brings torch.distributed

    port = _free_port() if mpi.rank == 0 else None
    host, port = mpi.bcast((socket.gethostname(), port))
    store = torch.distributed.TCPStore(host, port, mpi.size, mpi.rank == 0, timeout=timedelta(seconds=60))
    torch.distributed.init_process_group(backend, store=store, rank=mpi.rank, world_size=mpi.size)
    try:
        yield TorchComm()
    finally:
        torch.distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]
