"""torch's parameter server over RPC and its HOGWILD! example, as peers of `hpcdl.consistency`."""

import threading
import time
from typing import Any

import torch
from torch import nn
from torch.distributed import rpc

from hpcdl.data import SparseRows, rcv1_like

# -- the parameter server of the tutorial "Implementing batch RPC processing using asynchronous executions" -----------


class ParameterServer:
    """It has the model and an optimizer; a trainer sends gradients and gets the parameters back."""

    def __init__(self, shapes: list[torch.Size], lr: float):
        self.params = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
        self.optimizer = torch.optim.SGD(self.params, lr)
        self.lock = threading.Lock()

    def update(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Take a step, and return what there is then."""
        with self.lock:
            for param, gradient in zip(self.params, gradients, strict=True):
                param.grad = gradient
            self.optimizer.step()
            return [param.detach() for param in self.params]


_server: list[ParameterServer] = []  # of this process


def open_server(shapes: list[torch.Size], lr: float) -> None:
    """In the server's process."""
    _server[:] = [ParameterServer(shapes, lr)]


def update(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the function that a trainer calls remotely."""
    return _server[0].update(gradients)


def start_rpc(rank: int, size: int, file: str) -> None:
    """Join torch's RPC as "rank0", "rank1", ...; `file` is one that all ranks reach, and new."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}", num_worker_threads=4)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=size, rpc_backend_options=options)


def step(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return a trainer's call: the gradients to rank 0, the parameters back."""
    return rpc.rpc_sync("rank0", update, args=(gradients,))


# -- torch.multiprocessing's example mnist_hogwild, on sparse rows ----------------------------------------------------


def hogwild_seconds(rows: int, batch: int, updates: int, lr: float, processes: int = 2) -> float:
    """Seconds in which `processes` make `updates` updates each of one shared model, without locks."""
    model = nn.EmbeddingBag(rcv1_like(2).features, 1, mode="sum", sparse=True)
    nn.init.zeros_(model.weight)
    model.share_memory()
    context = torch.multiprocessing.get_context("spawn")
    ready, found = context.Barrier(processes), context.SimpleQueue()
    args = (model, rows, batch, updates, lr, processes, ready, found)
    workers = [context.Process(target=_train, args=(rank, *args), daemon=True) for rank in range(processes)]
    for worker in workers:
        worker.start()
    spans = [found.get() for _ in workers]
    for worker in workers:
        worker.join()
    return max(spans)


def _train(
    rank: int,
    model: nn.EmbeddingBag,
    rows: int,
    batch: int,
    updates: int,
    lr: float,
    processes: int,
    ready: Any,
    found: Any,
) -> None:
    torch.set_num_threads(1)
    data, optimizer = rcv1_like(rows), torch.optim.SGD(model.parameters(), lr)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(rank)).tolist()
    batches = [_batch(data, [order[(k * batch + i) % rows] for i in range(batch)]) for k in range(updates + 10)]
    for number, (columns, offsets, values, y) in enumerate(batches):
        if number == 10:  # warm
            ready.wait()
            begin = time.perf_counter()
        optimizer.zero_grad()
        score = model(columns, offsets, per_sample_weights=values).view(-1)
        nn.functional.softplus(-y * score).mean().backward()
        optimizer.step()
    found.put(time.perf_counter() - begin)


def _batch(data: SparseRows, numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    spans = [slice(int(data.starts[i]), int(data.starts[i + 1])) for i in numbers]
    lengths = torch.tensor([0, *(span.stop - span.start for span in spans)])
    columns = torch.cat([data.columns[span] for span in spans]).long()
    return columns, lengths.cumsum(0)[:-1], torch.cat([data.values[span] for span in spans]), data.y[numbers]
