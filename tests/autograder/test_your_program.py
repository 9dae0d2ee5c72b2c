"""Each question on a student's own program has one answer, for the reference and for right answers in other styles.

The answer of the cell is compared with a count that shares no code with it: the events of a plain run, the text of a
deadlock, and the virtual clock between two lines of the student's code.
"""

import ast
import linecache
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch

from autograder import exercises
from autograder.authors import build
from autograder.inside import magics, source
from hpcdl.comm import DeadlockError, simulate
from hpcdl.comm.location import SourceLine, is_own
from hpcdl.widgets.kit import own_runs
from hpcdl.widgets.kit.your_program import MOST, questions

pytestmark = pytest.mark.filterwarnings("ignore")  # a student's code may warn

CORPORA = [Path(__file__).parent / folder for folder in ("honest", "verdicts")]
CELL = re.compile(r"^# %% (\w+): (.+)\n", re.MULTILINE)
COST = {"alpha": 1e-5, "beta": 1e-9}  # of the question: 10 µs + n ns


@cache
def cells(slug: str) -> list[tuple[str, str]]:
    """The cells of the lab with the reference's answers."""
    return [(f"{slug}, cell {i}", magics.plain_python(code)) for i, code in enumerate(build.code(slug))]


def asking(code: str) -> tuple[str, str, str] | None:
    """Return slug, exercise, and a function `ask(your_program)` of a cell that has questions, or None."""
    tree = ast.parse(code)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "your_program"]
    if not calls:
        return None
    (call,), (with_,) = calls, [statement for statement in tree.body if isinstance(statement, ast.With)]
    ask = ast.parse("def ask(your_program): ...").body[0]
    ask.body = [statement for statement in tree.body if statement is not with_] + with_.body
    slug, _, name = call.args[0].value.partition(".")
    return slug, name, ast.unparse(ask)


ASKED = {found[:2]: found[2] for slug in exercises.LABS for _, code in cells(slug) if (found := asking(code))}


def answers(slug: str, name: str) -> list[tuple[str, str]]:
    """Return the right answers to an exercise: the reference ("") and those of both corpora."""
    found = [("reference", "")]
    for path in (folder / f"{slug}.py" for folder in CORPORA):
        _, *parts = CELL.split(path.read_text(encoding="utf-8")) if path.exists() else [""]
        for exercise, style, code in zip(parts[0::3], parts[1::3], parts[2::3], strict=True):
            if exercise == name and style.partition(" -> ")[2] in ("", "full points"):
                found.append((style, code))
    return found


CASES = [
    pytest.param(slug, name, code, id=f"{slug}-{name}: {style}")
    for slug, name in ASKED
    for style, code in answers(slug, name)
]


@pytest.fixture(autouse=True)
def one_thread():
    """As the labs' first cells ask for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def program_of(slug: str, name: str, code: str):
    """Return what the cell of the exercise passes to `your_program`, with `code` as the student's answer."""
    functions = [*exercises.load(slug).exercises[name].functions, "ask"]
    texts = [*cells(slug), *([(f"{slug}, {name}", code)] if code else []), ("questions", ASKED[slug, name])]
    namespace, found = {}, []
    for label, statement in source.needed(texts, functions)[0]:
        linecache.cache[label] = len(statement), None, statement.splitlines(keepends=True), label
        exec(compile(statement, label, "exec"), namespace)
    namespace["ask"](lambda exercise, program, p, on: found.append((exercise, program, p)))
    ((exercise, program, p),) = found
    assert exercise == f"{slug}.{name}"
    return program, p


@pytest.mark.each_lab("ddp")
@pytest.mark.parametrize(("slug", "name", "code"), CASES)
def test_each_question_has_one_answer(slug, name, code):
    program, p = program_of(slug, name, code)
    asked = questions(program, p)
    assert 2 <= len(asked) <= MOST
    assert len({each.what for each in asked}) == len(asked)
    for each in asked:
        assert COUNTED[each.what](each, program, p) == each.truth
        assert not each.choices or each.choices.count(each.truth) == 1


def test_a_dozen_exercises_ask():
    assert len(ASKED) >= 13
    assert {slug for slug, _ in ASKED} == {
        "ddp",
        "collectives",
        "consistency",
        "hogwild",
        "attention",
        "model_parallel",
        "sharding",
        "own_stack",
    }


# -- the same counts, in another way -----------------------------------------------------------------------------------


def sent(asked, program, p):
    """Add the bytes of a rank's sends; the note distributes them over lines."""
    noted = re.findall(r"^([\d,]+) bytes by line \d+: ", asked.note, re.MULTILINE)
    assert sum(int(nbytes.replace(",", "")) for nbytes in noted) == asked.truth
    rank = int(re.search(r"does rank (\d+) send", asked.text)[1])
    return sum(e.nbytes for e in simulate(program, p, **COST).trace if (e.rank, e.op) == (rank, "send"))


def took(asked, program, p):
    """Return when the last message ends, in µs."""
    return round(1e6 * max(event.end for event in simulate(program, p, **COST).trace), 6)


def waiting(asked, program, p):
    """Return the lines of the deadlock's report that name a waiting rank."""
    with pytest.raises(DeadlockError) as caught:
        simulate(lambda comm: program(comm) if comm.rank != 1 else None, p)
    return re.findall(r"^rank (\d+) waits in .*, line (\d+)", str(caught.value), re.MULTILINE)


def left_waiting(asked, program, p):
    return str(len(waiting(asked, program, p)))


def waits_at(asked, program, p):
    rank = re.search(r"does rank (\d+) wait", asked.text)[1]
    (line,) = [line for of, line in waiting(asked, program, p) if of == rank]
    (choice,) = [choice for choice in asked.choices if choice.startswith(f"line {line}:")]
    return choice


def failing(asked, program, p):
    """Return the choice that names the numbers of ranks with which a plain run raises."""
    wrong = []
    for q in range(1, p):
        try:
            simulate(program, q)
        except Exception:
            wrong.append(q)
    rules = {"only 1": [1], "1 and 2": [1, 2], "all of them": [*range(1, p)], "all odd numbers": [*range(1, p, 2)]}
    return next(choice for choice in asked.choices if rules.get(choice) == wrong)


def longest(asked, program, p):
    """Return the line during which most virtual time passes, by a tracer of lines."""
    spent: Counter = Counter()

    def rank(comm):
        comm.compute(1e-3 * (comm.rank == 1))
        traced(program, comm, spent)

    simulate(rank, p, **COST)
    (line, most), (_, next_most), *_ = spent.most_common()
    assert most > 1.04 * next_most
    return own_runs.shown(line)


def traced(program, comm, spent: Counter) -> None:
    """Run a rank, and add the seconds between two lines of the student's to the first of them."""
    now, at = comm.clock(), None

    def charge(frame) -> None:
        nonlocal now, at
        spent[at] += comm.clock() - now
        now = comm.clock()
        while frame and not is_own(line := SourceLine(frame.f_code.co_filename, frame.f_lineno or 0, "")):
            frame = frame.f_back
        at = line if frame else None

    def on_line(frame, event, _):
        charge(frame if event != "return" else frame.f_back)
        return on_line

    def on_call(frame, *_):
        if is_own(SourceLine(frame.f_code.co_filename, frame.f_lineno or 0, "")):
            return on_line(frame, "call", None)

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        program(comm)
    finally:
        sys.settrace(before)


COUNTED = {"bytes": sent, "seconds": took, "absent": left_waiting, "where": waits_at, "line": longest, "fails": failing}
