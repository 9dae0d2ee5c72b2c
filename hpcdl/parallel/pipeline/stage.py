"""One stage of a pipeline at work: any schedule of `hpcdl.parallel.schedules`, over any communicator.

After Huang et al. 2019 (GPipe: microbatches, one update), Narayanan et al. 2021 (1F1B, interleaved) and Qi et al. 2024
(separate B and W); the schedules give the order, and this module runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hpcdl.comm import Communicator
from hpcdl.cost.timeline import Orders
from hpcdl.parallel.pipeline.arguments import (
    Unchanged,
    boundaries,
    modules_of,
    require_chunks,
    require_one_by_one,
    rows_of_all,
)
from hpcdl.parallel.pipeline.checked import AddsUp, require_no_parameter
from hpcdl.parallel.pipeline.layers import Chunk
from hpcdl.parallel.pipeline.losses import Loss, Reduction, reduction_of, require_number, require_reduction
from hpcdl.parallel.pipeline.messages import Messages, Tensors
from hpcdl.parallel.pipeline.plan import Plan, PlannedMessage
from hpcdl.parallel.pipeline.tied import OwnGradients, TiedGradients, tied_in
from hpcdl.parallel.pipeline.values import Boundary, Value, is_differentiable, like, tensors_of
from hpcdl.parallel.schedules import Place

Microbatch = tuple[Value, Value]


@dataclass
class StageRun:
    """A stage's result: `loss` of the whole batch on the stage with the last part, None on others.

    `outputs` of the last part, by microbatch, where the orders have forward passes only. `starts` and `ends` of its
    ops, in its order, by `comm.clock()`: with those of all stages a `hpcdl.cost.timeline.Timeline`.
    """

    loss: float | None = None
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)


def run_stage(
    comm: Communicator,
    chunks: Sequence[Chunk],
    orders: Orders,
    microbatches: Sequence[Microbatch],
    loss: Loss | None,
    between: Any,
    *,
    parts: Sequence[Place] | None = None,
    dtype: torch.dtype = torch.float32,
    total: int | None = None,
    ahead: int | None = 2,
    reduction: Reduction | None = None,
) -> StageRun:
    """Run stage `comm.rank` of a pipeline of `comm.size` for one batch: compute gradients of the mean loss of all its
    rows.

    `chunks` are this stage's parts of the network (`Layers`), `orders` all stages' orders, `parts` where each part of
    the network is (`Schedule.parts`; chunk after chunk over the stages if None). `microbatches` has (x, y) of each, on
    every rank: the first part takes x, the last gives y to `loss(outputs, y)`; the others need only their numbers of
    rows, which may differ. `between` is the shape of one row between two parts, or one shape for each boundary, and
    `dtype` of what passes there. If several tensors pass, `between` has a dict of `RowSpec`s (the next part's keyword
    arguments), or for each boundary a dict or a list of them; x may be a dict or a tuple, too.

    `loss` is the mean over the rows, and each microbatch's counts rows / total, once, where it arises: `total` is the
    rows of all, if other ranks have microbatches of the same batch. With reduction="sum" it is a sum, and losses add
    up, divided by `total` if there is one: for a mean over tokens that are not ignored, give their number. By default
    `reduction` is the loss's own attribute. The loss of each microbatch is checked, by its graph. Weights do not
    change; call the optimizer afterwards. The gradients of weights that stages share are summed (`cut_layers` notes
    them). `ahead` receives are posted ahead of their turns: with more, messages overlap with more, in more memory.

    Orders with forward passes only (`hpcdl.parallel.schedules.forward_only`) compute no gradient, and `loss` may be
    None: the last part's outputs are in the result.

    Raises ValueError, on every rank and before the first message, for orders with an op that is missing or comes
    twice or cannot be done, for a microbatch without rows, for shapes that are not as many as the boundaries; and on
    its own rank for chunks that are not as many as `parts` says, a batch norm that would take each microbatch's
    statistics, and a loss that is neither a mean nor a sum over rows, or has parameters of its own.
    """
    plan = Plan(orders, parts, len(microbatches))
    rows = rows_of_all(microbatches)
    passing = boundaries(between, plan.last)
    require_chunks(comm, chunks, plan)
    require_one_by_one(chunks, len(microbatches))
    if loss is None and not plan.forward_only:
        raise ValueError("loss is None, and the orders have backward passes; give a function of (outputs, y)")
    kind = "mean" if loss is None else reduction_of(loss, reduction, microbatches)

    def empty(message: PlannedMessage) -> Tensors:
        here = passing[message.part - (message.op == "F")]
        specs = here.specs if message.op == "F" else here.differentiable(dtype)
        return [spec.empty(rows[message.microbatch], dtype, comm.devices[0]) for spec in specs]

    messages = Messages(comm, plan, empty, ahead, max([1, *(len(each.specs) for each in passing)]))
    own = OwnGradients(comm, [] if plan.forward_only else modules_of(chunks))
    tied = TiedGradients([] if plan.forward_only else tied_in(modules_of(chunks)), comm)
    stage = _Stage(comm, chunks, plan, messages, microbatches, loss)
    stage.weights = [1 / (total or 1) if kind == "sum" else n / (total or sum(rows)) for n in rows]
    stage.kind, stage.passing, stage.rows, stage.dtype = kind, passing, rows, dtype
    stage.adds_up = AddsUp(loss, kind) if loss is not None and (len(rows) > 1 or total) else None
    for op, k, chunk in orders[comm.rank]:
        stage.do(op, k, chunk)
    messages.finish()
    if stage.adds_up and stage.run.loss is not None:
        stage.adds_up.finish()
    tied.sum()
    own.guard()
    return stage.run


class _Stage:
    """The ops of one stage, and what they need."""

    weights: list[float]  # of the microbatches' losses
    rows: list[int]
    passing: list[Boundary]
    dtype: torch.dtype
    kind: str
    adds_up: AddsUp | None  # None if all rows are in one microbatch

    def __init__(self, comm, chunks, plan: Plan, messages: Messages, microbatches, loss: Loss | None):
        self.comm, self.chunks, self.plan, self.messages = comm, chunks, plan, messages
        self.microbatches, self.loss = microbatches, loss
        self.run = StageRun()
        self._seen: set[int] = set()  # chunks whose first forward pass is done

    def do(self, op: str, k: int, chunk: int) -> None:
        part = self.plan.part_of[self.comm.rank, chunk]
        needed = self.plan.needs(op, k, part)
        came = self.messages.take(needed) if needed else []
        self.run.starts.append(self.comm.clock())
        if op == "F":
            self._forward(k, part, self._compute(k, chunk, part, came))
        elif op == "W":
            self.chunks[chunk].backward_weight(k)
        else:
            self._backward(k, chunk, part, came)
        self.run.ends.append(self.comm.clock())

    def _compute(self, k: int, chunk: int, part: int, came: Tensors) -> Value:
        """Return the output of F."""
        if self.plan.forward_only:
            with torch.no_grad():
                return self.chunks[chunk].forward(k, self._input(k, part, came))
        for x in came:
            x.requires_grad_(is_differentiable(x.dtype))
        several = len(self.rows) > 1 and chunk not in self._seen
        before = Unchanged(self.chunks[chunk]) if several else None
        y = self.chunks[chunk].forward(k, self._input(k, part, came))
        if before:
            before.require()
            self._seen.add(chunk)
        return y

    def _input(self, k: int, part: int, came: Tensors) -> Value:
        return self.passing[part - 1].arranged(came) if part else self.microbatches[k][0]

    def _forward(self, k: int, part: int, y: Value) -> None:
        if part < self.plan.last:
            here = self.passing[part]
            if self.plan.stage_of(part + 1) == self.comm.rank and here.one:
                self.messages.give(PlannedMessage("F", k, part + 1), [y])
            else:
                self.messages.give(PlannedMessage("F", k, part + 1), here.require(y, part, self.rows[k], self.dtype))
        elif self.plan.forward_only:
            self.run.outputs.append(y)
            if self.loss is not None:
                self._evaluate(k, y)
        else:
            self.messages.give(PlannedMessage("B", k, part), self._gradient(k, y))

    def _evaluate(self, k: int, y: Value) -> None:
        """Add microbatch k's part of the loss, of a batch without backward passes."""
        assert self.loss is not None
        target = self.microbatches[k][1]
        try:
            with torch.enable_grad():
                loss = self.loss(self._leaves(y)[0], target)
        except Exception:  # it may take only outputs without a graph
            with torch.no_grad():
                loss = self.loss(y, target)
        self._add_loss(k, y, require_number(loss))

    def _add_loss(self, k: int, y: Value, loss: torch.Tensor) -> torch.Tensor:
        """Add microbatch k's part of the batch's loss, and return it; the loss is scaled only here."""
        if self.adds_up:
            self.adds_up.require(k, y, self.microbatches[k][1], self.rows[k], loss)
        scaled = loss * self.weights[k]
        self.run.loss = (self.run.loss or 0.0) + scaled.item()
        return scaled

    def _leaves(self, y: Value) -> tuple[Value, list[torch.Tensor]]:
        """Return `y` as the beginning of a new graph, and its tensors that are differentiable."""
        outputs = [each.detach() for each in tensors_of(y, "the last part's output")]
        leaves = [each.requires_grad_() for each in outputs if is_differentiable(each.dtype)]
        return like(y, outputs), leaves

    def _gradient(self, k: int, y: Value) -> Tensors:
        """Return the gradients of microbatch k's part of the batch's loss, by output that is differentiable."""
        assert self.loss is not None  # else the orders have no backward passes
        (y, leaves), target = self._leaves(y), self.microbatches[k][1]
        if self.run.loss is None:
            require_reduction(self.loss, self.kind, y, target)
        loss = require_number(self.loss(y, target))
        require_no_parameter(loss, leaves)
        loss = self._add_loss(k, y, loss)
        if not loss.requires_grad:
            return [torch.zeros_like(each) for each in leaves]
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]

    def _backward(self, k: int, chunk: int, part: int, dys: Tensors) -> None:
        layers, apart = self.chunks[chunk], (k, chunk) in self.plan.apart[self.comm.rank]
        dx = (layers.backward_input if apart else layers.backward)(k, dys[0] if len(dys) == 1 else tuple(dys))
        if part == 0:
            return
        specs = self.passing[part - 1].differentiable(self.dtype)
        found = dx if isinstance(dx, (tuple, list)) else [dx] * len(specs)
        gradients = [
            spec.empty(self.rows[k], self.dtype, self.comm.devices[0]).zero_() if g is None else g
            for spec, g in zip(specs, found, strict=True)
        ]
        self.messages.give(PlannedMessage("B", k, part - 1), gradients)
