"""Every parameter of a public function says its type; a communicator is a `Communicator`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["hpcdl", "autograder", "benchmarks"]
# Exercises take `student`, whose attributes are what the student wrote; the bank is wrong on purpose; the arguments of
# Numba's and Triton's kernels get their types from the compilers.
EXCEPT = [
    *("autograder/exercises", "autograder/bank"),
    *("hpcdl/kernels/cpu", "hpcdl/kernels/gpu", "hpcdl/kernels/winograd_transforms.py"),
    "benchmarks/peers/rounding_gpu.py",  # Triton takes only its own annotations
]


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module and methods of its classes; those with an underscore are private, `__init__` is not."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name == "__init__" or not node.name.startswith("_")
        ):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    args = function.args
    stars = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, *stars) if arg.arg not in ("self", "cls")]


def faults(source: str) -> list[str]:
    """Parameters without a type, and a `comm` whose type is no communicator's."""
    found = []
    for function in public_functions(ast.parse(source).body):
        for arg in parameters(function):
            kind = "" if arg.annotation is None else ast.unparse(arg.annotation).strip("'\"").removesuffix(" | None")
            if not kind or (arg.arg == "comm" and not kind.endswith(("Communicator", "Comm"))):
                found.append(f"line {function.lineno}: {function.name}({arg.arg}: {kind or '?'})")
    return found


def files() -> list[Path]:
    found = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in found if not any(path.is_relative_to(ROOT / folder) for folder in EXCEPT)]


def lazy_packages() -> list[Path]:
    return [path for path in sorted((ROOT / "hpcdl").rglob("__init__.py")) if "= exports(" in path.read_text()]


def told(tree: ast.Module) -> dict[str, str]:
    """The names that a package imports for type checkers only, with the module of each."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{node.module}" for node in imports for alias in node.names}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_parameter_of_a_public_function_has_a_type(path):
    assert not faults(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", lazy_packages(), ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_type_checker_reads_the_names_that_are_imported_when_first_used(path):
    """Without it mypy and editors see `Any`; the dict that `exports` takes and the imports must name the same."""
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "exports"]
    package = ".".join(path.parent.relative_to(ROOT).parts)
    homes = ast.literal_eval(calls[0].args[1])
    assert told(tree) == {name: f"{package}.{home}" for name, home in homes.items()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x, *args: int, k: str = ''): ...", ["line 1: f(x: ?)"]),
        ("def f(comm: object): ...", ["line 1: f(comm: object)"]),
        ("def f(comm: 'Communicator', x: int) -> None: ...", []),
        ("class A:\n    def __init__(self, x): ...\n    def _private(self, x): ...", ["line 2: __init__(x: ?)"]),
        ("class _A:\n    def f(self, x): ...\ndef _f(x): ...", []),
        ("async def f(*args, **options): ...", ["line 1: f(args: ?)", "line 1: f(options: ?)"]),
    ],
)
def test_a_parameter_without_a_type_is_found(source, expected):
    assert faults(source) == expected
