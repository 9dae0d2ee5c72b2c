"""`check("gradient_descent.mse_grad")`: what a notebook calls after each exercise."""

import contextlib
import difflib
import html
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autograder.grading.run import Begun, run_exercise
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession, needs_compiler, warnings_of_cells
from hpcdl import moved
from hpcdl.identity import code_of
from hpcdl.interrupt import whole_imports
from hpcdl.lazy import BACKWARD, COMPILER, import_whole, is_imported, repair_imports
from hpcdl.numerics.rounding.threads import one_thread
from hpcdl.points import Checked, PointsRecord, file_in, solved, unsolved

from . import exercises
from .authoring import Exercise, Lab
from .cells import watched
from .feedback import Feedback, NotChecked
from .results import ExerciseResult

IMPORTING = "The first check in this kernel imports parts of torch: a few seconds …"
SEEDS = seeds(b"notebook", "")  # the same inputs in every run, so that a failure is reproducible
QUIET = 2.0  # seconds without a word
PRINTED = 2000  # shown characters of a student's prints


class UnknownExerciseError(ValueError):
    """There is no exercise or lab of that name; the message has the nearest."""

    def _render_traceback_(self) -> list[str]:  # IPython: one line instead of our frames
        return [str(self)]


class StoppedCheckError(KeyboardInterrupt):
    """The student stopped a check."""

    _render_traceback_ = UnknownExerciseError._render_traceback_


def check(*names: str) -> None:
    """Check the exercise `"slug.exercise"` (or all exercises of the lab `"slug"`) with the functions defined here.

    Shows which checks passed; for a failed one, the call, the result, the expected result and why.
    """
    namespace = sys._getframe(1).f_globals
    with whole_imports():
        found = [exercise for name in names or ("",) for exercise in find(name)]
        line = Line()
        with stoppable(found[0]):
            _prepare({exercise.lab for exercise in found}, namespace, line)
        for exercise in found:
            with stoppable(exercise):
                _show(not_checked(exercise, namespace) or feedback(exercise, namespace, line.tell), line)
            line = Line()


@contextlib.contextmanager
def stoppable(exercise: Exercise) -> Iterator[None]:
    """Check `exercise`; an interruption gives one sentence and leaves no module half imported."""
    before = set(sys.modules)
    try:
        yield
    except KeyboardInterrupt:
        repair_imports(before)
        raise StoppedCheckError(f"You stopped the check of `{exercise.name}`. It can be run again.") from None


def _prepare(labs: set[Lab], namespace: dict, line: "Line") -> None:
    """Import what answers may make torch import, before a time limit starts; it takes seconds, and `line` says so."""
    names = [BACKWARD, *(name for lab in labs for name in lab.slow_modules)]
    names += [COMPILER] * needs_compiler(namespace)
    if not all(map(is_imported, names)):
        line.say(IMPORTING)
        import_whole(*names)


class Line:
    """A line of a notebook's output that says what takes long, until the feedback replaces it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._begin, self._shown = clock, clock(), None

    def tell(self, number: int, of: int, title: str) -> None:
        """Say which check begins; nothing in the first two seconds."""
        if self._clock() - self._begin >= QUIET:
            self.say(f"Check {number} of {of}: {title} …")

    def say(self, text: str) -> None:
        if _shell():
            self.show({"text/plain": text, "text/html": html.escape(text)}, raw=True)

    def show(self, shown: Any, **options: Any) -> None:
        """Display `shown` as this line."""
        from IPython.display import display

        if self._shown is None:
            self._shown = display(shown, display_id=True, **options)
        else:
            self._shown.update(shown, **options)


def _shell() -> Any:
    """Return IPython's shell in a notebook, otherwise None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


cells = watched(_shell()) if _shell() else None
record = PointsRecord(file_in(Path.cwd()) if _shell() else None)  # next to the notebook, in the kernel's folder


def not_checked(exercise: Exercise, namespace: dict) -> NotChecked | None:
    """Say why the kernel's functions differ from the notebook's; None if they agree."""
    if cells is None or namespace is not cells.namespace:
        return None
    reason = next(filter(None, map(cells.outdated, exercise.functions)), "")
    if not reason:
        return None
    record.add(Checked(exercise.id, None))
    _note(exercise, passed=False)
    return NotChecked(exercise.name, reason, total(exercise.lab))


def feedback(exercise: Exercise, namespace: dict, begun: Begun = lambda *_: None) -> Feedback:
    """Check one exercise against the functions in `namespace` and remember its points; tell `begun` each check.

    Torch uses one thread, as in grading: on a busy machine a pool of threads waits for cores, in the answer's time.
    """
    printed, code = _Capped(), code_of(namespace, exercise.functions)
    with contextlib.redirect_stdout(printed), one_thread(), warnings_of_cells():
        exercise.lab.import_slow_modules()
        result = run_exercise(exercise, LocalSession(namespace), SEEDS, hidden=False, begun=begun)
    note = _remember(result, code)
    _note(exercise, result.passed)
    return Feedback(result, total(exercise.lab), printed.getvalue(), note)


def _note(exercise: Exercise, passed: bool) -> None:
    """Tell the cells that build on the exercise, in this kernel, whether all its checks passed."""
    if passed:
        unsolved.pop(exercise.id, None)
        solved.add(exercise.id)
    else:
        unsolved[exercise.id] = exercise.functions
        solved.discard(exercise.id)


def total(lab: Lab) -> str:
    """`Lab total so far: 35 / 100`, from the last check of each exercise, even in an earlier kernel."""
    points = sum(record.points(exercise.id) for exercise in lab.exercises.values())
    return f"Lab total so far: {points:g} / {lab.points:g}"


def find(name: object) -> list[Exercise]:
    """Find the exercises for `slug.exercise`, `slug.function` or `slug`; UnknownExerciseError names the nearest."""
    if not isinstance(name, str):
        raise UnknownExerciseError(_in_quotes(name))
    return [exercise for new in moved.now(name) for exercise in _named(new)]


def _named(name: str) -> list[Exercise]:
    slug, _, rest = name.partition(".")
    if slug in exercises.LABS:
        lab = exercises.load(slug)
        if not rest:
            return list(lab.exercises.values())
        if exercise := lab.find(rest):
            return [exercise]
    raise UnknownExerciseError(_nearest(name, rest))


def _in_quotes(name: object) -> str:
    """Say what to write instead of something that is not text, such as the function itself."""
    function = getattr(name, "__name__", "")
    found = [exercise.id for exercise in _all_exercises() if function in exercise.functions]
    return f'The name of an exercise stands in quotes: check("{found[0] if found else _all_exercises()[0].id}").'


def _nearest(name: str, rest: str) -> str:
    known = [exercise.id for exercise in _all_exercises()]
    if not name:
        return f'Say which exercise, with its lab: check("{known[0]}"). The cell below each exercise has this line.'
    known_as = [exercise.id for exercise in _all_exercises() if name in (exercise.name, *exercise.functions)]
    near = known_as or difflib.get_close_matches(name, [*known, *exercises.LABS], n=3, cutoff=0.5)
    near = near or [known_id for known_id in known if rest and rest in known_id] or list(exercises.LABS)
    return f"There is no exercise {name!r}. Did you mean {' or '.join(map(repr, near))}?"


def _all_exercises() -> list[Exercise]:
    return [exercise for slug in exercises.LABS for exercise in exercises.load(slug).exercises.values()]


def _remember(result: ExerciseResult, code: str) -> str:
    record.add(Checked(result.id, result.points, result.max_points, code=code))
    if (best := record.best(result.id)) > result.points:
        return f"An earlier version of yours had {best:g} points; the one in the notebook counts."
    return ""


def _show(shown: Feedback | NotChecked, line: Line) -> None:
    """Display the feedback instead of what `line` says."""
    if _shell() is None:
        print(repr(shown))
    else:
        line.show(shown, metadata={"hpcdl": shown.about()})


class _Capped(io.StringIO):
    """Keeps the first characters that are written to it and drops the rest."""

    def write(self, text: str) -> int:
        room = PRINTED - self.tell()
        if room > 0:
            super().write(text[:room] + ("\n…" if len(text) > room else ""))
        return len(text)
