"""What the site says of each lab, read from the labs themselves: their sources, exercises, READMEs and lecture map."""

import ast
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from autograder import exercises
from autograder.authoring import Lab
from autograder.authors import build

ROOT = Path(__file__).resolve().parent.parent
HEADINGS = re.compile(r"# Lab (\d+) · (.+)\n(?:## (.+)\n)?")
GOALS = re.compile(r"\*\*[^*\n]*(?:be able to|you can)\*\*\n+((?:- .*\n(?:  .*\n)*)+)")
FACTS = re.compile(r"\*\*\d+ points, .*?\*\*\s*(.+?)(?:\n\n|\Z)", re.DOTALL)
TIME = re.compile(r"(about \d+ minutes[^.*]*)\.\*\*")
OTHER_CHAPTER = re.compile(r'"[^"]*"')
LAB = re.compile(r"\b\d\d\b")
WHERE = "lab, section"  # a column of the table of lectures


@dataclass
class Course:
    """One lab as a visitor sees it."""

    lab: Lab
    notebook: str  # its file's name
    title: str
    subtitle: str
    time: str  # how long it takes, and for what
    about: str  # the first paragraphs, as Markdown
    goals: str  # a Markdown list
    needs: str  # what the lab says that you need
    pictures: list[str] = field(default_factory=list)  # by the order in which they come
    map: dict[str, str] = field(default_factory=dict)  # its row in labs/README.md, by column
    lectures: list[str] = field(default_factory=list)  # subjects

    @property
    def slug(self) -> str:
        return self.lab.slug

    @property
    def number(self) -> str:
        return f"{self.lab.number:02d}"

    @property
    def minutes(self) -> int:
        """What a student needs for all of it: the map says, or the exercises' sum."""
        said = re.match(r"\d+", self.map.get("minutes", ""))
        return int(said[0]) if said else sum(e.minutes for e in self.lab.exercises.values())

    @property
    def idea(self) -> str:
        return self.map.get("idea") or self.subtitle


def exercises_table(lab: Lab) -> str:
    """Return the table of a lab's exercises, with their minutes and points; extra ones say so."""
    core, extra = (sum(e.minutes for e in lab.exercises.values() if e.extra == kind) for kind in (False, True))
    rows = [
        f"| `{e.name}`{', extra' if e.extra else ''} | {e.minutes} | {e.points:g} |" for e in lab.exercises.values()
    ]
    total = f"| all | {core}{f' + {extra} extra' if extra else ''} | {lab.points:g} |"
    return "\n".join(["| exercise | minutes | points |", "| --- | ---: | ---: |", *rows, total])


def linked(text: str, folder: str = "") -> str:
    """Return the text with each lab's number as a link to its page in `folder`."""
    slugs = {f"{exercises.load(slug).number:02d}": slug for slug in exercises.LABS}
    return LAB.sub(lambda found: f"[{found[0]}]({folder}{slugs[found[0]]}.md)" if found[0] in slugs else found[0], text)


def courses() -> list[Course]:
    """Every lab, in the order of the course."""
    rows, lectures = map_rows(), lecture_rows()
    return sorted(
        (_course(exercises.load(slug), rows, lectures) for slug in exercises.LABS), key=lambda c: c.lab.number
    )


def _course(lab: Lab, rows: dict[str, dict], lectures: list[tuple[str, set[int]]]) -> Course:
    path = build.source_path(lab.slug)
    text = first_cell(path)
    head = HEADINGS.search(text)
    found = Course(
        lab,
        f"{path.stem}.ipynb",
        head[2] if head else lab.title,
        (head[3] if head else "") or "",
        (TIME.search(text) or [None, ""])[1],
        _about(text, head),
        (GOALS.search(text) or [None, ""])[1].rstrip(),
        " ".join((FACTS.search(text) or [None, ""])[1].split()),
    )
    found.pictures = pictures_in(path)
    found.map = rows.get(lab.slug, {})
    found.lectures = [subject for subject, labs in lectures if lab.number in labs]
    return found


def first_cell(path: Path) -> str:
    """The Markdown of the first cell in the notebook that is built from the source `path`, numbers of labs included."""
    cells = json.loads((ROOT / "labs" / f"{path.stem}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]) + "\n"


def _about(text: str, head: re.Match | None) -> str:
    """Return the text between the headings and the goals."""
    goals = GOALS.search(text) or FACTS.search(text)
    return text[head.end() if head else 0 : goals.start() if goals else None].strip()


def pictures_in(path: Path) -> list[str]:
    """The pictures that the lab's cells show, each once, in their order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "hpcdl.widgets.pictures"
        for alias in node.names
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "explorable"]
    used = [node for node in calls if isinstance(node.value, ast.Name) and node.value.id in names]
    used.sort(key=lambda node: node.lineno)
    return list(dict.fromkeys(names[node.value.id] for node in used))


def table_rows(path: Path, heading: str, number: int = 1) -> list[dict[str, str]]:
    """The rows of the first table below a heading, or of another one of its tables, by column."""
    text = path.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    table = tables[number - 1].splitlines() if len(tables) >= number else []
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[2:]]


def map_rows() -> dict[str, dict[str, str]]:
    """The rows of the map of the labs, by slug."""
    found = {}
    for row in table_rows(ROOT / "labs" / "README.md", "The map"):
        if link := re.search(r"\((\d+)_(\w+)\.ipynb\)", row.get("lab", "")):
            found[link[2]] = row
    return found


def lecture_rows() -> list[tuple[str, set[int]]]:
    """Subjects of the lectures with the numbers of the labs in which they are practised."""
    rows = table_rows(ROOT / "docs" / "teaching" / "index.md", "From lectures to labs", 2)
    return [
        (
            f"{row['subject']} (lecture {row['lecture']})",
            {int(n) for n in LAB.findall(OTHER_CHAPTER.sub("", row[WHERE]))},
        )
        for row in rows
        if {"lecture", "subject", WHERE} <= set(row)
    ]
