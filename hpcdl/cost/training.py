"""How long training takes: an iteration and its parts, what it reaches of the machine's peak, and days to the end.

`predict(model, machine, layout, batch)` puts together what the rest of `hpcdl.cost` knows: `work` on the machine's
roofline, the messages of tensor parallelism, the bubble of the pipeline, gradients summed while the backward pass goes
on (`scaling`), stragglers, input, and the optimizer's update.

Source of the transformer's model: Shoeybi et al. 2019, "Megatron-LM"; Narayanan et al. 2021; Korthikanti et al. 2022.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpcdl.cost import scaling, work
from hpcdl.cost.machines import Machine
from hpcdl.cost.pipeline import BUBBLES
from hpcdl.cost.roofline import Device
from hpcdl.cost.scaling import Iteration, merged, slowest
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import Layer

ADAM_BYTES, MOMENTUM_BYTES = 28, 20  # that an update moves per parameter: Adam in mixed precision, SGD in float32


class Layout(NamedTuple):
    """How a training is spread over data x tensor x pipeline ranks, and what else it does.

    `microbatch` samples pass at a time (None: all that a rank has); `chunks` of each pipeline stage; `recompute` as in
    `work.RECOMPUTE`; `itemsize` of activations and gradients; `update_bytes` that the optimizer moves per parameter.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    chunks: int = 1
    microbatch: int | None = None
    schedule: str = "one_f_one_b"  # a name of `cost.pipeline.BUBBLES`
    sequence_parallel: bool = False
    recompute: str = "nothing"
    precision: str = "fp32"
    itemsize: int = 4
    update_bytes: float = 0.0
    buckets: Callable = merged
    overlap: bool = True

    @property
    def ranks(self) -> int:
        """data x tensor x pipeline."""
        return self.data * self.tensor * self.pipeline

    def microbatches(self, batch: int) -> int:
        """How many of them a pipeline gets; raises ValueError if a batch is no whole number of them for each."""
        size = self.microbatch or batch // self.data
        count, rest = divmod(batch, self.data * size) if size else (0, batch)
        if rest or not count:
            raise ValueError(
                f"batch is {batch}; {self.data} data-parallel groups with microbatches of {size} need a multiple of "
                f"{self.data * size or self.data}"
            )
        return count


def predict(
    model: Sequence[Layer] | Transformer,
    machine: Machine,
    layout: Layout,
    batch: int,
    *,
    measured: tuple[float, float] | None = None,
    spread: float = 0.0,
    input_rate: float = float("inf"),
    half: float = 0.0,
) -> Iteration:
    """One iteration of synchronous training with `batch` samples in all.

    `measured` is seconds of one microbatch forward and backward through the whole model on one rank, in place of the
    roofline's. The computing times of ranks deviate by `spread`; `input_rate` samples per second can be read in all,
    while ranks compute. With a microbatch of `half` samples a device reaches half of its roofline: small ones take
    1 + half / samples times as long (Hockney and Jesshope 1981, n_1/2). Stages are taken as equally long. Raises
    TypeError and ValueError for a model, a precision, a schedule or a batch that does not fit.
    """
    m, late = layout.microbatches(batch), slowest(layout.ranks, spread)
    samples = batch // layout.data // m
    device = machine.device(layout.precision) if measured is None else Device(1.0, machine.bandwidth)
    compute = measured or _compute(model, device, layout, samples, 1 + half / samples)
    messages = _tensor_messages(model, machine, layout, samples)
    stage = [late * (seconds + sent) / layout.pipeline for seconds, sent in zip(compute, messages, strict=True)]
    exposed = _exposed_gradients(model, machine, layout, stage[1])
    bubble = _bubble(layout, *stage)
    boundary = 2 * (layout.pipeline - 1) * layout.chunks * _boundary(model, machine, layout, samples)
    update = layout.update_bytes * sum(layer.weights for layer in work.table(model)) / layout.tensor / layout.pipeline
    forward, backward = (m * seconds / layout.pipeline for seconds in compute)
    parts = Iteration(
        forward,
        backward,
        exposed=m * sum(messages) / layout.pipeline + boundary + exposed,
        waiting=0.0,
        bubble=bubble,
        stragglers=m * (late - 1) * (sum(compute) + sum(messages)) / layout.pipeline,
        optimizer=update / device.bandwidth,
    )
    return parts._replace(waiting=max(0.0, batch / input_rate - parts.seconds))


# -- parts ------------------------------------------------------------------------------------------------------------

# Activations of b s h elements that one layer's normalizations (read, write), dropouts and residuals (read two, write
# one) move forward; backward it is twice as many.
MOVED = 2 * 2 + 2 * 3


def _compute(model, device, layout, samples, slower) -> tuple[float, float]:
    """Seconds of one microbatch forward and backward through the whole model, on the ranks that share its layers."""
    device = Device(device.peak / slower, device.bandwidth / slower)
    if not isinstance(model, Transformer):
        once, back = (
            f(model, samples, device, layout.itemsize) / layout.tensor
            for f in (work.forward_seconds, work.backward_seconds)
        )
        return once, back + once * (layout.recompute == "full")
    rate = device.peak * layout.tensor
    moved = MOVED * samples * model.sequence * model.hidden * layout.itemsize / device.bandwidth
    moved /= layout.tensor if layout.sequence_parallel else 1  # else every rank does this on the whole activation
    once = model.layers * (model.layer_flops(samples) / rate + moved)
    head = 2.0 * samples * model.sequence * model.hidden * model.vocabulary / rate
    again = model.recomputed_flops(samples, layout.recompute) / rate + moved * (layout.recompute == "full")
    return once + head, 2 * (once + head) + model.layers * again


def _tensor_messages(model, machine, layout, samples) -> tuple[float, float]:
    """Two all-reduces of an activation per layer each way, two more where the forward pass is done again.

    With sequence parallelism each is a reduce-scatter and an all-gather, which is as many bytes.
    """
    if layout.tensor == 1:
        return 0.0, 0.0
    if not isinstance(model, Transformer):
        raise TypeError(f"layout has tensor={layout.tensor}; only a Transformer's layers are cut, not {model!r:.60}")
    each = machine.network.all_reduce(layout.tensor)(_activation(model, layout, samples))
    forward = 2 * model.layers * each
    return forward, forward * (2 if layout.recompute == "full" else 1)


def _boundary(model, machine, layout, samples) -> float:
    """Seconds of a message between two stages; the largest output of a layer, where a network is not a transformer."""
    if layout.pipeline == 1:
        return 0.0
    if isinstance(model, Transformer):
        return machine.network.message(_activation(model, layout, samples))
    return machine.network.message(max(layer.outputs for layer in work.table(model)) * samples * layout.itemsize)


def _activation(model, layout, samples) -> int:
    return samples * model.sequence * model.hidden * layout.itemsize


def _bubble(layout, forward, backward) -> float:
    """Seconds in which a stage waits; half of the backward pass is W, where the schedule has it apart."""
    if layout.schedule not in BUBBLES:
        raise ValueError(f"schedule is {layout.schedule!r}; the schedules are {', '.join(BUBBLES)}")
    return BUBBLES[layout.schedule](layout.pipeline, forward, backward / 2, backward / 2, layout.chunks)


def _exposed_gradients(model, machine, layout, backward) -> float:
    """What the last microbatch's backward pass does not hide of summing the gradients."""
    if layout.data == 1:
        return 0.0
    all_reduce = machine.network.all_reduce(layout.data, groups=layout.tensor)
    share = layout.tensor * layout.pipeline
    ready = [
        scaling.Gradient(when, -(-nbytes // share))
        for when, nbytes in scaling.gradients(model, backward, layout.itemsize)
    ]
    buckets = layout.buckets(ready, all_reduce)
    return scaling.iteration(0.0, buckets, all_reduce, overlap=layout.overlap).exposed


# -- the whole training -----------------------------------------------------------------------------------------------


def efficiency(seconds: float, alone: float) -> float:
    """Weak scaling: the seconds of an iteration on few ranks over those on many, each rank with the same work."""
    return alone / seconds


class Utilization(NamedTuple):
    """Shares of the peak: of the operations that the model needs, and of those that the hardware did."""

    model: float
    hardware: float


def utilization(
    model: Sequence[Layer] | Transformer,
    batch: int,
    seconds: float,
    ranks: int,
    peak: float,
    recompute: str = "nothing",
) -> Utilization:
    """Operations per second and rank over the peak (Chowdhery et al. 2022; Korthikanti et al. 2022).

    Model: forward and backward. Hardware: also what is computed again.
    """
    available = seconds * ranks * peak
    return Utilization(*(work.training_flops(model, batch, what) / available for what in ("nothing", recompute)))


def time_to_train(
    iteration: float, batch: int, samples: float, epochs: float = 1.0, *, evaluation: float = 0.0
) -> float:
    """Seconds for `epochs` passes over `samples`: iteration * epochs * samples / batch, and `evaluation` each epoch."""
    return epochs * (iteration * samples / batch + evaluation)


def train_seconds(parameters: float, tokens: float, ranks: int, rate: float, *, recompute: str = "nothing") -> float:
    """6 T P / (n X), or 8 T P / (n X) with full recomputation: a transformer of P parameters on T tokens.

    On n ranks, each with X operations per second (Narayanan et al. 2021; Kaplan et al. 2020). Attention is left out.
    Raises ValueError for a `recompute` that is not nothing or full.
    """
    if recompute not in ("nothing", "full"):
        raise ValueError(f"recompute is {recompute!r}; the rule knows nothing and full")
    return (8 if recompute == "full" else 6) * tokens * parameters / (ranks * rate)
