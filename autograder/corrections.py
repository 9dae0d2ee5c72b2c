"""Commands for after the first grading: `regrade`, `late` days, earlier `attempts`, and students' `requests`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hpcdl import machine
from hpcdl.commands import end, say

from .options import AsLab, Mpi, SecretFile, lab_named, timed
from .outputs import load

Submissions = Annotated[Path, typer.Argument(exists=True, help="What `autograder grade` was given.")]


def regrade(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(exists=True, file_okay=False, help="The results of before.")],
    student: Annotated[list[str] | None, typer.Option(help="Only this student; may be given again.")] = None,
    exercise: Annotated[str, typer.Option(help="Only this exercise, as ddp.ring_all_reduce.")] = "",
    lab: AsLab = None,
    lanes: Annotated[int | None, typer.Option(min=1, help="Submissions at a time (default: a lane a core).")] = None,
    secret_file: SecretFile = None,
    allow_weak: Annotated[bool, typer.Option(help="Grade also where the code cannot be walled in.")] = False,
    mpi: Mpi = True,
) -> None:
    """Grade again on the same inputs, all or some, and show whose points have changed.

    Exit code 0: done; 1: there is nothing to regrade; 3: another grader is at work on the same folder; 4: the walls
    have a hole, or this system offers weak isolation only.
    """
    from .grading import grades, layouts, regrade, seeds, store
    from .sessions.canaries import WallError
    from .walls import sandbox

    if sandbox.tier() == "weak" and not allow_weak:
        end(f"Nothing was graded: {sandbox.words()}. --allow-weak grades all the same.", 4)
    todo = [each for each in timed(layouts.submissions(submissions), out) if not student or each.student in student]
    try:
        before = load.results(out)
        if unknown := {*(student or ())} - {each.student for each in todo}:
            end(f"There is no submission of {min(unknown)!r} in {submissions}.", 1)
        if exercise and exercise not in {each.id for result in before for each in result.exercises}:
            end(f"There is no exercise {exercise!r} in the results of {out}; write it as lab.exercise.", 1)
        with store.locked(out):
            secret = seeds.course_secret(out, secret_file)
            lanes = lanes or machine.cores()
            options = {"only": lab_named(lab), "lanes": lanes, "mpi": mpi, "allow_weak": allow_weak}
            changed, results = regrade.regrade(todo, before, out, secret, exercise, **options)
            grades.write(results, out)
    except load.ResultError as error:
        end(str(error), 1)
    except store.BusyError as error:
        end(str(error), 3)
    except WallError as error:
        end(str(error), 4)
    for each in changed:
        say(f"{each.student}: {each.said}")
    say(f"{counted(len(changed), 'change')}; {out / 'grades.csv'} is up to date.")


def late(
    submissions: Submissions,
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The results.")],
    deadline: Annotated[str, typer.Option(help="As 2026-11-20 23:59.")],
    per_day: Annotated[
        float, typer.Option(min=0.0, help="Points that each day costs; one that has begun counts.")
    ] = 10.0,
    free: Annotated[int, typer.Option(min=0, help="Days that cost nothing.")] = 0,
    times: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A sheet of student, time (default: the files' times)."),
    ] = None,
    lab: Annotated[str | None, typer.Option(help="The results of this lab alone.")] = None,
) -> None:
    """Subtract points for late days: rows in RESULTS/adjustments.csv, which all exports follow.

    RESULTS/extensions.csv gives students more time: student, lab (empty: every lab), days, time, reason.
    """
    from .grading import layouts
    from .outputs import adjustments, extensions, late

    try:
        found = load.one_lab(load.results(folder, lab))
        groups = folder / adjustments.GROUPS
        when = late.times_of_sheet(times) if times else late.times_of_files(layouts.submissions(submissions))
        sheets = [(times, [*when])] if times else []
        for (member, _), best in adjustments.givers(found, groups).items():  # a shared result is equally late
            when.pop(member, None)
            when |= {member: when[best.student]} if best.student in when else {}
        shared = adjustments.shared(found, groups)
        rows = late.enter(shared, when, folder, late.moment(deadline), per_day, free)
        sheets.append((folder / extensions.EXTENSIONS, [row.student for row in extensions.read(folder)]))
        unknown = [(sheet, name) for sheet, names in sheets for name in extensions.strangers(names, shared)]
    except load.ResultError as error:
        end(str(error))
    for row in rows:
        say(f"{row.student}: {row.points:g}, {row.reason}")
    for sheet, student in unknown:
        say(f"{sheet}: {student} has no result here; see whether the name is spelt right.")
    say(f"Wrote {counted(len(rows), 'row')} into {folder / 'adjustments.csv'}: read them, and change what you must.")


def attempts(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The results.")],
    student: Annotated[str, typer.Option(help="Only this student.")] = "",
    lab: Annotated[str, typer.Option(help="Only this lab.")] = "",
) -> None:
    """Show every attempt that was graded, and mark with * the one that counts by `grade --count`."""
    from .grading import attempts

    policy, found = attempts.policy_of(folder), attempts.attempts(folder, student, lab)
    of: dict[tuple[str, str], list[attempts.Attempt]] = {}
    for each in found:
        of.setdefault((each.result.student, each.result.lab), []).append(each)
    for tries in of.values():
        counts = attempts.chosen(tries, policy)
        for each in tries:
            result = each.result
            mark = "*" if each is counts else " "
            say(f"{mark} {result.student:16}{result.lab:20}{each.when}  {result.score:g} / {result.max_score:g}")
    say(f"{counted(len(found), 'attempt')}; the {policy} of each student and lab counts.")


def requests(
    sheet: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="student, lab, exercise, reason.")],
    submissions: Submissions,
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The results.")],
) -> None:
    """Answer requests to look at a grade again: write the evidence, RESULTS/requests.md, and RESULTS/requests.csv.

    Fill in `grant` (points to add, or 0) and `answer` in RESULTS/requests.csv, and give that file: its answers become
    rows of adjustments.csv, which all exports follow.
    """
    from .grading import layouts, replay
    from .inside.notebook import UngradableError
    from .outputs import requests
    from .walls.zygote import Zygote

    try:
        with Zygote() as zygote:

            def again(report: Path, notebook: Path, exercise: str) -> Any:
                try:
                    return replay.replay(report, notebook, exercise, zygote)
                except UngradableError as error:
                    raise ValueError(str(error)) from None

            answered = requests.answer(sheet, layouts.submissions(submissions), load.results(folder), folder, again)
    except load.ResultError as error:
        end(str(error))
    for sentence in answered.differ:
        say(sentence)
    written = f"{folder / requests.EVIDENCE} and {folder / requests.SHEET}"
    say(f"Wrote {written}: {counted(answered.open, 'open request')}, {len(answered.rows)} answered.")


def counted(number: int, thing: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {thing}{'s' * (number != 1)}"
