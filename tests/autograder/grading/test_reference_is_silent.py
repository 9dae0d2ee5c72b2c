"""What crosses between the grader and a student's processes holds no line, name or constant of the reference."""

import ast
import re
from pathlib import Path

import pytest

from autograder import exercises
from autograder.authors import build
from autograder.boundary import protocol
from autograder.boundary.protocol import Frame
from autograder.grading import selfcheck
from autograder.grading.grade import grade_notebook
from autograder.inside.notebook import Notebook

ROOT = Path(__file__).parents[3]
HONEST = ROOT / "tests" / "autograder" / "honest"
CELL = re.compile(r"^# %% (\w+): (.+)\n", re.MULTILINE)
LINE, WORD = 16, 5  # characters of a trace: what is shorter is everyone's


def honest(slug: str) -> dict[str, str]:
    """Return one right answer to each exercise, in the lab's order, that is not the reference's."""
    _, *parts = CELL.split((HONEST / f"{slug}.py").read_text(encoding="utf-8"))
    answers = dict(reversed(list(zip(parts[0::3], parts[2::3], strict=True))))
    return {name: answers[name] for name in exercises.load(slug).exercises}


def traces(references: list[str], known: str, asked: str) -> set[str]:
    """Return lines of `references` that are not `known`, and names, strings and numbers that are not `asked` either."""
    lines = {line.strip() for code in references for line in code.splitlines()}
    nodes = [node for code in references for node in ast.walk(ast.parse(code))]
    words = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    words |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    words |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    words |= {str(value) for value in values if type(value) in (str, float)}
    found = {line for line in lines if len(line) >= LINE} | {w for w in words if len(w) >= WORD and w not in asked}
    return {text for text in found if text not in known}


def spoken(said: list[bytes], looked_for: set[str]) -> set[str]:
    """Return the traces that some message holds, as words."""
    everything = b"\n".join(said).decode("utf-8", "replace").replace("\\n", "\n").replace('\\"', '"')
    held = [text for text in looked_for if text in everything]
    return {text for text in held if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", everything)}


def text_below(*folders: str) -> str:
    return "\n".join(path.read_text("utf-8") for name in folders for path in (ROOT / name).rglob("*.py"))


IMPORTED = "hpcdl", "autograder/inside", "autograder/boundary"  # by a student's process: these words are no secret


@pytest.fixture
def said(monkeypatch) -> list[bytes]:
    """All frames that the grader packs and unpacks, in the order in which they cross."""
    messages: list[bytes] = []
    pack, unpack = protocol.pack, protocol.unpack

    def packed(frame):
        messages.append(pack(frame))
        return messages[-1]

    def unpacked(header, body):
        messages.append(bytes(header) + bytes(body))
        return unpack(header, body)

    monkeypatch.setattr(protocol, "pack", packed)
    monkeypatch.setattr(protocol, "unpack", unpacked)
    return messages


@pytest.mark.each_lab("collectives", others="long")
@pytest.mark.labs  # half a minute: every check of a lab
@pytest.mark.parametrize("slug", exercises.LABS)
def test_right_answers_are_graded_without_it(slug, said, zygote):
    """A message with the reference's code, sent last, is found."""
    lab, answers, own = exercises.load(slug), honest(slug), [*build.references(slug).values()]
    cells = [*selfcheck.cells_of(build.student(slug)), *answers.items()]
    known = "\n".join([*(cell.source for cell in build.student(slug).cells), *answers.values(), text_below(*IMPORTED)])
    looked_for = traces(own, known, asked=text_below(f"autograder/exercises/{slug}"))
    assert len(looked_for) >= len(answers)
    result = grade_notebook(Notebook(cells, []), lab, zygote, "ada", selfcheck.SECRET, True)
    assert sum(exercise.passed for exercise in result.exercises) > len(answers) / 2  # others need a reference
    assert spoken(said, looked_for) == set()
    protocol.pack(Frame(["reply", own, []]))
    assert spoken(said, looked_for)
