"""Declare a lab's exercises, their checks and the wrong answers they must catch.

    # exercises/gradient_descent/mse_grad.py: one exercise, its checks, its oracles
    exercise = Exercise("mse_grad", points=10, minutes=8, functions=("mse_loss", "mse_grad"))

    @exercise.check(points=5)
    def mean_not_sum(student, rng):
        "The loss is the mean of the squared errors."
        ...                       # call student.mse_loss(...), compare with autograder.checks

    # exercises/gradient_descent/__init__.py: the lab, its exercises in order
    lab = Lab("gradient_descent", number=2, title="...", exercises=(descent.exercise, mse_grad.exercise))

A lab of one file declares each with `lab.exercise("mse_grad", points=10, minutes=8)`.

A check receives `student`, whose attributes are the student's functions and classes, and `rng`, a
`torch.Generator` seeded for this student and this check. It returns nothing; it raises `CheckFailure`
(through `autograder.checks`) when the answer is wrong. Its docstring is the title that students see.
"""

import ast
import copy
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypedDict

from autograder.inside import families
from hpcdl.lazy import import_whole


@dataclass(frozen=True)
class Check:
    """One question to the student's code, with the points it is worth."""

    name: str
    function: Callable
    points: float
    needs: tuple[str, ...] = ()  # names of checks of this exercise that must pass first
    hidden: bool = False  # runs only in grading; reports a category and a hint, not its inputs
    seconds: float = 5.0  # time limit for the whole check

    @property
    def title(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or self.name.replace("_", " ")).splitlines()[0]


class Rules(TypedDict):
    """Options that exercises share: `Exercise(..., **rules)`."""

    forbid: tuple[str, ...]
    instead: str


@dataclass
class Exercise:
    """A few lines to write: one or more functions, graded by checks whose points sum to `points`.

    `functions` are the names that the student defines (default: just `name`). `forbid` names calls that an answer must
    not make, such as `("aten::convolution", "scipy.signal")`; the sentence `instead` says what to do instead. Answers
    may not call hpcdl, except what the reference solution uses and what the text `offers`. `uses` names earlier
    exercises whose functions an answer calls: if those are wrong, this one is graded with the reference's functions.
    `given` names functions that the notebook provides and the checks call: grading uses the lab's own, even if the
    notebook changed them. `meanings` explains errors of Python or torch in common wrong answers, by words in their
    message, and after " … " in the line that raised it. Raises TypeError if `forbid`, `offers` or `uses` is one string.
    """

    name: str
    points: float
    minutes: int
    functions: tuple[str, ...] = ()
    extra: bool = False  # optional: not part of the lab's core
    forbid: tuple[str, ...] = ()  # see `inside.forbidden`
    instead: str = ""
    offers: tuple[str, ...] = ()  # names in hpcdl, such as "hpcdl.collectives.reduce.reduce"
    uses: tuple[str, ...] = ()  # see `grading.follow`
    given: tuple[str, ...] = ()
    meanings: dict[str, str] = field(default_factory=dict)  # words of an error -> what it means here, and what to do
    lab: "Lab" = field(init=False, repr=False, compare=False)  # set by its lab
    checks: dict[str, Check] = field(default_factory=dict, init=False)

    def __post_init__(self):
        for option, given in {"forbid": self.forbid, "offers": self.offers, "uses": self.uses}.items():
            if isinstance(given, str):
                raise TypeError(f"{self.name}: {option} is {given!r}, not a tuple: write {option}=({given!r},)")
        self.functions = tuple(self.functions) or (self.name,)
        self.forbid, self.offers, self.uses = tuple(self.forbid), tuple(self.offers), tuple(self.uses)

    @property
    def id(self) -> str:
        return f"{self.lab.slug}.{self.name}"

    @property
    def opened(self) -> tuple[str, ...]:
        """Return the names in hpcdl that an answer may call: the ones its text offers, and the ones the reference
        uses."""
        return (*self.offers, *self.lab.used_by_reference.get(self.name, ()))

    @property
    def closed(self) -> tuple[str, ...]:
        """Return what an answer may not call: `forbid`, and the families that no right answer uses, by its row."""
        row = families_opened().get(self.id)
        return self.forbid if row is None else (*self.forbid, *families.closed([*row, *self.offers]))

    def meaning(self, message: str, line: str = "") -> str:
        """Return what an error that a line of the answer raised means in this exercise; empty if unknown."""
        for words, sentence in self.meanings.items():
            said, *written = words.split(" … ")
            if said in message and all(part in line for part in written):
                return sentence
        return ""

    def check(self, *, points: float, needs: str | tuple[str, ...] = (), hidden: bool = False, seconds: float = 5.0):
        """Register the decorated function as a check of this exercise."""

        def register(function):
            name = function.__name__
            needed = (needs,) if isinstance(needs, str) else tuple(needs)
            if name in self.checks:
                raise ValueError(f"{self.name}: check {name!r} is defined twice; give each check its own name")
            for other in needed:
                if other not in self.checks:
                    raise ValueError(f"{self.name}: check {name!r} needs {other!r}, which is not defined before it")
            self.checks[name] = Check(name, function, points, needed, hidden, seconds)
            return function

        return register


@cache
def families_opened() -> dict[str, list[str]]:
    """Return, by exercise of the course, the families that its right answers use: see `grading.families`."""
    return json.loads((Path(__file__).parent / "exercises" / "families.json").read_text(encoding="utf-8"))


class Lab:
    """A lab: its slug (the identity), its number and its exercises in order.

    Without a number, `exercises.load` sets it to the lab's place in `exercises.LABS`.

    `slow_modules` are modules that are slow to import and that many answers need: workers have them preloaded.
    """

    def __init__(
        self,
        slug: str,
        *,
        title: str,
        number: int | None = None,
        exercises: Iterable[Exercise] = (),
        slow_modules: tuple[str, ...] = (),
    ):
        self.slug, self.number, self.title, self.slow_modules = slug, number, title, slow_modules
        self.exercises: dict[str, Exercise] = {}
        for exercise in exercises:
            self.add(exercise)

    @property
    def points(self) -> float:
        return sum(exercise.points for exercise in self.exercises.values())

    @cached_property
    def used_by_reference(self) -> dict[str, list[str]]:
        """Return, by exercise, the names in hpcdl that its reference solution uses: see `authors.allowed`."""
        path = Path(__file__).parent / "exercises" / self.slug / "allowed.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    @property
    def opened(self) -> tuple[str, ...]:
        """Return the names in hpcdl that any exercise's answer may call."""
        return tuple(dict.fromkeys(name for exercise in self.exercises.values() for name in exercise.opened))

    @property
    def closed(self) -> tuple[tuple[str, ...], ...]:
        """Return what answers may not call, once for all exercises that close the same."""
        return tuple(dict.fromkeys(exercise.closed for exercise in self.exercises.values()))

    @property
    def functions(self) -> list[str]:
        """Return the names that a submission of the lab defines."""
        return [name for exercise in self.exercises.values() for name in exercise.functions]

    def with_limits(self, times: float) -> "Lab":
        """Return the lab with the time limits of its checks multiplied by `times`."""
        if times == 1:
            return self
        lab = copy.copy(self)
        lab.exercises = {name: copy.copy(exercise) for name, exercise in self.exercises.items()}
        for exercise in lab.exercises.values():
            exercise.lab = lab
            exercise.checks = {
                name: replace(check, seconds=times * check.seconds) for name, check in exercise.checks.items()
            }
        return lab

    def import_slow_modules(self) -> None:
        """Import slow modules that answers need, before a check's time limit starts, which could stop an import
        halfway."""
        import_whole(*self.slow_modules)

    def add(self, exercise: Exercise) -> Exercise:
        """Append `exercise` to the lab; raise ValueError if its name is taken, or if it `uses` something that does not
        come before."""
        name = exercise.name
        if name in self.exercises:
            raise ValueError(f"{self.slug}: exercise {name!r} is declared twice; give each exercise its own name")
        for other in exercise.uses:
            if other not in self.exercises:
                raise ValueError(f"{self.slug}.{name}: uses {other!r}, which is no exercise before it")
        exercise.lab = self
        self.exercises[name] = exercise
        return exercise

    def exercise(self, name: str, *, points: float, minutes: int, **options: Any) -> Exercise:
        """Declare the next exercise of a lab in one file; `options` are passed to `Exercise`."""
        return self.add(Exercise(name, points, minutes, **options))

    def find(self, name: str) -> Exercise | None:
        """Return the exercise of that name, or the one that defines a function of that name."""
        if name in self.exercises:
            return self.exercises[name]
        return next((e for e in self.exercises.values() if name in e.functions), None)


@dataclass(frozen=True)
class WrongAnswer:
    """A plausible mistake: the code, the checks it must fail, and words that its message must contain."""

    exercise: str  # "slug.name"
    mistake: str  # what the student got wrong, in a few words
    # The checks that must not pass (failed or skipped); all others must. "exercise.check" is another exercise's check.
    fails: tuple[str, ...]
    says: str  # a phrase the feedback must contain: it names the mistake
    source: str  # replaces the reference's definition of the same function
    causes: int = 1  # how many mistakes the feedback of an exercise may name: one cause is told once


BANK: list[WrongAnswer] = []


def _source(definition) -> str:
    """Return the text of a function or class without its decorators. `inspect.getsource` finds a class only by its
    name, and a bank has many classes of one name, so a class is found by the line of its first method."""
    is_class = isinstance(definition, type)
    methods = [getattr(value, "__func__", value) for value in vars(definition).values()]  # also static ones
    functions = filter(inspect.isfunction, methods) if is_class else [definition]
    line = next(iter(functions)).__code__.co_firstlineno
    lines, _ = inspect.findsource(sys.modules[definition.__module__])
    node = next(node for node in _definitions("".join(lines)) if _first_line(node) <= line <= node.end_lineno)
    return "".join(lines[node.lineno - 1 : node.end_lineno])


@cache
def _definitions(text: str) -> list[Any]:
    """Return the functions and classes of a module; a bank asks once for each of its answers."""
    return [node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def _first_line(node) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def wrong(exercise: str, mistake: str, *, fails: str | tuple[str, ...], says: str, causes: int = 1):
    """Put the decorated function (or class) into the bank as a wrong answer to `exercise` ("slug.name")."""

    def register(definition):
        code = _source(definition)
        failing = (fails,) if isinstance(fails, str) else tuple(fails)
        BANK.append(WrongAnswer(exercise, mistake, failing, says, code, causes))
        return definition

    return register
