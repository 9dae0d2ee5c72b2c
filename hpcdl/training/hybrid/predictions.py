"""The numbers that a run prints before its first step: ranks, samples, bytes and memory per rank, bubble, seconds.

Memory comes from `hpcdl.cost.memory.zero` for the rank with most parameters, and the bubble from
`hpcdl.cost.pipeline.play` with F, B and W of equal length. Messages count what replicas and stages send; `dry_run`
counts those of tensor and sequence parallelism, exactly.
"""

from typing import Any

import torch

from hpcdl.cost.machines import Machine
from hpcdl.cost.memory import zero
from hpcdl.parallel import SCHEDULES, Mesh, cut_layers
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.dry import DryComm
from hpcdl.training.hybrid.models import Model, build
from hpcdl.training.hybrid.seconds import bubble, step_seconds

BYTES = {
    "fp64": 8,
    "fp32": 4,
    "bf16": 4,
    "fp16": 4,
}  # of a weight, gradient, state or sent number
STATES = {"sgd": 1, "adam": 2, "adamw": 2}


def predict(configuration: Configuration) -> dict[str, Any]:
    """Predict what a run needs; values are the maximum over ranks.

    `parameters` of the model, `held` by a rank before sharding, its `memory` in bytes (weights, gradients, optimizer
    states), the `replica_bytes` (`gradient_bytes` and `parameter_bytes`) and `pipeline_bytes` (activations and their
    gradients) that it sends in a step, and the `bubble` as a share of its time.
    """
    model, itemsize = build(configuration.model, configuration.size), BYTES[configuration.precision]
    data, pipeline, _, sequence = configuration.mesh
    dense = model.dense()
    places = [Mesh(DryComm(rank, configuration.ranks), **configuration.axes) for rank in range(configuration.ranks)]
    held = max(_held(model, dense, mesh, configuration) for mesh in places if mesh.replicas.rank == 0)
    replicas = data * sequence
    stage = configuration.sharding if replicas > 1 else 0
    kept = zero(
        held, replicas, stage, optimizer=STATES[configuration.optimizer] * itemsize, weight=itemsize, gradient=itemsize
    )
    m = configuration.microbatches
    gradients = {0: 2, 2: m}.get(stage, 1)  # how often all gradients are sent, an all-reduce counting twice
    weights = {0: 0, 3: 2 * m}.get(stage, 1)
    each = held * itemsize * (replicas - 1) / replicas
    return {
        "parameters": sum(param.numel() for param in dense.parameters()),
        "held": held,
        "memory": kept,
        "gradient_bytes": gradients * each,
        "parameter_bytes": weights * each,
        "replica_bytes": (gradients + weights) * each,
        "pipeline_bytes": max(_boundaries(model, mesh, configuration) for mesh in places) * itemsize,
        "bubble": bubble(configuration.schedule, pipeline, configuration.microbatches),
    }


def _rows(configuration: Configuration) -> list[int]:
    """Return the number of samples in each microbatch of each replica in a full batch; padding rows do not count."""
    replicas = shares(configuration.batch, configuration.mesh[0])
    return [rows for replica in replicas for rows in shares(replica, configuration.microbatches)]


def _parts(mesh: Mesh, configuration: Configuration) -> list[tuple[int, int]]:
    stages, schedule = mesh.pipeline.size, SCHEDULES[configuration.schedule]
    return schedule.parts(stages, schedule.chunks) if stages > 1 else [(0, 0)]


def _held(model: Model, dense: torch.nn.Sequential, mesh: Mesh, configuration: Configuration) -> int:
    """Return the number of parameters in a rank's layers, before sharding."""
    chunks = cut_layers(list(model.split(dense, mesh)), _parts(mesh, configuration), mesh.stage)
    return sum(param.numel() for chunk in chunks for param in chunk.parameters())


def _boundaries(model: Model, mesh: Mesh, configuration: Configuration) -> int:
    """Return the elements that a rank sends to other stages in a step with a full batch: outputs, and gradients of
    inputs."""
    parts, shapes = _parts(mesh, configuration), model.boundaries(mesh)
    sizes, rows = shares(model.layers, len(parts)), shares(configuration.batch, mesh.data.size)[mesh.replica]
    sent = 0
    for part in range(len(parts) - 1):
        numel = rows * torch.Size(shapes[sum(sizes[: part + 1]) - 1]).numel()
        here, there = parts[part][0], parts[part + 1][0]
        sent += numel * ((here == mesh.stage) + (there == mesh.stage)) * (here != there)
    return sent


def described(configuration: Configuration, found: dict[str, Any], machine: Machine | None = None) -> list[str]:
    """Return the text that a run prints before its first step."""
    model = build(configuration.model, configuration.size)
    data, pipeline, tensor, sequence = configuration.mesh
    tokens = f", {configuration.batch * model.sequence:,} tokens" if model.sequence else ""
    alone = " (one replica: nothing to shard)" if configuration.sharding and data * sequence == 1 else ""
    states = STATES[configuration.optimizer]
    rows = "/".join(str(n) for n in sorted(set(_rows(configuration)), reverse=True))
    parameters, m = f"{found['parameters']:,} parameters", configuration.microbatches
    cut = "; --dry-run counts those of cut layers, too" if max(tensor, sequence) > 1 else ""
    replicas = f"each of {data} data replicas accumulates" if data > 1 else "it accumulates"
    return [
        f"model      {configuration.model} {configuration.size}: {parameters}, {model.layers} layers",
        f"ranks      {configuration.ranks} = data {data} x pipeline {pipeline} x tensor {tensor} x sequence {sequence}",
        f"a step     {configuration.batch} {model.unit}{tokens}; {replicas} {m} microbatch{'es' * (m > 1)} of {rows}",
        f"sharding   stage {configuration.sharding} over {data * sequence} replicas{alone}",
        f"a rank     up to {found['held']:,} parameters; {format_bytes(round(found['memory']))} of weights, gradients "
        f"and {states} state{'s' * (states > 1)}",
        f"it sends   {_sent(found)} a step{cut}",
        f"bubble     {100 * found['bubble']:.1f} % of a stage's time, if F, B and W take equally long",
        predicted_seconds(configuration, machine),
    ]


def _sent(found: dict[str, Any]) -> str:
    """Return the bytes of each kind that replicas and stages send; the numbers that they agree on are few."""
    kinds = {"gradients": "gradient_bytes", "parameters": "parameter_bytes", "activations": "pipeline_bytes"}
    said = [f"{format_bytes(round(found[name]))} of {kind}" for kind, name in kinds.items() if found[name]]
    return ", ".join(said) or "nothing"


def format_bytes(n: float) -> str:
    """Format bytes with three figures: 512 bytes, 1.25 MB (of 10^6 bytes)."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            break
        n /= 1000
    return f"{n:.3g} {unit}"


def predicted_seconds(configuration: Configuration, machine: Machine | None) -> str:
    """Return the line about time: what `hpcdl.cost` predicts for a machine, or why it predicts nothing."""
    if machine is None:
        return "seconds    no peak known of this processor; for a machine of hpcdl.cost: hpcdl train --machine NAME"
    if configuration.precision not in machine.peaks:
        return f"seconds    no peak known: {machine.name} has peaks for {', '.join(machine.peaks)}"
    step = step_seconds(configuration, machine)
    parts = {"computing": step.forward + step.backward, "messages": step.exposed, "bubble": step.bubble}
    said = ", ".join(f"{name} {as_seconds(seconds)}" for name, seconds in parts.items())
    return f"seconds    {as_seconds(step.seconds)} a step on {machine.name}, predicted: {said}"


def as_seconds(seconds: float) -> str:
    """Format a time with three figures: 1.5 s, 20 ms, 3.1 µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def difference(configuration: Configuration, machine: Machine, seconds: float) -> str:
    """Return the line about time after a run, from its last step's seconds."""
    if configuration.precision not in machine.peaks:
        return f"seconds    {as_seconds(seconds)} for the last step; no peak known, so nothing was predicted"
    expected = step_seconds(configuration, machine).seconds
    off = f"{100 * (seconds / expected - 1):+.1f} % of the prediction"
    return f"seconds    {as_seconds(seconds)} for the last step, {off}"
