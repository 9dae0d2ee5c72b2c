"""Predictions of `hpcdl.cost` for a configuration on a machine: the seconds of a step, and of each op of a rank."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from hpcdl.cost import training
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import Machine
from hpcdl.cost.pipeline import play
from hpcdl.cost.reached import Prediction
from hpcdl.cost.work import Transformer, backward_seconds, forward_seconds
from hpcdl.nn.networks import Layer
from hpcdl.parallel import SCHEDULES
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError
from hpcdl.training.hybrid.models import GPT, build
from hpcdl.training.hybrid.work import layers_of

UPDATE_BYTES = {"sgd": 20, "adam": 28, "adamw": 28}  # read and written for each weight by an update
ITEMSIZE = 4  # bytes of a number that ranks send


def step_seconds(configuration: Configuration, machine: Machine) -> Prediction:
    """Predict the seconds of one step; a batch that does not divide counts as the next larger one that does.

    Raises ConfigurationError if the machine has no peak for the precision, or too few ranks per node.
    """
    data, pipeline, tensor, sequence = configuration.mesh
    m, cut = configuration.microbatches, SCHEDULES[configuration.schedule].chunks if pipeline > 1 else 1
    rows = -(-configuration.batch // (data * m))
    layout = Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        chunks=cut,
        microbatch=rows,
        schedule=configuration.schedule,
        precision=configuration.precision,
        itemsize=ITEMSIZE,
        update_bytes=UPDATE_BYTES[configuration.optimizer],
        zero=configuration.sharding if data * sequence > 1 else 0,
        context=sequence,
        kernels="eager",
        dropout=False,
    )
    model = cost_model(configuration.model, configuration.size)
    try:
        if isinstance(model, list) and (tensor > 1 or layout.zero == 3):
            found = _chain(model, machine, layout, rows * data * m)
        else:
            found = training.predict(model, machine, layout, rows * data * m)
    except ValueError as error:
        raise ConfigurationError(f"{machine.name} cannot run {configuration.mesh_text}: {error}") from None
    idle = bubble(configuration.schedule, pipeline, m)
    # The closed forms of `cost` assume enough microbatches for the schedule; with fewer, stages idle longer.
    waits = max(found.parts.bubble, idle / (1 - idle) * (found.parts.forward + found.parts.backward))
    return replace(found, parts=found.parts._replace(bubble=waits))


@lru_cache(4096)
def bubble(schedule: str, pipeline: int, microbatches: int) -> float:
    """Return the share of time in which a stage idles, if F, B and W take equally long and messages take no time."""
    if pipeline == 1:
        return 0.0
    chosen = SCHEDULES[schedule]
    orders, parts = chosen.orders(pipeline, microbatches), chosen.parts(pipeline, chosen.chunks)
    return play(orders, 1.0, 1.0, 1.0, parts=parts).bubble


@lru_cache(32)
def cost_model(model: str, size: str) -> Transformer | list[Layer]:
    """Return the model in the form that `hpcdl.cost` needs."""
    built = build(model, size)
    if isinstance(built, GPT):
        return Transformer(built.blocks, built.hidden, built.sequence, len(built.letters), built.heads, untied=True)
    found = enumerate(layers_of(model, size))
    return [Layer(f"layer {i}", work.weights, work.flops // 2, work.inputs, work.outputs) for i, work in found]


def _chain(model: list[Layer], machine: Machine, layout: Layout, batch: int) -> Prediction:
    """Describe a network with layers split alternately by columns and rows: each pair sums its outputs and input
    gradients."""
    rows = layout.microbatch or batch
    usual = machine.usual()
    device = usual.device(layout.precision)
    sums = usual.network.all_reduce(layout.tensor)
    sent = sum(sums(rows * layer.outputs * layout.itemsize) for layer in model[1:-1:2]) if layout.tensor > 1 else 0.0
    measured = (
        forward_seconds(model, rows, device) / layout.tensor + sent,
        backward_seconds(model, rows, device) / layout.tensor + sent,
    )
    return training.predict(model, machine, layout, batch, measured=measured)


class Pace(NamedTuple):
    """A machine's seconds: for a sample `forward` and `backward` through the whole model, and for an update."""

    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0


def pace_of(configuration: Configuration, machine: Machine | None) -> Pace:
    """Return a rank's own work as in `step_seconds`; all zeros if no peak is known."""
    if machine is None or configuration.precision not in machine.peaks:
        return Pace()
    data, pipeline, *_ = configuration.mesh
    parts, m = step_seconds(configuration, machine).parts, configuration.microbatches
    samples = m * -(-configuration.batch // (data * m)) / pipeline
    return Pace(parts.forward / samples, parts.backward / samples, parts.optimizer)
