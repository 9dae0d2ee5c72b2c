"""Lazy answers to every exercise, generated from the reference's signatures: none may earn a point.

A lazy answer does no work: it returns a constant, an argument, zeros of an argument's shape; its class accepts
everything and does nothing. A check that such an answer passes has an upper bound without a lower one, or does not
require real work. Nor may a check fail with an error of its own, whatever an answer returns.

    for answer in answers("frameworks"):
        print(answer.exercise, answer.kind, answer.code)     # plan  returns {}  def plan(*args, **kwargs): ...
"""

import ast
import random
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from autograder import exercises
from autograder.authors import build
from autograder.inside import magics, source
from autograder.results import ExerciseResult
from autograder.sessions.local import LocalSession

from .run import run_exercise
from .seeds import seeds

OWN_DATA = "works on its own data alone"
WORK_ON_OWN_DATA = {  # exercises in which part of the work is on a rank's own data: that part earns its points
    "ring_attention": "stripes deals positions, without a communicator",
    "loss_scaler": "the rules of the scale are those of one process",
    "gossip": "the matrix and the number of rounds are of the graph",
    "step": "the loss is that of the rank's own samples",
    "adam": "a gradient from its factors, and the bytes of both, are computed without a communicator",
}
MOST = 5  # arguments that are echoed
CONSTANTS: tuple[str, ...] = (
    "None",
    "{}",
    "[]",
    "()",
    "''",
    "set()",
    "0",
    "0.0",
    "1",
    "True",
    "False",
    "-1",
    "float('nan')",
)
CONSTANTS += ("1j", "10 ** 400", "'word'", "[None, None]", "{0: None}", "object()", "(item for item in [None])")
TENSORS: tuple[str, ...] = ("torch.zeros(())", "torch.zeros(0)", "torch.ones(1)", "torch.zeros(2, 3, 4)")
TENSORS += ("torch.full((2, 2), torch.nan)",)
TENSORS += tuple(f"torch.ones(3).to(torch.{dtype})" for dtype in ("int64", "bool", "complex64", "float8_e4m3fn"))
LIKE = '''
import torch


def _like(value, fill):
    """`value` with every tensor and number in it replaced by what `fill` makes of it."""
    if isinstance(value, (list, tuple)):
        return type(value)(_like(item, fill) for item in value)
    if isinstance(value, dict):
        return {key: _like(item, fill) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        return fill(value.detach())
    return fill(torch.tensor(value)).item() if isinstance(value, (int, float)) else value


def _echo(args, i):
    return args[i] if i < len(args) else None
'''
FILLS = {"zeros": "torch.zeros_like", "ones": "torch.ones_like", "a copy": "torch.clone"}


def problems(slug: str, sample: int = 0) -> list[str]:
    """Return what lazy answers earn in a lab, and the checks that they break, each with some of the answers."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for answer, result in graded(slug, sample):
        passed = [check.name for check in result.checks if check.passed]
        found = [f"{check.name} fails with an error of its own" for check in result.checks if check.kind == "check"]
        if passed and not (answer.kind == OWN_DATA and answer.exercise in WORK_ON_OWN_DATA):
            found.append(f"{', '.join(passed)} should not pass, and does")
        for what in found:
            kinds.setdefault((answer.exercise, what), []).append(answer.kind)
    return [
        f"{slug}.{exercise}: {what} for an answer that {'; '.join(some[:3])}"
        + f" (and {len(some) - 3} others)" * (len(some) > 3)
        for (exercise, what), some in kinds.items()
    ]


class LazyAnswer(NamedTuple):
    """An answer to `exercise` that does no work; `kind` describes what it does instead."""

    exercise: str
    kind: str
    code: str


def answers(slug: str) -> list[LazyAnswer]:
    """Yield all lazy answers to a lab, in the order of its exercises."""
    references, lab = build.references(slug), exercises.load(slug)
    return [
        LazyAnswer(name, kind, code)
        for name, exercise in lab.exercises.items()
        for kind, code in answers_to(references[name], exercise.functions)
    ]


def answers_to(reference: str, functions: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each kind of lazy answer to `functions`, defined in the text `reference`, with its code, without
    duplicates."""
    wanted = [node for node in ast.parse(reference).body if getattr(node, "name", "") in functions]
    seen = set()
    if any("comm" in names(node) for node in wanted):
        yield OWN_DATA, alone(reference, wanted)
    for kind, value in values(wanted):
        for style in class_styles(wanted):
            parts = [definition(node, value, style) for node in wanted]
            code = "\n\n".join([LIKE, *parts])
            if code not in seen:
                seen.add(code)
                yield f"{kind}{style and f', {style}'}", code


ALONE = '''

class _Alone:
    """A communicator that says its rank is the only one."""

    rank, size = 0, 1

    def __getattr__(self, name):
        return lambda *args, **kwargs: None

    def compute(self, seconds):
        self.real.compute(seconds)


def _without_others(args):
    made = []
    for arg in args:
        if hasattr(arg, "rank") and hasattr(arg, "size") and hasattr(arg, "send"):
            alone = _Alone()
            alone.real, arg = arg, alone
        made.append(arg)
    return made


def _on_own_data(function):
    return lambda *args, **kwargs: function(*_without_others(args), **kwargs)

'''


def alone(reference: str, wanted: list) -> str:
    """Return the reference's answer, changed so that every rank thinks it is the only one."""
    return "\n".join([reference, ALONE, *(f"{node.name} = _on_own_data({node.name})" for node in wanted)])


def names(node: Any) -> set[str]:
    """Return the names of all arguments of a function, or of a class's methods."""
    functions = [node] if isinstance(node, ast.FunctionDef) else methods(node)
    return {argument.arg for function in functions for argument in function.args.args}


def values(nodes: list) -> Iterator[tuple[str, str]]:
    """Yield what a lazy function returns, in words and as an expression of its `args`."""
    yield from ((f"returns {value}", value) for value in (*CONSTANTS, *TENSORS))
    widths = {n for node in nodes for n in tuple_widths(node)}
    for i in range(min(MOST, max(map(arity, nodes)))):
        yield f"returns argument {i}", f"_echo(args, {i})"
        for name, fill in FILLS.items():
            like = f"_like(_echo(args, {i}), {fill})"
            yield f"returns {name} like argument {i}", like
            yield from ((f"returns {n} times {name} like argument {i}", f"({f'{like}, ' * n})") for n in widths)
        yield f"returns an empty list for each of argument {i}", f"[[] for _ in _echo(args, {i})]"
        yield f"returns 0 for each of argument {i}", f"[0 for _ in _echo(args, {i})]"
        yield f"returns a list of argument {i} empty lists", f"[[] for _ in range(_echo(args, {i}))]"
        yield f"returns the numbers below argument {i}", f"list(range(_echo(args, {i})))"
    yield "returns all arguments", "args"
    for n in widths:
        yield f"returns the first {n} arguments", f"args[:{n}]"
        yield f"returns {n} zeros", f"(0,) * {n}"
        yield f"returns {n} zeros as floats", f"(0.0,) * {n}"


def arity(node: Any) -> int:
    """Return the number of arguments of a function, or the largest number of a class's methods."""
    functions = [node] if isinstance(node, ast.FunctionDef) else methods(node)
    return max((len(function.args.args) for function in functions), default=0)


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]


def tuple_widths(node: Any) -> set[int]:
    """Return the lengths of tuples that a definition returns, from its annotation and its `return` statements."""
    returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
    found = {len(value.elts) for value in returned if isinstance(value, ast.Tuple)}
    annotation = getattr(node, "returns", None)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "tuple":
        found |= {len(annotation.slice.elts)} if isinstance(annotation.slice, ast.Tuple) else set()
    return found


def class_styles(nodes: list) -> tuple[str, ...]:
    """Yield the ways in which a lazy class stores its arguments; a function has only one."""
    if not any(isinstance(node, ast.ClassDef) for node in nodes):
        return ("",)
    return ("its class is empty", "its class keeps its arguments", "its class calls what it is given")


def definition(node: Any, value: str, style: str) -> str:
    """Return the text of a lazy function or class to replace `node`."""
    if isinstance(node, ast.FunctionDef):
        return f"def {node.name}(*args, **kwargs):\n    args += tuple(kwargs.values())\n    return {value}\n"
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    if style == "its class is empty":
        return f"class {node.name}{bases}:\n    pass\n"
    return "\n".join([f"class {node.name}{bases}:", *(method(inner, value, style) for inner in methods(node))])


def method(node: ast.FunctionDef, value: str, style: str) -> str:
    """Return the text of a lazy method to replace `node`."""
    decorators = "".join(f"    @{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
    given_names = [argument.arg for argument in node.args.args[1:]]
    if node.name == "__init__":
        kept = "".join(f"\n        self.{name} = {name}" for name in given_names)
        every = "".join(f"{name}, " for name in given_names)
        return f"    def __init__({ast.unparse(node.args)}):\n        self.args = ({every}){kept}\n"
    if node.name == "__repr__":
        return "    def __repr__(self):\n        return ''\n"
    body = f"return {value}"
    if style == "its class calls what it is given" and node.name in ("__call__", "forward"):
        body = "return self.args[0](*args, **kwargs)"
    given = "*args" if decorators else "self, *args"
    return (
        f"{decorators}    def {node.name}({given}, **kwargs):\n        args += tuple(kwargs.values())\n        {body}\n"
    )


# -- what they earn


def graded(slug: str, sample: int = 0, seed: int = 0) -> Iterator[tuple[LazyAnswer, ExerciseResult]]:
    """Yield lazy answers with their results: a `sample` for each exercise, or (0) all."""
    lab, namespace = exercises.load(slug), solved(slug)
    for answer in chosen(answers(slug), sample, seed):
        before = dict(namespace)
        try:
            exec(compile(answer.code, "lazy answer", "exec"), namespace)
            with warnings.catch_warnings(action="ignore"):  # torch warns about what lazy answers do to tensors
                result = run_exercise(lab.exercises[answer.exercise], LocalSession(namespace), seeds(b"lazy", slug))
        finally:
            namespace.update(before)
        yield answer, result


def solved(slug: str) -> dict[str, Any]:
    """Return the names in the lab's notebook with its solutions."""
    namespace: dict[str, Any] = {}
    cells = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]
    for label, code in source.needed(cells, exercises.load(slug).functions)[0]:
        exec(compile(code, label, "exec"), namespace)
    return namespace


def chosen(every: Iterable[LazyAnswer], sample: int, seed: int) -> list[LazyAnswer]:
    """Return a `sample` of each exercise's lazy answers, or all of them for 0."""
    by_exercise: dict[str, list[LazyAnswer]] = {}
    for answer in every:
        by_exercise.setdefault(answer.exercise, []).append(answer)
    draw = random.Random(seed)
    picked = (draw.sample(some, min(sample or len(some), len(some))) for some in by_exercise.values())
    return [answer for some in picked for answer in some]
