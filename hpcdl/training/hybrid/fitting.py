"""Check whether a mesh fits a model and a batch, and find the nearest mesh that does."""

import math
from collections.abc import Iterator

from hpcdl.parallel.schedules import SCHEDULES
from hpcdl.training.hybrid.configuration import AXES, Configuration, ConfigurationError, shown
from hpcdl.training.hybrid.models import Model

Sizes = tuple[int, int, int, int]


def require_fit(configuration: Configuration, model: Model, ranks: int) -> None:
    """Raise ConfigurationError unless each of `ranks` ranks has part of the model and of the batch.

    Shares need not be equal: 5 layers on 2 stages are 3 and 2. The error names the nearest mesh that fits.
    """
    if problem := misfit(configuration, model, ranks):
        found = nearest(configuration, model, ranks)
        advice = f"the nearest mesh that fits is {shown(found)}" if found else "no mesh of so many ranks fits"
        raise ConfigurationError(f"{problem}; {advice}")


def misfit(configuration: Configuration, model: Model, ranks: int) -> str:
    """Say why the mesh does not fit; empty if it does."""
    data, pipeline, tensor, sequence = configuration.mesh
    if configuration.ranks != ranks:
        wanted, here = configuration.ranks, f"there {'is' if ranks == 1 else 'are'} {ranks}"
        return (
            f"the mesh {configuration.mesh_text} has {wanted} rank{'s' * (wanted > 1)}, and {here}: start {wanted}, by "
            f"mpiexec -n {wanted}, torchrun or --simulate {wanted}"
        )
    parts = pipeline * SCHEDULES[configuration.schedule].chunks if pipeline > 1 else 1
    if parts > model.layers:
        return f"pipeline={pipeline} with {configuration.schedule} cuts {parts} parts out of {model.layers} layers"
    for axis, size in (("tensor", tensor), ("sequence", sequence)):
        if size > model.most[axis]:
            return f"{axis}={size} is too much for {configuration.model}, which has {model.why[axis]}"
    if data * configuration.microbatches > configuration.batch:
        return (
            f"data={data} with microbatches={configuration.microbatches} needs {data * configuration.microbatches} "
            f"samples a step or more, and batch is {configuration.batch}"
        )
    return _uneven(configuration) if configuration.microbatch_size else ""


def _uneven(configuration: Configuration) -> str:
    """Say why microbatches of the given size do not divide the batch, with the nearest number that does; empty if they
    do."""
    batch, data, size = configuration.batch, configuration.mesh[0], configuration.microbatch_size
    if batch % (data * size) == 0:
        return ""
    if batch % data == 0:
        each = batch // data
        near = min((n for n in range(1, each + 1) if each % n == 0), key=lambda n: (abs(n - size), n))
        return (
            f"microbatch_size={size} does not divide the {each} samples of each replica, batch {batch} over "
            f"data={data}; the nearest that does is {near}"
        )
    rows, tokens = data * size, configuration.tokens_per_step
    near = max(1, (2 * batch + rows) // (2 * rows)) * rows
    given, found = (f"tokens_per_step={tokens}", tokens // batch * near) if tokens else (f"batch={batch}", near)
    return (
        f"{given} does not divide into microbatches of microbatch_size={size} on data={data}; the nearest that does is "
        f"{found}"
    )


def nearest(configuration: Configuration, model: Model, ranks: int) -> Sizes | None:
    """Return the fitting mesh of `ranks` ranks that differs least, by the sum of |log2| of the axes' ratios, or
    None."""
    fitting = [mesh for mesh in meshes(ranks) if not misfit(configuration.changed(mesh=mesh), model, ranks)]
    return min(fitting, key=lambda mesh: (_distance(mesh, configuration.mesh), mesh[::-1]), default=None)


def meshes(ranks: int) -> Iterator[Sizes]:
    """Yield all meshes of this number of ranks."""
    factors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    for data in factors:
        for pipeline in factors:
            for tensor in factors:
                if ranks % (data * pipeline * tensor) == 0:
                    yield data, pipeline, tensor, ranks // (data * pipeline * tensor)


def _distance(mesh: Sizes, wanted: tuple[int, ...]) -> float:
    return sum(abs(math.log2(mesh[i] / wanted[i])) for i in range(len(AXES)))
