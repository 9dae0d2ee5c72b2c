"""Every lab has a lesson for teachers, and a page that shows it."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import nbclient
import nbformat
import pytest

from autograder import exercises
from autograder.authors import build

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))
import course  # noqa: E402
import teaching_pages  # noqa: E402

PLANS = [plan["weeks"] for plan in tomllib.loads(teaching_pages.PLANS.read_text(encoding="utf-8"))["plan"]]
COURSES = {each.slug: each for each in course.courses()}
LECTURES = course.table_rows(DOCS / "teaching" / "index.md", "From lectures to labs", 2)
LESSONS = tomllib.loads((DOCS / "teaching" / "lessons.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("slug", exercises.LABS)
def test_lesson_is_complete(slug):
    lesson = LESSONS[slug]
    assert [len(lesson[part]) for part in ("session", "demo", "ask", "discuss", "exam")] == [5, 3, 3, 3, 2]
    assert sum(minutes for minutes, _ in lesson["session"]) == 50
    assert all(exam["question"] and exam["rubric"] for exam in lesson["exam"])
    assert lesson["demo"][0].get("picture", "") in COURSES[slug].pictures or not COURSES[slug].pictures
    assert all(step.keys() & {"picture", "mistake", "run"} for step in lesson["demo"])


@pytest.mark.each_lab("hogwild", turn=(2, 3))
@pytest.mark.timeout(200)
@pytest.mark.parametrize("slug", exercises.LABS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the packages that run a notebook
def test_demonstration_runs_and_says_what_the_page_says(slug, tmp_path):
    """Its cells run in an empty notebook, and the check of the wrong answer names the mistake."""
    lab, steps = exercises.load(slug), LESSONS[slug]["demo"]
    cells = [nbformat.v4.new_code_cell(teaching_pages.demo_step(lab, step)[1]) for step in steps]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    printed = ["".join(map(str, cell.outputs)) for cell in notebook.cells]
    assert all(printed)
    told = teaching_pages.message(lab, teaching_pages.wrong_answer(lab, steps[1]))
    assert told.removesuffix(" …") in printed[1]


def test_no_lesson_is_of_a_lab_that_is_gone():
    assert set(LESSONS) == set(exercises.LABS)


def test_names_in_lessons_are_exercises():
    """Words in backticks that look like exercises are exercises of that lab."""
    for slug, lesson in LESSONS.items():
        lab = exercises.load(slug)
        words = " ".join([*(row[1] for row in lesson["session"]), lesson["skip"]]).split("`")[1::2]
        assert {word for word in words if lab.find(word) is None} == set(), slug


@pytest.mark.parametrize("slug", ["gradient_descent", "own_stack"])
def test_page_shows_exercises_and_mistakes(slug):
    lab = exercises.load(slug)
    text = teaching_pages.page(COURSES[slug], LESSONS[slug])
    assert text.startswith(f"# Lab {COURSES[slug].number} · {COURSES[slug].title}\n")
    core = sum(e.minutes for e in lab.exercises.values() if not e.extra)
    assert f"| all | {core}{' + 25 extra' if slug == 'own_stack' else ''} | 100 |" in text
    for e in lab.exercises.values():
        assert f"| `{e.name}`{', extra' if e.extra else ''} | {e.minutes} | {e.points:g} |" in text
    assert "## Usual mistakes" in text
    assert "After this lab students can" in text
    assert teaching_pages.page(COURSES[slug], {}).startswith("# Lab")


@pytest.mark.parametrize(
    ("slug", "shown"),
    [
        ("gradient_descent", r"- forgets the 2: \*The factor 2 is missing: .*\*"),
        ("backprop", r"`output_error`\n  - forgets σ': \*σ'\(z\) is missing: the error is with respect to z.*\*"),
        ("calculus", r"- forward difference: \*This is the forward difference \(f\(x\+h\) - f\(x\)\) / h\. .*\*"),
        ("backprop", r"- not transposed: \*W is not transposed …\*"),  # two sentences begin so
    ],
)
def test_mistakes_have_the_sentence_that_students_read(slug, shown):
    assert re.search(shown, teaching_pages.mistakes(exercises.load(slug)))


# -- plans and lectures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weeks", PLANS, ids=len)
def test_plan_has_each_lab_after_those_that_it_needs(weeks):
    done: set[str] = set()
    for week in weeks:
        for entry in week:
            for slug in teaching_pages.choices(entry):
                first = re.sub(r"\([^)]*\)", "", COURSES[slug].map["do first"])  # in brackets: what only helps
                needed = set() if "help" in first else set(re.findall(r"\d\d", first))
                assert needed <= done, f"{slug} needs {needed - done}"
            done |= {COURSES[slug].number for slug in teaching_pages.choices(entry)}
        assert teaching_pages.minutes(week, COURSES) <= 240  # two labs


def test_plans_are_of_7_10_and_14_weeks_and_the_longest_has_every_lab():
    assert [len(weeks) for weeks in PLANS] == [7, 10, 14]
    """A lab that has just begun has no picture yet, and no week."""
    whole = {each.slug: each.minutes for each in COURSES.values() if each.pictures}
    assert {slug for week in PLANS[-1] for slug in week} == set(whole)
    assert f"{sum(whole.values())} (" in teaching_pages.plans()


@pytest.mark.parametrize("row", LECTURES, ids=lambda row: f"{row['lecture']} {row['subject']}"[:40])
def test_section_of_a_lecture_is_a_heading_of_its_lab(row):
    found = re.findall(r'\b(\d\d)(?=[,;])|"([^"]+)"', row["lab, section"])
    assert any(section for _, section in found)
    number, slugs = "", {each.number: each.slug for each in COURSES.values()}
    for lab, section in found:
        number = lab or number
        if section:
            text = build.source_path(slugs[number]).read_text(encoding="utf-8")
            assert f"# ## {section}\n" in text, f"{section} in lab {number}"


def test_every_lab_page_is_whole():
    """A page has one title, no mark of the source, and a picture in front of the exercises."""
    import site_pages
    from frames import Frames

    for each in COURSES.values():
        text = site_pages.lab_page(each, {n: Frames(n, "A.", "B.", "c", 9, 4, ["One.", "Two."]) for n in each.pictures})
        assert "{{" not in text
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
        assert not each.pictures or text.index("<figure") < text.index("## Exercises")
        assert each.subtitle
        assert f'href="../teaching/labs/{each.slug}.html"' in text
        assert f"about {each.minutes} minutes" in each.time
        assert f"<span>{each.time}</span>" in text
        assert "lecture " not in text or "teaching/index.md#from-lectures-to-labs" in text


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("–", []),
        ("01, 02", ["Do first:** [01](calculus.md), [02](gradient_descent.md)."]),
        ("02 (07 and 08 help)", ["Do first:** [02](gradient_descent.md).", "Useful before it:** [07](ddp.md) and "]),
        ("– (04 helps)", ["Useful before it:** [04](backprop.md)."]),
        ("04, 07 help", ["Useful before it:** [04](backprop.md), [07](ddp.md)."]),
    ],
)
def test_page_tells_needed_labs_from_useful_ones(first, said):
    import site_pages

    text = site_pages.before(replace(COURSES["ddp"], map={"do first": first}))
    assert re.findall(r"Do first|Useful before it", text) == [each.partition(":")[0] for each in said]
    assert all(each in text for each in said)


def test_numbers_of_labs_lead_to_their_pages():
    assert course.linked("02 (07 and 08 help)") == (
        "[02](gradient_descent.md) ([07](ddp.md) and [08](collectives.md) help)"
    )
    page = teaching_pages.linked_lectures((course.ROOT / "docs" / "teaching" / "index.md").read_text(encoding="utf-8"))
    assert '| C | HOGWILD!, hypergraph, sparse problems | [10](../labs/hogwild.md), "Without locks"' in page
    assert "E-317/517, 2024" in page


def test_numbers_of_the_support_matrix_lead_to_their_sentences():
    """Every refusal in a cell is a link; the summary counts the cells."""
    import support_page

    text = support_page.linked((course.ROOT / "docs" / "support.md").read_text(encoding="utf-8"))
    linked = set(re.findall(r'<a href="#refusal-(\d+)" title="[^"]+">\1</a>', text))
    assert linked == set(re.findall(r'^(\d+)\. <span id="refusal-\1"></span>', text, re.MULTILINE))
    right = re.search(r"about a wrapper: pipeline (\d+) of (\d+), ", text)
    column = re.findall(r"^\| (?!model or loop)[^|]+ \| ([^|]+) \|", text, re.MULTILINE)
    assert column.count("right") == int(right[1])
    assert len(column) - column.count("–") == int(right[2])
