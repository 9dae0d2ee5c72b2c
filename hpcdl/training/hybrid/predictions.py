"""The numbers that a run prints before its first step: ranks, samples, bytes and memory per rank, the bubble.

Memory is that of `hpcdl.cost.memory.zero` for the rank with most parameters, and the bubble that of
`hpcdl.cost.pipeline.play` with F, B and W of equal length. Messages count what replicas and stages send; `dry_run`
counts those of tensor and sequence parallelism.
"""

from typing import Any

import torch

from hpcdl.comm import Communicator, simulate
from hpcdl.cost.memory import zero
from hpcdl.cost.pipeline import play
from hpcdl.parallel import SCHEDULES, Mesh, cut_layers
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.models import Model, build

BYTES = {"fp64": 8, "fp32": 4, "bf16": 4}  # of a weight, its gradient, each state, and what stages send
STATES = {"sgd": 1, "adam": 2, "adamw": 2}


class _Place(Communicator):
    """A rank without a machine: it can be asked who it is."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    def clock(self) -> float:
        return 0.0

    def _no_message(self, *what: Any) -> Any:
        raise NotImplementedError("a plan sends no messages")

    _isend = _irecv = _wait = _broadcast = _all_reduce = _barrier = _no_message  # type: ignore[assignment]


def predict(configuration: Configuration) -> dict[str, Any]:
    """What a run needs, the most of any rank.

    `parameters` of the model, `held` by a rank before sharding, its `memory` in bytes (weights, gradients, optimizer
    states), `replica_bytes` and `pipeline_bytes` that it sends in a step, and the `bubble`, a share of its time.
    """
    model, itemsize = build(configuration.model, configuration.size), BYTES[configuration.precision]
    data, pipeline, _, sequence = configuration.mesh
    dense = model.dense()
    places = [Mesh(_Place(rank, configuration.ranks), **configuration.axes) for rank in range(configuration.ranks)]
    held = max(_held(model, dense, mesh, configuration) for mesh in places if mesh.replicas.rank == 0)
    replicas, chosen = data * sequence, SCHEDULES[configuration.schedule]
    stage = configuration.sharding if replicas > 1 else 0
    bubble = 0.0
    if pipeline > 1:
        orders, parts = chosen.orders(pipeline, configuration.microbatches), chosen.parts(pipeline, chosen.chunks)
        bubble = play(orders, 1.0, 1.0, 1.0, parts=parts).bubble
    kept = zero(
        held, replicas, stage, optimizer=STATES[configuration.optimizer] * itemsize, weight=itemsize, gradient=itemsize
    )
    passes = 2 * configuration.microbatches + 1 if stage == 3 else 2
    return {
        "parameters": sum(param.numel() for param in dense.parameters()),
        "held": held,
        "memory": kept,
        "replica_bytes": passes * held * itemsize * (replicas - 1) / replicas,
        "pipeline_bytes": max(_boundaries(model, mesh, configuration) for mesh in places) * itemsize,
        "bubble": bubble,
    }


def _parts(mesh: Mesh, configuration: Configuration) -> list[tuple[int, int]]:
    stages, schedule = mesh.pipeline.size, SCHEDULES[configuration.schedule]
    return schedule.parts(stages, schedule.chunks) if stages > 1 else [(0, 0)]


def _held(model: Model, dense: torch.nn.Sequential, mesh: Mesh, configuration: Configuration) -> int:
    """Parameters of a rank's layers, before they are sharded."""
    chunks = cut_layers(list(model.split(dense, mesh)), _parts(mesh, configuration), mesh.stage)
    return sum(param.numel() for chunk in chunks for param in chunk.parameters())


def _boundaries(model: Model, mesh: Mesh, configuration: Configuration) -> int:
    """Elements that a rank sends to other stages in a step of a full batch: outputs, and gradients of inputs."""
    parts, shapes = _parts(mesh, configuration), model.boundaries(mesh)
    sizes, rows = shares(model.layers, len(parts)), shares(configuration.batch, mesh.data.size)[mesh.replica]
    sent = 0
    for part in range(len(parts) - 1):
        numel = rows * torch.Size(shapes[sum(sizes[: part + 1]) - 1]).numel()
        here, there = parts[part][0], parts[part + 1][0]
        sent += numel * ((here == mesh.stage) + (there == mesh.stage)) * (here != there)
    return sent


def described(configuration: Configuration, found: dict[str, Any]) -> list[str]:
    """The block that a run prints before its first step."""
    model = build(configuration.model, configuration.size)
    data, pipeline, tensor, sequence = configuration.mesh
    tokens = f", {configuration.batch * model.sequence:,} tokens" if model.sequence else ""
    alone = " (one replica: nothing to shard)" if configuration.sharding and data * sequence == 1 else ""
    states = STATES[configuration.optimizer]
    parameters, m = f"{found['parameters']:,} parameters", configuration.microbatches
    return [
        f"model      {configuration.model} {configuration.size}: {parameters}, {model.layers} layers",
        f"ranks      {configuration.ranks} = data {data} x pipeline {pipeline} x tensor {tensor} x sequence {sequence}",
        f"a step     {configuration.batch} {model.unit}{tokens}; {m} microbatch{'es' * (m > 1)} on each replica",
        f"sharding   stage {configuration.sharding} over {data * sequence} replicas{alone}",
        f"a rank     up to {found['held']:,} parameters; {as_bytes(round(found['memory']))} of weights, gradients "
        f"and {states} state{'s' * (states > 1)}",
        f"it sends   {as_bytes(round(found['replica_bytes']))} to replicas and {as_bytes(found['pipeline_bytes'])} to "
        "stages a step",
        f"bubble     {found['bubble']:.1%} of a stage's time, if F, B and W take as long",
    ]


def as_bytes(n: float) -> str:
    """So many bytes, with three figures: 512 bytes, 1.25 MB (of 2^20 bytes)."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            break
        n /= 1024
    return f"{n:.3g} {unit}"


def dry_run(configuration: Configuration) -> list[str]:
    """Two steps on simulated ranks, and of the second what the ranks sent and held, at most."""
    from hpcdl.training.trainer import Trainer

    def rank(comm: Communicator) -> dict[str, Any]:
        records: list[dict] = []
        Trainer(comm, configuration.changed(steps=2)).train(records.append, measure=True)
        return records[-1]

    records = simulate(rank, configuration.ranks).results
    most = {name: max(record[name] for record in records) for name in ("bytes_sent", "messages", "peak_bytes")}
    return [
        f"dry run    {configuration.ranks} simulated ranks took 2 steps: loss {records[0]['loss']:.4f}",
        f"measured   a rank sends up to {as_bytes(most['bytes_sent'])} in {most['messages']} messages a step, on all "
        f"axes together, and holds up to {as_bytes(most['peak_bytes'])}, activations included",
    ]
