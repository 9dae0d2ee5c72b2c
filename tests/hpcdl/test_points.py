"""The points of the checks are kept in a file: over kernels, over labs, over half a line."""

import json

import pytest

from hpcdl import points
from hpcdl.points import Checked, PointsRecord

RING = "ddp.ring_all_reduce"


@pytest.fixture
def path(tmp_path):
    return tmp_path / points.NAME


def test_another_kernel_knows_the_last_check_and_the_best(path):
    record = PointsRecord(path)
    record.add(Checked(RING, 15, 20))
    record.add(Checked(RING, 5, 20))
    record.add(Checked("ddp.average", 10, 10))
    later = PointsRecord(path)
    assert (later.points(RING), later.best(RING), later.last(RING).most) == (5, 15, 20)
    assert later.points("ddp.average") == 10
    assert (later.points("ddp.no"), later.best("ddp.no"), later.last("ddp.no")) == (0, 0, None)


def test_an_exercise_that_is_begun_again_has_no_points_and_its_best(path):
    record = PointsRecord(path)
    record.add(Checked(RING, 15, 20))
    record.add(Checked(RING, None))
    assert (PointsRecord(path).points(RING), PointsRecord(path).best(RING), PointsRecord(path).last(RING)) == (
        0,
        15,
        None,
    )


def test_two_notebooks_write_into_one_file(path):
    one, other = PointsRecord(path), PointsRecord(path)
    for number in range(20):
        one.add(Checked("a.x", number, 20))
        other.add(Checked("b.y", number, 20))
    assert len(path.read_text().splitlines()) == 40
    assert (PointsRecord(path).points("a.x"), PointsRecord(path).points("b.y")) == (19, 19)


@pytest.mark.parametrize(
    "line",
    [
        *('{"exercise": "ddp.ri', "[1]", '{"points": 3}', '{"exercise": 1, "points": 1}', "\x00"),
        '{"exercise": "ddp.ring_all_reduce", "points": "many"}',
        '{"exercise": "ddp.ring_all_reduce", "points": 20, "when": "yesterday"}',
    ],
)
def test_a_line_that_is_none_of_ours_is_passed_over(path, line):
    PointsRecord(path).add(Checked(RING, 15, 20))
    with path.open("a") as file:
        file.write(line + "\n")
    assert PointsRecord(path).points(RING) == 15


def test_where_nothing_can_be_written_points_are_kept_in_memory(tmp_path):
    record = PointsRecord(tmp_path / "no folder" / points.NAME)
    record.add(Checked(RING, 15, 20))
    assert record.points(RING) == 15


def test_place_of_the_file(monkeypatch, tmp_path):
    monkeypatch.delenv(points.VARIABLE)
    assert points.file_in(tmp_path) == tmp_path / ".points.jsonl"
    monkeypatch.setenv(points.VARIABLE, "/elsewhere/mine")
    assert str(points.file_in(tmp_path)) == "/elsewhere/mine"
    monkeypatch.setenv(points.VARIABLE, "")
    assert points.file_in(tmp_path) is None


def test_a_line_is_a_check(path):
    PointsRecord(path).add(Checked(RING, 7.5, 20, "2026-11-23T07:00:00+00:00"))
    assert json.loads(path.read_text()) == {
        "exercise": RING,
        "points": 7.5,
        "most": 20,
        "when": "2026-11-23T07:00:00+00:00",
        "code": "",
    }
