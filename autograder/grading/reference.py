"""The lab's own solution, in the form of a submission's statements."""

import functools

from autograder.authors import build
from autograder.inside import magics, source

IMPORTS = ("import ", "from ")
Statements = list[tuple[str, str]]  # label, source


def statements(slug: str, functions: list[str]) -> Statements:
    """Return the statements that define `functions`, with what they need; [] if the labs' sources are not available (a
    wheel)."""
    try:
        solved = build.code(slug)
    except FileNotFoundError:
        return []
    return source.needed([(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(solved)], functions)[0]


@functools.cache
def given(slug: str, functions: tuple[str, ...]) -> Statements:
    """Return the definitions of `functions`, which the lab gives, and the imports before them, without solutions."""
    found = statements(slug, list(functions)) if functions else []
    names = [(code, source.defined_names([("", code)])) for _, code in found]
    wanted = [code for code, bound in names if code.lstrip().startswith(IMPORTS) or bound & {*functions}]
    return [("given", code) for code in wanted]
