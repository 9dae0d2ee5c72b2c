"""What docstrings, comments and pages mention exists: modules and their names, and files.

Type checkers read no text, so a name that is renamed stays in it.
"""

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hpcdl", "autograder", "benchmarks")
ROOMS = "boundary|inside|walls|checks|sessions|exercises|authors|bank|grading|shards|outputs"  # of autograder
DOTTED = re.compile(rf"`((?:hpcdl|autograder|benchmarks|{ROOMS})(?:\.\w+)+)")  # `hpcdl.conv.Problem`, `inside.source`
FILE = re.compile(
    r"(?<![\w/.~-])((?:hpcdl|autograder|benchmarks|tests|docs|labs)(?:/[\w.-]+)*/[\w-]+\.(?:py|md|toml|json|txt|js|css))\b"
)
ENDINGS = (".py", ".md", ".toml", ".json", ".txt", ".js", ".css")
PLACEHOLDERS = re.compile(r"\b(SLUG|slug|NN_slug|name|X|averages|90_averages)\b")  # and a lab that pages invent
NOT_OURS = {
    "autograder/outputs/gradescope.py": "cites a page of another project",
}
PARTS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def text_of(path: Path) -> str:
    """Return the docstrings and comments of a program, or a page."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py" or not faults(source):  # few mention anything that is not there, so few are parsed
        return source
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, PARTS)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*docstrings, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def module_at(dotted: str) -> Path | None:
    path = ROOT / dotted.replace(".", "/")
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.exists()), None)


def bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement of a module or class binds, with what it defines below `if` and `with`."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    else:
        for part in ast.iter_child_nodes(node):
            yield from [part.id] if isinstance(part, ast.Name) else bound(part)


@functools.cache
def names_in(path: Path) -> dict[str, ast.AST]:
    """Return what a module binds and what it exports lazily, with the statement of each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: dict[str, ast.AST] = {name: node for node in tree.body for name in bound(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "exports"]
    return found | {name: call for call in calls for name in ast.literal_eval(call.args[1])}


def attributes(node: ast.ClassDef) -> set[str]:
    """Return what a class's body binds, and what its methods assign to `self`."""
    own = {name for statement in node.body for name in bound(statement)}
    assigned = (part for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store))
    return own | {part.attr for part in assigned}


def exists(dotted: str) -> bool:
    """Return whether a module has that name, or a class that attribute; of an object's attributes any may be."""
    parts = dotted.split(".")
    if parts[0] not in PACKAGES:
        parts = ["autograder", *parts]
    length = next(n for n in range(len(parts), 0, -1) if module_at(".".join(parts[:n])))
    rest, path = parts[length:], module_at(".".join(parts[:length]))
    if not rest:
        return True
    if rest[0] not in names_in(path):
        return False
    node = names_in(path)[rest[0]]
    if isinstance(node, ast.Call):  # of `exports`
        return exists(".".join([*parts[:length], ast.literal_eval(node.args[1])[rest[0]], *rest]))
    return len(rest) == 1 or not isinstance(node, ast.ClassDef) or bool(node.bases) or rest[1] in attributes(node)


def faults(text: str) -> list[str]:
    """Return what a text mentions and there is not; a name of two parts may be a file's, as `benchmarks.md`."""
    dotted = [name for name in DOTTED.findall(text) if not (name.endswith(ENDINGS) or exists(name))]
    missing = dotted + [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    return [name for name in missing if not PLACEHOLDERS.search(name)]


def listed() -> list[Path]:
    ended = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True)
    return [ROOT / name for name in ended.stdout.splitlines()]


def test_what_is_mentioned_exists():
    paths = [path for path in listed() if path.relative_to(ROOT).as_posix() not in NOT_OURS]
    if not paths:
        pytest.skip("this is not a clone")
    found = {path.relative_to(ROOT).as_posix(): faults(text_of(path)) for path in paths}
    assert {name: missing for name, missing in found.items() if missing} == {}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`hpcdl.conv.Problem` and `hpcdl.cost.memory.zero(p)`", []),
        ("`hpcdl.cost.timeline.Timeline`, `autograder.boundary`", []),
        ("`hpcdl.cluster.waiting`", ["hpcdl.cluster.waiting"]),
        ("`hpcdl.parallel.StageRun.loss`, `hpcdl.parallel.StageRun.sends`", ["hpcdl.parallel.StageRun.sends"]),
        ("see tests/hpcdl/cluster/hosts.py, and docs/hosts.md", ["docs/hosts.md"]),
        ("/home/ada/hpcdl/mine.py", []),
    ],
)
def test_a_missing_name_is_found(text, missing):
    assert faults(text) == missing
