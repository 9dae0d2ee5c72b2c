"""Docstrings, comments and documents keep to plain English.

Each phrase in `INSTEAD` once made readers translate; a failure names the file, the phrase and what to write.
"""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Answers are in their writers' words, and pages of results are generated.
NOT_OURS = re.compile(
    r"labs/|autograder/bank/|tests/autograder/(honest|impostors)/|docs/(support|benchmarks|published)\.md"
)
INSTEAD = {
    "but for": "except",
    "somebody": "the noun: a rank, a student",
    "of whose": "a second sentence",
    "to whose": "a second sentence",
    "of whom": "a second sentence",
    "go on": "continue",
    "goes on": "continue",
    "going on": "continue",
    "what stands": "the content, the text",
    "is none of": "is not one of",
    "where it is none": "if it is not one",
    "where there is none": "or None, or empty",
    "where there are none": "if there are none",
    "is no rank": "is not a rank",
    "is no number": "is not a number",
    "is no tensor": "is not a tensor",
    "for ever": "forever",
    "any more": "no longer",
    "foretell": "predict",
    "in place of": "instead of",
    "in the place of": "instead of",
    "the same of": "the noun",
    "are others": "differ",
    "anew": "again",
    "whoever": "the noun: a rank, a student",
    "of which": "a second sentence",
    "if there is none": "or None, or empty",
    "nobody tells": "the noun",
    "stays as it is": "is not changed",
    "stay as they are": "are not changed",
}
PARTS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def flat(text: str) -> str:
    """Text on one line in small letters, without the marks of comments."""
    return " ".join(text.lower().split()).replace(" # ", " ")


def prose(source: str) -> str:
    """The docstrings and comments of a program."""
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, PARTS)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return flat("\n".join([*docstrings, *(token.string for token in tokens if token.type == tokenize.COMMENT)]))


def phrases(text: str) -> list[str]:
    return [phrase for phrase in INSTEAD if phrase in text and re.search(rf"\b{phrase}\b", text)]


def faults(name: str, source: str) -> list[str]:
    """What to change in a file. Few files hold a phrase anywhere, so few are parsed."""
    found = phrases(flat(source))
    if found and name.endswith(".py"):
        found = phrases(prose(source))
    return [f"{name}: {phrase!r} -> {INSTEAD[phrase]}" for phrase in found]


def test_prose_is_plain():
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True)
    names = [
        name for name in listed.stdout.splitlines() if not NOT_OURS.match(name) and name != "tests/test_english.py"
    ]
    if not names:
        pytest.skip("this is not a clone")
    found = [fault for name in names for fault in faults(name, (ROOT / name).read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""All ranks, but\n    for the last."""\n', ["a.py: 'but for' -> except"]),
        ("x = 1  # it goes on\n", ["a.py: 'goes on' -> continue"]),
        ("# a lost rank waits for\n# ever\n", ["a.py: 'for ever' -> forever"]),
        ("x = 'it goes on'  # for every rank\n", []),
        ('"""All ranks except the last."""\n', []),
    ],
)
def test_a_phrase_is_found_in_prose_alone(source, found):
    assert faults("a.py", source) == found
