"""Compare two meshes: find the first step and tensor in which they differ (`hpcdl compare`)."""

import tempfile
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hpcdl.training.hybrid.configuration import (
    Configuration,
    ConfigurationError,
    from_options,
    parse_mesh,
    read_options,
)

TOLERANCES = {"fp64": 1e-9, "fp32": 1e-3, "bf16": 0.2, "fp16": 0.05}


class Difference(NamedTuple):
    """The first difference of two runs: `step`, counted from 1, the `tensor`, and the difference relative to its
    largest element."""

    step: int
    tensor: str
    relative: float


def compare(a: Configuration, b: Configuration, tolerance: float | None = None) -> tuple[Difference | None, float]:
    """Return the first difference beyond `tolerance` between simulated runs of `a` and `b`, and the largest difference.

    Each step compares the loss, then the gradient of each parameter of the whole model, in the order of the layers. The
    difference of two tensors is max |a - b| / max |a|. Raises ConfigurationError if the runs should differ (a different
    model, size, optimizer, rate, batch or seed), without a step, and for a tolerance below 0.
    """
    if a.steps < 1:
        raise ConfigurationError(f"steps is {a.steps}; to compare takes a step or more")
    if tolerance is not None and not tolerance >= 0:
        raise ConfigurationError(f"tolerance is {tolerance}; it is a number that is at least 0")
    for name in ("model", "size", "precision", "optimizer", "lr", "batch", "seed", "steps"):
        if getattr(a, name) != getattr(b, name):
            raise ConfigurationError(
                f"{name} is {getattr(a, name)} in A and {getattr(b, name)} in B, so that they train differently; "
                "compare two meshes of one training"
            )
    most = TOLERANCES[a.precision] if tolerance is None else tolerance
    first, largest = None, 0.0
    with tempfile.TemporaryDirectory() as folder:
        _record(a, Path(folder), None)
        for found in _record(b, Path(folder), a):
            largest = max(largest, found.relative)
            if first is None and not found.relative <= most:
                first = found
    return first, largest


def _record(configuration: Configuration, folder: Path, other: Configuration | None) -> list[Difference]:
    """Run a training. Without `other`, write each step's loss and gradients into `folder`; otherwise compare with
    them."""
    import torch

    from hpcdl.comm import simulate
    from hpcdl.training.trainer import Trainer

    class InspectedTrainer(Trainer):
        """A trainer that inspects each step's gradients."""

        found: list[Difference]

        def _agree(self, step: int, loss: float) -> tuple[float, float]:
            loss, norm = super()._agree(step, loss)
            grads = self.whole.gather(lambda i, _: self.whole.shards[i].piece.grad, "gradient")
            if self.comm.rank == 0:
                seen = {"the loss": torch.tensor([loss], dtype=torch.float64)}
                seen |= {f"the gradient of {name}": x for name, x in zip(self.whole.names, grads, strict=True)}
                if other is None:
                    torch.save(seen, folder / f"{step}.pt")
                else:
                    theirs = torch.load(folder / f"{step}.pt", weights_only=True)
                    self.found += [Difference(step + 1, name, _relative(theirs[name], x)) for name, x in seen.items()]
            return loss, norm

    def rank(comm: Any) -> list[Difference]:
        trainer = InspectedTrainer(comm, configuration)
        trainer.found = []
        trainer.train()
        return trainer.found

    return simulate(rank, configuration.ranks).results[0]


def _relative(x: Any, y: Any) -> float:
    largest = x.abs().max().item()
    return (x - y).abs().max().item() / largest if largest else float((y != 0).any())


def command(
    a: Annotated[str, typer.Argument(help="A mesh, such as data=2,tensor=2, or a configuration's TOML file.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    model: Annotated[str, typer.Option(help="mlp, lenet or gpt.")] = "mlp",
    sharding: Annotated[int, typer.Option(help="ZeRO's stage of both, 0 to 3.")] = 0,
    microbatches: Annotated[int, typer.Option(help="Of both, on each replica.")] = 1,
    precision: Annotated[str, typer.Option(help="fp64, fp32, bf16 or fp16.")] = "fp64",
    batch: Annotated[int, typer.Option(help="Samples per step.")] = 16,
    steps: Annotated[int, typer.Option(help="How many steps.")] = 3,
    tolerance: Annotated[float | None, typer.Option(help="Relative; else what the precision allows.")] = None,
) -> None:
    """Train on two meshes, simulated, from the same weights, and name the first step and tensor that differ.

    hpcdl compare data=4 pipeline=2,tensor=2 --model gpt --microbatches 2

    Exit code 0: they agree; 1: they differ; 2: they cannot be compared.
    """
    options = {name: value for name, value in locals().items() if name not in ("a", "b", "tolerance")}
    left, right = (_configuration(text, options) for text in (a, b))
    first, largest = _compared(left, right, tolerance)
    if first is None:
        agree = "1 step agrees" if left.steps == 1 else f"{left.steps} steps agree"
        typer.echo(f"{agree}: losses and gradients differ by {largest:.1e} at most, relatively")
        return
    typer.echo(f"step {first.step}: {first.tensor} is the first that differs, by {first.relative:.1e}, relatively")
    raise typer.Exit(1)


def _compared(a: Configuration, b: Configuration, tolerance: float | None) -> tuple[Difference | None, float]:
    from hpcdl.comm import RankError

    try:
        return compare(a, b, tolerance)
    except RankError as error:
        if isinstance(error.__cause__, (ValueError, FloatingPointError)):
            raise ConfigurationError(str(error.__cause__)) from None
        raise


def _configuration(text: str, options: dict[str, Any]) -> Configuration:
    if text.endswith(".toml"):
        return from_options(read_options(text))
    return from_options(options).changed(mesh=parse_mesh(text))
