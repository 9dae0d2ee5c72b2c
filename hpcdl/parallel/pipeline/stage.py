"""One stage of a pipeline at work: any schedule of `hpcdl.parallel.schedules`, over any communicator.

After Huang et al. 2019 (GPipe: microbatches, one update), Narayanan et al. 2021 (1F1B, interleaved) and Qi et al. 2024
(B and W apart); the schedules say in which order, and this does it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from hpcdl.comm import Communicator
from hpcdl.cost.timeline import Orders
from hpcdl.parallel.pipeline.layers import Chunk
from hpcdl.parallel.pipeline.messages import Messages
from hpcdl.parallel.pipeline.plan import Message, Plan
from hpcdl.parallel.schedules import Place

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Microbatch = tuple[torch.Tensor, torch.Tensor]


@dataclass
class StageRun:
    """What a stage has done: `loss` of the whole batch on the stage with the last part, None on others.

    `starts` and `ends` of its ops, in its order, by `comm.clock()`: with those of all stages a
    `hpcdl.cost.timeline.Timeline`.
    """

    loss: float | None = None
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


def run_stage(
    comm: Communicator,
    chunks: Sequence[Chunk],
    orders: Orders,
    microbatches: Sequence[Microbatch],
    loss: Loss,
    between: Sequence[int] | Sequence[Sequence[int]],
    *,
    parts: Sequence[Place] | None = None,
    dtype: torch.dtype = torch.float32,
    total: int | None = None,
    ahead: int | None = 2,
) -> StageRun:
    """Do stage `comm.rank` of a pipeline of `comm.size` for one batch: gradients of the mean loss of all its rows.

    `chunks` are this stage's parts of the network (`Layers`), `orders` all stages' orders, `parts` where each part of
    the network is (`Schedule.parts`; chunk after chunk over the stages if None). `microbatches` has (x, y) of each, on
    every rank: the first part takes x, the last gives y to `loss(outputs, y)`, the mean over the rows; the others need
    their numbers of rows alone, which may differ. `between` is the shape of one row between two parts, or one shape for
    each boundary, and `dtype` of what passes there. `total`, if other ranks have microbatches of the same batch, is the
    rows of all.

    Each microbatch's loss counts rows / total, once, where it arises. Weights stay; call the optimizer afterwards.
    `ahead` receives are posted ahead of their turns: with more, messages overlap with more, in more memory.

    Raises ValueError, on every rank and before the first message, for orders with an op that is missing or comes
    twice or cannot be done, for a microbatch without rows, for shapes that are not as many as the boundaries; and on
    its own rank for chunks that are not as many as `parts` says.
    """
    plan = Plan(orders, parts, len(microbatches))
    rows = _rows(microbatches)
    shapes = _shapes(between, plan.last)
    _check_sizes(comm, chunks, plan)
    weights = [n / (sum(rows) if total is None else total) for n in rows]

    def empty(message: Message) -> torch.Tensor:
        shape = shapes[message.part - (message.op == "F")]
        return torch.empty(rows[message.microbatch], *shape, dtype=dtype, device=comm.devices[0])

    stage = _Stage(comm, chunks, plan, Messages(comm, plan, empty, ahead), microbatches, loss, weights)
    for op, k, chunk in orders[comm.rank]:
        stage.do(op, k, chunk)
    stage.messages.finish()
    return stage.run


class _Stage:
    """The ops of one stage, and what they need."""

    def __init__(self, comm, chunks, plan: Plan, messages: Messages, microbatches, loss: Loss, weights: list[float]):
        self.comm, self.chunks, self.plan, self.messages = comm, chunks, plan, messages
        self.microbatches, self.loss, self.weights = microbatches, loss, weights
        self.run = StageRun()

    def do(self, op: str, k: int, chunk: int) -> None:
        part = self.plan.part_of[self.comm.rank, chunk]
        needed = self.plan.needs(op, k, part)
        x = self.messages.take(needed).requires_grad_(op == "F") if needed else self.microbatches[k][0]
        self.run.starts.append(self.comm.clock())
        if op == "F":
            self._forward(k, part, self.chunks[chunk].forward(k, x))
        elif op == "W":
            self.chunks[chunk].backward_weight(k)
        else:
            self._backward(k, chunk, part, x)
        self.run.ends.append(self.comm.clock())

    def _forward(self, k: int, part: int, y: torch.Tensor) -> None:
        if part < self.plan.last:
            self.messages.give(Message("F", k, part + 1), y)
        else:
            self.messages.give(Message("B", k, part), self._gradient(k, y))

    def _gradient(self, k: int, y: torch.Tensor) -> torch.Tensor:
        """The gradient of microbatch k's part of the batch's loss; here alone the loss is scaled."""
        y = y.detach().requires_grad_()
        loss = self.loss(y, self.microbatches[k][1]) * self.weights[k]
        self.run.loss = (self.run.loss or 0.0) + loss.item()
        return torch.autograd.grad(loss, y)[0]

    def _backward(self, k: int, chunk: int, part: int, dy: torch.Tensor) -> None:
        layers = self.chunks[chunk]
        dx = (layers.backward_input if (k, chunk) in self.plan.apart[self.comm.rank] else layers.backward)(k, dy)
        if part > 0:
            self.messages.give(Message("B", k, part - 1), dx)


# -- arguments --------------------------------------------------------------------------------------------------------


def _rows(microbatches: Sequence[Microbatch]) -> list[int]:
    rows = [len(x) for x, _ in microbatches]
    if not rows or 0 in rows:
        raise ValueError(
            f"microbatches have {rows} rows; a batch is one or more, each of a row or more: the mean of no row is 0 / 0"
        )
    return rows


def _shapes(between: Sequence, boundaries: int) -> list[tuple[int, ...]]:
    """The shape of a row at each boundary."""
    each = [tuple(shape) for shape in between] if between and not isinstance(between[0], int) else None
    shapes = [tuple(between)] * boundaries if each is None else each
    if len(shapes) != boundaries:
        raise ValueError(f"between has {len(shapes)} shapes; {boundaries + 1} parts have {boundaries} boundaries")
    return shapes


def _check_sizes(comm: Communicator, chunks: Sequence[Chunk], plan: Plan) -> None:
    if len(plan.orders) != comm.size:
        raise ValueError(f"orders has {len(plan.orders)} stages and comm has {comm.size} ranks; each rank is a stage")
    here = sum(stage == comm.rank for stage, _ in plan.parts)
    if len(chunks) != here:
        raise ValueError(f"rank {comm.rank}: there are {len(chunks)} chunks; `parts` gives this stage {here}")
