"""No check counts the items of a list in a loop over that list: an answer may have many (`checks.duplicates`)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import autograder

ROOT = Path(autograder.__file__).parent
LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def looped(node: ast.AST) -> set[str]:
    """Return what the iterables of a loop name."""
    iterables = [node.iter] if isinstance(node, ast.For) else [each.iter for each in getattr(node, "generators", [])]
    return set().union(*map(names, iterables))


def counts(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each `xs.count` below a node, called or passed."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr == "count" and isinstance(part.value, ast.Name):
            yield part


def faults(source: str) -> list[str]:
    """Return what is counted in a loop over itself, or is passed with its own `count` as a key."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, LOOPS):
            over, inside = looped(node), list(counts(node))
        elif isinstance(node, ast.Call):
            over, inside = set().union(*map(names, node.args)), [c for key in node.keywords for c in counts(key)]
        else:
            continue
        found += [f"line {part.lineno}: {ast.unparse(part)}" for part in inside if names(part.value) & over]
    return found


def test_no_list_is_counted_in_a_loop_over_it():
    paths = [path for room in ("exercises", "checks") for path in sorted((ROOT / room).rglob("*.py"))]
    assert {str(path): found for path in paths if (found := faults(path.read_text(encoding="utf-8")))} == {}


def test_a_count_in_a_loop_is_found():
    assert faults("x = [i for i in set(seen) if seen.count(i) > 1]") == ["line 1: seen.count"]
    assert faults("for op in order:\n    n = order.count(op)") == ["line 2: order.count"]
    assert faults("name = max(names, key=names.count)") == ["line 1: names.count"]
    assert faults("for i in range(n):\n    seen.count(i)") == []
