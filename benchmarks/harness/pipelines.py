"""Our pipelines on two ranks beside torch's: steps, their predicted makespans, and what they hold."""

import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.functional import mse_loss

from benchmarks.peers.parallel import PIPELINES, pipeline
from hpcdl.comm import Communicator
from hpcdl.cost.pipeline import play
from hpcdl.memory import meter
from hpcdl.parallel.pipeline import FusedLayers, Layers, StageRun, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import SCHEDULES

WIDTH, LAYERS, ROWS, MICROBATCHES = 1024, 4, 64, 8
OURS = {  # label -> the schedule, and what does its F, B and W
    "GPipe": ("gpipe", FusedLayers),
    "1F1B": ("one_f_one_b", FusedLayers),
    "1F1B, plain": ("one_f_one_b", Layers),
    "ZB-H1": ("zb_h1", FusedLayers),
    "ZB-V": ("zb_v", FusedLayers),
}
Step = Callable[[], Any]


def layers_and_batch() -> tuple[list[nn.Module], torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    return layers, torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)


def ours(
    name: str,
    comm: Communicator,
    layers: list[nn.Module],
    x: torch.Tensor,
    y: torch.Tensor,
    kind: type[Layers] = FusedLayers,
    **options: Any,
) -> Step:
    """Return a step of one of our schedules, which returns its `StageRun`; a microbatch for every 8 rows."""
    m, schedule = len(x) * MICROBATCHES // ROWS, SCHEDULES[name]
    options["parts"] = schedule.parts(comm.size, schedule.chunks)
    chunks = [kind(chunk) for chunk in cut_layers(layers, options["parts"], comm.rank)]
    orders, microbatches = schedule.orders(comm.size, m), cut_batch(x, y, m)
    return lambda: run_stage(comm, chunks, orders, microbatches, mse_loss, (WIDTH,), **options)


def pipelines(comm: Communicator) -> dict[str, Step]:
    """Return competitors, each with its own copy of the network; all have the gradients of one step of the whole."""
    layers, x, y = layers_and_batch()
    whole = deepcopy(layers)

    def local():
        for module in whole:
            module.zero_grad()
        mse_loss(nn.Sequential(*whole)(x), y).backward()

    local()
    arms: dict[str, Step] = {"local": local}
    for name in (*OURS, *PIPELINES):
        mine = deepcopy(layers)
        if name in OURS:
            schedule, kind = OURS[name]
            step = ours(schedule, comm, mine, x, y, kind)
        else:
            step = pipeline(name, mine, x, y, MICROBATCHES, comm.rank)
        arms[name] = clearing(mine, step)
        arms[name]()
        check_gradients(name, mine, whole)
    return arms


def clearing(layers: list[nn.Module], step: Step) -> Step:
    def cleared():
        for module in layers:
            module.zero_grad()
        return step()

    return cleared


def check_gradients(name: str, layers: list[nn.Module], whole: list[nn.Module]) -> None:
    """AssertionError where a gradient that this rank has is not the whole network's."""
    for module, right in zip(layers, whole, strict=True):
        for param, expected in zip(module.parameters(), right.parameters(), strict=True):
            if param.grad is not None:
                torch.testing.assert_close(param.grad, expected.grad, rtol=1e-3, atol=1e-6, msg=f"{name} is wrong")


def predict(name: str, repeats: int, comm: Communicator, mpi: Any) -> dict[str, Any]:
    """The makespan of a schedule: predicted from F, B, W and a message of the same run, and measured; medians."""
    layers, x, y = layers_and_batch()
    orders, step = SCHEDULES[name].orders(2, MICROBATCHES), ours(name, comm, layers, x, y)
    chunk = FusedLayers(cut_layers(layers, [(0, 0), (1, 0)], comm.rank)[0])
    apart = any(op == "W" for op, *_ in orders[0])
    seconds, runs = [], []
    for _ in range(repeats + 1):
        seconds.append(time_chunk(chunk, cut_batch(x, y, MICROBATCHES), comm, apart))
        comm.barrier()
        run: StageRun = step()
        runs.append((run.starts[0], run.ends[-1]))
    mine = [statistics.median(column) for column in zip(*seconds[1:], strict=True)]
    f, b, w = zip(*mpi.allgather(mine), strict=True)
    spans = mpi.allgather(runs[1:])
    measured = [max(end for _, end in both) - min(start for start, _ in both) for both in zip(*spans, strict=True)]
    message = time_message(comm, repeats)
    predicted = play(orders, f, b, w, message=message).makespan
    found = {"schedule": name, "predicted": predicted, "measured": statistics.median(measured)}
    return found | {"F": f, "B": b, "W": w, "message": message}


def time_chunk(chunk: Layers, microbatches: list, comm: Communicator, apart: bool) -> tuple[float, float, float]:
    """Seconds of F, B and W of one microbatch, while the other rank does the same; unless `apart` B is both.

    The loss, and its gradient, are a part of the second stage's F.
    """
    comm.barrier()
    marks = [time.perf_counter()]
    outputs = []
    for k, (x, y) in enumerate(microbatches):
        out = chunk.forward(k, x.detach().requires_grad_(comm.rank > 0))
        outputs.append(out if comm.rank == 0 else _gradient(out, y))
    marks.append(time.perf_counter())
    for k, dy in enumerate(outputs):
        (chunk.backward_input if apart else chunk.backward)(k, dy)
    marks.append(time.perf_counter())
    for k in range(len(outputs) * apart):
        chunk.backward_weight(k)
    marks.append(time.perf_counter())
    f, b, w = ((after - before) / len(outputs) for before, after in pairwise(marks))
    return f, b, w


def _gradient(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = out.detach().requires_grad_()
    loss = mse_loss(out, y) / MICROBATCHES
    loss.item()
    return torch.autograd.grad(loss, out)[0]


def time_message(comm: Communicator, repeats: int) -> float:
    """Seconds of a message of one microbatch: half of the way there and back."""
    x, found = torch.zeros(ROWS // MICROBATCHES, WIDTH), []
    for _ in range(5 * repeats):
        comm.barrier()
        begin = time.perf_counter()
        for turn in range(2):
            (comm.send if turn == comm.rank else comm.recv)(x, 1 - comm.rank)
        found.append((time.perf_counter() - begin) / 2)
    return statistics.median(found)


def held(name: str, comm: Communicator) -> int:
    """Microbatches that this rank held at most: by the memory meter, how much more than with a single microbatch.

    Of each, its layers keep their outputs, and the second stage what it received. No receive is posted ahead here.
    """
    one = (LAYERS // 2 + comm.rank) * (ROWS // MICROBATCHES) * WIDTH * 4
    return 1 + round((most_kept(name, comm, MICROBATCHES) - most_kept(name, comm, 1)) / one)


def most_kept(name: str, comm: Communicator, m: int) -> int:
    layers, x, y = layers_and_batch()
    rows = m * ROWS // MICROBATCHES
    step = ours(name, comm, layers, x[:rows], y[:rows], ahead=0)
    with meter() as found:
        step()
        return found.highest["activations"]
