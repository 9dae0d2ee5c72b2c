"""What students get holds the lab and no answer, and is the same each time."""

import json

import nbformat
import pytest
from typer.testing import CliRunner

from autograder import exercises
from autograder.authors import build, release
from autograder.cli import app
from hpcdl import labs

GRADED = [slug for slug in map(build.slug_of, build.sources()) if slug in exercises.LABS]
WHERE = "hpcdl @ https://example.org/hpcdl-0.1.0-py3-none-any.whl"


def run(*arguments):
    return CliRunner().invoke(app, ["release", "--requirement", WHERE, *map(str, arguments)])


def test_a_lab_is_released_by_its_number(tmp_path):
    ended = run("--lab", "04", "--out", tmp_path / "bundle")
    assert ended.exit_code == 0, ended.output
    written = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert written == {"04_backprop.ipynb", "README.md", "AGENTS.md", "TUTOR.md", "requirements.txt"}
    assert "hpcdl lab 04\n" in (tmp_path / "bundle" / "README.md").read_text()
    assert labs.find("04", labs.found(tmp_path / "bundle")) == tmp_path / "bundle" / "04_backprop.ipynb"


@pytest.fixture(scope="module")
def everything():
    return release.bundle(release.chosen([]), WHERE)


def test_the_bundle_is_the_same_each_time_and_holds_every_graded_lab(everything):
    assert everything == release.bundle(release.chosen([]), WHERE)
    assert len([name for name in everything if name.endswith(".ipynb")]) == len(GRADED)


def strings(content) -> list[str]:
    """Return all texts in JSON; a list of texts, as of a cell's lines, is one."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return [text for value in content.values() for text in strings(value)]
    if isinstance(content, list):
        parts = [text for value in content for text in strings(value)]
        return ["".join(parts)] if all(isinstance(value, str) for value in content) else parts
    return []


@pytest.mark.parametrize("slug", GRADED)
def test_no_line_of_a_solution_is_in_it(slug, everything):
    name = f"{build.source_path(slug).stem}.ipynb"
    texts = [everything["TUTOR.md"], *strings(json.loads(everything[name]))]
    cells = {c.metadata["hpcdl"]["exercise"]: c.source for c in nbformat.reads(everything[name], 4).cells if c.metadata}
    for exercise, text in build.marked(slug).items():
        solution = text.split(build.BEGIN)[1].split(build.END)[0].strip()
        assert not [text for text in texts if solution in text], "no cell, metadata or output holds it"
        assert build.STUB in cells[f"{slug}.{exercise}"]


def test_it_does_not_overwrite_what_is_there(tmp_path):
    assert run("--lab", "perceptron", "--out", tmp_path).exit_code == 0
    assert run("--lab", "perceptron", "--out", tmp_path).exit_code == 0, "the same again is no loss"
    (tmp_path / "03_perceptron.ipynb").write_text("my answers")
    ended = run("--lab", "perceptron", "--out", tmp_path)
    assert ended.exit_code == 2
    assert "is there already and differs" in ended.output.replace("\n", " ")
    assert (tmp_path / "03_perceptron.ipynb").read_text() == "my answers"


@pytest.mark.parametrize("arguments", [[], ["--lab", "04", "--all"]])
def test_it_asks_which_labs(arguments, tmp_path):
    assert run(*arguments, "--out", tmp_path).exit_code == 2


def test_an_unknown_lab_is_named_with_those_there_are(tmp_path):
    ended = run("--lab", "77", "--out", tmp_path)
    assert ended.exit_code == 2
    assert "backprop" in ended.output


def test_it_asks_what_students_install_for_no_index_has_the_package(tmp_path):
    ended = CliRunner().invoke(app, ["release", "--lab", "04", "--out", str(tmp_path / "bundle")])
    assert ended.exit_code == 2
    assert "--requirement" in ended.output
    assert not (tmp_path / "bundle").exists()


def test_a_wheel_is_put_into_the_bundle(tmp_path):
    wheel = tmp_path / "hpcdl-9-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    assert run("--lab", "04", "--out", tmp_path / "bundle", "--requirement", wheel).exit_code == 0
    assert (tmp_path / "bundle" / "requirements.txt").read_text() == "./hpcdl-9-py3-none-any.whl\n"
    assert (tmp_path / "bundle" / wheel.name).read_bytes() == b"wheel"


def test_without_sources_the_notebooks_are_those_that_the_package_brings(tmp_path, monkeypatch, everything):
    monkeypatch.setattr(build, "LABS_DIR", tmp_path)
    assert release.bundle(release.chosen([]), WHERE) == everything
