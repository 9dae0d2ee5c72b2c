"""`hpcdl train`: a model on a mesh, or without one the data-parallel LeNet-5 of lab 07."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hpcdl.commands import end
from hpcdl.training import program
from hpcdl.training.hybrid.configuration import Configuration, ConfigurationError, from_options, read_options

if TYPE_CHECKING:
    from hpcdl.comm import Communicator

LENET, MESH = "LeNet-5, data-parallel (lab 07)", "A model on a mesh"

# Those of `program.train` that a mesh does not have, and what to take instead.
ONLY_LENET = {"epochs": "--steps", "data": "--model", "bucket_mb": "--sharding", "overlap": "--sharding"}
ONLY_LENET |= {"all_reduce": "--sharding"}
BOTH = ("batch", "lr", "seed", "checkpoint", "every")

HEADER = "# the configuration: to repeat this run, save these lines and give --config FILE\n"


class Run(NamedTuple):
    """What a run does besides training: where it keeps its state, and what it writes."""

    checkpoint: str | None = None
    every: int = 50
    log: Path | None = None
    export: str | None = None


def _option(panel: str | None, text: str, **options: Any) -> Any:
    return typer.Option(help=text, rich_help_panel=panel, **options)


def train(
    model: Annotated[str | None, _option(MESH, "mlp, lenet or gpt.")] = None,
    size: Annotated[str | None, _option(MESH, "Its size: tiny, small, medium; gpt: large.")] = None,
    mesh: Annotated[str | None, _option(MESH, "Ranks along each axis: data=2,pipeline=2,tensor=2,sequence=1.")] = None,
    sharding: Annotated[int | None, _option(MESH, "ZeRO's stage, 0 to 3.")] = None,
    schedule: Annotated[
        str | None, _option(MESH, "Of the pipeline: 1f1b, gpipe, interleaved, zb_h1, zb_v, ...")
    ] = None,
    microbatches: Annotated[int | None, _option(MESH, "On each replica, in a step.")] = None,
    precision: Annotated[str | None, _option(MESH, "fp64, fp32 or bf16.")] = None,
    optimizer: Annotated[str | None, _option(MESH, "sgd, adam or adamw.")] = None,
    steps: Annotated[int | None, _option(MESH, "How many steps, all in all.")] = None,
    config: Annotated[
        Path | None, _option(MESH, "Options from a file, as a run prints them.", exists=True, dir_okay=False)
    ] = None,
    simulate: Annotated[
        int | None, _option(MESH, "On so many simulated ranks, in this process.", min=1, max=1024)
    ] = None,
    plan: Annotated[bool, _option(MESH, "Only say what a run would need.")] = False,
    dry_run: Annotated[bool, _option(MESH, "Only try two steps of it, on simulated ranks.")] = False,
    log: Annotated[
        Path | None, _option(MESH, "Write a line per step and rank into this folder.", file_okay=False)
    ] = None,
    export: Annotated[str | None, _option(MESH, "At the end write the whole model into this file of torch's.")] = None,
    batch: Annotated[int | None, _option(None, "Samples per step, all ranks together.")] = None,
    lr: Annotated[float | None, _option(None, "Learning rate.")] = None,
    seed: Annotated[int | None, _option(None, "The same seed gives the same run.")] = None,
    checkpoint: Annotated[
        str | None, _option(None, "Save there, and go on from it: a folder; for lab 07's a file.")
    ] = None,
    every: Annotated[int | None, _option(None, "Steps between two savings.")] = None,
    epochs: Annotated[int | None, _option(LENET, "How often to see every image.")] = None,
    data: Annotated[str | None, _option(LENET, "digits, mnist or cifar10; the last two are fetched once.")] = None,
    bucket_mb: Annotated[float | None, _option(LENET, "Gradients per message, MB.")] = None,
    overlap: Annotated[bool | None, _option(LENET, "Send gradients while backward goes on.")] = None,
    all_reduce: Annotated[str | None, _option(LENET, "A collective, such as ring, tree, rabenseifner.")] = None,
) -> None:
    """Train on all ranks that were started together: with --model or --mesh any of three models on a mesh.

    mpiexec -n 8 hpcdl train --model gpt --mesh data=2,pipeline=2,tensor=2

    hpcdl train --model gpt --mesh tensor=4 --simulate 4          (no launcher, one process)

    torchrun --nproc-per-node 4 -m hpcdl.training          (LeNet-5 of lab 07: NCCL with a GPU per rank, else gloo)
    """
    flags = ("plan", "dry_run")
    given = {name: value for name, value in locals().items() if name != "flags" and value is not None}
    given = {name: value for name, value in given.items() if name not in flags or value}
    if set(given) <= {*BOTH, *ONLY_LENET}:
        program.train(**given)
        return
    try:
        _on_mesh(given)
    except (ConfigurationError, OSError) as error:
        end(str(error).rstrip("."))


def _on_mesh(given: dict[str, Any]) -> None:
    for name in given:
        if name in ONLY_LENET:
            option = name.replace("_", "-")
            raise ConfigurationError(f"--{option} is for the training of lab 07; with a mesh take {ONLY_LENET[name]}")
    run = Run(**{name: given.pop(name) for name in Run._fields if name in given})
    if run.every < 1:
        raise ConfigurationError(f"every is {run.every}; it is a number of steps, 1 or more")
    simulated, only = given.pop("simulate", None), [name for name in ("plan", "dry_run") if given.pop(name, False)]
    options = read_options(given.pop("config")) if "config" in given else {}
    chosen = Chosen({**options, **given})
    if only:
        _predict(chosen.on(simulated or chosen.ranks), "dry_run" in only)
    elif simulated:
        _simulate(chosen, simulated, run)
    elif _without_mpi():
        _simulate(chosen, 1, run)
    else:
        with program.ranks() as (comm, device):
            train_on(comm, chosen.on(comm.size), run, device)


class Chosen:
    """The options that were given; where there is no mesh among them, all ranks are data replicas."""

    def __init__(self, options: dict[str, Any]):
        self.configuration = from_options(options)
        self._any = "mesh" not in options

    @property
    def ranks(self) -> int:
        return self.configuration.ranks

    def on(self, ranks: int) -> Configuration:
        """The configuration for so many ranks."""
        return self.configuration.changed(mesh=(ranks, 1, 1, 1)) if self._any else self.configuration


def _without_mpi() -> bool:
    """No launcher has started this process, and there is no MPI: then it is one rank."""
    if "LOCAL_WORLD_SIZE" in os.environ:  # torchrun's
        return False
    try:
        import mpi4py

        mpi4py.rc.initialize = False  # not before `program.ranks` has looked at who started it
        from mpi4py import MPI  # noqa: F401 - whether it loads its library
    except (ImportError, RuntimeError):
        return True
    return False


def _predict(configuration: Configuration, dry: bool) -> None:
    from hpcdl.training.hybrid import predictions
    from hpcdl.training.hybrid.fitting import require_fit
    from hpcdl.training.hybrid.models import build

    require_fit(configuration, build(configuration.model, configuration.size), configuration.ranks)
    typer.echo(HEADER + configuration.to_toml())
    lines = predictions.described(configuration, predictions.predict(configuration))
    for line in lines + (predictions.dry_run(configuration) if dry else []):
        typer.echo(line)


def _simulate(chosen: Chosen, ranks: int, run: Run) -> None:
    from hpcdl.comm import RankError
    from hpcdl.comm import simulate as simulated

    try:
        simulated(lambda comm: train_on(comm, chosen.on(ranks), run), ranks)
    except RankError as error:
        if isinstance(error.__cause__, (ValueError, FloatingPointError, OSError)):
            raise ConfigurationError(str(error.__cause__)) from None
        raise


def train_on(
    comm: "Communicator",
    configuration: Configuration,
    run: Run | None = None,
    device: str = "cpu",
    say: Callable[[str], None] | None = None,
) -> list[float]:
    """A whole run on `comm`'s ranks, each of which calls this: what `hpcdl train` does with the same configuration.

    Rank 0 says (prints) what it is about to do, a line per step, and what the model can do at the end. Returns the
    losses of the steps that were done.
    """
    from hpcdl.training.hybrid import predictions, records
    from hpcdl.training.trainer import Trainer

    run = run or Run()
    speak = (say or _print) if comm.rank == 0 else _quiet
    trainer = Trainer(comm, configuration, device)
    speak(HEADER + configuration.to_toml())
    for line in predictions.described(configuration, predictions.predict(configuration)) if comm.rank == 0 else ():
        speak(line)
    if run.checkpoint and trainer.resume(run.checkpoint):
        speak(f"{run.checkpoint} has {trainer.done} steps: on from there")
    shown = max(1, configuration.steps // 20)
    with ExitStack() as stack:
        file = stack.enter_context(records.log(run.log, comm.rank, comm.size, trainer.done))

        def report(record: dict[str, Any]) -> None:
            records.write(file, record)
            if record["step"] % shown == 0 or record["step"] == configuration.steps:
                speak(records.sentence(record, trainer.model.unit))

        losses = trainer.train(report, checkpoint=run.checkpoint, every=run.every, measure=run.log is not None)
    if run.export:
        trainer.export(run.export)
    model = trainer.whole_model()
    if comm.rank == 0:
        speak(trainer.model.said(model))
    return losses


def _print(line: str) -> None:
    print(line, flush=True)


def _quiet(line: str) -> None:
    """Only rank 0 speaks."""
