"""From an installed wheel the grader's walls hold: in an environment with and without `lib64`, as root and as an
ordinary user, and in the layout of the bundle for Gradescope."""

import csv
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nbformat
import pytest

from autograder.authors import build
from autograder.outputs import gradescope
from autograder.walls import sandbox

ROOT = Path(__file__).parents[1]
OPEN_HOUSE = ROOT / "tests" / "autograder" / "walls" / "open_house.py"
walled = pytest.mark.skipif(sandbox.tier() == "weak", reason=f"no sandbox on this system: {sandbox.words()}")
pytestmark = pytest.mark.labs  # each installs a wheel, or grades with it

LAB = "gradient_descent"
# Each function of the lab answers what it finds of the grader's own files, by every way that an environment has.
THIEF = """
import os, sys
ways = [sys.prefix, os.path.realpath(sys.prefix)]
ways = [f"{way}/{lib}/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages" for way in ways
        for lib in ("lib", "lib64", "other")]
found = []
for way in [*ways, *sys.path]:
    try:
        found += [name for name in os.listdir(way + "/autograder/exercises") if name.endswith("descent")]
    except OSError:
        pass

def gradient_descent(*args, **options):
    raise LookupError(f"it found {found} and a hundred points")
"""


def run(*command, code: int = 0, **options) -> str:
    texts = [str(part) for part in command]
    ended = subprocess.run(texts, capture_output=True, text=True, timeout=280, check=False, **options)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def root(wheel):
    """A folder that all may read, laid out as Gradescope does: `venv` with the wheel in it, `source`, `submission`."""
    with tempfile.TemporaryDirectory(prefix="hpcdl-test-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        environment(root / "venv", wheel)
        yield root


def environment(place: Path, wheel: Path) -> None:
    """A virtual environment with the wheel; what that needs comes from this one, by a `.pth` file."""
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text("\n".join(path for path in site.getsitepackages() if os.path.isdir(path)))


@pytest.fixture
def lib64(root, request):
    """The environment with the link `lib64 -> lib`, without it, or with a link of another name above the packages."""
    link = root / "venv" / "lib64"
    link.unlink(missing_ok=True)
    if request.param != "none":
        link.with_name(request.param).symlink_to("lib")
    yield
    for name in {request.param, "lib64"} - {"none"}:
        link.with_name(name).unlink(missing_ok=True)


WALLS = """
from autograder.sessions import canaries
from autograder.walls import sandbox
from autograder.walls.zygote import Zygote
import autograder, os
with Zygote() as zygote:
    for outcome in canaries.attack(zygote):
        if not outcome.held:
            print("OPEN:", outcome)
print(os.getuid(), sandbox.tier(), autograder.__file__)
"""


def as_user(uid: int, *command) -> list:
    """The command that runs `command` as that user; skips where it cannot."""
    if uid == os.getuid():
        return list(command)
    if os.getuid():
        pytest.skip("only root can become another user")
    return [sys.executable, OPEN_HOUSE, uid, *command]


@walled
@pytest.mark.parametrize("lib64", ["lib64", "none"], indirect=True)
@pytest.mark.parametrize("uid", [0, sandbox.SPARE_UIDS[-1]], ids=["root", "user"])
def test_every_canary_finds_a_wall_around_an_installed_wheel(root, lib64, uid):
    if uid == 0 and os.getuid():
        pytest.skip("only root is root")
    said = run(*as_user(uid, root / "venv" / "bin" / "python", "-c", WALLS), cwd="/", env=quiet(HOME="/tmp"))
    if "unshare" in said:
        pytest.skip("this system lets root mount nothing")
    assert "OPEN" not in said
    assert said.split()[0] == str(uid)
    assert str(root) in said, "the wheel and not the clone"


def quiet(**more) -> dict[str, str]:
    """This environment, where a second user may write nothing beside the sources."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **more}


@walled
@pytest.mark.parametrize("lib64", ["lib64", "other"], indirect=True)
def test_a_thief_finds_nothing_in_the_bundle_for_gradescope(root, lib64, wheel):
    gradescope.bundle(LAB, root / "bundle.zip", str(wheel))
    for folder in ("source", "submission"):
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir()
    with zipfile.ZipFile(root / "bundle.zip") as archive:
        archive.extractall(root / "source")
    thief = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(THIEF)], metadata={"hpcdl": {"lab": LAB}})
    (root / "submission" / "thief.ipynb").write_text(nbformat.writes(thief))
    run("bash", root / "source" / "run_autograder", cwd="/", env=quiet(AUTOGRADER_ROOT=str(root)))
    result = json.loads((root / "results" / "results.json").read_text())
    assert result["score"] == 0
    said = [test["output"] for test in result["tests"] if "hundred points" in test["output"]]
    assert said, result
    assert all("it found [] and" in output for output in said), said


@walled
def test_installed_command_grades_behind_walls(root, tmp_path):
    program, folder = root / "venv" / "bin" / "autograder", tmp_path / "submissions"
    folder.mkdir()
    reference = build.write(build.solved(LAB))
    (folder / "ada.ipynb").write_text(reference)
    said = run(program, "grade", folder, "--out", tmp_path / "results", "--no-mpi", cwd=tmp_path)
    assert "no files, no network" in " ".join(said.split()), said
    with open(tmp_path / "results" / "grades.csv") as file:
        assert [row["score"] for row in csv.DictReader(file)] == ["100"]
    module = next((root / "venv").glob("lib/python*/site-packages/autograder/walls/landlock.py"))
    before = module.read_text()
    module.write_text(before.replace("if folder in inside:", "if False:").replace("if not inside:", "if True:"))
    try:
        said = run(program, "grade", folder, "--out", tmp_path / "other", "--no-mpi", cwd=tmp_path, code=4)
        assert "Nothing was graded" in said
        assert "read the checks" in said
        assert not (tmp_path / "other" / "grades.csv").exists()
    finally:
        module.write_text(before)


def program(root: Path, name: str) -> Path:
    return root / "venv" / "bin" / name


def test_the_wheel_brings_the_labs_and_keeps_what_a_student_wrote(root, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "02_gradient_descent.ipynb").write_text("my answers")
    for _ in range(2):
        said = run(program(root, "hpcdl"), "lab", "99", "--folder", mine, cwd=tmp_path, code=2)
        assert "There is no lab '99'" in said
    assert (mine / "02_gradient_descent.ipynb").read_text() == "my answers"
    labs = {path.name: path for path in (ROOT / "labs").glob("*.ipynb")}
    assert labs.keys() <= {path.name for path in mine.iterdir()}
    assert (mine / "04_backprop.ipynb").read_bytes() == labs["04_backprop.ipynb"].read_bytes()
    run(program(root, "hpcdl"), "lab", "99", cwd=tmp_path, code=2)
    assert (tmp_path / "labs" / "README.md").exists(), "without a folder it is `labs`, here"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("autograder", "new", "averages", "--number", "90", "--title", "x"), "run this in a clone"),
        (("autograder", "selfcheck", "calculus"), "run this in a clone"),
        (("autograder", "export", "assignment", "calculus", "course"), "run this in a clone"),
        (("autograder", "release", "--lab", "02", "--out", "bundle"), "--requirement"),
        (("hpcdl", "bench"), "run this in a clone"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_command_that_needs_more_says_so_and_writes_nothing(root, tmp_path, command, said):
    before = sorted(map(str, root.rglob("*.py")))
    shown = run(program(root, command[0]), *command[1:], cwd=tmp_path, code=2)
    assert said in shown
    assert len(shown.strip().splitlines()) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(map(str, root.rglob("*.py"))) == before, "nothing in site-packages"


def test_a_bundle_for_students_is_released_from_the_wheel(root, wheel, tmp_path):
    arguments = ("release", "--all", "--out", tmp_path / "bundle", "--requirement", wheel)
    run(program(root, "autograder"), *arguments, cwd=tmp_path)
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert {wheel.name, "requirements.txt", "AGENTS.md", "08_collectives.ipynb"} <= names


@walled
def test_the_doctor_of_the_wheel_finds_all_well(root, tmp_path):
    assert "✗ read" not in run(program(root, "autograder"), "doctor", cwd=tmp_path)
