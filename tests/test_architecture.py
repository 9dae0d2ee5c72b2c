"""The house: imports run one way, and `import hpcdl` is light and quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A part may import from its own level's parts and from any level below it.
LEVELS = [
    {"labs"},
    {"autograder", "hpcdl.widgets", "hpcdl.jupyter", "hpcdl.cli", "hpcdl.doctor", "hpcdl.submit", "hpcdl.__main__"},
    {"hpcdl.ddp", "hpcdl.parallel", "hpcdl.cost", "hpcdl.cluster"},
    {"hpcdl.conv", "hpcdl.collectives", "hpcdl.nn"},
    {"hpcdl.comm", "hpcdl.kernels", "hpcdl.numerics", "hpcdl.data"},
    {"hpcdl.lazy", "hpcdl.machine"},
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


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    own = part_of(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for module in imports(path):
        part = part_of(module)
        if own is None or part is None or part == own:
            continue
        assert LEVEL[own] <= LEVEL[part], f"{own} imports {module}, which stands above it"
        assert not (own.startswith("hpcdl") and part in ("autograder", "labs")), f"{own} imports {module}"


def test_the_levels_name_every_part_of_the_package():
    parts = {part_of(".".join(path.relative_to(ROOT).with_suffix("").parts)) for path in modules()}
    assert parts - {"hpcdl.__init__"} <= set(LEVEL)


def test_import_hpcdl_is_quick_and_brings_nothing_heavy():
    script = (
        "import sys, time; begin = time.perf_counter(); import hpcdl; seconds = time.perf_counter() - begin\n"
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
