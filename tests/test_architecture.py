"""The house: imports run one way and in no circle, rooms keep to what they may know."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A part may import from its own level's parts and from any level below it.
LEVELS = [
    {"labs"},
    {
        "autograder",
        "hpcdl.widgets",
        "hpcdl.jupyter",
        "hpcdl.slides",
        "hpcdl.cli",
        "hpcdl.doctor",
        "hpcdl.submit",
        "hpcdl.reset",
        "hpcdl.progress",
        "hpcdl.report",
        "hpcdl.__main__",
    },
    {"hpcdl.training", "hpcdl.designs"},
    {"hpcdl.ddp", "hpcdl.parallel", "hpcdl.sharding", "hpcdl.consistency", "hpcdl.cost", "hpcdl.cluster"},
    {"hpcdl.conv", "hpcdl.collectives", "hpcdl.nn"},
    {"hpcdl.comm", "hpcdl.kernels", "hpcdl.memory", "hpcdl.numerics", "hpcdl.data"},
    {
        "hpcdl.commands",
        "hpcdl.files",
        "hpcdl.first_derivative",
        "hpcdl.guesses",
        "hpcdl.interrupt",
        "hpcdl.identity",
        "hpcdl.journal",
        "hpcdl.labs",
        "hpcdl.lazy",
        "hpcdl.machine",
        "hpcdl.moved",
        "hpcdl.points",
        "hpcdl.saying",
        "hpcdl.start",
    },
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


# Circles. An import inside a function counts too: it hides a circle, and does not remove it.

EXCEPTIONS: dict[tuple[str, str], str] = {}  # (importer, imported) -> the reason why this import does not count


def names() -> dict[str, Path]:
    """Each module of the two packages by its dotted name, a package by its `__init__`."""
    return {module_name(path): path for path in modules()}


def statements(node: ast.AST):
    """All code that runs below a node, without `if TYPE_CHECKING` blocks."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            yield child
            yield from statements(child)


@functools.cache
def exported(path: Path) -> dict[str, str]:
    """Return what a package hands on by `exports(__name__, {name: module})`: the module's name by the exported name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "exports":
            return ast.literal_eval(node.args[1])
    return {}


def home_of(base: str, name: str, known: dict[str, Path]) -> str:
    """Return the module that `from base import name` runs: a submodule, an export's home, or `base`."""
    while base in known and f"{base}.{name}" not in known and name in (homes := exported(known[base])):
        base = f"{base}.{homes[name]}"
    return f"{base}.{name}" if f"{base}.{name}" in known else base


def imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that the module `name` imports, anywhere in it; of a package the one that holds what is asked for."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {home_of(base, alias.name, known) for alias in node.names}
    return {other for other in found & set(known) if (name, other) not in EXCEPTIONS}


@functools.cache
def graph() -> dict[str, set[str]]:
    known = names()
    return {name: imported(name, path, known) for name, path in known.items()}


def reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    """What `start` imports, and what those import, and so on."""
    seen, todo = set(), [start]
    while todo:
        fresh = edges[todo.pop()] - seen
        seen |= fresh
        todo += fresh
    return seen


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the largest groups of modules that all import each other, directly or through others."""
    below = {name: reached(name, edges) for name in edges}
    groups = {frozenset(o for o in below[name] if name in below[o]) for name in edges if name in below[name]}
    return sorted(map(sorted, groups))


def test_a_circle_is_found_where_there_is_one():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}, "f": {"a"}}
    assert circles(edges) == [["a", "b", "c"], ["e"]]


def test_no_circle_of_modules():
    assert not circles(graph()), "\n".join(" <-> ".join(circle) for circle in circles(graph()))


def unknown_names(sources: dict[str, str], known: dict[str, Path]) -> list[str]:
    """Return what `sources` import from packages with exports that do not have it; mypy believes any name there."""
    found = []
    for where, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            base = known.get(node.module or "") if isinstance(node, ast.ImportFrom) and not node.level else None
            if base is None or not (homes := exported(base)):
                continue
            own = {getattr(part, "name", getattr(part, "id", "")) for part in ast.walk(ast.parse(base.read_text()))}
            wanted = {alias.name for alias in node.names} - homes.keys() - own
            found += [f"{where}: {node.module}.{name}" for name in wanted if f"{node.module}.{name}" not in known]
    return found


def test_imported_names_are_exported(tmp_path):
    folders = ("hpcdl", "autograder", "benchmarks", "tests", "labs/source")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert unknown_names({str(path): path.read_text(encoding="utf-8") for path in paths}, names()) == []
    (tmp_path / "__init__.py").write_text('exports(__name__, {"now": "b"})')
    assert unknown_names({"a": "from p import before, now"}, {"p": tmp_path / "__init__.py"}) == ["a: p.before"]


def test_circle_behind_exports_is_found(tmp_path):
    """Plant one: `a` asks the package `p` for a name that `p` exports from `p.b`, and `p.b` imports `a`."""
    sources = {"p": 'exports(__name__, {"name": "b"})', "p.b": "import a", "a": "from p import name"}
    known = {name: tmp_path / f"{name}.py" for name in sources}
    for name, text in sources.items():
        known[name].write_text(text, encoding="utf-8")
    assert circles({name: imported(name, path, known) for name, path in known.items()}) == [["a", "p.b"]]


# Circles of folders: two rooms that need each other are one. Each exception has its reason.

BETWEEN_FOLDERS = {
    ("hpcdl.numerics.rounding.stochastic", "hpcdl.kernels"): "it chooses a kernel, and kernels round to its formats",
    ("hpcdl.cost.published.pipelines", "hpcdl.parallel"): "schedules are data, and live beside what runs them",
}


def folders(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph of folders: `hpcdl.cost.work` is in `hpcdl.cost`."""

    def folder(name: str) -> str:
        return ".".join(name.split(".")[:2])

    found: dict[str, set[str]] = {folder(name): set() for name in edges}
    for name, others in edges.items():
        outside = {folder(other) for other in others} - {folder(name)}
        found[folder(name)] |= {other for other in outside if (name, other) not in BETWEEN_FOLDERS}
    return found


def test_no_circle_of_folders():
    assert not circles(folders(graph())), "\n".join(" <-> ".join(circle) for circle in circles(folders(graph())))


# The rooms of autograder, along the trust boundary: what each may import of this house (see its `__init__`). Whatever
# runs beside a student's code holds no check and no answer.

ROOMS = {
    "boundary": "",
    "inside": "boundary",
    "walls": "boundary inside",
    "checks": "show",
    "sessions": "boundary inside walls checks show",
    "exercises": "authoring checks inside sessions show",
    "authors": "authoring exercises inside",
    "bank": "authoring authors checks exercises",
    "grading": "authoring authors boundary inside walls checks sessions exercises bank results feedback",
    "shards": "authoring grading options results",
    "outputs": "authoring authors exercises grading sessions api results feedback",
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_autograder_imports_only_what_it_may(room):
    for name, others in graph().items():
        if name.startswith(f"autograder.{room}"):
            rooms = {other.partition(".")[2].partition(".")[0] for other in others if other.startswith("autograder")}
            strange = rooms - {room, *ROOMS[room].split()}
            assert not strange, f"{name} imports {sorted(others)}; a module of {room} may import no {sorted(strange)}"


def test_every_folder_of_autograder_is_a_room():
    assert {name.split(".")[1] for name in names() if name.count(".") > 1 and name.startswith("autograder")} == set(
        ROOMS
    )


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
