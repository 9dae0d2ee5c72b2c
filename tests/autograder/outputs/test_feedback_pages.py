"""Feedback shows a student all that helps and nothing that is not theirs, and nothing in it runs."""

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import nbconvert.filters
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from autograder.cli import app
from autograder.outputs import html, junit, load, markdown
from autograder.outputs.instructor import Overview
from autograder.results import CheckResult, ExerciseResult, LabResult

ALLOWED = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "b", "ul", "li", "div", "span", "main"}
ALLOWED |= {"details", "summary", "code", "pre", "table", "tr", "th", "td", "small", "br", "meter"}


class Tags(HTMLParser):
    """The tags, attributes and text of a page, as a browser would take it."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.links, self.text = set(), set(), [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data):
        self.text += data


def assert_inert(page):
    seen = Tags(page)
    assert seen.tags <= ALLOWED, seen.tags - ALLOWED
    assert not [name for name in seen.attributes if name.startswith("on") or name in ("src", "href", "action")]
    return seen


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_html_pages_of_students_and_instructor(folder):
    result = run("export", "html", folder)
    assert result.exit_code == 0, result.output
    pages = sorted((folder / "feedback").rglob("*.html"))
    assert len(pages) == 5
    texts = [assert_inert(page.read_text()).text for page in pages]
    assert sum("alert(1)" in text for text in texts) >= 2  # it is shown, as text
    assert_inert((folder / "instructor.html").read_text())


def test_student_page_hides_the_grader(make_result):
    for page in (html.page(make_result("ada", 0)), markdown.page(make_result("ada", 0))):
        assert page.count("SECRET-GOT") == 1  # of the check that is not hidden
        assert page.count("This is the sum") == 1  # the author's hint; the hidden check has the same cause
        assert page.count("The cause is the same as in") == 1
        assert "runs only when grading" in page
        assert "grader.py" not in page
        assert "12345" not in page
    report = junit.document([make_result("ada", 0)])
    assert report.count("SECRET-INPUT") == 1
    assert "grader.py" not in report


def test_an_ungradable_submission_gets_a_page_with_its_reason(class_results):
    assert "the file is empty" in html.page(class_results[-1])
    assert "could not be graded" in markdown.page(class_results[-1])


text = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(
    [
        "<img src=x onerror=alert(1)>",
        "`<b>`",
        "```\n<script>",
        "[x](javascript:alert(1))",
        "{{7*7}}",
        "]]>",
        "&lt;",
        "\0\x1b",
    ]
)


@settings(deadline=None, max_examples=50)  # the first page compiles the template
@given(st.lists(text, min_size=12, max_size=12))
def test_whatever_a_student_wrote_stays_text_in_every_format(said):
    names = ("title", "message", "mistake", "call", "got", "expected", "where", "why", "function", "source")
    check = CheckResult("c", max_points=1, kind="values", line=3, **dict(zip(names, said, strict=False)))
    result = LabResult(said[10], "tiny", 1, [ExerciseResult("tiny.c", "c", 1, [check])], notes=[said[11]])
    assert_inert(html.page(result))
    assert_inert(html.instructor_page([result]))
    ET.fromstring(junit.document([result]).encode("utf-8", "replace"))
    printed = markdown.page(result).encode("utf-8", "replace").decode().replace("\0", "")
    rendered = nbconvert.filters.markdown2html(printed)
    seen = Tags(rendered)
    assert not seen.tags & {"script", "img", "iframe", "b", "style"}
    assert not [link for link in seen.links if not link.startswith("#")]  # headings link to themselves


def test_instructor_page_shows_the_commonest_mistake(make_result):
    found = [make_result("a", 0), make_result("b", 0), make_result("c", 1), make_result("d", 2)]
    hardest, easier, nobody = Overview(found).checks
    assert (hardest.title, hardest.share, hardest.reached) == ("A hidden one.", 0.25, 4)
    assert (easier.title, easier.share) == ("The mean of `x`.", 0.5)
    assert (nobody.reached, nobody.statuses["not_done"]) == (0, 4)
    ((said, count, facts),) = easier.common()
    assert (said, count, facts[0]) == ("This is the sum.", 2, ("call", "mean(SECRET-INPUT)"))
    assert Overview(found).medians == [("tiny", 4, 20.0, 100)]


def test_a_check_that_broke_is_flagged_for_a_person(make_result):
    result = make_result("a", 0)
    result.exercises[0].checks[0].kind = "check"
    assert Overview([result]).flags == [("a", "tiny.mean: the check “The mean of `x`.” had an error of its own")]


def test_junit_counts_failures_skips_and_errors(class_results):
    suites = ET.fromstring(junit.document(class_results))
    counts = [{k: s.get(k) for k in ("tests", "failures", "errors", "skipped")} for s in suites]
    assert counts[0] == {"tests": "3", "failures": "1", "errors": "0", "skipped": "0"}
    assert counts[-1] == {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    assert suites[0].find("properties/property[@name='score']").get("value") == "60"


def test_a_result_read_back_is_the_result_that_was_written(folder, class_results):
    found = load.results(folder)
    assert sorted(r.student for r in found) == sorted(r.student for r in class_results)
    by_name = {r.student: r for r in class_results}
    assert all(r.to_json() == by_name[r.student].to_json() for r in found if r.status == "graded")
    assert [r.message for r in found if r.status == "ungradable"] == [class_results[-1].message]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "other"}, "schema"),
        ({"max_score": 10}, "0 <= points"),
        ({"max_score": float("nan")}, "0 <= points"),
        ({"max_score": "x"}, "not a result file"),
        ({"exercises": 3}, "not a result file"),
    ],
)
def test_a_damaged_result_is_refused_by_name_and_exports_nothing(folder, change, said):
    path = folder / "ben" / "tiny.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    result = run("export", "html", folder)
    assert result.exit_code == 2
    assert said in result.output
    assert not (folder / "feedback").exists()


def test_a_negative_score_is_refused(make_result):
    result = make_result("a")
    result.exercises[0].checks[0].max_points = -1
    with pytest.raises(load.ResultError, match="0 <= points"):
        load.bounded(result)


def test_an_empty_folder_says_what_to_do_first(tmp_path):
    result = run("export", "markdown", tmp_path)
    assert result.exit_code == 2
    assert "autograder grade" in result.output
