"""What shards record becomes what one machine writes, whatever happened to them."""

import csv
import json

import pytest

from autograder.grading import grade, store
from autograder.shards import records as recording


def without_seconds(content):
    """A result file's content without what differs from run to run."""
    if isinstance(content, dict):
        return {key: without_seconds(value) for key, value in content.items() if key != "seconds"}
    return [without_seconds(value) for value in content] if isinstance(content, list) else content


def record_files(out):
    return sorted((out / "records").glob("*/*.jsonl"))


def test_any_number_of_shards_gives_the_bytes_of_one(class_of_eight, tmp_path, shards, contents, run):
    for n in (1, 3, 11):
        shards(tmp_path / f"in {n}", n)
    one, three, eleven = (contents(tmp_path / f"in {n}") for n in (1, 3, 11))
    assert one == three == eleven
    run("grade", tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    assert whole.keys() == one.keys()
    assert whole["grades.csv"] == one["grades.csv"]
    for name in whole.keys() - {"grades.csv"}:
        assert without_seconds(json.loads(whole[name])) == json.loads(one[name])
    rows = list(csv.DictReader(one["grades.csv"].decode().splitlines()))
    assert [(row["student"], row["score"], row["status"]) for row in rows] == [
        *[(name, "100", "graded") for name in ("ada", "ben")],
        ("cleo", "60", "graded"),
        ("dan", "40", "graded"),
        ("eve", "0", "graded"),
        *[(name, "0", "ungradable") for name in ("finn", "gus")],
        ("h\u00e9di", "100", "graded"),
    ]
    assert "2 notebooks for this lab" in rows[2]["message"]


def test_a_shard_that_runs_again_grades_nothing_twice(class_of_eight, tmp_path, run, graded, write_notebook, solution):
    assert run("grade", tmp_path / "out", "--shard", "1/1")[0] == 0
    assert len(graded) == 9
    _, said = run("grade", tmp_path / "out", "--shard", "1/1")
    assert "9 of 9 submissions, 0 of them graded now" in said
    write_notebook("dan.ipynb", *solution.values())
    run("grade", tmp_path / "out", "--shard", "1/1")
    assert graded[9:] == ["dan"]
    run("merge", tmp_path / "out")
    assert "dan,tiny,100,100,graded," in (tmp_path / "out" / "grades.csv").read_text()


@pytest.mark.parametrize(
    ("left", "again"), [(0, 1), (1, 1), (-400, 1), (-2, 1), (-1, 0)]
)  # the last lacks its end only
def test_a_record_cut_short_is_graded_again(class_of_eight, tmp_path, run, graded, shards, contents, left, again):
    shards(tmp_path / "whole", 1)
    run("grade", tmp_path / "out", "--shard", "1/1")
    (path,) = record_files(tmp_path / "out")
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    path.write_bytes(whole[: last + left if left >= 0 else left])
    graded.clear()
    run("grade", tmp_path / "out", "--shard", "1/1")
    assert len(graded) == again
    assert run("merge", tmp_path / "out")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_what_is_not_graded_is_named_with_its_shards(class_of_eight, tmp_path, run):
    out = tmp_path / "out"
    code, said = run("merge", out)
    assert code == 1
    assert "9 of 9 submissions have no record in" in said
    assert "--shard 1/1" in said
    run("grade", out, "--shard", "2/3")
    code, said = run("merge", out)
    assert code == 1
    assert "run shards 1, 3 of 3 again, or give --partial" in said
    assert not (out / "grades.csv").exists()
    assert run("merge", out, "--partial")[0] == 0
    assert len((out / "grades.csv").read_text().splitlines()) > 1


@pytest.mark.parametrize("other", ["version", "secret"])
def test_records_of_another_grader_are_refused(class_of_eight, tmp_path, run, monkeypatch, other):
    out = tmp_path / "out"
    run("grade", out, "--shard", "1/1")
    if other == "version":
        monkeypatch.setattr(store, "checks_and_versions", lambda: b"a check was changed")
    else:
        (tmp_path / "secret").write_text("of another course")
    code, said = run("merge", out)
    assert code == 1
    assert "records of another version of the grader or another secret" in said
    run("grade", out, "--shard", "1/1")
    assert run("merge", out)[0] == 0, "graded again, the others do not count"


def test_a_failure_of_the_grader_itself_is_tried_again(class_of_eight, tmp_path, run, monkeypatch, contents, shards):
    shards(tmp_path / "whole", 2)
    out, original = tmp_path / "out", grade.grade

    def breaks(submission, *rest):
        if submission.student == "ben":
            raise OSError("no space")
        return original(submission, *rest)

    monkeypatch.setattr(grade, "grade", breaks)
    run("grade", out, "--shard", "1/1")
    run("merge", out)
    assert 'ben,,0,0,ungradable,"the grader failed on this file' in (out / "grades.csv").read_text()
    monkeypatch.setattr(grade, "grade", original)
    assert "1 of them graded now" in run("grade", out, "--shard", "1/1")[1]
    run("merge", out)
    assert contents(out) == contents(tmp_path / "whole")


def test_two_processes_do_not_share_a_shard(class_of_eight, tmp_path, run):
    shard = recording.ClassShard(1, 2)
    with recording.Records(tmp_path / "out", (tmp_path / "secret").read_bytes(), shard):
        code, said = run("grade", tmp_path / "out", "--shard", "1/2")
        assert code == 3
        assert "in use by another grader" in said
        assert run("grade", tmp_path / "out", "--shard", "2/2")[0] == 0


def test_a_shard_that_is_none_is_refused(class_of_eight, tmp_path, run):
    code, said = run("grade", tmp_path / "out", "--shard", "0/64")
    assert code == 2
    assert "1/64 to 64/64" in said.replace("\n", " ")
