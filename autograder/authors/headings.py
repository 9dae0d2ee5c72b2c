"""Fill in a lab's source: headings of exercises, and numbers of labs.

`# {{exercise NAME}}`, alone on its line, becomes the exercise's heading, with its points and minutes; `{{number SLUG}}`
anywhere in the prose becomes the lab's number.
"""

import re
from functools import partial
from pathlib import Path

from autograder import exercises
from autograder.authoring import Exercise, Lab

NUMBER = re.compile(r"\{\{number (\w+)\}\}")
HEADING = re.compile(r"^# \{\{exercise (\w+)\}\}\s*$")
HARDER = (8, 15)  # minutes: longer exercises have a second dot, and a third


class BuildError(ValueError):
    """A mistake in a lab's source, with its file and line."""

    def __init__(self, path: Path, line: int, message: str):
        super().__init__(f"{path.name}:{line}: {message}")


def expanded(path: Path, text: str, lab: Lab | None) -> str:
    """Return the lab's text with its headings and numbers filled in."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        lines[number - 1] = NUMBER.sub(partial(_number_of, path, number), line)
        if match := HEADING.match(line):
            name = match.group(1)
            if lab is None or name not in lab.exercises:
                raise BuildError(path, number, f"heading of an unknown exercise {name!r}")
            lines[number - 1] = heading(lab.exercises[name])
        elif "{{exercise" in line:
            raise BuildError(path, number, "write the heading alone on its line: `# {{exercise NAME}}`")
    return "\n".join(lines)


def heading(exercise: Exercise) -> str:
    """Return the line above an exercise: its number and name, how hard it is, points and minutes."""
    position = list(exercise.lab.exercises).index(exercise.name) + 1
    effort = f"{exercise.points:g} points, about {exercise.minutes} minutes{', extra' * exercise.extra}"
    return f"# ### Exercise {position} · `{exercise.name}` {_dots(exercise.minutes)} — {effort}"


def _dots(minutes: int) -> str:
    """Return how hard an exercise is, by the minutes that it takes: lines and traps."""
    full = 1 + sum(minutes > least for least in HARDER)
    return "●" * full + "○" * (1 + len(HARDER) - full)


def _number_of(path: Path, line: int, found: re.Match) -> str:
    if found[1] not in exercises.LABS:
        raise BuildError(path, line, f"the number of an unknown lab {found[1]!r}")
    return f"{exercises.load(found[1]).number:02d}"
