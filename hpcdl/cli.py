"""The command line: `hpcdl lab` opens the labs, `hpcdl doctor` says what this machine can do."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import hpcdl
from hpcdl import labs
from hpcdl.commands import Commands, during, end, say, version_of
from hpcdl.jupyter import LAB
from hpcdl.slides.command import slides
from hpcdl.training.hybrid import comparing, tracing
from hpcdl.training.hybrid.command import train

app = typer.Typer(
    cls=Commands,
    help="hpcdl: high-performance deep learning, live in a notebook.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# In a clone the file browser begins with `source`, the labs with their solutions; the rest is Jupyter's own list.
HIDDEN = ("source", "__pycache__", "*.pyc", "*.pyo", ".DS_Store", "*~")


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=version_of("hpcdl"), is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Open the labs, check the machine."""


def labs_folder(wanted: Path | None) -> Path:
    """Return the folder to open: `wanted` with missing labs added, an existing one, or a new `labs` here."""
    here = labs.found(Path.cwd())
    if wanted is None and here:
        return here
    folder = wanted or Path.cwd() / "labs"
    if new := labs.copy_missing(folder):
        say(f"Wrote {', '.join(path.name for path in new)} in {folder}.")
    return folder.resolve()


@app.command()
def lab(
    name: Annotated[str | None, typer.Argument(help="Open this lab: its number or its slug.")] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to try first.")] = 8888,
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where your labs are, or shall be (default: labs, here).")
    ] = None,
    ip: Annotated[str, typer.Option(help="The address to listen on; in a container 0.0.0.0.")] = "localhost",
) -> None:
    """Open JupyterLab at the labs. An installed package copies them into a folder first, and keeps existing files."""
    folder = labs_folder(folder)
    notebook = labs.find(name, folder).name if name else labs.map_in(folder)
    if name:
        os.environ[LAB] = str(folder / notebook)
    command = [
        *(sys.executable, "-P", "-m", "hpcdl.jupyter.server"),
        *(f"--ip={ip}", f"--port={port}", f"--ServerApp.root_dir={folder}"),
        f"--LabApp.default_url=/lab/tree/{notebook}",
        # A class of 300 should not ask the network for news or updates.
        *("--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"),
        *(f"--ContentsManager.hide_globs={pattern}" for pattern in HIDDEN if folder.resolve() == labs.CLONE),
        *([] if browser else ["--no-browser"]),
        *(["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []),  # in a container
    ]
    # Settings for everyone who opens the labs (no news, Markdown as a page); a user's own settings still win. The data
    # folder holds the kernel: this Python, whatever kernels the user has.
    for variable in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        own = [str(Path(hpcdl.__file__).parent / "jupyter"), *filter(None, [os.environ.get(variable)])]
        os.environ[variable] = os.pathsep.join(own)
    os.execv(sys.executable, command)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    engines: Annotated[bool, typer.Option(help="Start two engines (takes a few seconds).")] = True,
) -> None:
    """Say what this machine can do, and what to install for more; exit code 1 if a lab cannot run."""
    from hpcdl import doctor

    findings = doctor.examine(engines=engines) if as_json else doctor.show(doctor.probes(engines=engines))
    if as_json:
        typer.echo(json.dumps([finding.__dict__ for finding in findings], indent=2))
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


clusters = typer.Typer(cls=Commands, invoke_without_command=True)
app.add_typer(clusters, name="cluster")


@clusters.callback()
def cluster(
    context: typer.Context,
    n: Annotated[int, typer.Option("-n", help="How many engines.")] = 4,
    profile: Annotated[
        str | None, typer.Option(help="Where they run: slurm, ssh, or an ipyparallel profile of yours; else here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try a cluster: start its engines, say where each rank runs, sum over all of them, stop.

    With --profile slurm or ssh, the first call writes the profile's settings file, for you to adapt.
    """
    if context.invoked_subcommand:
        return
    from hpcdl.cluster import ClusterError, trial
    from hpcdl.saying import told

    try:
        with during(f"Starting {n} engines") as tell, told(tell):
            findings = trial.try_cluster(n, profile)
    except (ClusterError, ValueError) as error:
        end(str(error).rstrip("."), 1)
    typer.echo(json.dumps(findings, indent=2) if as_json else trial.describe(findings))


@clusters.command()
def script(
    arguments: Annotated[list[str] | None, typer.Argument(help="After --: the program's own options.")] = None,
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes.")] = 1,
    each: Annotated[int, typer.Option(min=1, help="Processes on each node.")] = 2,
    module: Annotated[str, typer.Option(help="The program, as python -m has it.")] = "hpcdl.training",
    minutes: Annotated[int, typer.Option(min=1, help="After which Slurm may end it.")] = 30,
    gpus: Annotated[bool, typer.Option("--gpus", help="Ask for a GPU per process.")] = False,
    restarts: Annotated[int, typer.Option(min=0, help="How often to start again when a process dies.")] = 1,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="The file to write (default: print it).")] = None,
) -> None:
    """Write a training as a batch script for Slurm, which starts torchrun on each node.

    hpcdl cluster script --nodes 2 --each 4 --out job.sh -- --epochs 2 --checkpoint lenet.pt
    """
    from hpcdl.cluster.script import sbatch, time_advice
    from hpcdl.files import write_whole

    try:
        text = sbatch(nodes, each, module, arguments or [], minutes, gpus, restarts)
    except ValueError as error:
        end(str(error))
    if advice := time_advice(minutes):
        typer.echo(advice, err=True)
    if out is None:
        typer.echo(text, nl=False)
        return
    if not out.name:
        end("--out is a folder, expected a file")
    write_whole(out, text)
    say(f"Wrote {out}. Hand it in: sbatch {shlex.quote(str(out))}")


@app.command()
def submit(
    notebook: Annotated[Path, typer.Argument(help="The lab that you solved.")],
    out: Annotated[Path | None, typer.Option(help="The file to write (default: next to the notebook).")] = None,
    run: Annotated[bool, typer.Option(help="Run it top to bottom in a fresh kernel first.")] = True,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Write the file even if something is open or fails.")
    ] = False,
    design: Annotated[
        bool, typer.Option("--design", help="Also hand in your own schedule, for the class's table.")
    ] = False,
) -> None:
    """Check that a lab runs and is complete, and write the one file to hand in.

    Exit code 0: written; 1: not ready (and not written without --anyway); 2: no lab.
    """
    from rich.progress import Progress

    from hpcdl import submit

    try:
        with Progress(transient=True) as bar:
            task = bar.add_task("running the notebook")
            found = submit.examine(
                notebook, run, lambda done, total: bar.update(task, completed=done, total=total), design
            )
    except submit.SubmissionError as error:
        end(str(error))
    for line in submit.say(found):
        say(line)
    if not (found.ready or anyway):
        typer.echo("Nothing was written. Mend it, or hand it in as it is: add --anyway.")
        raise typer.Exit(1)
    out = out or notebook.with_suffix(".zip")
    submit.write(found, notebook, out)
    say(f"Wrote {out}: hand in this file. (SHA-256 of the notebook: {found.sha256[:12]})")


@app.command()
def reset(
    exercise: Annotated[str, typer.Argument(help="The exercise, such as mse_grad; or `guesses`, or `speeds`.")],
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where your labs are (default: labs, here).")
    ] = None,
) -> None:
    """Reset an exercise: its cell is blank again, and your code is kept in a file next to the notebook.

    Save the notebook first and reload it afterwards: in JupyterLab, File, Reload Notebook from Disk. `hpcdl reset
    guesses` clears the ledger of your guesses. `hpcdl reset speeds` forgets the measured speeds of convolutions on this
    machine; they are measured again when they are next needed.
    """
    from hpcdl import reset as resetting

    if exercise == resetting.SPEEDS:
        from hpcdl.conv.calibration import recalibrate

        say("Speeds forgotten." if recalibrate() else "No speeds are kept: they are measured when they are needed.")
        return
    here = folder or labs.found(Path.cwd())
    if here is None:
        end("no labs here: say where they are, --folder my-labs")
    if exercise == resetting.GUESSES:
        say(f"Guesses forgotten: {resetting.forget_guesses(here)}.")
        return
    begun = resetting.reset(exercise, here)
    if begun.kept is None:
        say(f"The cell of {begun.exercise} is blank already.")
        return
    say(f"The cell of {begun.exercise} in {begun.notebook} is blank again; what you had written is in {begun.kept}.")
    say("Is the notebook open? In JupyterLab: File, Reload Notebook from Disk.")


@app.command()
def progress(
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where your labs are (default: labs, here).")
    ] = None,
) -> None:
    """Show each lab's points from its last checks, what is left, and when it was last checked."""
    from rich.console import Console

    from hpcdl.progress import table

    Console().print(table(folder))


@app.command()
def report(
    name: Annotated[str, typer.Argument(metavar="lab", help="The lab: its number, its slug or its notebook.")],
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where your labs are (default: labs, here).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The page to write (default: next to the notebook).")
    ] = None,
    student: Annotated[str, typer.Option("--name", help="Your name, if the page shall show it.")] = "",
) -> None:
    """Write a report on a lab to hand in: your guesses, your points, and your decision in three sentences.

    The first call makes a file for the decision next to the notebook. Answer in it, and call again.
    """
    from hpcdl import report as reporting
    from hpcdl.files import write_whole

    notebook = reporting.find(name, folder)
    form = reporting.prepare(notebook)
    found = reporting.report(notebook, student)
    out = out or notebook.with_suffix(".report.html")
    write_whole(out, reporting.page(found))
    if form:
        say(f"Wrote {form}: answer its three questions, then run this again.")
    say(f"Wrote {out}. " + (f"Missing: {'; '.join(found.missing)}." if found.missing else "It is complete."))


app.command()(slides)
app.command()(train)
app.command("compare")(comparing.command)
app.command()(tracing.trace)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One benchmark, such as collectives (default: all).")] = None,
) -> None:
    """Run a benchmark next to its peers (minutes); only in a clone of the repository.

    `python -m benchmarks NAME --help` lists the benchmark's own options, such as --quick.
    """
    root = Path(hpcdl.__file__).resolve().parent.parent
    if not (root / "benchmarks" / "harness").is_dir():
        end("no benchmarks here: they are not installed with hpcdl; run this in a clone of the repository")
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "benchmarks", *filter(None, [name]), *context.args]
    raise typer.Exit(subprocess.call(command, env={**os.environ, "PYTHONPATH": path}))
