"""One mistake costs its own points: what calls the wrong function is graded with the right one in its place."""

import re
import sys
import tempfile
import types

import pytest
import torch

from autograder import checks, exercises, feedback
from autograder.authoring import Lab, WrongAnswer
from autograder.authors import build
from autograder.boundary import protocol
from autograder.grading import follow, selfcheck
from autograder.grading.grade import grade
from autograder.grading.layouts import Submission
from autograder.grading.run import run_lab
from autograder.grading.seeds import seeds
from autograder.inside import source
from autograder.sessions.remote import RemoteSession

SOURCE = '''
# %%
import torch
from autograder import check

SCALE = 2.0

# %% [markdown]
# {{exercise double}}
# %%
def double(x):
    """Twice x."""
    # BEGIN SOLUTION
    twofold = 987654321 if x is None else SCALE * x
    return twofold
    # END SOLUTION

# %%
check("chain.double")

# %% [markdown]
# {{exercise quadruple}}
# %%
def quadruple(x):
    """Four times x."""
    # BEGIN SOLUTION
    return double(double(x))
    # END SOLUTION

# %%
check("chain.quadruple")

# %% [markdown]
# {{exercise eightfold}}
# %%
def eightfold(x):
    """Eight times x."""
    # BEGIN SOLUTION
    return double(quadruple(x))
    # END SOLUTION

# %%
check("chain.eightfold")
'''
DOUBLE = "def double(x):\n    return 2 * x"
QUADRUPLE = "def quadruple(x):\n    return double(double(x))"
EIGHTFOLD = "def eightfold(x):\n    return double(quadruple(x))"


def make_lab() -> Lab:
    lab = Lab("chain", number=0, title="Chain")
    for name, factor, uses in (("double", 2, ()), ("quadruple", 4, ("double",)), ("eightfold", 8, ("quadruple",))):
        exercise = lab.exercise(name, points={2: 40}.get(factor, 30), minutes=1, uses=uses)

        @exercise.check(points=exercise.points, seconds=1.0)
        def value(student, rng, name=name, factor=factor):
            "It is the product."
            x = torch.rand(3, generator=rng) + 1
            checks.close(getattr(student, name)(x), factor * x, name=f"{name}(x)")

    return lab


@pytest.fixture
def graded(tmp_path, monkeypatch, zygote, write_notebook):
    """Grade cells as the lab `chain`, whose source is here."""
    module = types.ModuleType("autograder.exercises.chain")
    module.lab = make_lab()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "00_chain.py").write_text(SOURCE.lstrip())
    monkeypatch.setattr(exercises, "LABS", ("chain",))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(build, "LABS_DIR", tmp_path)
    follow.replacement.cache_clear()

    def graded(*cells):
        path = write_notebook("ada.ipynb", *cells, hpcdl={"lab": "chain"})
        return grade(Submission("ada", path), zygote, b"secret")

    yield graded
    follow.replacement.cache_clear()


def points(result) -> list[float]:
    return [exercise.points for exercise in result.exercises]


def test_early_mistake_costs_its_own_points(graded):
    result = graded(DOUBLE.replace("2", "3"), QUADRUPLE, EIGHTFOLD)
    assert points(result) == [0, 30, 30]
    _, quadruple, eightfold = result.exercises
    assert quadruple.note.startswith("Your `double` lost points, so this was checked again with the reference's")
    assert eightfold.note.startswith("Your `double` lost points")
    assert quadruple.note in feedback.text(quadruple)
    assert "<code>double</code>" in feedback.html(quadruple)
    assert type(result).from_json(result.to_json()) == result


def test_a_function_that_is_missing_or_a_stub_or_loops_is_replaced_too(graded):
    for double in ("", "def double(x):\n    raise NotImplementedError", "def double(x):\n    while True: pass"):
        assert points(graded(double, QUADRUPLE, EIGHTFOLD)) == [0, 30, 30], double


def test_what_is_wrong_itself_stays_wrong(graded):
    result = graded(DOUBLE.replace("2", "3"), "def quadruple(x):\n    return double(x)", EIGHTFOLD)
    assert points(result) == [0, 0, 30]
    assert result.exercises[1].note == ""
    assert "`double` and `quadruple`" in result.exercises[2].note


def test_passed_and_blank_are_not_repeated(graded, monkeypatch):
    monkeypatch.setattr(follow, "repeat", pytest.fail)
    assert points(graded(DOUBLE, QUADRUPLE, EIGHTFOLD)) == [40, 30, 30]
    blank = [f"def {name}(x):\n    raise NotImplementedError" for name in ("double", "quadruple", "eightfold")]
    assert points(graded(*blank)) == [0, 0, 0]


def test_the_reference_is_no_answer(graded):
    """Code that finds the reference's function in the worker has only what it lost points for."""
    assert points(graded("", "def quadruple(x):\n    return eightfold(x) / 2", "")) == [0, 0, 0]


LOOKS = """
def quadruple(x):
    import dis, gc, inspect, io, linecache, marshal, pickle, sys, torch.fx, traceback

    class Looks:
        def __rmul__(self, other):
            frame = sys._getframe().f_back
            return frame.f_code.co_names, frame.f_code.co_varnames, frame.f_locals

    def listed():
        text = io.StringIO()
        dis.dis(double, file=text)
        return text.getvalue()

    def fails():
        try:
            double(object())
        except TypeError as error:
            frame = error.__traceback__.tb_next.tb_frame
            return frame.f_locals, frame.f_code.co_consts, frame.f_code.co_varnames

    told = ["calls it:", double(1.0)]
    for look in (
        lambda: (double.__code__.co_names, double.__code__.co_consts, double.__code__.co_varnames),
        lambda: getattr(double, "__code__").co_code.hex(),
        lambda: marshal.dumps(double.__code__),
        lambda: inspect.getsource(double),
        lambda: inspect.getclosurevars(double),
        lambda: linecache.getlines("<reference>"),
        lambda: [each for each in gc.get_objects() if inspect.iscode(each) and each.co_name == "double"],
        lambda: (repr(double), vars(double), double.__defaults__, inspect.signature(double)),
        lambda: pickle.dumps(double),
        lambda: double(Looks()),
        lambda: [*dis.get_instructions(double)],
        lambda: dis.Bytecode(double).dis(),
        lambda: dis.code_info(double),
        lambda: torch.fx.symbolic_trace(double).code,
        listed,
        fails,
    ):
        try:
            told.append(repr(look()))
        except BaseException as error:
            told += [str(error), "".join(traceback.format_exception(error))]
    return str(told)
"""


def test_no_code_of_the_reference_leaves(graded, monkeypatch):
    """A worker that holds a function of the reference tells its results alone."""
    heard, unpack = [], protocol.unpack
    monkeypatch.setattr(protocol, "unpack", lambda *data: heard.append(bytes(data[0])) or unpack(*data))
    result = graded(DOUBLE.replace("2", "3"), LOOKS, EIGHTFOLD)
    said = b"".join(heard).decode() + str(result.to_json())
    assert "calls it:', 3.0" in said
    assert "calls it:', 2.0" in said, "the reference's function was there"
    assert not {"twofold", "987654321"} & {*re.findall(r"\w+", said)}


def test_without_the_labs_source_the_first_result_stands(graded, tmp_path):
    (tmp_path / "source" / "00_chain.py").unlink()
    assert points(graded(DOUBLE.replace("2", "3"), QUADRUPLE, EIGHTFOLD)) == [0, 0, 0]


def test_an_exercise_uses_those_before_it_only():
    with pytest.raises(ValueError, match="uses 'later', which is no exercise before it"):
        Lab("typo", number=0, title="").exercise("f", points=1, minutes=1, uses=("later",))


# The labs themselves


def spread(slug: str) -> list[tuple[WrongAnswer, set[str]]]:
    """The wrong answers of a lab's bank that make other exercises fail as well, with those."""
    found = []
    for answer in selfcheck.bank(slug):
        broken = {name.split(".")[-2] for name in answer.fails if "." in name}
        if others := broken - {answer.exercise.partition(".")[2]}:
            found.append((answer, others))
    return found


@pytest.mark.each_lab("gradient_descent")
@pytest.mark.parametrize("slug", exercises.LABS)
def test_broken_dependent_names_the_mistake(slug):
    lab = exercises.load(slug)
    for answer, others in spread(slug):
        own = answer.exercise.partition(".")[2]
        assert [name for name in others if own not in follow.used(lab, lab.exercises[name])] == [], answer.mistake


LONG = [pytest.param(slug, marks=pytest.mark.long) for slug in ("convolution", "stochastic_rounding", "ddp")]


@pytest.mark.parametrize("slug", ["backprop", *LONG])
@pytest.mark.labs
def test_a_mistake_in_a_lab_costs_its_own_points_alone(slug, zygote):
    lab, solved = exercises.load(slug), selfcheck.cells_of(build.solved(slug))
    firsts = {answer.exercise: answer for answer, _ in reversed(spread(slug))}
    assert len(firsts) >= 2
    for answer in firsts.values():
        cells, _ = source.needed([*solved, (selfcheck.WRONG, answer.source)], lab.functions)
        with tempfile.TemporaryDirectory() as folder, RemoteSession(zygote, cells, folder) as session:
            results = run_lab(lab, session, seeds(b"", "ada"))
        follow.follow_through(lab, results, cells, zygote, seeds(b"", "ada"))
        assert [result.id for result in results if not result.passed] == [answer.exercise], answer.mistake
        assert any(result.note for result in results)
