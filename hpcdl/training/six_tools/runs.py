"""The steps of a training, the same for every tool; on ranks of any machine, and in one process."""

import time

import torch

from hpcdl.comm import Communicator
from hpcdl.training.six_tools.tasks import Task
from hpcdl.training.six_tools.ways import RATE, Prepare, Prepared


def steps(prepared: Prepared, comm: Communicator, count: int, task: Task) -> tuple[torch.Tensor, list[float]]:
    """Yield this rank's part of the mean loss and the seconds of each step."""
    g, losses, seconds = torch.Generator().manual_seed(1), list[torch.Tensor](), list[float]()
    for _ in range(count):
        x, y = task.batch(g)
        if not prepared.alike:
            x, y = (each.tensor_split(comm.size)[comm.rank] for each in (x, y))
        begin = time.perf_counter()
        loss = task.loss(prepared.model(x), y)
        prepared.backward(loss)
        prepared.synchronize()
        prepared.optimizer.step()
        seconds.append(time.perf_counter() - begin)
        prepared.optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses) / comm.size, seconds


def train(comm: Communicator, prepare: Prepare, task: Task, count: int = 20) -> list[float]:
    """Return the mean losses of a training on ranks of any of our machines, including torch's process group."""
    from hpcdl.training.process_group import process_group

    with process_group(comm):
        losses, _ = steps(prepare(task.network(), comm), comm, count, task)
        comm.all_reduce(losses)
    return losses.tolist()


def sent(prepare: Prepare, task: Task, p: int = 2) -> int:
    """Return the bytes that rank 0 of p sends in a step: three steps minus two steps."""
    from hpcdl.comm import simulate
    from hpcdl.training.process_group import process_group

    def rank(comm: Communicator, count: int) -> None:
        with process_group(comm):
            steps(prepare(task.network(), comm), comm, count, task)

    two, three = (simulate(rank, p, count).bytes_sent[0] for count in (2, 3))
    return three - two


def serial(task: Task, count: int = 20) -> list[float]:
    """Return the losses of one process without any tool."""
    from hpcdl.comm import simulate

    def alone(comm: Communicator) -> list[float]:
        model = task.network()
        prepared = Prepared(model, torch.optim.SGD(model.parameters(), RATE))
        return steps(prepared, comm, count, task)[0].tolist()

    return simulate(alone, 1).results[0]
