"""A new lab to start from: checks, notebook and wrong answers of one exercise, complete and proved.

autograder new averages --number 90 --title "Averages that forget"
"""

import re
from pathlib import Path

from autograder import exercises

from . import build

PACKAGE = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent / "templates"
LISTED = re.compile(r"^(LABS\b[^=]*) = \((.*?),?\s*\)", re.MULTILINE | re.DOTALL)


class NewLabError(ValueError):
    """The lab cannot be begun: its name, its number or its files."""


def files(slug: str, number: int, title: str) -> dict[Path, str]:
    """The five files of the lab, by path; NewLabError where a name or number does not do or is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", slug):
        raise NewLabError(f"slug={slug!r}: a lab is named like a Python module, in small letters, such as averages")
    if not 0 < number < 100:
        raise NewLabError(f"number={number}: it is 1 to 99, and orders the labs")
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
    }
    words = {"SLUG": slug, "NUMBER": str(number), "TITLE": title}
    return {path: filled(name, words) for name, path in paths.items()}


def filled(template: str, words: dict[str, str]) -> str:
    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    return re.sub("|".join(words), lambda match: words[match[0]], text)


def write(slug: str, number: int, title: str) -> list[Path]:
    """Write the lab's files and add it to the list of labs; what is there already is not overwritten."""
    build.require_clone()
    made, listed = files(slug, number, title), PACKAGE / "exercises" / "__init__.py"
    if there := [path for path in made if path.exists()]:
        raise NewLabError(f"{there[0]} is there already: choose another slug, or remove it")
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    text = listed.read_text(encoding="utf-8")
    listed.write_text(with_lab(text, slug), encoding="utf-8")
    return [*made, listed]


def with_lab(text: str, slug: str) -> str:
    """The text of `exercises/__init__.py` with one lab more."""
    return LISTED.sub(lambda labs: f'{labs[1]} = ({labs[2]}, "{slug}")', text, count=1)
