"""Written answers that a person marks: one page with a rubric for the class, and the marks that come back from it.

An answer is the decision of a lab's report: the file `NN_slug.decision.md` that `hpcdl report` makes, or the page
`NN_slug.report.html` itself. `page` needs no network. It keeps the marks in the browser and exports them as a CSV file,
which `enter` turns into rows of `adjustments.csv`.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from markupsafe import Markup

from autograder import exercises
from autograder.grading import layouts, submitted
from autograder.grading.submission import Submission
from autograder.results import LabResult
from hpcdl import report

from . import adjustments
from .adjustments import AdjustmentRow
from .html import ENVIRONMENT
from .load import ResultError
from .sheet import Sheet, number

FILE = re.compile(r"(?:\d\d_)?(?P<lab>\w+?)\.(?P<kind>decision\.?.*\.md|report\.?.*\.html)", re.IGNORECASE | re.ASCII)
MOST_BYTES = 1 << 20  # of a file
MOST_POINTS = 10  # of a question: a button for each
REASON = "written answer"
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class RubricQuestion:
    """A question of the rubric, worth 0 to `most` points."""

    text: str
    most: int


@dataclass(frozen=True)
class Answer:
    """A student's answers to a lab's prompts, "" where one is missing."""

    student: str
    lab: str
    texts: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return a short name for the student and the lab, shown if names are hidden."""
        return key(self.student, self.lab)

    @property
    def digest(self) -> str:
        """Return a hash of the text: marks for another text are shown as old."""
        return _hash(*self.texts)


def key(student: str, lab: str) -> str:
    """Return a short name for a student's answer; it shows neither, and is the same on every machine."""
    return _hash("answer", lab, student)[:10]


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------- collect


def collected(folder: Path, lab: str | None = None) -> tuple[list[Answer], list[str]]:
    """Return the answers below `folder`, any layout that grading knows, and a sentence for each file left out.

    Of several files of a student for a lab, the newest with an answer counts.
    Raises ResultError if there is no answer.
    """
    newest: dict[tuple[str, str], tuple[tuple, Answer]] = {}  # with what orders a student's files
    empty: list[tuple[tuple[str, str], str]] = []  # files without an answer, by student and lab
    left: list[str] = []
    for submission in layouts.submissions(folder):
        for name, path in submission.beside:
            found = FILE.fullmatch(Path(name).name)
            if not found or found["lab"] not in exercises.LABS or lab not in (None, found["lab"]):
                continue
            place = submission.student, found["lab"]
            try:
                text = submitted.read(path, MOST_BYTES).decode("utf-8", "replace")
            except submitted.UngradableError as error:
                left.append(f"{submission.student}: {name}: {error}")
                continue
            pair = _read(submission, found, path, text)
            if any(pair[1].texts):
                newest[place] = max(newest.get(place, pair), pair, key=lambda each: each[0])
            else:
                empty.append((place, f"{submission.student}: {name}: no question is answered"))
    if not newest:
        raise ResultError(
            f"there is no written answer in {folder}{f' for lab {lab!r}' if lab else ''}; students hand in the file "
            "NN_slug.decision.md that `hpcdl report` makes"
        )
    return [answer for _, answer in newest.values()], left + [said for place, said in empty if place not in newest]


def _read(submission: Submission, found: re.Match, path: Path, text: str) -> tuple[tuple, Answer]:
    is_page = found["kind"].casefold().startswith("report")
    texts = _Page(text).decision() if is_page else report.decision(text)
    return (not is_page, path.stat().st_mtime, str(path)), Answer(submission.student, found["lab"], texts)


class _Page(HTMLParser):
    """The decision in a report's page: the paragraph of class "answer" below each prompt."""

    def __init__(self, page: str):
        super().__init__()
        self.place, self.prompt, self.found = "", "", dict[str, str]()
        self.feed(page)
        self.close()

    def decision(self) -> tuple[str, ...]:
        texts = (self.found.get(prompt, "").strip() for prompt in report.PROMPTS)
        return tuple("" if text == "(missing)" else text for text in texts)

    def handle_starttag(self, tag, attrs):
        self.place = "prompt" if tag == "h3" else "answer" if ("class", "answer") in attrs else ""
        self.prompt = "" if tag == "h3" else self.prompt

    def handle_endtag(self, tag):
        self.place = ""

    def handle_data(self, data):
        if self.place == "prompt":
            self.prompt += data
        elif self.place == "answer":
            self.found[self.prompt] = self.found.get(self.prompt, "") + data


def rubric(path: Path | None) -> list[RubricQuestion]:
    """Read a rubric from a CSV file with the columns `question, points`; return the report's own without a file.

    Raises ResultError if it has no question, or if the points of one are no whole number from 1 to 10.
    """
    if path is None:
        return [RubricQuestion(text, 2) for text in report.RUBRIC]
    found = []
    for text, points in adjustments.cells(path, ("question", "points")):
        if not points.isdecimal() or not 1 <= int(points) <= MOST_POINTS:
            raise ResultError(f"{path}: {text!r} has {points!r} points; write a whole number from 1 to {MOST_POINTS}")
        found.append(RubricQuestion(text, int(points)))
    if not found:
        raise ResultError(f"{path} has no question; write a row `question,points` for each")
    return found


# ---------------------------------------------------------------------------------------------- the page


def page(answers: list[Answer], questions: list[RubricQuestion], names: bool = True) -> str:
    """Return the page as HTML: every answer beside the rubric; without `names`, in an order that shows none.

    Text of students is escaped, and only the page's own script runs.
    """
    script = (TEMPLATES / "written.js").read_text(encoding="utf-8")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    ordered = sorted(answers, key=lambda answer: (answer.lab, answer.student if names else answer.key))
    return ENVIRONMENT.get_template("written.html").render(
        answers=ordered,
        questions=questions,
        names=names,
        prompts=report.PROMPTS,
        scale=report.MARKS if [q.text for q in questions] == list(report.RUBRIC) else "",
        most=sum(question.most for question in questions),
        store=_hash(*(f"{question.text} {question.most}" for question in questions)),
        script=Markup(script),
        allowed=allowed,
    )


# ---------------------------------------------------------------------------------------------- marks


@dataclass
class Entered:
    """The rows written into `adjustments.csv`, and a sentence for each row of the marks that is left out."""

    rows: list[AdjustmentRow]
    left: list[str]


def enter(found: list[LabResult], marks: Path, folder: Path) -> Entered:
    """Write the marks that the page exported into the folder's `adjustments.csv`, instead of earlier marks.

    Members of a group whose result another one handed in get that one's marks. Raises ResultError if `marks` is not
    a sheet of the page.
    """
    if missing := {"answer", "points", "of"} - {name.strip().casefold() for name in Sheet.read(marks).rows[0]}:
        raise ResultError(f"{marks} has no column {min(missing)!r}; give the file that the page exported")
    shared = adjustments.shared(found, folder / adjustments.GROUPS)
    known = {key(result.student, result.lab): result for result in shared if result.status == "graded"}
    entered = Entered([], [])
    for code, student, points, of, comment in adjustments.cells(
        marks, ("answer", "student", "points", "of", "comment")
    ):
        who, result = student or f"answer {code}", known.get(code)
        earned, most = number(points), number(of)
        if not points:
            entered.left.append(f"{who}: not marked completely")
        elif earned is None or most is None or not 0 <= earned <= most:
            raise ResultError(f"{marks}: {who} has {points!r} of {of!r} points; write numbers from 0 to the maximum")
        elif result is None:
            entered.left.append(f"{who}: no graded result of the lab here")
        else:
            entered.rows.append(AdjustmentRow(result.student, result.lab, earned, most, REASON, comment))
    _for_members(entered, found, folder)
    new = {(row.student, row.lab) for row in entered.rows}
    path = folder / adjustments.ADJUSTMENTS
    kept = [row for row in adjustments.read(path) if (row.student, row.lab) not in new or row.reason != REASON]
    adjustments.write(path, [*kept, *entered.rows])
    return entered


def _for_members(entered: Entered, found: list[LabResult], folder: Path) -> None:
    """Add the rows of group members who have another member's result and no answer of their own."""
    rows = {(row.student, row.lab): row for row in entered.rows}
    for (member, lab), best in adjustments.givers(found, folder / adjustments.GROUPS).items():
        if (best.student, lab) in rows and (member, lab) not in rows:
            entered.rows.append(rows[best.student, lab]._replace(student=member))
