"""What the house says about itself to installers and to a forge agrees with what it is."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import trove_classifiers
import yaml

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
OWN = {"hpcdl", "autograder", "benchmarks", "_typeshed"}
# Not installed everywhere: their distributions, where `packages_distributions` does not know them.
OPTIONAL = {"deepspeed": "deepspeed", "ray": "ray"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(extras: bool) -> set[str]:
    """The distributions that pyproject.toml names."""
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"].values() if extras else ())]
    return {plain(re.match(r"[\w.-]+", each)[0]) for requirements in lists for each in requirements}


def imported(path: Path) -> set[str]:
    """The first names of what a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - OWN - sys.stdlib_module_names


def undeclared(paths, known: set[str]) -> dict[str, str]:
    """Each imported package that is in none of `known`'s distributions, with a file that imports it."""
    homes = packages_distributions()
    missing = {}
    for path in paths:
        for name in imported(path):
            distributions = {plain(each) for each in homes.get(name, [OPTIONAL.get(name, name)])}
            if not distributions & known:
                missing[name] = str(path)
    return missing


@pytest.mark.parametrize("package", ["hpcdl", "autograder"])
def test_imported_packages_are_declared(package):
    """With the extras: what only some commands need may be one, and then the command names the package."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert not undeclared(paths, declared(extras=True))
    extras = {"nbgrader", "ray", "deepspeed"}
    assert undeclared(paths, declared(extras=False)).keys() <= extras


def test_undeclared_import_is_found(tmp_path):
    (tmp_path / "planted.py").write_text(
        "def f():\n    import jinja2, os, hpcdl.comm\n    from yaml.nodes import Node\n"
    )
    found = undeclared([tmp_path / "planted.py"], declared(extras=False))
    assert set(found) == {"yaml"}


def test_pins_hold_every_dependency():
    pins = {plain(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert declared(extras=False) <= pins


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))


def test_workflow_runs_every_named_python():
    jobs = workflow("ci.yml")["jobs"]
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs["test"]["strategy"]["matrix"]["python"] == named
    commands = {job: [step.get("run") for step in jobs[job]["steps"]] for job in jobs}
    assert ".ci/run quick" in commands["test"]
    assert ".ci/run" in commands["labs"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_forge_files_can_be_read(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))


def test_citation_names_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_metadata_is_what_an_index_expects():
    assert {"authors", "classifiers", "description", "keywords", "license", "requires-python", "urls"} <= set(PROJECT)
    assert {"Changelog", "Documentation", "Issues", "Repository"} <= set(PROJECT["urls"])
    assert set(PROJECT["classifiers"]) <= trove_classifiers.classifiers
    assert not [kind for kind in PROJECT["classifiers"] if kind.startswith("License ::")]  # beside an SPDX expression


def test_readme_installs_the_tested_versions_in_one_line():
    raw = PROJECT["urls"]["Repository"].replace("github.com", "raw.githubusercontent.com")
    line = f"pip install hpcdl -c {raw}/main/constraints.txt"
    assert line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def lost_settings(settings: dict) -> list[str]:
    """Return what ruff's, mypy's and the scripts' settings name and there is not: no tool says so."""
    tools = settings["tool"]
    rules = [pattern for pattern in tools["ruff"]["lint"]["per-file-ignores"] if not any(ROOT.glob(pattern))]
    modules = [name for override in tools["mypy"]["overrides"] for name in override["module"]]
    known = {*OWN, *sys.stdlib_module_names, *packages_distributions(), *OPTIONAL}
    for package in ("hpcdl", "autograder", "benchmarks"):
        known |= {name for path in (ROOT / package).rglob("*.py") for name in imported(path)}
    rules += [name for name in modules if name.partition(".")[0] not in known]
    own = [name.removesuffix(".*").replace(".", "/") for name in modules if name.partition(".")[0] in OWN]
    rules += [name for name in own if not any((ROOT / f"{name}{end}").exists() for end in ("", ".py"))]
    for script in settings["project"]["scripts"].values():
        module, _, function = script.partition(":")
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        bound = {getattr(node, "name", "") for node in ast.walk(ast.parse(text))}
        rules += [] if function in bound else [script]
    return rules


def test_settings_name_what_there_is():
    assert lost_settings(SETTINGS) == []
    planted = {
        "project": {"scripts": {"a": "hpcdl.__main__:begin"}},
        "tool": {
            "ruff": {"lint": {"per-file-ignores": {"tests/none/*.py": []}}},
            "mypy": {"overrides": [{"module": ["nonesuch.*", "hpcdl.none.*", "numba.*"]}]},
        },
    }
    assert lost_settings(planted) == ["tests/none/*.py", "nonesuch.*", "hpcdl/none", "hpcdl.__main__:begin"]
