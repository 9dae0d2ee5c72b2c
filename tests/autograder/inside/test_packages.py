"""Packages and tools that no right answer needs are refused to answers, and not to libraries that work for them."""

import sys

import pytest

from autograder.authoring import Lab
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds
from autograder.inside import families, packages

CELLS = "import importlib.util, mpmath, statistics, textwrap, torch\nfrom mpmath import mp\nkept = mp.sigmoid"
REFUSED = {
    "a module": "mpmath.sqrt(2)",
    "a method": "mp.sqrt(2)",
    "what a cell kept": "kept(1.0)",
    "handed to torch": "torch.utils._pytree.tree_map(mpmath.sqrt, [2])",
    "an import": "import networkx",
    "an import handed to torch": "torch.utils._pytree.tree_map(importlib.import_module, ['networkx'])",
    "a parent's import": "importlib.util.find_spec('networkx.algorithms')",
    "a tool of torch's": "import torch.utils.flop_counter",
    "a tool that torch imported": "torch.distributions.Normal(0.0, 1.0)",
    "a tool handed to torch": "torch.utils._pytree.tree_map(torch.distributions.utils.clamp_probs, [torch.ones(1)])",
    "a tool that torch imports when it is named": "torch.onnx.ops.attention(*torch.ones(3, 1, 1, 2, 2))",
    "Python's own": "statistics.mean([1.0, 2.0])",
    "Python's own text": "textwrap.wrap('a b', 1)",
}
ALLOWED = {
    "a look-up": "importlib.util.find_spec('networkx')",
    "torch's own import": "import torch.utils._sympy.functions",
    "an optimizer, which names the profiler": "p = torch.ones(1, requires_grad=True)\n"
    "    p.sum().backward()\n    torch.optim.SGD([p], lr=0.1).step()",
    "progress": "list(__import__('tqdm').tqdm([1], disable=True))",
}


def result_of(session):
    lab = Lab("packed", number=0, title="Packed")
    exercise = lab.exercise("f", points=1, minutes=1, forbid=families.closed([]))
    exercise.check(points=1)(lambda student, rng: float(student.f(1.0)) > 0 or 1 / 0)
    return run_exercise(exercise, session, seeds(b"", ""))


def answer(line: str) -> str:
    return f"def f(x):\n    {line}\n    return x"


@pytest.mark.thinned(4, 2)
@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_an_answer_may_use_none(remote, line):
    result = result_of(remote(CELLS, answer(line)))
    assert result.points == 0
    assert result.forbidden


@pytest.mark.thinned(2)
@pytest.mark.parametrize("line", ALLOWED.values(), ids=ALLOWED)
def test_libraries_may_for_their_own_use(remote, line):
    result = result_of(remote("import importlib.util, torch", answer(line)))
    assert (result.points, result.forbidden) == (1, []), result.checks[0]


@pytest.mark.parametrize("line", [REFUSED[name] for name in ("a module", "a method", "what a cell kept")])
def test_a_notebook_refuses_what_the_answer_names(local, line):
    helped = answer("helper()") + f"\ndef helper():\n    {line}"
    assert result_of(local(f"{CELLS}\n{answer(line)}")).forbidden
    assert result_of(local(f"{CELLS}\n{helped}")).forbidden


def test_a_notebook_has_no_doors_before_what_only_its_pictures_use(local):
    session = local("import mpmath, torch\ndef picture(): return mpmath.sqrt(2)\n" + answer("torch.ones(1)"))
    assert result_of(session).points == 1
    assert session.worker.guard.named == frozenset()


def test_a_students_own_file_may_have_a_packages_name(local, tmp_path, monkeypatch):
    (tmp_path / "networkx.py").write_text("def one(): return 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "networkx", raising=False)
    result = result_of(local(answer("import networkx; networkx.one()")))
    monkeypatch.delitem(sys.modules, "networkx", raising=False)
    assert (result.points, result.forbidden) == (1, [])


@pytest.mark.parametrize("name", ["torch", "numpy", "triton", "hpcdl", "scipy", "itertools", "tqdm", "my_helpers"])
def test_open_packages_and_other_families_are_none(name):
    assert not packages.is_other(name)


@pytest.mark.parametrize("name", ["matplotlib.scale", "mpmath", "sympy", "PIL.Image", "more_itertools"])
def test_all_other_installed_packages_are(name):
    assert packages.is_other(name)
    assert packages.is_closed(name, families.closed([]))
    assert not packages.is_closed(name, families.closed(["packages"]))
