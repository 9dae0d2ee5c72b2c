"""Run a lab's checks on a student's code. Every check of the lab gets a verdict, and it is made here."""

import traceback
from collections.abc import Callable

import torch

from autograder.authoring import Check, Exercise, Lab
from autograder.boundary.protocol import ProtocolError, UnsendableError
from autograder.checks import ArgumentChanged, CheckFailure
from autograder.inside.location import without_paths
from autograder.results import CheckResult, ExerciseResult
from autograder.sessions.ended import CHANNEL, TAPPED
from autograder.sessions.errors import StudentError
from autograder.sessions.session import Session

from .meanings import in_general
from .seeds import Seeds

GRACE = 0.2  # after a time-out, this share of the limit remains for all other checks of the exercise together
LEAST_GRACE = 0.25  # seconds

INSTEAD = "The library is closed to your code here: write it yourself, with what the notebook gives you for it."

ASLEEP = "Nearly all of this time it did not compute: it waited, as in `time.sleep`. Leave the waiting out."
TEXTS = ("message", "got", "expected", "where", "why", "mistake", "call", "source", "via", "function")
CHANGED = "Your function changes its arguments, which are the caller's: work on copies, or make new values."
UNFINISHED = "A message may not be complete: call wait() on each request of isend and irecv before you use its tensor."
OVERLAPPING = "A message arrives in memory that another one still uses: receive each into a tensor of its own."
LONGEST = 4000  # characters of each, to limit a report's size
MOST_FORBIDDEN = 20  # reported calls per exercise

Limit = Callable[[Exercise, Check], float]  # how many seconds a check may take
Begun = Callable[[int, int, str], None]  # is told each check that begins: its number, of how many, its title


def full(exercise: Exercise, check: Check) -> float:
    return check.seconds


def run_lab(lab: Lab, session: Session, seed_of: Seeds, later: Limit = full) -> list[ExerciseResult]:
    """Return the results of all exercises of `lab`; `later` are the limits after an exercise that timed out."""
    results: list[ExerciseResult] = []
    limit: Limit = full
    for exercise in lab.exercises.values():
        results.append(run_exercise(exercise, session, seed_of, limit))
        limit = later if results[-1].ran_out else limit
    return results


def run_exercise(
    exercise: Exercise,
    session: Session,
    seed_of: Seeds,
    limit: Limit = full,
    *,
    hidden: bool = True,
    begun: Begun = lambda *_: None,
) -> ExerciseResult:
    """Return the results of an exercise's checks, in order; `hidden=False` skips hidden checks, as in a notebook."""
    result = ExerciseResult(exercise.id, exercise.name, exercise.points)
    try:
        session.forbid(exercise.closed, exercise.opened)
        result.checks = _run_checks(exercise, result, session, seed_of, limit, hidden, begun)
    finally:
        session.forbid()
    return result


def _run_checks(
    exercise, result, session: Session, seed_of: Seeds, limit: Limit, hidden: bool, begun: Begun
) -> list[CheckResult]:
    verdicts: dict[str, CheckResult] = {}
    late, grace = None, 0.0
    asked = [check for check in exercise.checks.values() if hidden or not check.hidden]
    for number, check in enumerate(asked, start=1):
        verdict = _blank(exercise, check, seed_of)
        verdicts[check.name] = verdict
        reason = _waits(check, verdicts)
        if late and grace <= 0:
            reason = reason or f"Not run, since “{late.title}” ran out of time."
        if reason:
            verdict.status, verdict.message = "skipped", reason
            continue
        seconds = min(grace, limit(exercise, check)) if late else limit(exercise, check)
        begun(number, len(asked), check.title)
        run_check(check, verdict, session, seconds)
        if verdict.kind == "exception":
            verdict.mistake = exercise.meaning(verdict.message, verdict.source)
            verdict.why = verdict.why or ("" if verdict.mistake else in_general(verdict.message))
        if verdict.kind == "forbidden":
            _record(exercise, verdict, session, result)
        if verdict.kind == "timeout" and seconds < check.seconds:
            verdict.why = _shorter(check.seconds, late)
        if late:
            grace -= session.spent()
        elif verdict.kind == "timeout":
            late, grace = verdict, max(GRACE * seconds, LEAST_GRACE)
    return list(verdicts.values())


def _waits(check: Check, verdicts: dict[str, CheckResult]) -> str:
    """Say why a check is not run: one that it needs has not passed."""
    missing = next((verdicts[name] for name in check.needs if name in verdicts and not verdicts[name].passed), None)
    return f"Waits for “{missing.title}”." if missing else ""


def _shorter(seconds: float, late: CheckResult | None) -> str:
    """Say why a check had less than its `seconds`, and what to do."""
    if late:
        return f"“{late.title}” ran out of time before, so the other checks had little of it. Mend that one first."
    return (
        f"An earlier exercise ran out of time, so this check had less than its {seconds:g} s, though many times what "
        "the reference takes. Mend the earlier exercise first; then this one has its full time."
    )


def _record(exercise: Exercise, verdict: CheckResult, session: Session, result: ExerciseResult) -> None:
    """Say what to do instead of forbidden calls, and record the calls that were made."""
    verdict.why = "" if verdict.message == TAPPED else exercise.instead or INSTEAD
    for call in map(called, session.denied):
        if call not in result.forbidden and len(result.forbidden) < MOST_FORBIDDEN:
            result.forbidden.append(call)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def called(made: StudentError) -> str:
    """Describe a forbidden call, and where it was made."""
    return f"{made.text} in line {made.line} of {made.function}: {made.source}" if made.line else made.text


def _blank(exercise: Exercise, check: Check, seed_of: Seeds) -> CheckResult:
    return CheckResult(
        check.name, check.title, check.points, hidden=check.hidden, seed=seed_of(f"{exercise.id}.{check.name}")
    )


def run_check(check: Check, verdict: CheckResult, session: Session, seconds: float) -> None:
    """Run one check and write the outcome into `verdict`."""
    try:
        _ask(check, verdict.seed, session, seconds)
        verdict.status = "passed"
    except CheckFailure as failure:
        verdict.kind = "values"
        for name in ("message", "got", "expected", "where", "why", "mistake", "share"):
            setattr(verdict, name, getattr(failure, name))
    except StudentError as error:
        _explain(verdict, error, session)
    except (ProtocolError, UnsendableError) as error:
        verdict.kind, verdict.message = "unsendable", f"What your code returned cannot be checked: {error}."
    except Exception as error:  # usually the check did not notice a value of the wrong type
        verdict.kind = "check"
        verdict.message = (
            f"The check could not work with what your code returned ({type(error).__name__}: {_told(error)})."
        )
        verdict.detail = traceback.format_exc()
    verdict.seconds = round(session.spent(), 4)
    if not verdict.passed:
        verdict.call = session.last_call()
        for name in TEXTS:
            setattr(verdict, name, shortened(str(getattr(verdict, name))))


def _told(error: Exception) -> str:
    return without_paths(str(error)[:2000])[:500]


def _ask(check: Check, seed: int, session: Session, seconds: float) -> None:
    """Run the check; if code passes but changed its arguments, it must also pass with copies.

    A check may compute its expected value after the call. Code that sets all inputs to zero would then agree with it.
    """
    for protected in (False, True):
        session.start_check(seconds, protected=protected)
        try:
            with torch.enable_grad():
                check.function(session.student, torch.Generator().manual_seed(seed))
        except CheckFailure as failure:
            if protected:
                failure.mistake = "Your function changes its arguments, and is right only about the changed ones."
            else:
                careless = session.careless
                if _is_unexplained(failure, session) and _passes_with_copies(check, seed, session, seconds):
                    failure.mistake = CHANGED
                _name_careless(failure, careless)
            raise
        finally:
            if session.denied:
                raise session.denied[0]  # even if the code caught the error
        if not session.touched:
            return


def _name_careless(failure: CheckFailure, careless: list[str]) -> None:
    """Say where no cause is named that a message of the check's last run was used before it was complete."""
    if careless and not failure.mistake and careless[0] not in failure.message:
        failure.mistake = OVERLAPPING if "begins in memory" in careless[0] else UNFINISHED
        failure.why = " ".join(filter(None, [f"{careless[0][:1].upper()}{careless[0][1:]}.", failure.why]))


def _passes_with_copies(check: Check, seed: int, session: Session, seconds: float) -> bool:
    """Return whether the check fails only because the code changes its arguments, which the check uses again."""
    with session.aside():
        session.start_check(seconds, protected=True)
        try:
            with torch.enable_grad():
                check.function(session.student, torch.Generator().manual_seed(seed))
        except Exception:
            return False
    return True


def _is_unexplained(failure: CheckFailure, session: Session) -> bool:
    """Return whether changed arguments may be the cause, and no sentence says so."""
    return session.touched and not failure.mistake and not isinstance(failure, ArgumentChanged)


def _explain(verdict: CheckResult, error: StudentError, session: Session) -> None:
    """Put a student's problem into words."""
    verdict.kind = error.kind
    verdict.function, verdict.line, verdict.source = error.function, error.line, error.source
    verdict.via = error.via
    if error.kind == "not_done":
        verdict.status = "not_done"
        verdict.message = f"`{error.function}` is not done yet: write it where it says `raise NotImplementedError`."
    elif error.kind == "undefined":
        verdict.status = "not_done"
        verdict.message = f"{error.text} {session.undefined}"
    elif error.kind == "exception":
        verdict.message = (
            f"Your code raised {error.named}: {error.text}" if error.text else f"Your code raised {error.named}."
        )
        if error.type == "MemoryError":
            verdict.message = "Your code used more memory than it may."
    elif error.text == CHANNEL:
        verdict.message = TAPPED
    elif error.kind == "forbidden":
        verdict.message = f"Your code calls `{error.text}`, which this exercise forbids{_behind(error.text)}."
    elif error.kind == "exit":
        verdict.message = "Your code ended the program (sys.exit or exit()). A function should return a value."
    elif error.kind == "unsendable":
        verdict.message = f"What your code returned cannot be checked: {error.text}."
    else:
        verdict.message = error.text
    verdict.undisturbed = error.undisturbed
    if error.kind == "timeout" and error.asleep:
        verdict.asleep, verdict.why = True, ASLEEP


def _behind(name: str) -> str:
    return ": it is what torch's function in that line comes to" if "::" in name else ""
