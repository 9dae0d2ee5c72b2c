"""Students' own schedules: kept, read, played again, and shown beside the known ones."""

import json
import re

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from hpcdl import designs
from hpcdl.parallel.schedules import zb_h1
from hpcdl.parallel.searched import searched


def design(p, m, f, b, w, cap):
    return searched(p, m, f, b, w, limit=cap)


@pytest.fixture(scope="module")
def made():
    return designs.made(design, "Ada")


def test_a_design_is_read_as_it_was_kept(made, tmp_path):
    path = designs.keep(made, tmp_path)
    assert path == tmp_path / designs.NAME
    assert designs.read(path) == made


def test_a_folder_has_each_design_once(made, tmp_path):
    designs.keep(made, tmp_path).rename(tmp_path / "ada.design.json")
    designs.keep(made, tmp_path)
    assert designs.kept_in(tmp_path) == [made, made]


def test_the_table_has_a_row_for_each_and_the_best_comes_first(made):
    lines = designs.table([made, designs.Design("Ben", made.schedules)])
    names = [line.split()[0] for line in lines[2:]]
    assert sorted(names) == sorted([*designs.KNOWN, "searched", "Ada", "Ben"])
    assert [line.count("(!)") for line in lines[2:] if line.startswith(("Ada", "1F1B"))] == [0, 1]
    sums = {line.split()[0]: sum(map(float, re.findall(r"([\d.]+) %", line))) for line in lines[2:]}
    assert list(sums.values()) == sorted(sums.values())
    assert sums["Ada"] == pytest.approx(sums["searched"])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda *problem: zb_h1(*problem[:2]), "holds 6 microbatches; the cap is 4, so do W sooner"),
        (lambda *problem: design(*problem)[1:], "is not complete; each stage does every F, B and W once"),
        (lambda *problem: [order[::-1] for order in design(*problem)], "cannot be followed: orders"),
    ],
)
def test_what_breaks_the_rules_is_refused(wrong, says):
    with pytest.raises(designs.DesignError, match=says):
        designs.made(wrong)


@pytest.mark.parametrize("text", ["", "[]", '{"name": "x"}', '{"name": "x", "schedules": [["F0"]]}', "{" * 99_999])
def test_a_file_that_is_no_design_gives_one_sentence(text, tmp_path):
    path = tmp_path / designs.NAME
    path.write_text(text)
    with pytest.raises(designs.DesignError, match=str(path)):
        designs.read(path)


def test_a_teacher_sees_the_class_and_what_was_left_out(made, tmp_path):
    for name in ("ada", "ben"):
        (tmp_path / name).mkdir()
        designs.keep(designs.Design(name, made.schedules), tmp_path / name)
    content = json.loads((tmp_path / "ben" / designs.NAME).read_text())
    content["schedules"][0][0] = content["schedules"][0][0].replace("W7", "W6")
    (tmp_path / "ben" / designs.NAME).write_text(json.dumps(content))
    ended = CliRunner().invoke(app, ["designs", str(tmp_path)])
    assert ended.exit_code == 0
    assert "Left out" in ended.output
    assert "\nada" in ended.output
    assert "\nben" not in ended.output
