"""What the benchmark `consistency` measures: in two ranks, in four, in threads, and counted in virtual time."""

import math
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.harness.turns import rotated
from benchmarks.peers import consistency as peers
from hpcdl.comm import Communicator, simulate
from hpcdl.consistency import Server, Worker, logistic_epochs, logistic_loss, timeline, work
from hpcdl.consistency.sandblaster import COMMAND, SCALAR, sandblaster
from hpcdl.data import rcv1_like
from hpcdl.nn.low_precision import flat_weights

WIDTH, LAYERS, ROWS = 1024, 4, 32
LR = 1e-3
LIVE = {"BSP": 0.0, "SSP(3)": 3.0, "ASP": math.inf}
NAP = 0.02  # seconds of an iteration, about; of the slow worker three times as long
UPDATES = 10_000  # to which seconds are scaled


def sgd(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, LR)


# -- the parameter server, in each of two ranks -----------------------------------------------------------------------


class Net:
    """Four layers whose weights, and whose gradients, are views of one vector each, where messages begin and end."""

    def __init__(self, comm: Communicator):
        torch.manual_seed(0)
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.model = nn.Sequential(*layers[:-1])
        self.w = flat_weights(self.model)
        self.gradient = comm.empty(self.w.numel()).zero_()
        self.params = list(self.model.parameters())
        parts = self.gradient.split([param.numel() for param in self.params])
        for param, part in zip(self.params, parts, strict=True):
            param.grad = part.view_as(param)
        self.x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))

    def backward(self) -> torch.Tensor:
        self.gradient.zero_()
        self.model(self.x).square().mean().backward()
        return self.gradient


def server(rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of each step of a worker, ours and torch's; of both without its compute; and of that alone."""
    from mpi4py import MPI
    from torch.distributed import rpc

    from hpcdl.comm import MPIComm

    comm, mpi = MPIComm(check=False), MPI.COMM_WORLD
    net = Net(comm)
    file = mpi.bcast(tempfile.mktemp(prefix="hpcdl-rpc-"))
    peers.start_rpc(comm.rank, comm.size, file)
    peers.open_server([param.shape for param in net.params], LR)
    arms: dict[str, Callable[[Communicator, Net, int], list[float]]] = {
        "server": _ours,
        "torch RPC": _torchs,
        "server, no compute": partial(_ours, compute=False),
        "torch RPC, no compute": partial(_torchs, compute=False),
        "compute alone": _alone,
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in rotated(arms, number):
            comm.barrier()
            times[name] += arms[name](comm, net, steps)
            comm.barrier()
    rpc.shutdown()
    return mpi.bcast(times, root=1)


def _ours(comm: Communicator, net: Net, steps: int, compute: bool = True) -> list[float]:
    if comm.rank == 0:
        Server(comm, net.w, sgd).serve()
        return []
    with Worker(comm, net.w) as worker:
        worker.w = net.w  # pulled into the model itself

        def step() -> None:
            worker.push_and_pull(net.backward() if compute else net.gradient)

        return _timed(step, steps)


def _torchs(comm: Communicator, net: Net, steps: int, compute: bool = True) -> list[float]:
    def step() -> None:
        if compute:
            net.backward()
        found = peers.step([param.grad for param in net.params if param.grad is not None])
        with torch.no_grad():
            for param, value in zip(net.params, found, strict=True):
                param.copy_(value)

    return _timed(step, steps) if comm.rank else []


def _alone(comm: Communicator, net: Net, steps: int) -> list[float]:
    return _timed(net.backward, steps) if comm.rank else []


def _timed(step: Any, steps: int) -> list[float]:
    step()  # warm
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


# -- live, in each of four ranks --------------------------------------------------------------------------------------


def live(name: str, steps: int) -> dict[str, Any]:
    """Steps per second under a staleness threshold, and what the clock says of the times that were measured."""
    from mpi4py import MPI

    from hpcdl.comm import MPIComm

    comm, mpi = MPIComm(), MPI.COMM_WORLD
    jitter, w = random.Random(comm.rank), torch.zeros(1000)
    starts: list[float] = []
    ends: list[float] = []

    def gradient(w: torch.Tensor, k: int) -> torch.Tensor:
        starts.append(comm.clock())
        time.sleep(NAP * (3 if comm.rank == 1 else 1) * jitter.uniform(0.7, 1.3))
        ends.append(comm.clock())
        return w

    old: list[int] = []
    if comm.rank == 0:
        old = [update.staleness for update in Server(comm, w, sgd, 1, LIVE[name]).serve().log]
    else:
        work(comm, w, gradient, steps)
    spans = mpi.allgather((starts, ends))
    first = min(begin[0] for begin, _ in spans[1:])
    measured = [[end - begin for begin, end in zip(*span, strict=True)] for span in spans[1:]]
    clock = timeline(measured, LIVE[name])
    until = min(end[-1] for _, end in spans[1:])
    done = sum(end <= until for _, mine in spans[1:] for end in mine)
    return {
        "measured": done / (until - first),
        "predicted": clock.steps_per_second,
        "waiting": float(clock.waiting.mean()),
        "staleness": old,
    }


# -- HOGWILD!, in threads here and in torch's processes ---------------------------------------------------------------


def hogwild(rounds: int, rows: int, updates: int) -> dict[str, Any]:
    """Seconds of `UPDATES` updates in turns that rotate, and the losses after twenty epochs."""
    data = rcv1_like(rows)
    arms = {
        "1 thread": (1, "free"),
        "2 threads": (2, "free"),
        "locked": (2, "locked"),
        "round robin": (2, "round robin"),
    }
    names = [*arms, "torch example", "torch example, batches of 64"]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):  # the first is to warm up
        for name in rotated(names, number):
            if name in arms:
                begin = time.perf_counter()
                logistic_epochs(data, torch.zeros(data.features), 0.5, 5, *arms[name])
                took = (time.perf_counter() - begin) / (5 * rows)
            else:
                batch = 64 if "64" in name else 1
                took = peers.hogwild_seconds(rows, batch, updates // batch + 1, 0.5) / (
                    2 * (updates // batch + 1) * batch
                )
            seconds[name] += [took * UPDATES] * (number > 0)
    losses = {}
    for name, (threads, how) in arms.items():
        w = torch.zeros(data.features)
        logistic_epochs(data, w, 0.5, 20, threads, how)
        losses[name] = logistic_loss(data, w)
    return {"seconds": seconds, "losses": losses, "nonzeros": len(data.values) / rows}


# -- counted ----------------------------------------------------------------------------------------------------------


def counted(p: int) -> dict[str, Any]:
    """Return what no machine's load changes but the last: iterations, bytes, and p simulated ranks' real seconds."""
    begin = time.perf_counter()
    run = simulate(_rank, p, slow={7: 3.0})
    took = time.perf_counter() - begin
    seconds = [[3.0 if rank == 7 else 1.0] * 100 for rank in range(1, p)]
    assert run.seconds == timeline(seconds, 3).seconds
    sizes = {str(n): dot_bytes(n) for n in (100, 10_000, 1_000_000)}
    return {"iterations": iterations(), "bytes of a dot product": sizes, "ranks": p, "seconds": took}


def _rank(comm: Communicator) -> None:
    if comm.rank == 0:
        Server(comm, torch.zeros(8), sgd, 1, 3).serve()
        return

    def gradient(w: torch.Tensor, k: int) -> torch.Tensor:
        comm.compute(1.0)
        return w

    work(comm, torch.zeros(8), gradient, 100)


def dot_bytes(n: int) -> int:
    """Bytes of one dot product of n elements in three shards, all ranks together."""

    def rank(comm: Communicator) -> None:
        def gradient(w: torch.Tensor, i: int) -> tuple[float, torch.Tensor]:
            return 0.0, w  # zero: the end is there at once

        sandblaster(comm, torch.zeros(n), gradient, 1, 3)

    trace = simulate(rank, 5).trace
    asked = [event for event in trace if event.op == "send" and event.tag == SCALAR and event.peer == 0]
    command = next(event for event in trace if event.op == "send" and event.rank == 0 and event.tag == COMMAND)
    return len(asked) * (asked[0].nbytes + command.nbytes)


def iterations(tolerance: float = 1e-8) -> dict[str, int]:
    """Until no element of the gradient is larger, of logistic regression with a square: ours on six ranks, torch's."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 50, generator=generator).double(), torch.randn(400, generator=generator).double().sign()

    def loss(w: torch.Tensor, i: int = 0, parts: int = 1) -> torch.Tensor:
        rows = slice(i * len(x) // parts, (i + 1) * len(x) // parts)
        return nn.functional.softplus(-y[rows] * (x[rows] @ w)).sum() / len(x) + 0.01 * (w @ w) / parts

    def portion(w: torch.Tensor, i: int) -> tuple[float, torch.Tensor]:
        w = w.clone().requires_grad_()
        value = loss(w, i, 8)
        return value.item(), torch.autograd.grad(value, w)[0]

    run = simulate(lambda comm: sandblaster(comm, torch.zeros(50).double(), portion, 8, 2, tolerance=tolerance), 6)
    return {"ours": len(run.results[0].losses) - 1, "torch": _torch_iterations(loss, tolerance)}


def _torch_iterations(loss: Any, tolerance: float) -> int:
    w = torch.zeros(50, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], 1.0, 500, 1000, tolerance, 0.0, 10)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(w)
        value.backward()
        return value

    optimizer.step(closure)
    return optimizer.state[w]["n_iter"]
