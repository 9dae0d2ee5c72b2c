"""What is released works: the wheel holds the program and no solution, installs into an empty environment, and runs."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hpcdl
from autograder.authors import build as notebooks

ROOT = Path(__file__).parents[1]
AUTHORS = ("autograder/bank/", "autograder/authors/templates/")  # what only a clone has
SMOKE = """
import torch
from autograder import exercises
from hpcdl.comm import simulate
from hpcdl.collectives import ring_all_reduce

def rank(comm):
    x = torch.ones(5)
    ring_all_reduce(x, comm)
    return x.tolist()

assert simulate(rank, 3).results == [[3.0] * 5] * 3
for slug in exercises.LABS:
    assert exercises.load(slug).points == 100, slug
print("works")
"""


def run(*command, **options):
    ended = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=280, check=False, **options
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, built from the tree as git has it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def test_the_wheel_carries_the_version_and_all_that_is_no_python(built):
    wheel, _ = built
    assert wheel.name.startswith(f"hpcdl-{hpcdl.__version__}-py3-none-any")
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "ls-files", "hpcdl", "autograder", cwd=ROOT).splitlines()
    shipped = {name for name in tracked if not name.startswith(AUTHORS)}
    assert shipped <= names, "every file of the packages, templates and scripts included"
    assert not [name for name in names if name.startswith(AUTHORS)], "nearly right answers, and a solution"


def test_the_wheel_holds_no_solution(built):
    wheel, _ = built
    archive = zipfile.ZipFile(wheel)
    assert not [name for name in archive.namelist() if name.startswith("labs")]
    everything = "\n".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
    example = (ROOT / "autograder" / "README.md").read_text(encoding="utf-8")  # its solution is no secret
    for slug in map(notebooks.slug_of, notebooks.sources()):
        for exercise, text in notebooks.marked(slug).items():
            solution = text.split(notebooks.BEGIN)[1].split(notebooks.END)[0].rstrip()
            if solution.count("\n") > 2 and solution not in example:  # one line may stand anywhere
                assert solution not in everything, f"{slug}.{exercise}"


def test_the_sdist_holds_the_notebooks_and_neither_tests_nor_solutions(built):
    _, sdist = built
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert "labs/02_gradient_descent.ipynb" in names
    assert "LICENSE" in names
    parts = {part for name in names for part in Path(name).parts[:-1]}
    assert not parts & {"tests", "source", "bank", "docs", "benchmarks"}


def test_the_package_page_links_into_the_repository(built):
    wheel, _ = built
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    page = archive.read(name).decode()
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    repository = re.search(r"^Project-URL: Repository, (\S+)$", page, re.MULTILINE)[1]
    assert not [target for target in targets if not target.startswith("https://")]
    paths = {target.removeprefix(repository) for target in targets if target.startswith(repository)}
    assert {"/blob/main/labs/07_ddp.ipynb", "/blob/main/docs/students.md", "/raw/main/docs/images/lab02.png"} <= paths
    files = [path.split("/main/")[1] for path in paths if "/main/" in path]
    assert len(files) > 20
    assert all((ROOT / file).exists() for file in files)
    assert "Description-Content-Type: text/markdown" in page


def test_no_file_of_a_machine_is_part_of_the_repository():
    stray = {"nowhere", ".dmypy.json", ".points.jsonl", ".coverage"}
    assert not stray & {Path(name).name for name in run("git", "ls-files", cwd=ROOT).splitlines()}


@pytest.mark.labs  # installs
def test_the_installed_wheel_runs_from_anywhere(built, tmp_path):
    wheel, _ = built
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "site", wheel)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    where = run(sys.executable, "-c", "import hpcdl; print(hpcdl.__file__)", cwd=tmp_path, env=environment)
    assert where.startswith(str(tmp_path)), "the wheel and not the checkout"
    assert run(sys.executable, "-c", SMOKE, cwd=tmp_path, env=environment) == "works\n"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_wheel_installs_into_an_empty_environment(built, tmp_path):
    wheel, _ = built
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    scripts = tmp_path / "venv" / "bin"
    run(scripts / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    assert run(scripts / "hpcdl", "--version", cwd=tmp_path) == f"hpcdl {hpcdl.__version__}\n"
    assert "grade" in run(scripts / "autograder", "--help", cwd=tmp_path)
    assert run(scripts / "python", "-c", SMOKE, cwd=tmp_path) == "works\n"


def python(version: str) -> str | None:
    """A Python of that version on this machine: on the path, or among pyenv's."""
    found = [shutil.which(f"python{version}"), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    answers = (path for path in found if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode)
    return next(answers, None)


@pytest.mark.labs  # reads some thousand files three times
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_supported_pythons_read_every_file(version, tmp_path):
    if not (program := python(version)):
        pytest.skip(f"Python {version} is absent")
    run("git", "clone", "-q", ROOT, tmp_path / "clone")
    folders = ("hpcdl", "autograder", "labs", "tests", "benchmarks")
    run(program, "-W", "error", "-m", "compileall", "-q", *folders, cwd=tmp_path / "clone")
    assert run(program, "-c", "import hpcdl, autograder; print(hpcdl.__version__)", cwd=tmp_path / "clone")
