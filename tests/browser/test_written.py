"""Written answers are marked on the page: by keyboard, kept over a reload, exported, and entered."""

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from autograder.grading import grades
from autograder.outputs import adjustments, load, written
from autograder.results import LabResult
from hpcdl import report

pytestmark = pytest.mark.browser

LAB, STUDENTS = "gradient_descent", ("ada", "ben", "cy")
FORM = f"02_{LAB}.decision.md"
WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def run(*arguments):
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ended.exit_code == 0, ended.output


@pytest.fixture
def page(browser, tmp_path):
    for student in STUDENTS:
        folder = tmp_path / "submissions" / student
        folder.mkdir(parents=True)
        text = "".join(f"## {prompt}\n\n{student} <b onclick='alert(1)'>says</b>\n\n" for prompt in report.PROMPTS)
        (folder / FORM).write_text(text)
    grades.write([LabResult(student, LAB, 100) for student in STUDENTS], tmp_path / "results")
    run("written", tmp_path / "submissions", "--no-names", "--out", tmp_path / "written.html")
    shown = browser.new_page(viewport={"width": 390, "height": 800})
    shown.goto((tmp_path / "written.html").as_uri())
    yield shown
    shown.close()


def mark(page, points: list[int]) -> None:
    """Give points by keyboard, from the first question of the answer that has the focus."""
    for given in points:
        page.keyboard.press("Space")  # chooses 0
        for _ in range(given):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Tab")


def test_answers_are_marked_kept_and_exported(page, tmp_path):
    assert not page.evaluate(WIDE)
    articles = page.locator("article")
    following = page.get_by_role("button", name="Next unmarked")
    following.click()
    mark(page, [0, 1, 2])
    page.keyboard.type('=1+1, "good"')
    following.click()
    mark(page, [2, 2, 2])
    following.click()
    page.keyboard.press("Space")  # the third answer stays incomplete
    page.reload()
    assert page.locator("#count").text_content() == "2 of 3 marked"
    assert articles.locator("form output").all_text_contents() == ["3", "6", "–"]
    with page.expect_download() as exported:
        page.get_by_role("button", name="Export").click()
    exported.value.save_as(tmp_path / "marks.csv")
    run("marks", tmp_path / "marks.csv", tmp_path / "results")
    keys = articles.evaluate_all("found => found.map(each => each.dataset.key)")
    students = {written.key(student, LAB): student for student in STUDENTS}
    found = adjustments.adjusted(load.results(tmp_path / "results"), tmp_path / "results")
    scores = {result.student: (result.score, result.max_score) for result in found}
    assert [scores[students[key]] for key in keys] == [(3, 106), (6, 106), (0, 106)]
    assert 'written answer: =1+1, "good"' in [each.reason for result in found for each in result.adjustments]


def test_changed_answer_is_noted(page, tmp_path):
    page.locator("article input").first.check()
    form = tmp_path / "submissions" / "ada" / FORM
    form.write_text(form.read_text().replace("says", "corrects"))
    run("written", tmp_path / "submissions", "--out", tmp_path / "written.html")
    for box in page.locator("article").all():
        box.locator("input").first.check()
    page.reload()
    notes = page.locator("article .changed").evaluate_all("found => found.map(each => !each.hidden)")
    students = page.locator("article").evaluate_all("found => found.map(each => each.dataset.student)")
    assert dict(zip(students, notes, strict=True)) == {"ada": True, "ben": False, "cy": False}


def test_only_the_pages_own_script_runs(page):
    said = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: said.append(message.text))
    page.reload()
    page.get_by_text("says").first.click()
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(2)>')")
    page.wait_for_timeout(200)
    assert [text for text in said if "Content Security Policy" not in text] == []
