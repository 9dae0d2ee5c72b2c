"""Commands for classes that are too large for one machine: `grade --shard`, `merge`, `engine`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from autograder.options import AsLab, Mpi, SecretFile, lab_named, timed
from hpcdl.commands import end, say

Submissions = Annotated[Path, typer.Argument(exists=True, help="What `autograder grade` is given.")]
Out = Annotated[Path, typer.Option(file_okay=False, help="The folder of results, into which all shards write.")]


def grade_shard(text: str, todo: list[Any], out: Path, secret: bytes, bar: Any, **options: Any) -> None:
    """Grade and record one part of `todo`; exit code 2 where `text` names none. `options` are those of `grade`."""
    from .grade import grade
    from .records import Records
    from .shard import ClassShard

    try:
        shard = ClassShard.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    mine, graded = [submission for submission in todo if shard.holds(submission)], 0
    with Records(out, secret, shard) as records, bar:
        task = bar.add_task(f"shard {shard}", total=len(mine))
        for result in grade(mine, records, secret, **options):
            graded += result is not None
            bar.update(task, advance=1)
    say(f"Shard {shard}: {len(mine):,} of {len(todo):,} submissions, {graded:,} of them graded now.")


def merge(
    submissions: Submissions,
    out: Out,
    lab: AsLab = None,
    secret_file: SecretFile = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Write what there is, if some are not graded yet.")
    ] = False,
) -> None:
    """Write grades.csv and the result files from what shards have recorded.

    Exit code 0: every submission has its row; 1: some have no record, and nothing was written; 3: a grader is at work
    on the same results.
    """
    from autograder.grading import layouts, seeds, store

    from . import merge as merging

    try:
        with store.locked(out):
            secret = seeds.course_secret(out, secret_file)
            rows = merging.merge(timed(layouts.submissions(submissions), out), out, secret, lab_named(lab), partial)
    except store.BusyError as error:
        end(str(error), 3)
    except merging.MergeError as error:
        end(str(error), 1)
    say(f"Wrote {out / 'grades.csv'} with {rows:,} rows.")


def engine(
    kind: Annotated[str, typer.Argument(help="slurm, torchrun, kubernetes, submitit or local.")],
    submissions: Submissions,
    out: Out,
    shards: Annotated[int, typer.Option(min=1, max=100_000, help="Into how many parts.")] = 64,
    lab: AsLab = None,
    secret_file: SecretFile = None,
    allow_weak: Annotated[bool, typer.Option(help="Grade also where the code cannot be walled in.")] = False,
    mpi: Mpi = True,
) -> None:
    """Print the script that grades a class in many parts: read it, change it, hand it to your engine.

    It makes the folder of results and its secret, which all shards must agree on.
    """
    from autograder.grading import seeds
    from hpcdl.cluster.script import time_advice

    from .scripts import ENGINES, MINUTES, Job

    if kind not in ENGINES:
        raise typer.BadParameter(f"there is no engine {kind!r}; the engines are {', '.join(ENGINES)}")
    lab_named(lab)
    seeds.course_secret(out, secret_file)
    if kind == "slurm" and (advice := time_advice(MINUTES)):
        typer.echo(advice, err=True)
    options = [("--lab", lab)] * bool(lab) + [("--secret-file", str(secret_file and secret_file.resolve()))] * bool(
        secret_file
    )
    words = tuple(str(word) for pair in options for word in pair)
    alone = ("--allow-weak",) * allow_weak + ("--no-mpi",) * (not mpi)
    print(ENGINES[kind](Job(submissions.resolve(), out.resolve(), shards, words, grading=alone)), end="")
