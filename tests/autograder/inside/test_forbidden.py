"""A forbidden call is denied by whatever name it is made, on the record, and nothing else is in its way."""

import sys

import pytest
import torch
from torch.nn import functional

from autograder.authoring import Lab
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.grading.selfcheck import declared
from autograder.inside import forbidden, operators
from autograder.inside.doors import is_door
from autograder.inside.library import functions_of, is_below
from autograder.outputs.instructor import flags
from autograder.results import LabResult

CONV = "import torch, threading, importlib\nimport torch.nn.functional as F\n"
LOOPS = """
def conv(x, w):
    n, c, h, wd = x.shape
    patches = x.unfold(2, w.shape[2], 1).unfold(3, w.shape[3], 1)
    return torch.einsum("nchwrs,kcrs->nkhw", patches, w)
"""
EVASIONS = {
    "by its name": "def conv(x, w): return F.conv2d(x, w)",
    "by an alias made before": "same = torch.conv2d\ndef conv(x, w): return same(x, w)",
    "by a module": "def conv(x, w):\n    m = torch.nn.LazyConv2d(3, 3, bias=False)\n    return m(x)",
    "by the operator itself": (
        "def conv(x, w):\n    return torch.ops.aten.convolution(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)"
    ),
    "by its implementation": "def conv(x, w): return torch._C._nn.thnn_conv2d(x, w, list(w.shape[2:]))",
    "by another library's": "def conv(x, w): return torch.mkldnn_convolution(x, w, None, [0, 0], [1, 1], [1, 1], 1)",
    "by the transposed one": "def conv(x, w): return F.conv_transpose2d(x, w.flip(2, 3).transpose(0, 1), padding=2)",
    "by the one in one dimension": "def conv(x, w): return torch.conv1d(x[0], w[0])",
    "without autograd": "def conv(x, w):\n    with torch.inference_mode(): return F.conv2d(x, w)",
    "by the module loaded anew": "def conv(x, w): return importlib.reload(torch.nn.modules.conv).Conv2d(2, 3, 3)(x)",
    "in a thread": (
        "def conv(x, w):\n    found = []\n"
        "    t = threading.Thread(target=lambda: found.append(F.conv2d(x, w)), daemon=True)\n"
        "    t.start(); t.join()\n    return found[0]"
    ),
    "as a gradient": (
        "def conv(x, w):\n    y = torch.zeros(1, 3, 6, 6)\n"
        "    more = [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3\n"
        "    return torch.ops.aten.convolution_backward(y, x, w, None, *more)"
    ),
    "with its error swallowed": (
        f"{LOOPS}right = conv\n"
        "def conv(x, w):\n    try: F.conv2d(x, w)\n    except BaseException: pass\n    return right(x, w)"
    ),
}


def make_lab(forbid=forbidden.CONVOLUTION, **more) -> Lab:
    lab = Lab("no_conv", number=0, title="No convolution")
    exercise = lab.exercise("conv", points=100, minutes=1, forbid=forbid, instead="Write it with loops.", **more)

    @exercise.check(points=100)
    def values(student, rng):
        "It is the convolution."
        x, w = torch.randn(1, 2, 8, 8, generator=rng), torch.randn(3, 2, 3, 3, generator=rng)
        got = student.conv(x, w)
        # The oracle runs between the student's calls, and in a notebook in the same process.
        assert torch.allclose(got, functional.conv2d(x, w), atol=1e-4)

    return lab


def all_of_hpcdl():
    modules = [module for name, module in list(sys.modules.items()) if is_below(name, "hpcdl") and module is not None]
    return [item for module in modules for item in functions_of(module)]


def result_of(session, lab=None):
    return run.run_lab(lab or make_lab(), session, seeds(b"", ""))[0]


def test_an_answer_that_does_without_passes(session):
    result = result_of(session(CONV + LOOPS))
    assert result.passed, result.checks[0].message
    assert result.forbidden == []


@pytest.mark.parametrize("way", EVASIONS)
@pytest.mark.filterwarnings("ignore:Exception in thread")
def test_a_forbidden_call_is_denied_and_recorded(session, way):
    result = result_of(session(CONV + EVASIONS[way]))
    assert result.points == 0
    check = result.checks[0]
    assert check.kind == "forbidden", check
    assert check.message.startswith("Your code calls `")
    assert check.why == "Write it with loops."
    assert "conv" in result.forbidden[0]


def test_the_student_reads_the_line_and_the_instructor_its_name(session):
    result = result_of(session(CONV + EVASIONS["by its name"]))
    check = result.checks[0]
    assert (check.function, check.line, check.message) == (
        "conv",
        3,
        "Your code calls `aten::convolution`, which this exercise forbids: it is what torch's function in that line "
        "comes to.",
    )
    ((who, what),) = flags([LabResult("ada", "no_conv", 100, [result])])
    assert (who, what.partition(" in line")[0]) == ("ada", "no_conv.conv: a forbidden call, aten::convolution")


def test_another_exercise_may_make_the_call(session):
    started = session(CONV + EVASIONS["by its name"])
    assert not result_of(started).passed
    assert result_of(started, make_lab(forbid=())).passed
    assert not result_of(started).passed


def test_the_next_exercise_forbids_it_again_and_more(session):
    """A door that is in place is no kernel of torch's: the search for operators must not take it for one."""
    started = session(CONV + EVASIONS["by its name"])
    for more in ((), ("aten::gelu",), ("aten::elu", "aten::celu")):
        assert result_of(started, make_lab(forbid=(*more, *forbidden.CONVOLUTION))).forbidden


def test_a_worker_that_was_replaced_forbids_it_too(remote):
    lab, started = make_lab(), remote(CONV + "import os\n" + EVASIONS["by its name"] + "\ndef end(): os._exit(0)")
    exercise = lab.exercises["conv"]
    first = dict(exercise.checks)
    exercise.checks.clear()

    @exercise.check(points=0)
    def ends(student, rng):
        student.end()

    exercise.checks.update(first)
    assert [check.kind for check in result_of(started, lab).checks] == ["ended", "forbidden"]


def test_a_function_of_the_check_that_is_called_back_may_make_the_call(session):
    lab = Lab("callback", number=0, title="Callback")
    exercise = lab.exercise("apply", points=100, minutes=1, forbid=forbidden.CONVOLUTION)

    @exercise.check(points=100)
    def values(student, rng):
        x, w = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
        assert torch.equal(student.apply(functional.conv2d, x, w), torch.full((1, 1, 2, 2), 9.0))

    assert result_of(session("def apply(f, x, w): return f(x, w)"), lab).passed


def test_code_that_runs_after_the_return_is_watched_too(session):
    lab = Lab("lazy", number=0, title="Lazy")
    exercise = lab.exercise("steps", points=100, minutes=1, forbid=forbidden.CONVOLUTION)

    @exercise.check(points=100)
    def values(student, rng):
        student.steps(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3))

    assert result_of(session(CONV + "def steps(x, w):\n    yield F.conv2d(x, w)"), lab).checks[0].kind == "forbidden"


def test_ranks_are_watched(session):
    lab = Lab("ranks", number=0, title="Ranks")
    exercise = lab.exercise("step", points=100, minutes=1, forbid=forbidden.CONVOLUTION)

    @exercise.check(points=100)
    def values(student, rng):
        student.ranks("step", 2, lambda rank: (torch.ones(1, 1, 4, 4),))

    code = "def step(x, comm):\n    try: F.conv2d(x, x) if comm.rank else None\n    except BaseException: pass"
    result = result_of(session(CONV + code), lab)
    assert (result.checks[0].kind, len(result.forbidden)) == ("forbidden", 1)


def test_python_functions_are_forbidden_by_name_or_with_their_module(session):
    code = "import statistics\nsame = statistics.fmean\ndef f(x): return same(x)"
    for name in ("statistics.fmean", "statistics"):
        lab = Lab("python", number=0, title="Python")
        exercise = lab.exercise("f", points=100, minutes=1, forbid=(name,))

        @exercise.check(points=100)
        def values(student, rng):
            import statistics

            assert statistics.fmean([1.0, 3.0]) == 2
            student.f([1.0, 3.0])

        (call,) = result_of(session(code), lab).forbidden
        assert call.startswith("statistics.fmean in line 3 of f:")


def test_a_forbidden_module_is_not_imported_by_an_answer(session, monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    lab = Lab("imports", number=0, title="Imports")
    exercise = lab.exercise("f", points=100, minutes=1, forbid=("colorsys",))
    exercise.check(points=100)(lambda student, rng: student.f())
    result = result_of(session("def f():\n    import colorsys\n    return colorsys.rgb_to_hsv(1, 1, 1)"), lab)
    assert [call.partition(" in ")[0] for call in result.forbidden] == ["colorsys"]


def test_after_the_check_all_is_as_it_was(local):
    import statistics

    before = statistics.fmean.__code__
    result_of(local(CONV + LOOPS), make_lab(forbid=(*forbidden.CONVOLUTION, "statistics")))
    assert statistics.fmean.__code__ is before
    assert not any(isinstance(finder, forbidden.Guard) for finder in sys.meta_path)
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::convolution", operators.DOOR)
    assert not is_door(statistics.fmean.__code__)
    assert not [name for name, function in all_of_hpcdl() if is_door(function.__code__)]


def test_while_the_guard_is_down_others_compute_and_differentiate_as_ever():
    guard = forbidden.Guard(pytest.fail)
    guard.forbid(forbidden.CONVOLUTION)
    x, w = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3, requires_grad=True)
    y = functional.conv2d(x, w)
    y.sum().backward()
    gradient = w.grad.clone()
    guard.forbid(())
    w.grad = None
    functional.conv2d(x, w).sum().backward()
    assert torch.equal(gradient, w.grad)


def test_what_is_prepared_before_a_fork_is_in_place_after_it():
    guard, patterns = forbidden.Guard(), (*forbidden.CONVOLUTION, "statistics.fmean", "textwrap")
    guard.prepare(patterns)
    doors, kernels = dict(guard.doors.barred), dict(guard.watchers)
    assert doors
    assert kernels
    guard.forbid(patterns)
    assert guard.doors.barred == doors
    assert guard.watchers == kernels
    guard.forbid(())
    assert not guard.doors.barred
    assert not guard.watchers


def test_the_author_is_told_of_names_that_forbid_nothing():
    assert forbidden.unknown((*forbidden.CONVOLUTION, *forbidden.FOURIER, "aten::mm", "statistics.fmean")) == []
    problems = declared(make_lab(forbid=("aten::conv4d", "statistics.nothing", "no_such_module")).exercises["conv"])
    assert [problem.split("'")[1] for problem in problems] == ["aten::conv4d", "statistics.nothing", "no_such_module"]
    with pytest.raises(TypeError, match=r"write forbid=\('aten::mm',\)"):
        Lab("typo", number=0, title="").exercise("f", points=1, minutes=1, forbid="aten::mm")


def test_a_package_forbids_its_modules(tmp_path, monkeypatch):
    (tmp_path / "outer_package" / "empty").mkdir(parents=True)
    (tmp_path / "outer_package" / "__init__.py").touch()
    (tmp_path / "outer_package" / "empty" / "__init__.py").touch()
    (tmp_path / "outer_package" / "silent.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    names = ("outer_package.empty", "outer_package.silent", "outer_package.nothing")
    assert forbidden.unknown(names) == ["outer_package.silent", "outer_package.nothing"]


def test_innocent_operators_are_not_in_the_set():
    names = {name.partition(".")[0] for name in forbidden.operators(forbidden.CONVOLUTION)}
    assert {"aten::convolution", "aten::mkldnn_convolution", "aten::_slow_conv2d_forward"} <= names
    assert not [name for name in names if "convert" in name]


def test_operators_are_counted_while_the_students_code_runs(session):
    lab = Lab("counts", number=0, title="Counts")
    exercise = lab.exercise("products", points=100, minutes=1, forbid=forbidden.CONVOLUTION)
    found = []

    @exercise.check(points=100)
    def values(student, rng):
        x = torch.ones(3, 3)
        with student.operations("aten::mm", "aten::bmm", *forbidden.CONVOLUTION) as counts:
            student.products(x, 4)
            x @ x  # the check's own
        student.products(x, 2)
        found.append(counts)

    code = "def products(x, n):\n    for _ in range(n): x = x @ x / 3\n    return x"
    assert run.run_lab(lab, session(code), seeds(b"", ""))[0].passed
    assert found == [{"aten::mm": 4}]


def test_a_call_that_was_missed_is_told_once_and_leaves_the_guard_down():
    told: list[str] = []
    guard = forbidden.Guard(told.append)
    guard.missed.append("hpcdl.mine")
    with pytest.raises(forbidden.ForbiddenCallError), guard.up():
        pass
    assert (told, guard.missed, guard.is_up) == (["hpcdl.mine"], [], False)
