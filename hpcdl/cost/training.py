"""The time of training: an iteration and its parts, its share of the machine's peak, and the days to the end.

`predict(model, machine, layout, batch)` combines the rest of `hpcdl.cost`: `work` on the machine's roofline, the
messages of tensor parallelism, the bubble of the pipeline, gradients summed during the backward pass (`scaling`),
stragglers, input, and the optimizer's update.

Source of the transformer's model: Shoeybi et al. 2019, "Megatron-LM"; Narayanan et al. 2021; Korthikanti et al. 2022.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from hpcdl.cost import scaling, work
from hpcdl.cost.blocks import layer, output
from hpcdl.cost.layers import network_seconds
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import Machine
from hpcdl.cost.pipeline import BUBBLES
from hpcdl.cost.reached import Prediction, expect
from hpcdl.cost.scaling import Iteration, slowest
from hpcdl.cost.traffic import activation, layer_messages, neighbour
from hpcdl.cost.work import Transformer, check_number, check_numbers
from hpcdl.nn.networks import Layer

ADAM_BYTES, MOMENTUM_BYTES = 28, 20  # bytes that an update moves per parameter: Adam in mixed precision, SGD in float32


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
) -> Prediction:
    """Predict one iteration of synchronous training with `batch` samples in total, with its interval.

    The machine is used as programs usually see it (`Machine.usual`), unless `reaching` has set its rates. `measured`
    replaces the model's seconds of one microbatch forward and backward through the whole model on one rank. The
    computing times of ranks deviate by `spread`; all ranks together can read `input_rate` samples per second while they
    compute. With a microbatch of `half` samples a device reaches half of its roofline: small microbatches take 1 + half
    / samples times as long (Hockney and Jesshope 1981, n_1/2). Raises TypeError and ValueError for a model, a
    precision, a schedule or a batch that does not fit.
    """
    _check(model, machine, layout, measured, spread=spread, half=half)
    if not input_rate > 0:
        raise ValueError(f"input_rate is {input_rate!r}; samples per second that can be read are more than 0")
    options = model, layout, batch, measured, spread, input_rate, half
    again = partial(_launching, machine, options)
    return expect(_iteration(machine, *options), model, machine, layout, measured, again)


def _launching(machine: Machine, options: tuple, launch: float) -> float:
    """Return the seconds with a host that launches a kernel in `launch` seconds."""
    return _iteration(machine._replace(launch=launch), *options).seconds


def _iteration(machine, model, layout, batch, measured, spread, input_rate, half) -> Iteration:
    m, late = layout.microbatches(batch), slowest(layout.ranks, spread)
    samples = batch // layout.data // m
    machine = machine.usual(layout.precision)
    stage = _measured(measured) if measured else _stage(model, machine, layout, samples, 1 + half / samples)
    steps = [late * (seconds + sent) for seconds, sent in zip(stage.computed, stage.messages, strict=True)]
    exposed = _exposed_gradients(model, machine, layout, steps[1] / layout.pipeline)
    slow = (m - 1) * late * stage.last  # all other stages wait for the last one, for each microbatch
    bubble = _bubble(layout, m, *(step / layout.pipeline for step in steps)) + slow
    boundary = 2 * layout.chunks * (m + layout.pipeline - 2) * _boundary(model, machine, layout, samples)
    forward, backward = (m * seconds / layout.pipeline for seconds in stage.computed)
    parts = Iteration(
        forward,
        backward,
        exposed=m * sum(stage.messages) / layout.pipeline + boundary + exposed,
        waiting=0.0,
        bubble=bubble,
        stragglers=m * (late - 1) * (sum(stage.computed) + sum(stage.messages)) / layout.pipeline,
        optimizer=_update(model, layout, machine.bandwidth),
    )
    return parts._replace(waiting=max(0.0, batch / input_rate - parts.seconds))


def _check(model, machine, layout, measured, **numbers: float) -> None:
    """Raise TypeError or ValueError, with the next step, for arguments that allow no prediction."""
    for name, value, kind, such_as in (
        ("machine", machine, Machine, "hpcdl.cost.machines.P100"),
        ("layout", layout, Layout, "Layout(data=8)"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r:.80}; it is a {kind.__name__}, such as {such_as}")
    layout.check()
    for name, value in numbers.items():
        check_number(name, value)
    if measured is not None:
        if len(measured) != 2:
            raise ValueError(f"measured is {measured!r}; it is seconds forward and seconds backward")
        for name, value in zip(("forward", "backward"), measured, strict=True):
            check_number(f"measured {name}", value)
        check_number("measured in all", sum(measured), above=True)
    transformer = model if isinstance(model, Transformer) else None
    if transformer:
        transformer.check()
    if not measured:
        layout.check_model(len(work.table(model)), transformer)


# -- parts ------------------------------------------------------------------------------------------------------------


class _Stage(NamedTuple):
    """Seconds of one microbatch through all stages: computing and messages, each forward and backward.

    `last` is how much longer than the mean the last stage takes, because it also has the output.
    """

    computed: tuple[float, float]
    messages: tuple[float, float] = (0.0, 0.0)
    last: float = 0.0


def _measured(seconds) -> _Stage:
    return _Stage((seconds[0], seconds[1]))


def _stage(model, machine, layout, samples, slower) -> _Stage:
    if isinstance(model, Transformer):
        return _transformer(model, machine, layout, samples, slower)
    kernels = machine.kernels(layout.precision)
    kernels = kernels._replace(rate=kernels.rate / slower, bandwidth=kernels.bandwidth / slower)
    return _Stage(network_seconds(model, kernels, layout, samples))


def _transformer(model, machine, layout, samples, slower) -> _Stage:
    """Return the seconds of a transformer, from its layers' kernels and messages."""
    kernels, low = machine.kernels(layout.precision), 1.0
    if layout.precision == "fp8":
        kernels = machine.kernels("fp16")
        low = machine.peaks["fp8"] / machine.peaks["fp16"]
    kernels = kernels._replace(rate=kernels.rate / slower, bandwidth=kernels.bandwidth / slower)
    cut = layout.cut(samples, low)
    each, head = layer(model, cut, kernels), output(model, cut, kernels)
    again = layout.recomputed * {"nothing": 0.0, "selective": each.attention, "full": each.forward}[layout.recompute]
    sent = layer_messages(model, machine.network, layout, samples, each._replace(inputs=each.inputs + again))
    n = model.layers
    computed = n * each.forward + head.forward, n * (each.backward + again) + head.backward
    last = (head.forward + head.backward) * (1 - 1 / layout.pipeline) * (not layout.balanced)
    return _Stage(computed, (n * sent[0], n * sent[1]), last)


def _boundary(model, machine, layout, samples) -> float:
    """Return the seconds of a message between two stages: the largest layer output if the network is not a
    transformer."""
    if layout.pipeline == 1:
        return 0.0
    if isinstance(model, Transformer):
        nbytes = activation(model, layout, samples)
    else:
        nbytes = max(part.outputs for part in work.table(model)) * samples * layout.itemsize
    return neighbour(machine.network, layout.ranks // layout.tensor, layout.tensor, nbytes / layout.tensor)


def _bubble(layout, m, forward, backward) -> float:
    """Return the seconds in which a stage waits; if the schedule separates W, it is half of the backward pass."""
    return BUBBLES[layout.schedule](layout.pipeline, m, forward, backward / 2, backward / 2, layout.chunks)


def _update(model, layout, bandwidth) -> float:
    """Return the optimizer's seconds on a rank's share of the weights, divided further from ZeRO-1 up.

    If offloaded, the host updates some weights while others travel: the link determines the time.
    """
    share = layout.tensor * layout.pipeline * (layout.shards or layout.replicas if layout.zero else 1)
    weights = _weights(model) / share
    if layout.offload:
        return 2 * layout.itemsize * weights / layout.offload
    return layout.update_bytes * weights / bandwidth


def _weights(model) -> int:
    return model.parameters if isinstance(model, Transformer) else sum(each.weights for each in work.table(model))


def _exposed_gradients(model, machine, layout, backward) -> float:
    """Return the part of summing gradients that the last microbatch's backward pass does not hide."""
    ranks, groups = layout.replicas, layout.tensor
    share = layout.tensor * layout.pipeline
    if layout.zero == 3:
        share *= layout.shards or ranks
        ranks, groups = ranks // (layout.shards or ranks), groups * (layout.shards or 1)
        groups = min(groups, getattr(machine.network, "per_node", groups))
    if ranks == 1:
        return 0.0
    all_reduce = machine.network.all_reduce(ranks, groups=groups)
    chosen = layout.buckets is scaling.merged
    few = chosen and isinstance(model, Transformer)
    arrivals = _few_gradients(model, layout.itemsize) if few else scaling.gradients(model, 1.0, layout.itemsize)
    ready = [scaling.Gradient(when * backward, -(-nbytes // share)) for when, nbytes in arrivals]
    buckets = layout.buckets(ready, _line(all_reduce) if chosen else all_reduce)
    return scaling.iteration(0.0, buckets, all_reduce, overlap=layout.overlap).exposed


def _line(all_reduce):
    """Return a straight line to choose buckets with instead of `all_reduce`: fast to compute, and nearly equal."""
    alpha, size = all_reduce(0), 1 << 30
    beta = (all_reduce(size) - alpha) / size
    return lambda nbytes: alpha + beta * nbytes


@lru_cache(256)
def _few_gradients(model: Transformer, itemsize: int) -> list[scaling.Gradient]:
    """Return a transformer's gradients in a backward pass of one second, with equal layers joined, to find buckets
    quickly.

    Each join takes half of the remaining layers, so the last ones stay separate: the exposed part depends on them.
    """
    ready, groups, start = scaling.gradients(model, 1.0, itemsize), [], 0
    while start < len(ready):
        stop = start + max(1, (len(ready) - start) // 2)
        groups.append(scaling.Gradient(ready[stop - 1].ready, sum(gradient.nbytes for gradient in ready[start:stop])))
        start = stop
    return groups


# -- the whole training -----------------------------------------------------------------------------------------------


def efficiency(seconds: float, alone: float) -> float:
    """Return the efficiency of weak scaling: the seconds of an iteration on few ranks over the seconds on many."""
    check_numbers(above=True, seconds=seconds, alone=alone)
    return alone / seconds


class Utilization(NamedTuple):
    """Shares of the peak: for the operations that the model needs, and for all that the hardware did."""

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
    """Return operations per second and rank over the peak (Chowdhery et al. 2022; Korthikanti et al. 2022).

    Model: forward and backward. Hardware: also recomputation. Raises ValueError for numbers that are not above 0.
    """
    check_numbers(above=True, batch=batch, seconds=seconds, ranks=ranks, peak=peak)
    available = seconds * ranks * peak
    return Utilization(*(work.training_flops(model, batch, what) / available for what in ("nothing", recompute)))


def time_to_train(
    iteration: float, batch: int, samples: float, epochs: float = 1.0, *, evaluation: float = 0.0
) -> float:
    """Return the seconds for `epochs` passes over `samples`: iteration * epochs * samples / batch, and `evaluation`
    each epoch. Raises ValueError for a batch that is not above 0, and for other numbers below 0."""
    check_numbers(iteration=iteration, samples=samples, epochs=epochs, evaluation=evaluation)
    check_numbers(batch=batch, above=True)
    return epochs * (iteration * samples / batch + evaluation)


def train_seconds(parameters: float, tokens: float, ranks: int, rate: float, *, recompute: str = "nothing") -> float:
    """6 T P / (n X), or 8 T P / (n X) with full recomputation: a transformer of P parameters on T tokens.

    There are n ranks with X operations per second each (Narayanan et al. 2021; Kaplan et al. 2020). Attention is
    ignored. Raises ValueError unless `recompute` is "nothing" or "full", and for numbers that are not above 0.
    """
    check_numbers(above=True, parameters=parameters, tokens=tokens, ranks=ranks, rate=rate)
    if recompute not in ("nothing", "full"):
        raise ValueError(f"recompute is {recompute!r}; the rule knows nothing and full")
    return (8 if recompute == "full" else 6) * tokens * parameters / (ranks * rate)
