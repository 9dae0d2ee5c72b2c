"""Begin a lab: write its checks, notebook, answers (wrong, right, borrowed), sentences and rows in the two READMEs.

autograder new averages --number 90 --title "Averages that forget"
"""

import keyword
import re
from pathlib import Path

from autograder import exercises

from . import build

PACKAGE = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent / "templates"
LESSONS = PACKAGE.parent / "docs" / "teaching" / "lessons.toml"
TESTS = PACKAGE.parent / "tests" / "autograder"
LISTED = re.compile(r"^(LABS\b[^=\n]*= )\((.*?),?\s*\)", re.MULTILINE | re.DOTALL)
LAB_ROW = re.compile(r"^\| \[(\d\d) ", re.MULTILINE)


class NewLabError(ValueError):
    """The lab cannot be created because of its name, number or files."""


def files(slug: str, number: int, title: str) -> dict[Path, str]:
    """Return the lab's files by path; NewLabError if the slug or the number is malformed or taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", slug) or keyword.iskeyword(slug):
        raise NewLabError(f"slug={slug!r}: a lab is named like a Python module, in small letters, such as averages")
    if not 0 < number < 100:
        raise NewLabError(f"number={number}: it is 1 to 99, and orders the labs")
    if not title.strip() or not title.isprintable() or set(title) & set('"\\|'):
        raise NewLabError(f'title={title!r}: it is one line of text without ", \\ and |')
    if slug in exercises.LABS:
        raise NewLabError(f"slug={slug!r}: there is such a lab; the labs are {', '.join(exercises.LABS)}")
    if taken := [path.name for path in build.sources() if int(path.name[:2]) == number]:
        raise NewLabError(f"number={number}: {taken[0]} has it")
    paths = {
        "exercise": PACKAGE / "exercises" / slug / "ema.py",
        "lab": PACKAGE / "exercises" / slug / "__init__.py",
        "source": build.LABS_DIR / "source" / f"{number:02d}_{slug}.py",
        "wrong": PACKAGE / "bank" / slug / "ema.py",
        "bank": PACKAGE / "bank" / slug / "__init__.py",
        "right": TESTS / "honest" / f"{slug}.py",
        "borrowed": TESTS / "impostors" / f"{slug}.py",
        "sentences": TESTS / "sentences" / f"{slug}.txt",
    }
    words = {"SLUG": slug, "NUMBER": str(number), "TITLE": title}
    return {path: filled(name, words) for name, path in paths.items()}


def filled(template: str, words: dict[str, str]) -> str:
    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    return re.sub("|".join(words), lambda match: words[match[0]], text)


def next_number() -> int:
    """Return the number after the last lab's."""
    return max((int(path.name[:2]) for path in build.sources()), default=0) + 1


def titled(slug: str) -> str:
    """Return a title made from the slug: "moving_averages" is "Moving averages"."""
    return slug.replace("_", " ").capitalize()


def write(slug: str, number: int | None = None, title: str | None = None) -> list[Path]:
    """Write the lab's files, list it in `LABS`, and add its rows to the READMEs; existing files are never overwritten.

    Without a number the lab is the last one, without a title it has the slug's words.
    """
    build.require_clone()
    number = next_number() if number is None else number
    title = titled(slug) if title is None else title
    made = files(slug, number, title)
    if there := [path for path in made if path.exists()]:
        raise NewLabError(f"{there[0]} is there already: choose another slug, or remove it")
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    listed = PACKAGE / "exercises" / "__init__.py"
    listed.write_text(with_lab(listed.read_text(encoding="utf-8"), slug), encoding="utf-8")
    return [*made, listed, *write_rows(slug, number, title), *write_lesson(slug)]


def with_lab(text: str, slug: str) -> str:
    """Return the source of the list of labs with one more, in ruff's format."""
    found = LISTED.search(text)
    assert found, "LABS is not where it was"
    names = [*re.findall(r'"(\w+)"', found[2]), slug]
    lines = "".join(f'    "{name}",\n' for name in names)
    return f"{text[: found.start()]}{found[1]}(\n{lines}){text[found.end() :]}"


def write_rows(slug: str, number: int, title: str) -> list[Path]:
    """Add the lab's row to README.md and labs/README.md, where they list labs; return the files that changed."""
    name, file = f"{number:02d} {slug}", f"{number:02d}_{slug}.ipynb"
    rows = {
        PACKAGE.parent / "README.md": f"| [{name}](labs/{file}) | {title} |",
        build.LABS_DIR / "README.md": f"| [{name}]({file}) | {title} | 5 | – | – |",
    }
    changed = []
    for path, row in rows.items():
        if path.exists() and LAB_ROW.search(text := path.read_text(encoding="utf-8")):
            path.write_text(with_row(text, number, row), encoding="utf-8")
            changed.append(path)
    return changed


def write_lesson(slug: str) -> list[Path]:
    """Add the lab's lesson to docs/teaching/lessons.toml, if the course has one; return the file if it changed."""
    if not LESSONS.exists():
        return []
    LESSONS.write_text(LESSONS.read_text(encoding="utf-8") + filled("lesson", {"SLUG": slug}), encoding="utf-8")
    return [LESSONS]


def with_row(text: str, number: int, row: str) -> str:
    """Return a README with `row` after the last lab with a smaller number, or before the first lab."""
    lines = text.splitlines(keepends=True)
    labs = {i: int(found[1]) for i, line in enumerate(lines) if (found := LAB_ROW.match(line))}
    place = max((i + 1 for i, other in labs.items() if other < number), default=min(labs))
    return "".join([*lines[:place], row + "\n", *lines[place:]])
