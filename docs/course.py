"""What the site says of each lab, read from the labs themselves: their sources, exercises, READMEs and lecture map."""

import ast
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
OTHER_CHAPTER = re.compile(r'"[^"]*"')


@dataclass
class Course:
    """One lab as a visitor sees it."""

    lab: Lab
    notebook: str  # its file's name
    title: str
    subtitle: str
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
        _about(text, head),
        (GOALS.search(text) or [None, ""])[1].rstrip(),
        " ".join((FACTS.search(text) or [None, ""])[1].split()),
    )
    found.pictures = pictures_in(path)
    found.map = rows.get(lab.slug, {})
    found.lectures = [subject for subject, labs in lectures if lab.number in labs]
    return found


def first_cell(path: Path) -> str:
    """The Markdown of the lab's first cell."""
    cell = path.read_text(encoding="utf-8").split("\n# %%", 1)[0]
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in cell.splitlines()[1:]) + "\n"


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


def table_rows(path: Path, heading: str) -> list[dict[str, str]]:
    """The rows of the first table below a heading, by column."""
    text = path.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line[:1] == "|"]
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
    rows = table_rows(ROOT / "docs" / "teaching" / "index.md", "From lectures to labs")
    return [
        (row["subject"], {int(n) for n in re.findall(r"\b\d\d\b", OTHER_CHAPTER.sub("", row["lab, section"]))})
        for row in rows
        if {"subject", "lab, section"} <= set(row)
    ]
