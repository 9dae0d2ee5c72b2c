"""A closed package is refused to answers, by any way to its name, but not to Numba and torch, which import it."""

import sys

import pytest

from autograder.authoring import Lab
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.inside import compilers, families
from autograder.inside.compilers import by_compiler, folders

IMPORTS = "import importlib, pkgutil, pydoc, torch, traitlets"
OWN = {
    "numba": "import numba\n@numba.njit\ndef one(): return 1.0\ndef f(x): return x + one()",
    "numba's algebra": "import numba, numpy\n@numba.njit\ndef one(a): return numpy.linalg.det(a)\n"
    "def f(x): return x + one(numpy.eye(2))",
    "an operator": "@torch.library.custom_op('ours::same', mutates_args=())\n"
    "def same(x: torch.Tensor) -> torch.Tensor: return x.clone()\ndef f(x): return torch.ops.ours.same(x)",
}
BY_NAME = {
    "import": "import sklearn.linear_model",
    "the caller's import": "__import__('sklearn.linear_model')",
    "importlib": "importlib.import_module('sklearn.linear_model')",
    "pydoc": "pydoc.locate('sklearn.linear_model')",
    "pkgutil": "pkgutil.resolve_name('sklearn.linear_model')",
    "traitlets": "traitlets.import_item('sklearn.linear_model')",
    "a compiler's file": "exec(compile('import sklearn.linear_model', FOLDER + 'own.py', 'exec'), {})",
    "a folder like a compiler's": "exec(compile('import sklearn.linear_model', '/a/numba/own.py', 'exec'), {})",
    "a layer": "torch.nn.Module.__call__(type('L', (torch.nn.Module,), "
    "{'forward': lambda self: __import__('sklearn.linear_model')})())",
}


def result_of(session, *patterns):
    lab = Lab("watched", number=0, title="Watched")
    exercise = lab.exercise("f", points=1, minutes=1, forbid=(*patterns, *families.closed([])))
    exercise.check(points=1)(lambda student, rng: float(student.f(1.0)) > 0 or 1 / 0)
    return run_exercise(exercise, session, seeds(b"", ""))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("way", OWN)
def test_compilers_may_use_what_is_closed(remote, way):
    code = OWN[way].replace("return torch.ops.ours.same(x)", "return torch.ops.ours.same(torch.tensor(x))")
    result = result_of(remote(IMPORTS, code))
    assert (result.points, result.forbidden) == (1, []), result.checks[0]


@pytest.mark.thinned(4, 2)
@pytest.mark.parametrize("way", BY_NAME)
def test_an_answer_may_not_by_any_way_to_its_name(remote, way):
    code = f"FOLDER = {compilers.USERS[0]!r}\ndef f(x):\n    {BY_NAME[way]}\n    return x"
    result = result_of(remote(IMPORTS, code))
    assert result.points == 0
    assert result.forbidden


def test_folders_are_those_of_installed_packages():
    import torch

    assert torch.__file__.startswith(folders("torch"))
    assert torch.jit.__file__.startswith(folders("torch/jit"))
    assert not torch.__file__.startswith(folders("torch/jit"))
    assert folders("no_such_package") == ()


def test_the_nearest_other_code_counts():
    """Frames of the import system and of the package itself are looked through."""

    def asked(file: str) -> bool:
        names = {"by_compiler": by_compiler}
        exec(compile("def ask(): return by_compiler('scipy')\ndef go(): return ask()", file, "exec"), names)
        return names["go"]()

    assert asked(f"{compilers.USERS[0]}core/mine.py")
    assert not asked("cell 3")
    assert not asked(f"{sys.prefix}/numba/mine.py")


COMPILED = {
    "at the first call": "@numba.njit\ndef g(a): return numpy.hypot(a, a)\ndef f(x): return g(x)",
    "by a cell before": "@numba.njit\ndef g(a): return numpy.hypot(a, a)\ng(1.0)\ndef f(x): return g(x)",
    "by another name": "own = numpy.hypot\n@numba.njit\ndef g(a): return own(a, a)\ndef f(x): return g(x)",
    "in what it calls": "@numba.njit\ndef h(a): return numpy.hypot(a, a)\n@numba.njit\ndef g(a): return h(a)\n"
    "g(1.0)\ndef f(x): return g(x)",
}


@pytest.mark.parametrize("way", COMPILED)
def test_what_numba_compiles_uses_no_closed_function(local, way):
    """Numba has its own form of NumPy's functions, so that theirs never runs."""
    pytest.importorskip("numba")
    code = f"import numba, numpy\n{COMPILED[way]}"
    closed = result_of(local(code), "numpy.hypot")
    assert (closed.points, len(closed.forbidden)) == (0, 1)
    assert "numpy.hypot" in closed.forbidden[0]
    assert result_of(local(code)).points == 1


def test_reductions_of_a_closed_function_of_numpys_are_closed(remote):
    code = "import numpy\nreduce = numpy.logaddexp.reduce\ndef f(x): return reduce([x, x])"
    assert result_of(remote(code), "numpy.logaddexp").forbidden
    assert result_of(remote(code)).points == 1
