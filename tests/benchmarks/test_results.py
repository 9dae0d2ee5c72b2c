"""Results keep summaries of samples, and one line for what fits on a line."""

import json

from benchmarks.harness import results


def test_summary_keeps_quartiles():
    found = {"a": [5.0, 1.0, 2.0, 4.0, 3.0], "b": [1.0, 2.0], "c": ["x"] * 9, "d": [{"e": list(range(101))}]}
    assert results.summary(found) == {
        "a": {"n": 5, "min": 1.0, "lower": 2.0, "median": 3.0, "upper": 4.0},
        "b": [1.0, 2.0],
        "c": ["x"] * 9,
        "d": [{"e": {"n": 101, "min": 0.0, "lower": 25.0, "median": 50.0, "upper": 75.0}}],
    }


def test_written_results_are_the_same_json():
    found = {
        "machine": {"cores": 2},
        "rows": [{"name": "x" * 90, "value": i} for i in range(3)],
        "empty": [],
        "n": None,
    }
    text = results.written(found)
    assert json.loads(text) == found
    assert max(map(len, text.splitlines())) <= results.WIDTH


def test_a_row_has_one_line():
    row = {"lab": "x" * 90, "sizes": [1, 2, 3], "seconds": 0.125, "processor": "y" * 90}
    assert results.written({"rows": [row, row]}).count("\n") == 5
    assert json.dumps(row) in results.written({"rows": [row, row]})


def test_save_leaves_raw_samples_out_of_git(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "QUICK", tmp_path / "artifacts")
    results.save({"seconds": [1, 2, 3, 4, 5]}, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["seconds"]["median"] == 3
    assert json.loads((tmp_path / "artifacts" / "raw" / "x.json").read_text()) == {"seconds": [1, 2, 3, 4, 5]}


def test_committed_results_are_as_saved():
    """They hold no raw samples, and have a line for each row."""
    for path in results.RESULTS.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
        assert results.summary(found) == found, path.name
        assert results.written(found) + "\n" == text, path.name
