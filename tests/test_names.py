"""A name has one meaning: no public class is defined twice, and no two packages export different things as one."""

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hpcdl", "autograder", "benchmarks")
EXCEPT = ("autograder/bank", "autograder/exercises")  # wrong answers, and inputs that a single file draws and uses
BOTH = {  # names of the field in two senses
    "Decoder": "a transformer's, and the one that reads what an encoder wrote",
    "Worker": "a parameter server's, and the process that serves an answer",
}

SAME = {  # exported by two packages, for the same
    **dict.fromkeys(("gather", "reduce", "reduce_scatter"), "the collectives, also as operators that have a gradient"),
    "serial": "the training on one process with which a lab compares: lab 16's, and lab 17's",
}


def classes(source: str) -> list[str]:
    """Return the public classes at a module's top level."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def twice(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return, by name, the files that define a class which another file defines too; `sources`: (file, text)."""
    homes: dict[str, list[str]] = {}
    for file, text in sources:
        for name in classes(text):
            homes.setdefault(name, []).append(file)
    return {name: files for name, files in homes.items() if len(files) > 1}


def exports(source: str) -> dict[str, str]:
    """Return the names that a package exports, each with its submodule; "" if the package's own code imports it."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "exports":
            found |= ast.literal_eval(node.args[1])
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found |= dict.fromkeys(ast.literal_eval(node.value), "")
    return found


def exported_twice(packages: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """Return, by name, the packages that export it, if none is inside another: a folder hands on its subfolders'."""
    homes: dict[str, list[str]] = {}
    for package, names in sorted(packages.items()):
        for name in names:
            homes.setdefault(name, []).append(package)
    return {
        name: found for name, found in homes.items() if not all(other.startswith(f"{found[0]}.") for other in found[1:])
    }


def test_no_public_class_is_defined_twice():
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    named = [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]
    found = twice((file, text) for file, text in named if not file.startswith(EXCEPT))
    assert {name: files for name, files in found.items() if name not in BOTH} == {}, "give each its own name"
    assert BOTH.keys() <= found.keys(), "remove what is defined once"


def test_a_second_class_of_a_name_is_found():
    sources = [("a.py", "class Run: ...\nclass _Run: ..."), ("b.py", "class Run: ...\nclass _Run: ...\nclass Ran: ...")]
    assert twice(sources) == {"Run": ["a.py", "b.py"]}


def test_no_name_is_exported_for_two_things():
    paths = sorted((ROOT / "hpcdl").rglob("__init__.py"))
    packages = {".".join(path.parent.relative_to(ROOT).parts): exports(path.read_text("utf-8")) for path in paths}
    found = exported_twice(packages)
    assert {name: homes for name, homes in found.items() if name not in SAME} == {}, "give each its own name"
    assert SAME.keys() <= found.keys(), "remove what is exported once"


def test_a_second_export_of_a_name_is_found():
    packages = {"a": exports('exports(n, {"x": "c.d", "y": "c"})'), "a.c": {"x": "d"}, "b": exports('__all__ = ["y"]')}
    assert exported_twice(packages) == {"y": ["a", "b"]}
