"""The command line: `autograder grade` a folder, `autograder check` one notebook, `autograder selfcheck` a lab."""

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from autograder.outputs import cli as outputs
from autograder.outputs import lecture, marking  # each command imports what it needs, so `--help` is instant
from hpcdl import machine
from hpcdl.commands import Commands, during, end, printable, say, version_of

from . import corrections, exercises
from .options import AsLab, Mpi, Policy, SecretFile, lab_named, timed
from .shards import cli as shards

app = typer.Typer(
    cls=Commands,
    help="Checks and grades the labs of hpcdl.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(outputs.app, name="export")


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=version_of("autograder"), is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Check and grade the labs of hpcdl."""


console = Console(highlight=False)
WEAK = " --allow-weak grades all the same, as for students whom you trust with your account."


@app.command()
def grade(
    submissions: Annotated[
        Path, typer.Argument(exists=True, help="Folder or zip file: plain, nbgrader, Canvas or Moodle.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for grades.csv and a result file per submission.")],
    lab: AsLab = None,
    lanes: Annotated[int | None, typer.Option(min=1, help="Submissions at a time (default: a lane a core).")] = None,
    secret_file: SecretFile = None,
    allow_weak: Annotated[bool, typer.Option(help="Grade also where the code cannot be walled in.")] = False,
    mpi: Mpi = True,
    shard: Annotated[str, typer.Option(help="Grade this part alone, as 3/64, for `autograder merge`.")] = "",
    count: Annotated[Policy, typer.Option(help="Which of a student's attempts counts.")] = Policy.last,
) -> None:
    """Grade every submission in a folder; results of an earlier run are kept.

    Exit code 0: all have a row; 1: there was nothing to grade; 3: another grader is at work on the same folder;
    4: this system offers weak isolation only, or its walls have a hole: they are tried before the first submission.
    """
    from autograder.grading import attempts, batch, grades, layouts, seeds, store, tops
    from autograder.sessions.canaries import WallError
    from autograder.walls import sandbox

    only, (todo, strays) = lab_named(lab), layouts.find(submissions)
    todo = timed(todo, out)
    if not todo:
        say(f"There is nothing to grade in {submissions}: no folders and no .ipynb files.")
        raise typer.Exit(1)
    if sandbox.tier() == "weak" and not allow_weak:
        refuse_weak(sandbox.words())
    done, kept, lanes = [], store.ResultStore(out / ".cache"), lanes or machine.cores()
    try:
        if shard:
            options = {"only": only, "lanes": lanes, "mpi": mpi, "allow_weak": allow_weak}
            shards.grade_shard(shard, todo, out, seeds.course_secret(out, secret_file), progress(), **options)
            return
        with store.locked(out), progress() as bar:
            task = bar.add_task("grading", total=len(todo))
            secret = seeds.course_secret(out, secret_file)
            every = batch.grade_all(todo, secret, only, kept, lanes, mpi, allow_weak)
            for submission, result in every:
                done.append((submission, result))
                bar.update(task, advance=1, description=shown(result.student[:30]))
            results = attempts.counting(done, out, count.value)
            grades.write(results, out)
    except store.BusyError as error:
        end(str(error), 3)
    except WallError as error:
        refuse_weak(str(error))
    console.print(summary(results))
    for sentence in tops.sentences(submissions, todo, strays):
        say(sentence)
    console.print(f"Wrote {shown(str(out / 'grades.csv'))}. Isolation: {sandbox.words()}.")


@app.command()
def grade_one(
    submission: Annotated[Path, typer.Argument(help="A notebook.")],
    out: Annotated[Path, typer.Option(help="The result file to write.")],
    student: Annotated[str | None, typer.Option(help="Whose it is (default: the file's name).")] = None,
    lab: Annotated[str | None, typer.Option(help="Grade it as this lab (default: see from the notebook).")] = None,
    secret_file: SecretFile = None,
    mpi: Mpi = True,
) -> None:
    """Grade one notebook into one result file: the same input gives the same grades, whenever and wherever it runs.

    Exit code 0: the file is written, with a grade or the reason why there is none; 4: the walls have a hole.
    """
    from autograder.grading import batch, seeds, store, submitted
    from autograder.sessions.canaries import WallError

    todo = [submitted.alone(student or submission.stem, submission)]
    secret = seeds.course_secret(out.parent, secret_file)
    try:
        with during(f"Grading {submission}"):
            ((_, result),) = batch.grade_all(todo, secret, lab_named(lab), mpi=mpi)
    except WallError as error:
        refuse_weak(str(error), "")
    store.write_json(result, out)
    console.print(summary([result]))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A notebook of yours.")],
    lab: Annotated[str | None, typer.Option(help="Check it as this lab (default: see from the notebook).")] = None,
) -> None:
    """Check one notebook as grading would. Exit code 0: all points; 1: not all; 2: it cannot be graded."""
    from autograder.grading import batch, submitted
    from autograder.outputs.load import for_student

    from . import feedback

    todo = [submitted.alone(file.stem, file)]
    with during(f"Checking {file}"):
        ((_, result),) = batch.grade_all(todo, b"check", lab_named(lab), allow_weak=True)
    result = for_student(result)
    if result.status == "ungradable":
        say(f"{file} cannot be graded: {result.message}.")
        raise typer.Exit(2)
    for exercise in result.exercises:
        say(feedback.text(exercise))
    for note in filter(None, [result.message, *result.notes]):
        say(f"Note: {note}.")
    console.print(f"Score: {result.score:g} / {result.max_score:g}", style="bold")
    raise typer.Exit(0 if result.score == result.max_score else 1)


@app.command()
def replay(
    report: Annotated[Path, typer.Argument(exists=True, help="The student's result file.")],
    submission: Annotated[Path, typer.Argument(exists=True, help="The notebook that was graded.")],
    exercise: Annotated[str, typer.Argument(help="The exercise's name, as in the report.")],
) -> None:
    """Repeat one exercise of one student with the inputs in the report.

    Exit code 0: the same points; 1: other points; 2: there is no such exercise, or the file cannot be read.
    """
    from autograder.grading import replay as replaying
    from autograder.inside.notebook import UngradableError
    from autograder.walls.zygote import Zygote

    from . import feedback

    try:
        with during(f"Checking {exercise} of {submission}"), Zygote() as zygote:
            before, now = replaying.replay(report, submission, exercise, zygote)
    except (replaying.ReplayError, UngradableError) as error:
        end(str(error))
    say(feedback.text(now))
    console.print(f"In the report: {before.points:g} points; now: {now.points:g}.")
    raise typer.Exit(0 if before.points == now.points else 1)


@app.command()
def doctor() -> None:
    """Say how students' code is isolated here, and prove it with attacks. Exit code 0: every wall holds; 1: not."""
    from autograder.walls import memory, sandbox

    from . import doctor as walls

    console.print(f"Isolation: {sandbox.words()}.")
    console.print(f"Memory, with a lane a core: {memory.allowance(machine.cores())}.", markup=False)
    for need, there in walls.needs().items():
        console.print(f"{'✓' if there else '✗'} {need}", markup=False)
    with during("Trying each attack on the walls"):
        findings = walls.attack()
    for finding in findings:
        console.print(f"{'✓' if finding.held else '✗'} {finding.title}: {finding.said}", markup=False)
    raise typer.Exit(0 if all(finding.held for finding in findings) else 1)


@app.command()
def selfcheck(
    slugs: Annotated[list[str] | None, typer.Argument(help="Labs to prove (default: all).")] = None,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Small changes of the solutions lose points, too.")
    ] = False,
) -> None:
    """Prove a lab's checks: the reference has 100, blank and lazy answers 0, each known mistake loses its points."""
    from autograder.authors import build
    from autograder.grading import mutation
    from autograder.grading.selfcheck import selfcheck as known_mistakes
    from autograder.walls.zygote import Zygote

    findings = mutation.proofs if mutants else known_mistakes

    slugs = slugs or list(exercises.LABS)
    for slug in slugs:
        lab_named(slug)
        build.source_path(slug)
    failed = 0
    with Zygote() as zygote:
        for slug in slugs:
            console.rule(escape(lab_named(slug).title))
            for finding in findings(slug, zygote):
                failed += bool(finding.problems)
                console.print(f"{'✗' if finding.problems else '✓'} {finding.title}", markup=False)
                for problem in finding.problems:
                    console.print(f"    {problem}", markup=False)
    raise typer.Exit(1 if failed else 0)


@app.command()
def new(
    slug: Annotated[str, typer.Argument(help="The lab's name in code, such as averages.")],
    number: Annotated[
        int | None, typer.Option(help="Its place in the course, 1 to 99; if not given, after the last.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title; if not given, the slug in words.")] = None,
) -> None:
    """Begin a lab in a clone of the course: one complete exercise to change into yours, and all files around it."""
    from autograder.authors import new as making

    paths = making.write(slug, number, title)
    root = making.PACKAGE.parent
    console.print(f"Wrote {', '.join(str(path.relative_to(root)) for path in paths)}.", markup=False, soft_wrap=True)
    console.print(f"Next: make labs, then autograder selfcheck {slug}, then make test-lab LAB={slug}.", markup=False)


@app.command()
def release(
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder to write.")],
    lab: Annotated[list[str] | None, typer.Option(help="A lab, by number or slug; may be given again.")] = None,
    all_labs: Annotated[bool, typer.Option("--all", help="Every lab.")] = False,
    requirement: Annotated[str, typer.Option(help="What students install: a URL, a wheel file, a version.")] = "",
) -> None:
    """Write what students get: notebooks without solutions, requirements, README, rules for coding assistants."""
    from autograder.authors import release as releasing

    if all_labs == bool(lab):
        raise typer.BadParameter("say which labs: --lab 04 (a number or a slug), or --all")
    paths = releasing.write(releasing.chosen(lab or []), out, releasing.installable(requirement))
    say(f"Wrote {', '.join(path.name for path in paths)} in {out}.")


def refuse_weak(reason: str, way_out: str = WEAK) -> NoReturn:
    """End with exit code 4 if students' code would not be isolated."""
    console.print(
        f"Nothing was graded: {reason}. `autograder doctor` says more.{way_out}", markup=False, soft_wrap=True
    )
    raise typer.Exit(4)


def progress() -> Progress:
    """Return a progress bar for long work."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def shown(text: str) -> str:
    """Return a student's text as rich may print it: without markup and control characters."""
    return escape(printable(text))


def summary(results: Any) -> Table:
    """Return a table of the results, for the terminal."""
    table = Table("student", "lab", "score", "message", box=None)
    for result in results:
        graded = result.status == "graded"
        score = f"{result.score:g} / {result.max_score:g}" if graded else "[bold]ungradable[/bold]"
        table.add_row(shown(result.student), shown(result.lab), score, shown(result.summary()[:200]))
    return table


app.command()(corrections.regrade)
app.command()(corrections.late)
app.command()(corrections.attempts)
app.command()(corrections.requests)
app.command()(lecture.report)
app.command()(lecture.guesses)
app.command()(lecture.designs)
app.command()(marking.written)
app.command()(marking.marks)
app.command()(shards.merge)
app.command()(shards.engine)
