"""The charts of the benchmarks' page say what the results say."""

import importlib.util
import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.harness import report

DOCS = Path(__file__).resolve().parents[1] / "docs"
SOURCES = report.sources()


@pytest.fixture(scope="module")
def charts():
    spec = importlib.util.spec_from_file_location("charts", DOCS / "charts.py")
    module = sys.modules["charts"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results():
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_every_benchmark_has_a_place_for_its_charts():
    page = report.PAGE.read_text(encoding="utf-8")
    assert [page.count(report.mark(path)) for path in SOURCES] == [1] * len(SOURCES)


def test_bars_are_good_where_the_result_says_so(charts):
    """A result that says `kept` itself agrees with its bar, whatever the words of its row."""
    told = 0
    for name, found in results().items():
        rows = [row for _, row in report.promises(found)]
        for bar, row in zip(charts.bars(found), rows, strict=True):
            if "kept" in row:
                told += 1
                assert (bar.times >= 1) == row["kept"], (name, bar)
    assert told > 20


@pytest.mark.parametrize(
    ("row", "times"),
    [
        ({"what": "ours / theirs", "promised": 2.0, "measured": 1.0}, 0.5),
        ({"what": "seconds, less than", "promised": 10.0, "measured": 2.0}, 5.0),
        ({"what": "error at most", "promised": 3e-05, "measured": 6e-05}, 0.5),
        ({"what": "a lab", "promised": "< 60 s", "measured": "30.0 s, 358 MB"}, 2.0),
        ({"what": "guard", "promised": "<= 1.05x", "measured": "2.1x (of minima 1.0x)"}, 0.5),
        ({"what": "gain", "promised": ">= 10", "measured": 20}, 2.0),
        ({"what": "a check's own cost", "bound": 15, "measured": -16.8, "kept": True}, math.inf),
        ({"what": "accuracy", "promised": "shown", "measured": "97.3 (95.0 to 98.9)"}, None),
        ({"what": "pictures", "promised": "-", "measured": "4.9, 6.3"}, None),
    ],
)
def test_times_as_good_as_asked(charts, row, times):
    (bar,) = charts.bars({"promises": [row]})
    assert bar.times == pytest.approx(times) if times is not None else bar.times is None


def test_curves_have_every_median(charts):
    found = results()["all_to_all"]["seconds"]
    drawn = charts.curves({"seconds": found})
    assert drawn == {
        title: {name: {int(size): each["median"] for size, each in sizes.items()} for name, sizes in series.items()}
        for title, series in found.items()
    }


def test_pictures_are_small_and_have_texts(charts, tmp_path):
    path = next(path for path in SOURCES if path.stem == "all_to_all")
    html = "".join(charts.figures(path, tmp_path))
    pictures = sorted(tmp_path.glob("*.svg"))
    assert len(pictures) == html.count("<img") == 6
    assert html.count('alt="') == 6
    assert 'alt=""' not in html
    assert "1 of 4 figures reach what was asked" in html
    for picture in pictures:
        assert picture.stat().st_size < 60_000
        colours = set(re.findall("#[0-9a-f]{6}", picture.read_text(encoding="utf-8")))
        assert colours <= set(charts.DARK.values() if "-dark" in picture.name else charts.DARK)
        words = "".join(ET.parse(picture).getroot().itertext())
        assert "as good as asked" in words or "bytes" in words
