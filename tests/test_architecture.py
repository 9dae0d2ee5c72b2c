"""The house: imports run one way and in no circle, `import hpcdl` is light, files and functions are short."""

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A part may import from its own level's parts and from any level below it.
LEVELS = [
    {"labs"},
    {"autograder", "hpcdl.widgets", "hpcdl.jupyter", "hpcdl.cli", "hpcdl.doctor", "hpcdl.submit", "hpcdl.__main__"},
    {"hpcdl.ddp", "hpcdl.cost", "hpcdl.cluster"},
    {"hpcdl.conv", "hpcdl.collectives", "hpcdl.nn"},
    {"hpcdl.comm", "hpcdl.kernels", "hpcdl.numerics", "hpcdl.data"},
    {"hpcdl.files", "hpcdl.lazy", "hpcdl.machine"},
]
LEVEL = {part: depth for depth, parts in enumerate(LEVELS) for part in parts}


def part_of(module: str) -> str | None:
    """The part of the house in which a module lives, None for other people's modules."""
    names = module.split(".")
    if module == "hpcdl.__version__":
        return None
    if names[0] == "hpcdl":
        return ".".join(names[:2]) if len(names) > 1 else None
    return names[0] if names[0] in LEVEL else None


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "hpcdl" else {node.module}
            )
    return found


def modules():
    for package in ("hpcdl", "autograder"):
        yield from sorted((ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    own = part_of(module_name(path))
    for module in imports(path):
        part = part_of(module)
        if own is None or part is None or part == own:
            continue
        assert LEVEL[own] <= LEVEL[part], f"{own} imports {module}, which stands above it"
        assert not (own.startswith("hpcdl") and part in ("autograder", "labs")), f"{own} imports {module}"


def test_the_levels_name_every_part_of_the_package():
    assert {part_of(module_name(path)) for path in modules()} - {None} <= set(LEVEL)


def test_import_hpcdl_is_quick_and_brings_nothing_heavy():
    script = (
        "import sys, time; begin = time.process_time(); import hpcdl; seconds = time.process_time() - begin\n"
        "heavy = {'torch', 'mpi4py', 'ipyparallel', 'triton', 'matplotlib', 'IPython', 'numpy'} & set(sys.modules)\n"
        "print(seconds, *heavy)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
        for _ in range(3)
    ]
    assert all(len(run) == 1 for run in runs), f"import hpcdl brings {runs[0][1:]}"
    assert min(float(run[0]) for run in runs) < 0.3


def test_the_version_has_one_home():
    import hpcdl

    shown = subprocess.run(
        [sys.executable, "-m", "hpcdl", "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert shown.strip() == f"hpcdl {hpcdl.__version__}"


# -- files and functions stay short -----------------------------------------------------------------------------------

MOST_LINES = 300  # of a file; exercises, the bank and labs are texts for readers of their own
MEDIAN_LINES = 5  # of a function, its docstring not counted
LONG_FILES = {  # this list only gets shorter, and so do the files
    "hpcdl/comm/simulated.py": 397,
    "tests/hpcdl/cluster/test_cluster.py": 475,
    "tests/hpcdl/comm/test_shared.py": 371,
    "tests/hpcdl/comm/test_simulated.py": 322,
    "tests/hpcdl/ddp/test_overlapped.py": 440,
}


def programs() -> list[Path]:
    """Every Python file of the house but for exercises, bank and labs."""
    folders = ("hpcdl", "autograder", "benchmarks", "tests", "docs")
    texts = (ROOT / "autograder" / "exercises", ROOT / "autograder" / "bank")
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if not any(path.is_relative_to(text) for text in texts)]


def test_no_file_is_too_long():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in programs()}
    long = {name: lines for name, lines in lengths.items() if lines > LONG_FILES.get(name, MOST_LINES)}
    assert not long, f"files of more than {MOST_LINES} lines: split them"
    mended = [name for name in LONG_FILES if lengths.get(name, 0) <= MOST_LINES]
    assert not mended, "these are short now, or gone: take them off LONG_FILES"


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of its body without the docstring; 0 where there is nothing else."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def functions(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_half_of_all_functions_have_five_lines_or_fewer():
    lengths = [lines_of(function) for path in programs() for function in functions(path)]
    assert statistics.median(lengths) <= MEDIAN_LINES


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("def f(): pass", 1),
        ('def f():\n    """Says."""', 0),
        ('def f():\n    """Says."""\n    a = 1\n\n    return a', 3),
    ],
)
def test_a_functions_lines_are_those_of_its_body(code, lines):
    assert lines_of(ast.parse(code).body[0]) == lines


# -- no circle of modules ---------------------------------------------------------------------------------------------

CIRCLES = {  # by the modules' last names; this list only gets shorter
    frozenset({"background", "base", "group"}),
    frozenset({"program", "train"}),
    frozenset({"ranks", "remote", "student"}),
    frozenset({"rounding_cpu", "rounding_gpu", "stochastic"}),
    frozenset({"training", "training_dashboard"}),
    frozenset({"conv", "auto", "calibration"}),
}
MODULES = {module_name(path): path for path in modules()}


def imported(module: str) -> set[str]:
    """The modules of the house that a module imports, in its functions too: those it names, not their packages."""
    found, path = set(), MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else base for name in names}
    return (found & set(MODULES)) - {module}


def statements(node: ast.AST):
    """All that runs below a node: what stands under `if TYPE_CHECKING` does not."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            yield child
            yield from statements(child)


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules of which each reaches each."""
    reached = {module: reachable(graph, module) for module in graph}
    return {
        frozenset(other for other in graph if other in reached[module] and module in reached[other])
        for module in graph
        if module in reached[module]
    }


def reachable(graph: dict[str, set[str]], begin: str) -> set[str]:
    found, rest = set(), [begin]
    while rest:
        rest += (new := graph[rest.pop()] - found)
        found |= new
    return found


def test_no_circle_of_modules():
    found = circles({module: imported(module) for module in MODULES})
    known = {circle for circle in found if frozenset(name.rpartition(".")[2] for name in circle) in CIRCLES}
    assert not [sorted(circle) for circle in found - known], "these import each other"
    gone = CIRCLES - {frozenset(name.rpartition(".")[2] for name in circle) for circle in found}
    assert not gone, "these are no circles any more: take them off CIRCLES"


def test_a_circle_is_found_and_a_shared_module_is_none():
    graph = {"a": {"b", "d"}, "b": {"c"}, "c": {"a"}, "d": set(), "e": {"d"}}
    assert circles(graph) == {frozenset("abc")}
