"""Small changes of a reference solution, one at a time: automatically generated wrong answers.

`mutants(slug)` changes every place between the marks of every solution by every operator of `mutations` that applies. A
mutant that survives the checks (`grading.mutation`) needs a better check, or an entry in
`exercises/SLUG/equivalent.json` with the reason why it is equivalent.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autograder import exercises

from . import build
from .mutations import OPERATORS, ORDER_FREE, name_of


class Mutant(NamedTuple):
    """An answer to `exercise` with one changed statement: `change` is "before  ->  after"."""

    exercise: str
    operator: str
    change: str
    code: str


def solution_lines(text: str) -> set[int]:
    """Return the lines between the marks, counted from 1."""
    inside, found = False, set()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() in (build.BEGIN, build.END):
            inside = line.strip() == build.BEGIN
        elif inside:
            found.add(number)
    return found


def places(node: ast.AST, lines: set[int], statement: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield every node of the solution, as (parent, field, index, statement)."""
    for name, value in ast.iter_fields(node):
        for i, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST):
                continue
            at = child if isinstance(child, ast.stmt) else statement
            if getattr(at, "lineno", 0) in lines:
                yield node, name, i, at
            yield from places(child, lines, at)


def mark_what_does_not_matter(tree: ast.AST) -> None:
    """Mark loops inside a sum, a maximum and so on, which do not depend on the order, and `strict` of zip."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and name_of(call.func) in ORDER_FREE:
            for inner in (part for arg in call.args for part in getattr(arg, "generators", ())):
                inner.order_free = True
        if isinstance(call, ast.keyword) and call.arg == "strict":
            call.value.only_guards = True  # type: ignore[attr-defined]


def mark_what_others_hold(tree: ast.AST) -> None:
    """Mark x += y where x is a parameter or runs over a list: others hold that x, too."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        held = {arg.arg for arg in function.args.args}
        loops = [node.target for node in ast.walk(function) if isinstance(node, ast.For)]
        held |= {name.id for target in loops for name in ast.walk(target) if isinstance(name, ast.Name)}
        for node in ast.walk(function):
            if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") in held:
                node.held = True  # type: ignore[attr-defined]


def mutants_of(exercise: str, text: str) -> Iterator[Mutant]:
    """Return all mutants of one marked solution, one for each change."""
    tree, seen = ast.parse(text), set()
    mark_what_does_not_matter(tree)
    mark_what_others_hold(tree)
    original = ast.unparse(tree)
    for parent, name, i, statement in places(tree, solution_lines(text), tree):
        node = getattr(parent, name) if i is None else getattr(parent, name)[i]
        for kind, change in OPERATORS.items():
            for variant in change(node):
                before = headline(statement)
                replace(parent, name, i, variant)
                code, after = (
                    ast.unparse(ast.fix_missing_locations(tree)),
                    headline(variant if node is statement else statement),
                )
                restore(parent, name, i, variant, node)
                if code != original and code not in seen:
                    seen.add(code)
                    yield Mutant(exercise, kind, f"{before}  ->  {after}", code)


def replace(parent: Any, name: str, i: int | None, variant: Any) -> None:
    if i is None:
        setattr(parent, name, variant)
    else:
        getattr(parent, name)[i : i + 1] = variant if isinstance(variant, list) else [variant]


def restore(parent: Any, name: str, i: int | None, variant: Any, node: ast.AST) -> None:
    if i is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[i : i + (len(variant) if isinstance(variant, list) else 1)] = [node]


def headline(node: Any) -> str:
    """Return a statement without its indented block."""
    if isinstance(node, list):
        return "; ".join(map(headline, node))
    return ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]


def mutants(slug: str) -> list[Mutant]:
    """Return all mutants of a lab's solutions, in the order of its exercises; none for a line-up, where many inputs are
    right."""
    solutions = {name: text for name, text in build.marked(slug).items() if not name.startswith("unmask_")}
    return [mutant for name, text in solutions.items() for mutant in mutants_of(name, text)]


def equivalent(slug: str) -> dict[str, dict[str, str]]:
    """Return, by exercise and change, the reason why a mutant is equivalent."""
    path = Path(exercises.__file__).parent / slug / "equivalent.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
