"""The suite itself: one lab can be asked for alone, and what killed ranks leave in shared memory goes away."""

import mmap
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def suite(request):
    """The conftest of all tests."""
    return request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))


@pytest.mark.parametrize("name", ["7", "07", "ddp"])
def test_a_lab_is_named_by_its_number_or_its_slug(suite, name):
    assert suite.lab_of(name) == ("07", "ddp")


@pytest.mark.parametrize("name", ["0", "00", "tensors"])
def test_so_is_the_one_before_the_first(suite, name):
    assert suite.lab_of(name) == ("00", "tensors")


def test_an_unknown_lab_names_those_there_are(suite):
    with pytest.raises(pytest.UsageError, match="there is no lab 'dpp'; the labs are 00_tensors, 01_calculus, 02_"):
        suite.lab_of("dpp")


def item(file: str, slug: str | None = None, *markers: str, labs: tuple[str, ...] = ()):
    """A test as pytest collected it, with what the choice of a lab looks at; `labs` are the slugs of that marker."""
    marked = {name: SimpleNamespace(args=()) for name in markers} | (
        {"labs": SimpleNamespace(args=labs)} if labs else {}
    )
    found = SimpleNamespace(path=Path(file), get_closest_marker=marked.get)
    return SimpleNamespace(**vars(found), callspec=SimpleNamespace(params={"slug": slug})) if slug else found


@pytest.mark.parametrize(
    ("test", "chosen"),
    [
        (item("test_notebooks.py", "ddp", "each_lab"), True),
        (item("test_notebooks.py", "backprop", "each_lab", "labs"), False),
        (item("test_ddp.py", None, "labs", "browser"), True),
        (item("tests/browser/test_ddp.py"), True),
        (item("tests/autograder/grading/test_grade_ddp.py"), True),
        (item("tests/hpcdl/widgets/pictures/test_training.py", labs=("ddp", "collectives")), True),
        (item("tests/hpcdl/widgets/pictures/test_training.py", labs=("collectives",)), False),
        (item("tests/hpcdl/cost/test_ddp.py"), False),
        (item("test_ddp_exercises.py", None, "labs"), True),
        (item("test_ddpx.py", None, "labs"), False),
        (item("test_ddp.py"), False),
    ],
)
def test_a_lab_alone_is_its_bank_its_notebook_its_page_and_its_pictures(suite, test, chosen):
    assert suite.of_lab(test, "ddp") is chosen


@pytest.mark.parametrize("slug", ["calculus", "ddp"])
def test_every_lab_has_tests_of_each_kind(suite, slug):
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.labs" in path.read_text(encoding="utf-8")]
    kinds = {path.parent.name for path in files if suite.of_lab(item(str(path), None, "labs"), slug)}
    assert {"browser", "pictures"} <= kinds


def test_a_file_marks_its_tests_once():
    """A second `pytestmark` would take the place of the first without a word."""
    for path in (ROOT / "tests").rglob("*.py"):
        assert path.read_text(encoding="utf-8").count("\npytestmark = ") <= 1, path


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
def test_shared_memory_that_nobody_holds_any_more_is_found(suite):
    path = Path(f"/dev/shm/mpich_test_{os.getpid()}")
    try:
        with path.open("wb+") as file:
            file.truncate(mmap.PAGESIZE)
            with mmap.mmap(file.fileno(), mmap.PAGESIZE):
                assert path not in suite.left_in_shared_memory(), "a living process has it mapped"
        assert path in suite.left_in_shared_memory()
    finally:
        path.unlink(missing_ok=True)
