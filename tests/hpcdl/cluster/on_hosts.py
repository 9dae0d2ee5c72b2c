"""What ranks on two hosts run, for `hosts.py`."""

import os
import time
from pathlib import Path


def where(comm):
    """Each rank's host and process."""
    import socket

    return comm.rank, socket.gethostname(), os.getpid()


PARTS = (
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "reduce_scatter",
    "fast_reduce_scatter",
    "all_gather",
    "all_to_all",
)


def collectives(comm):
    """Names of collectives with other bits than on the simulated machine: none."""
    import torch

    from hpcdl import collectives as library
    from hpcdl.comm import simulate

    different = []
    for n in (3, 150_000):
        rows = torch.randn(comm.size, n, generator=torch.Generator().manual_seed(n))
        for name, f in [*library.ALL_REDUCE.items(), *library.FAST.items()]:
            here, there = rows.clone(), rows[comm.rank].clone()
            simulate(lambda simulated, f=f, here=here: f(here[simulated.rank], simulated), comm.size)
            f(there, comm)
            if not torch.equal(here[comm.rank], there):
                different.append((name, n))
        for name in PARTS:
            here, there, part = rows.clone(), rows[comm.rank].clone(), getattr(library, name)
            results = simulate(lambda sim, part=part, here=here: part(here[sim.rank], sim), comm.size).results
            result = part(there, comm)
            right = result is results[comm.rank] is None or torch.equal(result, results[comm.rank])
            if not (right and torch.equal(here[comm.rank], there)):
                different.append((name, n))
    return different


def ddp(comm):
    """The largest difference between gradients of a split batch and of the whole batch."""
    import torch
    from torch import nn

    from hpcdl.ddp import DistributedDataParallel

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 5)).double()
    x, y = torch.randn(12, 20).double(), torch.randn(12, 5).double()
    nn.functional.mse_loss(model(x), y).backward()
    whole = [param.grad.clone() for param in model.parameters()]
    model.zero_grad()
    wrapped, mine = DistributedDataParallel(model, comm), slice(comm.rank, None, comm.size)
    nn.functional.mse_loss(wrapped(x[mine]), y[mine]).backward()
    wrapped.synchronize()
    return max((param.grad - grad).abs().max().item() for param, grad in zip(model.parameters(), whole, strict=True))


def deadlock(comm):
    import torch

    if comm.rank != 1:
        comm.recv(torch.zeros(3), source=2 - comm.rank)


def ended(comm, status):
    if comm.rank == 2:
        os._exit(status) if status > 0 else os.kill(os.getpid(), -status)
    comm.barrier()


def waiting(comm, started):
    Path(f"{started}-{comm.rank}").touch()
    comm.barrier()
    while True:
        time.sleep(0.1)
