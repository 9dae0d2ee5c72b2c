"""Checks ask what the text says, and the text says what checks ask: the tables in `sentences/SLUG.txt`.

    # fit
    > Return w and the number of updates in each epoch.
      weights: one move per epoch
      counts: running totals for counts; one epoch only
    text> An epoch without a mistake is the last one.
      stops_when_settled: never stops early
    > X (n, d) holds the samples.
      names: an argument

`# name` begins an exercise. `> ` is a sentence of its docstrings, in order and without the examples; `text> ` is one of
the lab's Markdown that demands something. Below it are the checks that ask for it, each with wrong answers of the bank
that break the sentence and fail the check; or `names: reason`, if the sentence demands nothing.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from autograder import authoring, exercises
from autograder.authors import build, mutants, new
from autograder.grading import selfcheck

FOLDER = Path(__file__).parent / "sentences"
DEFINITIONS = ast.ClassDef | ast.FunctionDef
EXAMPLE = re.compile(r"^[ ]*>>> .*?(?:\n[ ]*\n|\Z)", re.MULTILINE | re.DOTALL)
END = re.compile(r"(?<=[\w)\]`'\"|*$])[.?!] (?=\S)")  # of a sentence, inside an entry
ROW = re.compile(r"  (\w+):(?: (.*))?")


class Asked(NamedTuple):
    """What an exercise says and asks: docstrings and Markdown on one line; the checks that each wrong answer fails."""

    docstrings: str
    markdown: str
    checks: tuple[str, ...]
    mistakes: dict[str, tuple[str, ...]]


class Entry(NamedTuple):
    """A sentence of the table, and its rows: (check, mistakes), or ("names", reason)."""

    kind: str  # "docstring" or "text"
    sentence: str
    rows: list[tuple[str, str]]


def flat(text: str) -> str:
    return " ".join(text.split())


def docstrings(marked: str) -> str:
    """The docstrings of what the student fills in, as one line without examples."""
    lines, found = mutants.solution_lines(marked), []
    for node in ast.walk(ast.parse(marked)):
        is_seen = isinstance(node, DEFINITIONS) and node.lineno not in lines
        if is_seen and lines.intersection(range(node.lineno, node.end_lineno + 1)):
            found.append((node.lineno, EXAMPLE.sub("", ast.get_docstring(node) or "")))
    return flat(" ".join(text for _, text in sorted(found)))


def markdown(slug: str) -> str:
    """The text of a lab, as one line."""
    blocks = build._blocks(build.source_path(slug))
    return flat(" ".join(line.removeprefix("#") for block in blocks if block.markdown for line in block.lines))


def asked(slug: str) -> dict[str, Asked]:
    """What each exercise of a lab says and asks."""
    lab, text, sources = exercises.load(slug), markdown(slug), build.marked(slug)
    mistakes = {name: {} for name in lab.exercises}
    for answer in selfcheck.bank(slug):
        fails = mistakes[answer.exercise.partition(".")[2]]
        own = [check.removeprefix(f"{answer.exercise.partition('.')[2]}.") for check in answer.fails]
        fails[answer.mistake] = (*fails.get(answer.mistake, ()), *own)
    return {
        name: Asked(docstrings(sources[name]), text, tuple(exercise.checks), mistakes[name])
        for name, exercise in lab.exercises.items()
    }


def parsed(table: str) -> tuple[dict[str, list[Entry]], list[str]]:
    """The entries of a table by exercise, and what is malformed."""
    entries, faults = {}, []
    last: list = []
    for number, line in enumerate(table.splitlines(), start=1):
        kind, mark, rest = line.partition("> ")
        if line.startswith("# "):
            last = entries.setdefault(line[2:], [])
        elif mark and kind in ("", "text") and entries:
            last.append(Entry(kind or "docstring", rest, []))
        elif (row := ROW.fullmatch(line)) and last:
            last[-1].rows.append((row[1], row[2] or ""))
        elif line.strip():
            faults.append(f"line {number} is {line!r}: begin it with `# `, `> `, `text> `, or two spaces and a check")
    return entries, faults


def of_docstrings(name: str, entries: list[Entry], given: Asked) -> list[str]:
    """What the docstrings say and the table leaves out, or the other way round."""
    left, faults = given.docstrings, []
    for sentence in (entry.sentence for entry in entries if entry.kind == "docstring"):
        if END.search(sentence):
            faults.append(f"{name}: {sentence!r} is several sentences; give each its own entry")
        skipped, found, rest = left.partition(sentence)
        if not found:
            faults.append(f"{name}: no docstring says {sentence!r} at this place; remove the entry, or say it there")
            continue
        faults += missing(name, skipped)
        left = rest
    return faults + missing(name, left)


def missing(name: str, skipped: str) -> list[str]:
    if not skipped.strip():
        return []
    return [f"{name}: {skipped.strip()!r} has no entry; add `> ` with it, and the checks that ask for it"]


def of_rows(name: str, entry: Entry, given: Asked) -> list[str]:
    """What is wrong with one sentence and the checks below it."""
    faults, about = [], f"{name}, {entry.sentence!r}"
    if not entry.rows:
        faults.append(f"{about}: no check asks for it; add one, or `names: ` with the reason if it demands nothing")
    if len(entry.rows) > 1 and "names" in dict(entry.rows):
        faults.append(f"{about}: it demands nothing and has checks; remove the row of `names` or the checks")
    if entry.kind == "text" and entry.sentence not in given.markdown:
        faults.append(f"{about}: the lab's text does not say it; remove the entry, or say it there")
    for check, mistakes in entry.rows:
        if check == "names":
            faults += [] if mistakes else [f"{about}: write after `names: ` why it demands nothing"]
        elif check not in given.checks:
            faults.append(f"{about}: there is no check {check!r}; the checks are {', '.join(given.checks)}")
        elif not mistakes:
            faults.append(f"{about}: no wrong answer shows that {check} asks for it; name one, or add it to the bank")
        else:
            faults += [fault for m in mistakes.split("; ") if (fault := of_mistake(about, check, m, given))]
    return faults


def of_mistake(about: str, check: str, mistake: str, given: Asked) -> str:
    if mistake not in given.mistakes:
        return f"{about}: the bank has no wrong answer {mistake!r}; correct the title, or add the answer"
    if check not in given.mistakes[mistake]:
        return f"{about}: {mistake!r} passes {check}; name an answer whose `fails` lists that check, or add one"
    return ""


def faults(table: str, given: dict[str, Asked]) -> list[str]:
    """What is wrong with a lab's table, each with the next step."""
    entries, found = parsed(table)
    if list(entries) != list(given):
        found.append(f"the exercises are {', '.join(entries)}; list them all, in order: {', '.join(given)}")
    for name in (name for name in given if name in entries):
        found += of_docstrings(name, entries[name], given[name])
        found += [fault for entry in entries[name] for fault in of_rows(name, entry, given[name])]
        rows = {check for entry in entries[name] for check, _ in entry.rows}
        found += [
            f"{name}: no sentence says what {check} asks; say it in the docstring, or accept other answers"
            for check in given[name].checks
            if check not in rows
        ]
    return found


@pytest.mark.parametrize("slug", exercises.LABS)
def test_each_sentence_has_its_check(slug):
    path = FOLDER / f"{slug}.txt"
    assert path.exists(), f"write {path}: the sentences of the lab with their checks, as `autograder new` begins it"
    found = faults(path.read_text(encoding="utf-8"), asked(slug))
    assert not found, "\n".join([f"{path.name}:", *found])


def test_each_table_has_its_lab():
    left = {path.stem for path in FOLDER.glob("*.txt")} - set(exercises.LABS)
    assert not left, f"{left}: there is no such lab; rename the tables, or remove them"


# -- faults are found -------------------------------------------------------------------------------------------------

GIVEN = {
    "scale": Asked(
        "Multiply x by c, in place. c: a number, at most 1.0, or ... more. Returns None.",
        "Give x back. Numbers of $x$ stay.",
        ("value", "place"),
        {"adds c": ("value", "place"), "a copy": ("place",)},
    ),
    "last": Asked("Return x[-1].", "", ("value",), {"the first: x[0]": ("value", "scale.value")}),
}
TABLE = """
# scale
> Multiply x by c, in place.
  value: adds c
  place: a copy; adds c
> c: a number, at most 1.0, or ... more.
  names: an argument
> Returns None.
  place: a copy
text> Give x back.
  value: adds c

# last
> Return x[-1].
  value: the first: x[0]
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("> Returns None.\n  place: a copy\n", "", "'Returns None.' has no entry"),
        ("> Multiply", "> Multiplies", "no docstring says 'Multiplies x by c, in place.'"),
        ("> Returns None.\n", "> Return it.\n", "'Returns None.' has no entry"),
        ("> Multiply x by c, in place.\n  value: adds c\n  place: a copy; adds c\n", "", "'Multiply x by c, in p"),
        ("more.\n  names: an argument\n> Returns", "more. Returns", "is several sentences"),
        ("text> Give", "text> Take", "the lab's text does not say it"),
        ("  value: adds c\n\n", "\n", "no check asks for it"),
        ("  value: the first", "  values: the first", "there is no check 'values'; the checks are value"),
        ("value: the first: x[0]", "value:", "no wrong answer shows that value asks for it"),
        ("value: adds c\n  place", "value: adds d\n  place", "the bank has no wrong answer 'adds d'"),
        ("value: adds c\n  place", "value: a copy\n  place", "'a copy' passes value"),
        ("names: an argument", "names:", "write after `names: ` why"),
        ("names: an argument", "names: an argument\n  place: a copy", "demands nothing and has checks"),
        ("  place: a copy; adds c\n", "", ""),
        ("place: a copy", "value: adds c", "no sentence says what place asks"),
        ("# last", "# first", "list them all, in order: scale, last"),
        ("# scale", "scale", "line 2 is 'scale': begin it with"),
        ("text> Give", "  > Give", "begin it with"),
    ],
)
def test_a_fault_is_found(before, after, said):
    assert faults(TABLE, GIVEN) == []
    assert before in TABLE
    found = faults(TABLE.replace(before, after), GIVEN)
    assert [said] == [said for fault in found if said in fault][:1] if said else found == []


MARKED = '''
class A:
    """Hold x.

    x: a number.

    >>> A(1)
    A(1)

    It is kept.
    """

    def given(self):
        """Is given."""

    def add(self, y):
        """Add y."""
        # BEGIN SOLUTION
        def inner():
            """Is not shown."""
        # END SOLUTION


def helper():
    """Helps."""
'''


def test_docstrings_are_of_what_is_filled_in():
    assert docstrings(MARKED) == "Hold x. x: a number. It is kept. Add y."


def test_a_new_lab_has_its_table(monkeypatch):
    made = {path.parent.parent.name + "/" + path.name: text for path, text in new.files("averages", 90, "A").items()}
    mistakes = {}

    def wrong(exercise, mistake, *, fails, says):
        mistakes[mistake] = (fails,) if isinstance(fails, str) else fails
        return lambda definition: None

    monkeypatch.setattr(authoring, "wrong", wrong)
    exec(made["bank/ema.py"], {})
    exec(made["exercises/ema.py"], found := {})
    source = made["labs/90_averages.py"]
    said = docstrings(source[source.index("def ema") : source.rindex("# %%")])
    given = {"ema": Asked(said, source, tuple(found["exercise"].checks), mistakes)}
    assert faults(made["autograder/averages.txt"], given) == []
