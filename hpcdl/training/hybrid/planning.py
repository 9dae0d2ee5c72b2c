"""The best mesh for a machine and a memory limit: every mesh x ZeRO stage x schedule x microbatches, by `hpcdl.cost`.

Memory is that of the fullest rank: weights, gradients and states by `hpcdl.cost.memory.zero`, and what autograd keeps
for the microbatches in flight.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from hpcdl.cost.machines import Machine
from hpcdl.cost.memory import zero
from hpcdl.cost.reached import Prediction
from hpcdl.parallel import SCHEDULES
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError, parse_mesh
from hpcdl.training.hybrid.fitting import meshes, misfit
from hpcdl.training.hybrid.models import build
from hpcdl.training.hybrid.predictions import BYTES, STATES, format_bytes
from hpcdl.training.hybrid.seconds import step_seconds
from hpcdl.training.hybrid.work import Speed, layers_of

MOST = 4  # microbatches for each stage of a pipeline
SHOWN = 5  # rows of the table
LARGE = 64  # ranks above which schedules with equal bubbles are tried once
FEW = ("one_f_one_b", "interleaved", "zb_v")


class Proposal(NamedTuple):
    """A configuration, its predicted step, and the `memory` of its fullest rank in bytes."""

    configuration: Configuration
    step: Prediction
    memory: float

    @property
    def parts(self) -> dict[str, float]:
        """Return where its seconds go."""
        parts = self.step.parts
        return {
            "computing": parts.forward + parts.backward,
            "messages": parts.exposed,
            "bubble": parts.bubble,
            "updates": parts.optimizer,
        }


class Search(NamedTuple):
    """The result of a search: the best proposal of each mesh, fastest first; numbers of `tried` and `too_large`
    configurations.

    `smallest` needs the least memory of all.
    """

    best: list[Proposal]
    tried: int
    too_large: int
    smallest: tuple[float, Configuration] | None


def search(configuration: Configuration, ranks: int, machine: Machine, limit: float | None = None) -> Search:
    """Find the fastest configurations of `ranks` ranks that need at most `limit` bytes each (None: the machine's
    memory).

    Model, batch, precision and optimizer come from `configuration`. Raises ConfigurationError if the machine has no
    peak for the precision.
    """
    machine.usual()
    if configuration.precision not in machine.peaks:
        known = ", ".join(machine.peaks)
        raise ConfigurationError(f"precision is {configuration.precision}; {machine.name} has peaks for {known}")
    most, fits, smallest = machine.memory if limit is None else limit, [], None
    tried = 0
    for each in candidates(configuration, ranks):
        tried += 1
        needed = memory(each)
        if smallest is None or needed < smallest[0]:
            smallest = needed, each
        if needed <= most:
            fits.append((each, needed))
    return Search(_fastest(fits, machine), tried, tried - len(fits), smallest)


def _fastest(fits: list[tuple[Configuration, float]], machine: Machine) -> list[Proposal]:
    """Return each mesh's fastest proposal, with less memory if two are equally fast; the fastest mesh comes first."""
    found: dict[tuple[int, ...], Proposal] = {}
    for each, needed in fits:
        try:
            proposal = Proposal(each, step_seconds(each, machine), needed)
        except ConfigurationError:  # a node of this machine has fewer ranks than its tensor axis
            continue
        if each.mesh not in found or _rank(proposal) < _rank(found[each.mesh]):
            found[each.mesh] = proposal
    return sorted(found.values(), key=_rank)


def _rank(proposal: Proposal) -> tuple[float, int, float, int]:
    """Order by speed; if equal to three figures, by the simpler mesh and then less memory."""
    axes = sum(size > 1 for size in proposal.configuration.mesh)
    return float(f"{proposal.step.seconds:.3g}"), axes, proposal.memory, proposal.configuration.sharding


def candidates(configuration: Configuration, ranks: int) -> Iterator[Configuration]:
    """Yield every configuration that fits model and batch, with powers of two as numbers of microbatches."""
    model = build(configuration.model, configuration.size)
    for mesh in meshes(ranks):
        data, pipeline, _, sequence = mesh
        several = pipeline > 1
        schedules = (FEW if ranks > LARGE else tuple(SCHEDULES)) if several else ("one_f_one_b",)
        counts = [2**i for i in range(12) if 2**i <= min(configuration.batch // data, MOST * max(2, pipeline))]
        for schedule in schedules:
            for m in counts:
                each = configuration.changed(mesh=mesh, schedule=schedule, microbatches=m, sharding=0)
                if not misfit(each, model, ranks):
                    yield each
                    if data * sequence > 1:
                        yield from (each.changed(sharding=stage) for stage in (1, 2, 3))


def memory(configuration: Configuration) -> float:
    """Return the bytes of the fullest rank, for weights and for activations."""
    data, pipeline, tensor, sequence = configuration.mesh
    schedule, m = configuration.schedule if pipeline > 1 else "one_f_one_b", configuration.microbatches
    weights, kept, largest = _parts(configuration.model, configuration.size, schedule, pipeline)
    itemsize, states = BYTES[configuration.precision], STATES[configuration.optimizer]
    rows = -(-configuration.batch // (data * m))
    activations = itemsize / 4 * rows / (tensor * sequence)
    stage = configuration.sharding if data * sequence > 1 else 0
    found = 0.0
    for own, flights in zip(weights, _in_flight(schedule, pipeline, m), strict=True):
        held = zero(
            sum(own) / tensor, data * sequence, stage, optimizer=states * itemsize, weight=itemsize, gradient=itemsize
        )
        place = weights.index(own)
        live = max(sum(n * size for n, size in zip(counts, kept[place], strict=True)) for counts in flights)
        found = max(found, held + live * activations + (largest / tensor * itemsize if stage == 3 else 0.0))
    return found


@lru_cache(1024)
def _parts(model: str, size: str, schedule: str, pipeline: int) -> tuple[list[list[int]], list[list[int]], int]:
    """Return the weights of each stage's chunks, the bytes kept per sample, and the largest layer's weights."""
    layers, chosen = layers_of(model, size), SCHEDULES[schedule]
    parts = chosen.parts(pipeline, chosen.chunks) if pipeline > 1 else [(0, 0)]
    chunks = 1 + max(chunk for _, chunk in parts)
    weights, kept = ([[0] * chunks for _ in range(pipeline)] for _ in range(2))
    first = 0
    for (stage, chunk), n in zip(parts, shares(len(layers), len(parts)), strict=True):
        own = layers[first : first + n]
        weights[stage][chunk], kept[stage][chunk] = sum(x.weights for x in own), sum(x.kept for x in own)
        first += n
    return weights, kept, max(layer.weights for layer in layers)


@lru_cache(4096)
def _in_flight(schedule: str, pipeline: int, m: int) -> list[set[tuple[int, ...]]]:
    """Yield, for each stage, how many microbatches of each chunk are between F and the end of backward, whenever that
    grows."""
    if pipeline == 1:
        return [{(1,)}]
    chosen, found = SCHEDULES[schedule], []
    for order in chosen.orders(pipeline, m):
        last = "W" if any(op.op == "W" for op in order) else "B"
        live, seen = [0] * chosen.chunks, set()
        for op, _, chunk in order:
            live[chunk] += (op == "F") - (op == last)
            if op == "F":
                seen.add(tuple(live))
        found.append(seen)
    return found


def table(found: Search, machine: Machine, limit: float | None, shown: int = SHOWN) -> list[str]:
    """Return the lines that `hpcdl train --plan --machine` prints: the best, the next ones, and the reason why each is
    slower."""
    most = format_bytes(machine.memory if limit is None else limit)
    lines = [
        f"plan       {found.tried} configurations on {machine.name}; {found.too_large} need more than {most} a rank"
    ]
    if not found.best:
        assert found.smallest is not None
        needed, least = found.smallest
        return [*lines, f"none fits: the smallest, {_options(least)}, needs {format_bytes(needed)}; take more ranks"]
    best = found.best[0]
    lines.append("ms a step  computing messages bubble updates  MFU      memory  configuration")
    for proposal in found.best[:shown]:
        lines.append(_row(proposal, machine) + _reason(proposal, best))
    return [*lines, f"best       {_options(best.configuration)}"]


def _row(proposal: Proposal, machine: Machine) -> str:
    configuration, seconds = proposal.configuration, proposal.step.seconds
    ms = [f"{1e3 * part:.3g}" for part in proposal.parts.values()]
    model = build(configuration.model, configuration.size)
    mfu = Speed(configuration, model, machine).rates(configuration.batch, seconds)["mfu"]
    figures = f"{1e3 * seconds:<9.3g}  {ms[0]:>9} {ms[1]:>8} {ms[2]:>6} {ms[3]:>7}"
    return f"{figures}  {100 * (mfu or 0):4.1f} % {format_bytes(proposal.memory):>8}  {_options(configuration)}"


def _reason(proposal: Proposal, best: Proposal) -> str:
    """Return the main reason why it is slower than the best."""
    if proposal is best:
        return ""
    lost = {name: seconds - best.parts[name] for name, seconds in proposal.parts.items()}
    name = max(lost, key=lambda part: lost[part])
    if lost[name] < 1e-3 * best.step.seconds:
        return "  (as fast)"
    return f"  (+{1e3 * lost[name]:.3g} ms of {name})"


def _options(configuration: Configuration) -> str:
    """Return the options for `hpcdl train`, without defaults."""
    axes = configuration.axes.items()
    mesh = ",".join(f"{name}={size}" for name, size in axes if size > 1) or "data=1"
    assert parse_mesh(mesh) == configuration.mesh
    words = [f"--mesh {mesh}"]
    words += [f"--sharding {configuration.sharding}"] * (configuration.sharding > 0)
    words += [f"--schedule {configuration.schedule}"] * (configuration.mesh[1] > 1)
    return " ".join([*words, *[f"--microbatches {configuration.microbatches}"] * (configuration.microbatches > 1)])
