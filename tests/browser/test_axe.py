"""Nothing that we write breaks a rule of WCAG 2.1 AA that axe-core can see: the site, reports, an exported lab.

docs/accessibility.md says what is tested here, and what fails.
"""

from pathlib import Path

import nbclient
import nbconvert
import nbformat
import pytest
from typer.testing import CliRunner

import hpcdl.cli
from autograder.authors import build
from autograder.cli import app
from autograder.grading import grades
from autograder.results import CheckResult, ExerciseResult, LabResult
from hpcdl import guesses, report

from . import axe, building

pytestmark = pytest.mark.browser

THEMES = ("light", "dark")
LAB, NOTEBOOK = "gradient_descent", "02_gradient_descent.ipynb"
NBCONVERT = (".jp-InputPrompt", ".jp-OutputPrompt", ".highlight")  # its prompts and colours of code are too pale
WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
PARTS = ("api", "labs", "teaching", "")  # folders of the site; "" has the other pages


@pytest.fixture
def look(need, browser):
    """A function that returns what axe-core finds in a page of a theme, and whether it is too wide for a telephone."""
    need("axe", axe.source() is not None, "pip install axe-playwright-python")
    pages = []

    def look(path: Path, theme: str, without: tuple[str, ...] = ()) -> list[str]:
        context = browser.new_context(color_scheme=theme, reduced_motion="reduce")
        pages.append(context)
        shown = context.new_page()
        shown.goto(path.as_uri())
        found = axe.violations(shown, without)
        shown.set_viewport_size({"width": 390, "height": 800})
        found += ["it scrolls sideways on a telephone"] if not without and shown.evaluate(WIDE) else []
        context.close()
        return found

    return look


# -- reports ----------------------------------------------------------------------------------------------------------


def run(program, *arguments) -> None:
    ended = CliRunner().invoke(program, [str(argument) for argument in arguments])
    assert ended.exit_code == 0, ended.output


def a_result(student: str, passed: int) -> LabResult:
    checks = [
        CheckResult(f"check{k}", f"Check {k} of `x`.", 50, "passed" if k < passed else "failed") for k in range(2)
    ]
    for check in checks[passed:]:
        check.kind, check.message, check.got, check.expected, check.mistake = "values", "No.", "1", "2", "A sum."
    blank = [CheckResult("later", "Later.", 10, "not_done", "not_done", "`sgd` is not done yet.")]
    done = ExerciseResult(f"{LAB}.mse_grad", "mse_grad", 100, checks)
    return LabResult(student, LAB, 110, [done, ExerciseResult(f"{LAB}.sgd", "sgd", 10, blank)], notes=["a note"])


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A folder with each page that `autograder` and `hpcdl` write for a class of three."""
    folder = tmp_path_factory.mktemp("reports")
    results, submissions = folder / "results", folder / "submissions"
    grades.write([a_result(student, k) for k, student in enumerate(("ada", "ben", "cy"))], results)
    for student in ("ada", "ben", "cy"):
        (submissions / student).mkdir(parents=True)
        notebook = submissions / student / NOTEBOOK
        notebook.write_bytes((build.LABS_DIR / NOTEBOOK).read_bytes())
        report.prepare(notebook)
        form = report.decision_file(notebook)
        form.write_text(form.read_text().replace("\n\n\n", f"\n\n{student} says\n\n", 1))
        guesses.Ledger(submissions / student / guesses.NAME).add(guesses.Guess("tensors.digits", 80, 95, "of 100"))
    (results / "adjustments.csv").write_text(f"student,lab,points,of,reason\nben,{LAB},-5,,late\n")
    run(app, "export", "html", results, "--out", folder / "feedback")
    run(app, "report", results, "--out", folder / "stuck.html")
    run(app, "guesses", submissions, "--out", folder / "guesses.html")
    run(app, "written", submissions, "--out", folder / "written.html")
    run(hpcdl.cli.app, "report", submissions / "ada" / NOTEBOOK, "--out", folder / "report.html")
    return folder


SAMPLE = ("feedback/ben/gradient_descent.html", "stuck.html", "written.html")
OTHERS = [
    pytest.param(page, marks=pytest.mark.long) for page in ("results/instructor.html", "guesses.html", "report.html")
]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("page", [*SAMPLE, *OTHERS])
def test_reports_break_no_rule(look, reports, page, theme):
    assert look(reports / page, theme) == []


def test_a_page_that_breaks_rules_is_found(look, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<html><body><h1>A</h1><h3>B</h3><img src='x.png'><input><p style='color:#aaa;background:#fff'>pale</p>"
    )
    broken = {sentence.partition(":")[0] for sentence in look(tmp_path / "bad.html", "light")}
    assert broken >= {"color-contrast", "heading-order", "html-has-lang", "image-alt", "label", "landmark-one-main"}


# -- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_site(tmp_path_factory):
    return building.small_site(tmp_path_factory)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return building.site(tmp_path_factory)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("page", ["index.html", "lab.html"])
def test_sample_of_the_site_breaks_no_rule(look, small_site, page, theme):
    assert look(small_site / page, theme) == []


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("part", PARTS)
def test_site_breaks_no_rule(look, site, part, theme):
    pages = sorted(site.glob(f"{part}/**/*.html" if part else "*.html"))
    assert pages
    assert {page.name: found for page in pages if (found := look(page, theme))} == {}


# -- a lab ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved_lab():
    """Lab 02, solved and run, with one wrong answer and its check at the end."""
    notebook = build.solved(LAB)
    cells = ["def mse_grad(w, X, y):\n    return w", "check('mse_grad')"]
    notebook.cells += [nbformat.v4.new_code_cell(code, id=f"extra{k}") for k, code in enumerate(cells)]
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True).execute()
    return notebook


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the packages that run and export a notebook
@pytest.mark.parametrize("theme", THEMES)
def test_exported_lab_breaks_no_rule(look, solved_lab, theme, tmp_path):
    page = nbconvert.HTMLExporter(theme=theme).from_notebook_node(solved_lab)[0]
    assert page.count('class="hpcdl-check') > 5
    (tmp_path / "lab.html").write_text(page, encoding="utf-8")
    assert look(tmp_path / "lab.html", theme, NBCONVERT) == []
