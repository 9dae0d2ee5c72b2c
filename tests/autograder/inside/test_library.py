"""hpcdl is closed to a student's code, by whatever way it comes, and open to itself."""

import ast
import sys
from pathlib import Path

import pytest

import hpcdl.comm
from autograder.authoring import Lab
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.inside.doors import is_door
from autograder.inside.library import GIVEN, is_below

IMPORTS = "import functools, importlib, inspect, sys, threading, types\nimport hpcdl.nn.mlp, hpcdl.numerics.dual\n"
WAYS = {
    "by its name": "def f(x): return hpcdl.nn.mlp.sigma(x)",
    "by an alias": "same = hpcdl.nn.mlp.sigma\ndef f(x): return same(x)",
    "as the answer itself": "f = hpcdl.nn.mlp.sigma",
    "through sys.modules": "def f(x): return sys.modules['hpcdl.nn.mlp'].sigma(x)",
    "imported in the call": "def f(x):\n    return importlib.import_module('hpcdl.nn.perceptron').with_bias(x[None])",
    "by functools": "f = functools.partial(hpcdl.nn.mlp.sigma)",
    "copied": "g = hpcdl.nn.mlp.sigma\ndef f(x): return types.FunctionType(g.__code__, g.__globals__)(x)",
    "with the module's names": "def f(x): return eval('sigma(x)', hpcdl.nn.mlp.__dict__, {'x': x})",
    "its source run": "def f(x):\n    exec(inspect.getsource(hpcdl.nn.mlp.sigma), globals())\n    return sigma(x)",
    "pickled": "import pickle\nkept = pickle.dumps(hpcdl.nn.mlp.sigma)\ndef f(x): return pickle.loads(kept)(x)",
    "reloaded": "def f(x): return importlib.reload(hpcdl.nn.mlp).sigma(x)",
    "a class": "def f(x): return hpcdl.numerics.dual.Dual(x)",
    "by code with a module's name": "g = hpcdl.nn.mlp.sigma\ndef f(x):\n"
    "    names = {'__name__': 'hpcdl.mine', '__file__': '<mine>', 'g': g}\n"
    "    exec(compile('def go(x): return g(x)', '<mine>', 'exec'), names)\n    return names['go'](x)",
    "handed to an open function": "import hpcdl.machine\ndef f(x):\n"
    "    return hpcdl.machine.Quiet(clock=functools.partial(hpcdl.nn.mlp.sigma, x)) and x",
    "in a thread": (
        "def f(x):\n    t = threading.Thread(target=hpcdl.nn.mlp.sigma, args=(x,), daemon=True)\n"
        "    t.start()\n    t.join()\n    return x"
    ),
}


def result_of(session, **options):
    import torch

    lab = Lab("closed", number=0, title="Closed")
    exercise = lab.exercise("f", points=1, minutes=1, **options)
    exercise.check(points=1)(lambda student, rng: student.f(torch.zeros(3)))
    return run_exercise(exercise, session, seeds(b"", ""))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:Exception in thread", "ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_library_is_closed(session, way):
    result = result_of(session(IMPORTS + WAYS[way]))
    assert (result.points, result.checks[0].kind) == (0, "forbidden"), result.checks[0]
    assert "hpcdl." in result.forbidden[0]
    assert "write it yourself" in result.checks[0].why


def test_what_the_library_hangs_into_torch_is_no_call_of_the_answer(session):
    """Importing hpcdl makes torch call its hooks, in every optimizer's step, backward pass and module."""
    code = (
        "import torch, hpcdl.training.trainer, hpcdl.memory.live_bytes\n"  # with all wrappers
        "def f(x):\n    layer = torch.nn.Linear(3, 1)\n    steps = torch.optim.SGD(layer.parameters(), lr=1.0)\n"
        "    layer(x).sum().backward()\n    steps.step()\n    steps.zero_grad()\n    return x\n"
    )
    result = result_of(session(code))
    assert (result.points, result.forbidden) == (1, []), result.checks[0]


def test_a_picture_that_plays_during_a_check_is_no_call_of_the_answer(local):
    """JupyterLab has the moves of widgets served by threads of the kernel's own, while a cell runs in another."""
    code = IMPORTS + (
        "def f(x):\n    from ipykernel.thread import BaseThread\n    t = BaseThread(daemon=True)\n"
        "    t.io_loop.add_callback(lambda: (drawn.append(hpcdl.nn.mlp.sigma(x)), t.stop()))\n"
        "    t.start()\n    t.join(10)\n    return len(drawn)\ndrawn = []\n"
    )
    student = local(code)
    result = result_of(student)
    assert result.passed, result.checks[0]
    assert len(student.worker.namespace["drawn"]) == 1


def test_what_is_offered_is_open_and_may_use_the_rest(session):
    code = IMPORTS + "def f(x):\n    hpcdl.nn.mlp.feedforward([x[None]], [x[:1]], x)"
    assert result_of(session(code), offers=("hpcdl.nn.mlp.feedforward",)).passed


def test_what_one_exercise_opens_the_next_one_closes(session):
    """An open function has no door; it gets one when it is closed."""
    student = session(IMPORTS + "def f(x): return hpcdl.nn.mlp.sigma(x)")
    for offers, kind in [(("hpcdl.nn.mlp.sigma",), "passed"), ((), "forbidden"), (("hpcdl.nn.mlp",), "passed")]:
        (check,) = result_of(student, offers=offers).checks
        assert (check.kind or check.status) == kind, (offers, check)


@pytest.mark.parametrize(
    "keep",
    ["types.FunctionType(g.__code__, g.__globals__)", "types.FunctionType(g.__code__, {'torch': __import__('torch')})"],
)
def test_no_copy_is_kept_of_what_is_open_for_now(remote, keep):
    code = (
        "kept = []\ndef f(x):\n    g = hpcdl.nn.mlp.sigma\n    if not kept:\n"
        f"        kept.append({keep})\n        return x\n    return kept[0](x)"
    )
    student = remote(IMPORTS + code)
    result_of(student, offers=("hpcdl.nn.mlp.sigma",))
    assert result_of(student).checks[0].kind == "forbidden"


def test_an_open_function_knocks_in_vain_nowhere(local):
    guard = local(IMPORTS).worker.guard
    sigma = sys.modules["hpcdl.nn.mlp"].sigma
    guard.forbid((), ("hpcdl.nn.mlp.sigma",))
    assert not is_door(sigma.__code__)
    guard.forbid((), ("hpcdl.nn.mlp.feedforward",))
    assert is_door(sigma.__code__)
    guard.forbid(("hpcdl.nn.mlp.sigma",), ("hpcdl.nn.mlp",))
    assert is_door(sigma.__code__)
    guard.forbid(())
    assert not is_door(sigma.__code__)


def test_cells_that_run_before_the_checks_are_watched_too(remote):
    started = remote("from hpcdl.nn.mlp import sigma\nimport torch", "table = sigma(torch.zeros(1))", opened=())
    assert [error.kind for error in started.problems.values()] == ["forbidden"]
    assert list(started.early) == ["hpcdl.nn.mlp.sigma"]


def test_what_a_labs_first_cell_calls_is_open(remote):
    cells = ("from hpcdl.widgets import progress, style; style.use(); import math", "style.use()\nTAU = 2 * math.pi")
    session = remote(*cells, "def f(x):\n    return x + sum(TAU for _ in progress(range(3), 'turn'))", opened=())
    session.start_check(5)
    session.forbid((), ())
    assert (round(session.student.f(1), 2), session.problems, session.denied) == (19.85, {}, [])


def test_compiled_functions_are_closed(local):
    pytest.importorskip("numba")
    code = "from hpcdl.kernels.cpu import philox\nk = next(v for v in vars(philox).values() if hasattr(v, 'py_func'))\n"
    result = result_of(local(code + "def f(x): return k(1)"))
    assert result.checks[0].kind == "forbidden"


def test_what_ranks_run_on_uses_nothing_that_is_closed():
    """A call that the simulated machine makes counts as one of the answer, which it carries out: all of it is open."""
    files = list(Path(hpcdl.comm.__path__[0]).rglob("*.py"))
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    used = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    used |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in used if is_below(name, "hpcdl") and not is_below(name, *GIVEN)} == set()
