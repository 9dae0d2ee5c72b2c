"""Messages name what is wrong; they hold no code of the solution that the lab's own text does not show."""

import ast
import re
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.authors.mutants import solution_lines

CALL = re.compile(r"[\w.]*\w\([^()]*\w[^()]*\)|\w[\w.]* = [^,:;]*\w\([^()]*\)")
LEAST = 12  # characters: a shorter call, such as step(x), is a name


def bare(text: str) -> str:
    return re.sub(r"\s+", "", text).replace("'", '"')


def solutions(slug: str) -> str:
    """The lines between the marks of all of the lab's solutions."""
    texts = build.marked(slug).values()
    return "\n".join(line for text in texts for i, line in enumerate(text.splitlines(), 1) if i in solution_lines(text))


def shown(slug: str) -> str:
    """The lab's source without its solutions."""
    source = build.source_path(slug).read_text(encoding="utf-8")
    return re.sub(r"# BEGIN SOLUTION.*?# END SOLUTION", "", source, flags=re.DOTALL).replace("\n# ", "\n")


def sentences(path: Path) -> list[str]:
    """The texts of a file of checks; names of calls, which begin with the call, are left out."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if " " in text and not re.match(r"[\w.]+\(", text)]


@pytest.mark.parametrize("slug", exercises.LABS)
def test_no_message_is_the_answer(slug):
    solved, text = bare(solutions(slug)), bare(shown(slug))
    told = [
        (path.name, call)
        for path in sorted((Path(exercises.__file__).parent / slug).glob("*.py"))
        for sentence in sentences(path)
        for call in CALL.findall(sentence)
        if len(bare(call)) >= LEAST and bare(call) in solved and bare(call) not in text
    ]
    assert told == []
