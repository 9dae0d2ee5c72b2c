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
SPEAKING = ("autograder/", "hpcdl/")  # any string with a space in it may be printed, yielded, or on a button
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
    "nobody": "say who is meant: no rank, no student",
    "among those": "one of the",
}
# What students read: labs, and the sentences of their checks; teachers read the titles of wrong answers.
TO_STUDENTS = INSTEAD | {
    "anybody": "the noun: a rank, a student",
    "who knows": "if you know",
    "turned round": "flipped, reversed, wrong",
    "turns round": "flips, reverses",
    "go round": "go around",
    "goes round": "goes around",
    "way out": "the solution",
    "what comes in": "the noun: the received chunk",
    "what it was": "not changed",
    "what they were": "not changed",
    "as it stands": "leave it out",
    "is to be": "must be",
    "are to be": "must be",
    "is wanted": "is needed, expected",
    "are wanted": "are needed, expected",
    "wants the": "needs the",
    "wants a": "needs a",
    "hand over": "pass, yield",
    "hands over": "passes, yields",
    "handed": "passed",
    "became of": "happened to",
    "held against": "compared with",
    "closed to it": "not allowed",
    "at the most": "at most",
    "answers wrongly": "gives a wrong answer",
    "answer wrongly": "give wrong answers",
    "ask of yourself": "demand of yourself",
    "as the others do": "the right answer",
    "keep the rules": "follow the rules",
    "stands still": "stops",
    "side by side": "next to each other",
    "beside": "next to",
    "drowns": "hides",
    "nudge": "change a little",
    "shall": "must",
    "is no multiple": "is not a multiple",
    "are no multiple": "are not a multiple",
    "no power of two": "not a power of two",
    "is no neighbour": "is not a neighbour",
    "is no copy": "is not a copy",
    "read right": "read correctly",
    "sits out": "does not run",
    "look on": "record",
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


def joined(node: ast.JoinedStr) -> str:
    """An f-string with its values left out."""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)


def raised(source: str) -> str:
    """The sentences of a program's errors and warnings."""
    tree = ast.parse(source)
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]
    errors = [
        part
        for node in [*(each for each in ast.walk(tree) if isinstance(each, ast.Raise)), *calls]
        for part in ast.walk(node)
    ]
    return flat(
        " | ".join(
            joined(part) if isinstance(part, ast.JoinedStr) else str(part.value)
            for part in errors
            if isinstance(part, ast.JoinedStr | ast.Constant)
        )
    )


def sentences(source: str) -> str:
    """The strings that a student may read: literals with spaces in them, and what a check (decorated) says it asks."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    plain = [node for node in ast.walk(tree) if isinstance(node, PARTS) and not getattr(node, "decorator_list", [])]
    firsts = [node.body[0] for node in plain if ast.get_docstring(node)]
    ours = {id(first.value) for first in firsts if isinstance(first, ast.Expr)}
    found = [joined(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | ours:
            found.append(node.value)
    return flat(" | ".join(text for text in found if " " in text.strip()))


def phrases(text: str, banned: dict[str, str] = INSTEAD) -> list[str]:
    return [phrase for phrase in banned if phrase in text and re.search(rf"\b{phrase}\b", text)]


def faults(name: str, source: str) -> list[str]:
    """What to change in a file. Few files hold a phrase anywhere, so few are parsed."""
    found = phrases(flat(source))
    if found and name.endswith(".py"):
        said = sentences(source) if name.startswith(SPEAKING) else raised(source)
        found = phrases(f"{prose(source)} | {said}")
    return [f"{name}: {phrase!r} -> {INSTEAD[phrase]}" for phrase in found]


def faults_for_students(name: str, source: str) -> list[str]:
    """What to change in a lab, or in the messages of its checks."""
    text = sentences(source) + (prose(source) if name.startswith("labs/") else "")
    return [f"{name}: {phrase!r} -> {TO_STUDENTS[phrase]}" for phrase in phrases(text, TO_STUDENTS)]


def test_prose_is_plain():
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True)
    names = [
        name for name in listed.stdout.splitlines() if not NOT_OURS.match(name) and name != "tests/test_english.py"
    ]
    if not names:
        pytest.skip("this is not a clone")
    found = [fault for name in names for fault in faults(name, (ROOT / name).read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_students_read_plain_sentences():
    labs = sorted((ROOT / "labs" / "source").glob("[0-9]*.py"))
    slugs = [path.stem.split("_", 1)[1] for path in labs]
    if not labs:
        pytest.skip("this is not a clone")
    checks = [path for slug in slugs for path in sorted((ROOT / "autograder" / "exercises" / slug).glob("*.py"))]
    shared = ROOT / "autograder" / "checks" / "impostors.py"
    bank = sorted((ROOT / "autograder" / "bank").rglob("*.py"))
    found = [
        fault
        for path in [*labs, *checks, shared, *bank]
        for fault in faults_for_students(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert len(checks) > len(labs) == 18
    assert not found, "\n".join(found)


def cut_off(source: str) -> list[str]:
    """Strings that are statements, but no docstrings: the second line of a sentence that lost its brackets."""
    bodies = [body[1:] for node in ast.walk(ast.parse(source)) if isinstance(body := getattr(node, "body", None), list)]
    alone = [line.value for body in bodies for line in body if isinstance(line, ast.Expr)]
    return [ast.unparse(text) for text in alone if isinstance(text, ast.JoinedStr | ast.Constant)]


def test_no_sentence_is_cut_off():
    found = {
        path.relative_to(ROOT).as_posix(): strings
        for path in sorted((ROOT / "autograder").glob("[ce]*/**/*.py"))
        if (strings := cut_off(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert cut_off('x = "one "\n"two"\n') == ["'two'"]
    assert cut_off('"""Module."""\nx = ("one "\n"two")\n') == []


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("labs/source/a.py", "# Nobody\n# waits.\n", ["nobody"]),
        ("labs/source/a.py", 'guess("What became of it?")\n', ["became of"]),
        ("a.py", "# Nobody waits.\nnobody = 1\n", []),
        ("a.py", '"""Nobody waits."""\n', []),
        ("a.py", '@exercise.check(points=1)\ndef f():\n    "Nobody waits."\n', ["nobody"]),
        ("a.py", 'f"{name} is what "\n"it was."\n', []),
        ("a.py", 'x = f"{name} is what " "it was."\n', ["what it was"]),
        ("a.py", '{"The sign is turned "\n"round.": 1}\n', ["turned round"]),
    ],
)
def test_a_phrase_is_found_in_what_students_read(name, source, found):
    assert faults_for_students(name, source) == [f"{name}: {phrase!r} -> {TO_STUDENTS[phrase]}" for phrase in found]


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


def test_a_phrase_is_found_in_what_the_packages_say():
    for source in ('def f():\n    yield f"Nobody\'s: {x}"\n', 'label = "go on with it"\n', "# it goes on\n"):
        assert len(faults("autograder/a.py", source)) == len(faults("hpcdl/b.py", source)) == 1
    assert faults("tests/a.py", 'label = "go on with it"\n') == []


BARE_PERCENT = re.compile(r"""(?:\d|[^{%]\})%(?=[\s"'.,;:)]*$|[ "'.,)])|:[^{}"' ]*%\}""", re.MULTILINE)


@pytest.mark.parametrize("folder", ["labs/source", "hpcdl/widgets/pictures", "hpcdl/training", "autograder/exercises"])
def test_a_percent_sign_follows_a_space(folder):
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in sorted((ROOT / folder).glob("**/*.py"))
        if (lines := [line for line in path.read_text(encoding="utf-8").splitlines() if BARE_PERCENT.search(line)])
    }
    assert found == {}
    lines = ('f"{x:.1%}"', '"18% of"', '"18 % of"', "n %% 2")
    assert [bool(BARE_PERCENT.search(line)) for line in lines] == [True, True, False, False]
