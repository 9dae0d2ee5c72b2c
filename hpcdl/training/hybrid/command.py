"""`hpcdl train`: a model on a mesh, or, without a mesh, the data-parallel LeNet-5 of lab 07."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hpcdl.training import program
from hpcdl.training.hybrid.configuration import (
    HEADER,
    Configuration,
    ConfigurationError,
    from_options,
    merged,
    read_options,
)
from hpcdl.training.hybrid.tracing import SPANS

if TYPE_CHECKING:
    from hpcdl.comm import Communicator
    from hpcdl.training.trainer import Trainer

LENET, MESH = "LeNet-5, data-parallel (lab 07)", "A model on a mesh"
LOG = ("--log", "--jsonl")  # torchrun takes --log for the beginning of several options of its own

# Options of `program.train` that a mesh does not have, and their replacements.
ONLY_LENET = {"epochs": "--steps", "data": "--model", "bucket_mb": "--sharding", "overlap": "--sharding"}
ONLY_LENET |= {"all_reduce": "--sharding"}
BOTH = ("batch", "lr", "seed", "checkpoint", "every")


class RunOptions(NamedTuple):
    """Options of a run besides training: where it keeps its state, what it writes, and its machine in `hpcdl.cost`."""

    checkpoint: str | None = None
    every: int = 50
    log: Path | None = None
    export: str | None = None
    profile: bool = False
    machine: str | None = None


def _option(panel: str | None, text: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **options)


def train(
    model: Annotated[str | None, _option(MESH, "mlp, lenet or gpt.")] = None,
    size: Annotated[str | None, _option(MESH, "Its size: tiny, small, medium; gpt: large.")] = None,
    mesh: Annotated[str | None, _option(MESH, "Ranks along each axis: data=2,pipeline=2,tensor=2,sequence=1.")] = None,
    sharding: Annotated[int | None, _option(MESH, "ZeRO's stage, 0 to 3.")] = None,
    schedule: Annotated[
        str | None, _option(MESH, "Of the pipeline: 1f1b, gpipe, interleaved, zb_h1, zb_v, ...")
    ] = None,
    microbatches: Annotated[int | None, _option(MESH, "On each replica, in a step.")] = None,
    microbatch_size: Annotated[
        int | None, _option(MESH, "Samples in each; their number then follows from the batch and the mesh.", min=1)
    ] = None,
    tokens_per_step: Annotated[
        int | None, _option(MESH, "Instead of --batch, for a gpt: tokens per step, all ranks together.", min=1)
    ] = None,
    precision: Annotated[str | None, _option(MESH, "fp64, fp32, bf16 or fp16.")] = None,
    optimizer: Annotated[str | None, _option(MESH, "sgd, adam or adamw.")] = None,
    steps: Annotated[int | None, _option(MESH, "How many steps in total.")] = None,
    config: Annotated[
        Path | None, _option(MESH, "Options from a file, as a run prints them.", exists=True, dir_okay=False)
    ] = None,
    simulate: Annotated[
        int | None, _option(MESH, "On so many simulated ranks, in this process.", min=1, max=1024)
    ] = None,
    plan: Annotated[
        bool, _option(MESH, "Only say what a run would need; with --machine also the best mesh of all.")
    ] = False,
    machine: Annotated[
        str | None, _option(MESH, "Predict its seconds, compare with its peak: 'A100 (DGX)', H800, ...")
    ] = None,
    memory: Annotated[
        float | None, _option(MESH, "With --plan: GB (of 2^30 bytes) that a rank may use; else the machine's.", min=0)
    ] = None,
    dry_run: Annotated[
        bool, _option(MESH, "Only count what ranks send and hold: each rank alone, and up to 8 simulated.")
    ] = False,
    log: Annotated[
        Path | None, _option(MESH, "Write a line per step and rank into this folder.", *LOG, file_okay=False)
    ] = None,
    profile: Annotated[bool, _option(MESH, "Also write there what each rank does when, for hpcdl trace.")] = False,
    export: Annotated[str | None, _option(MESH, "At the end write the whole model into this file of torch's.")] = None,
    batch: Annotated[int | None, _option(None, "Samples per step, all ranks together.")] = None,
    lr: Annotated[float | None, _option(None, "Learning rate.")] = None,
    seed: Annotated[int | None, _option(None, "The same seed gives the same run.")] = None,
    checkpoint: Annotated[
        str | None, _option(None, "Save there, and continue from it: a folder; for lab 07's a file.")
    ] = None,
    every: Annotated[int | None, _option(None, "Steps between two savings.")] = None,
    epochs: Annotated[int | None, _option(LENET, "How often to see every image.")] = None,
    data: Annotated[str | None, _option(LENET, "digits, mnist or cifar10; the last two are fetched once.")] = None,
    bucket_mb: Annotated[float | None, _option(LENET, "Gradients per message, MB.")] = None,
    overlap: Annotated[bool | None, _option(LENET, "Send gradients during backward.")] = None,
    all_reduce: Annotated[str | None, _option(LENET, "A collective, such as ring, tree, rabenseifner.")] = None,
) -> None:
    """Train on all ranks that were started together; with --model or --mesh, any of three models on a mesh.

    mpiexec -n 8 hpcdl train --model gpt --mesh data=2,pipeline=2,tensor=2

    hpcdl train --model gpt --mesh tensor=4 --simulate 4          (no launcher, one process)

    torchrun --nproc-per-node 4 -m hpcdl.training          (LeNet-5 of lab 07: NCCL with a GPU per rank, else gloo)
    """
    flags = ("plan", "dry_run", "profile")
    given = {name: value for name, value in locals().items() if name != "flags" and value is not None}
    given = {name: value for name, value in given.items() if name not in flags or value}
    if set(given) <= {*BOTH, *ONLY_LENET}:
        program.train(**given)
        return
    _on_mesh(given)


def _on_mesh(given: dict[str, Any]) -> None:
    for name in given:
        if name in ONLY_LENET:
            option = name.replace("_", "-")
            raise ConfigurationError(f"--{option} is for the training of lab 07; with a mesh take {ONLY_LENET[name]}")
    run = RunOptions(**{name: given.pop(name) for name in RunOptions._fields if name in given})
    if run.every < 1:
        raise ConfigurationError(f"every is {run.every}; it is a number of steps, 1 or more")
    if run.profile and not run.log:
        raise ConfigurationError("--profile writes into the folder of --log; add --log FOLDER")
    _require_place(run.export)
    simulated, only = given.pop("simulate", None), [name for name in ("plan", "dry_run") if given.pop(name, False)]
    memory = given.pop("memory", None)
    if memory is not None and not ("plan" in only and run.machine):
        raise ConfigurationError("--memory limits what --plan proposes for a machine; add --plan --machine NAME")
    options = read_options(given.pop("config")) if "config" in given else {}
    chosen = Chosen(merged(options, given))
    if only:
        _predict(chosen.on(simulated or chosen.ranks), only, run.machine, memory)
    elif simulated:
        _simulate(chosen, simulated, run)
    elif _without_mpi():
        _simulate(chosen, 1, run)
    else:
        with program.ranks() as (comm, device):
            train_on(comm, chosen.on(comm.size), run, device)


def _require_place(export: str | None) -> None:
    """Refuse a file that cannot be written before a training is lost to it."""
    if export is None:
        return
    if not Path(export).name or Path(export).is_dir():
        raise ConfigurationError(f"--export {export} is a folder; give a file")
    if not Path(export).parent.is_dir():
        raise ConfigurationError(f"there is no folder {Path(export).parent} for --export; make it, or give another")
    try:
        with TemporaryFile(dir=Path(export).parent):
            pass
    except OSError as error:
        raise ConfigurationError(f"--export {export} cannot be written ({error.strerror}); give another file") from None


class Chosen:
    """The given options; without a mesh, all ranks are data replicas."""

    def __init__(self, options: dict[str, Any]):
        self.configuration = from_options(options)
        self._any = "mesh" not in options

    @property
    def ranks(self) -> int:
        return self.configuration.ranks

    def on(self, ranks: int) -> Configuration:
        """Return the configuration for this number of ranks."""
        return self.configuration.changed(mesh=(ranks, 1, 1, 1)) if self._any else self.configuration


def _without_mpi() -> bool:
    """Whether this process is a single rank: no launcher has started it, and there is no MPI."""
    if "LOCAL_WORLD_SIZE" in os.environ:  # torchrun's
        return False
    try:
        program.load_mpi()
    except (ImportError, RuntimeError):  # RuntimeError: mpi4py finds no library
        return True
    return False


def _predict(configuration: Configuration, only: list[str], name: str | None, memory: float | None) -> None:
    from hpcdl.training.hybrid import dry, planning, predictions
    from hpcdl.training.hybrid.fitting import require_fit
    from hpcdl.training.hybrid.models import build
    from hpcdl.training.hybrid.work import machine_named

    require_fit(configuration, build(configuration.model, configuration.size), configuration.ranks)
    machine = machine_named(name) if name is not None else None
    typer.echo(HEADER + configuration.to_toml())
    lines = predictions.described(configuration, predictions.predict(configuration), machine)
    if "plan" in only and machine:
        limit = memory * 2**30 if memory is not None else None
        lines += planning.table(planning.search(configuration, configuration.ranks, machine, limit), machine, limit)
    for line in lines:
        typer.echo(line)
    for line in dry.dry_run(configuration, lambda line: typer.echo(line, err=True)) if "dry_run" in only else []:
        typer.echo(line)


def _simulate(chosen: Chosen, ranks: int, run: RunOptions) -> None:
    from hpcdl.comm import RankError
    from hpcdl.comm import simulate as simulated
    from hpcdl.training.hybrid.work import links_of, machine_named

    links = links_of(machine_named(run.machine)) if run.machine is not None else {}
    try:
        simulated(lambda comm: train_on(comm, chosen.on(ranks), run), ranks, **links)
    except RankError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        if isinstance(error.__cause__, (ValueError, FloatingPointError)):
            raise ConfigurationError(str(error.__cause__)) from None
        raise


def train_on(
    comm: "Communicator",
    configuration: Configuration,
    run: RunOptions | None = None,
    device: str = "cpu",
    say: Callable[[str], None] | None = None,
) -> list[float]:
    """Run a whole training on `comm`'s ranks, like `hpcdl train` with the same configuration; every rank calls it.

    Rank 0 prints the plan, a line per step, and at the end what the model can do. Returns the losses of the steps.
    """
    from hpcdl.training.hybrid import dry, predictions
    from hpcdl.training.hybrid.work import machine_named
    from hpcdl.training.trainer import Trainer

    run = run or RunOptions()
    speak = (say or _print) if comm.rank == 0 else _quiet
    machine = machine_named(run.machine) if run.machine is not None else None
    trainer = Trainer(comm, configuration, device, machine, run.profile)
    speak(HEADER + configuration.to_toml())
    if comm.rank == 0:
        for line in predictions.described(configuration, predictions.predict(configuration), trainer.speed.machine):
            speak(line)
    dried = dry.predicted(trainer) if run.log is not None else []
    if dried:
        speak(dry.sent(dried))
    if run.checkpoint and trainer.resume(run.checkpoint):
        speak(f"{run.checkpoint} has {trainer.done} steps: on from there")
    losses, last = _trained(trainer, run, speak)
    if last and machine:
        speak(predictions.difference(configuration, machine, last["seconds"]))
    if dried and last:
        for line in dry.compared(trainer, last, dried):
            speak(line)
    if run.export:
        trainer.export(run.export)
    model = trainer.whole_model()
    if comm.rank == 0:
        speak(trainer.model.said(model))
    return losses


def _trained(trainer: "Trainer", run: RunOptions, speak: Callable) -> tuple[list[float], dict[str, Any]]:
    """Train, and write and say what each step did; return the losses and the last step's record."""
    from hpcdl.training.hybrid import records

    comm, steps = trainer.comm, trainer.configuration.steps
    shown = max(1, steps // 20)
    last: dict[str, Any] = {}
    with ExitStack() as stack:
        file = stack.enter_context(records.log(run.log, comm.rank, comm.size, trainer.done))
        spans = stack.enter_context(
            records.log(run.log if run.profile else None, comm.rank, comm.size, trainer.done, SPANS)
        )

        def report(record: dict[str, Any]) -> None:
            records.write(file, record)
            records.write(spans, {"step": record["step"], "spans": trainer.timeline.take()})
            last.update(record)
            if record["step"] % shown == 0 or record["step"] == steps:
                speak(records.sentence(record))

        trainer.timeline.take()  # what came before is no part of a step
        losses = trainer.train(report, checkpoint=run.checkpoint, every=run.every, measure=run.log is not None)
    return losses, last


def _print(line: str) -> None:
    print(line, flush=True)


def _quiet(line: str) -> None:
    """Silence all ranks except rank 0."""
