"""The kernels of `hpcdl lab`: what a lab's first cell imports, used before that cell ran, is a sentence."""

import contextlib
import os
import signal
import types
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

import hpcdl.jupyter
from hpcdl import labs
from hpcdl.interrupt import InterruptAfterImports
from hpcdl.jupyter import kernel

DATA = str(Path(hpcdl.jupyter.__file__).parent)
ABOVE = "Run → Run All Above Selected Cell"


def spec():
    """The kernel that a server finds as `hpcdl lab` starts it."""
    return KernelSpecManager(kernel_dirs=[os.path.join(DATA, "kernels")]).get_kernel_spec("python3")


def test_the_kernel_is_jupyters_own_with_the_extension():
    from ipykernel.kernelspec import get_kernel_dict

    own, ours = get_kernel_dict(), spec()
    assert ours.argv[1:] == ["-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=hpcdl.jupyter.kernel"]
    assert set(ours.argv[1:5]) <= set(own["argv"])
    assert (ours.display_name, ours.language) == (own["display_name"], own["language"])
    assert ours.metadata["debugger"] is True


@pytest.mark.parametrize("path", labs.notebooks(labs.CLONE), ids=lambda path: path.stem)
def test_every_labs_first_cell_brings_check(path):
    assert {kernel.PROOF, "torch"} <= kernel.imports(kernel.first_cell(path))


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import math\nimport numpy as np", {"math", "np"}),
        ("import matplotlib.pyplot", {"matplotlib"}),
        ("from autograder import check\nfrom a.b import c as d, e\nx = 1", {"check", "d", "e"}),
    ],
)
def test_the_names_are_those_that_imports_bind(code, names):
    assert kernel.imports(code) == names


def said(code: str, namespace: dict) -> str:
    """The advice on the NameError in which `code` ends."""
    try:
        exec(code, namespace)
    except NameError as error:
        return kernel.advice(error, error.__traceback__, namespace)
    raise AssertionError("no NameError")


def test_advice_only_before_the_first_cell_ran():
    assert said("check('ddp.ring_all_reduce')", {}).startswith("`check` is not there yet: run the lab's first cell")
    assert ABOVE in said("def f():\n    return np.pi\nf()", {})
    assert said("chekc('ddp')", {}) == ""
    assert said("np.pi", {"check": None}) == ""  # the first cell has run: `np` is missing for another reason
    library = types.FunctionType(compile("np", "library", "eval"), {})
    assert said("library()", {"library": library}) == ""


def run(*sources, **variables):
    """The cells after a fresh kernel has run them; `variables` are in its environment."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=60, allow_errors=True, kernel_name="python3")
    client.execute(env={**os.environ, **variables})
    return notebook.cells


@pytest.mark.labs  # starts a kernel
def test_kernel_of_the_opened_lab_imports_ahead(monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", DATA)
    lab = next(str(path) for path in labs.notebooks(labs.CLONE))
    question = "import sys\n'torch' in sys.modules, 'torch' in globals()"
    for this, answer in ((lab, "(True, False)"), (f"{lab}.other", "(False, False)")):
        (cell,) = run(question, HPCDL_LAB=lab, JPY_SESSION_NAME=this)
        assert cell.outputs[0].data["text/plain"] == answer


def test_what_cannot_be_imported_ahead_is_left_to_the_first_cell(monkeypatch, tmp_path):
    lab, asked = tmp_path / "01_calculus.ipynb", []
    monkeypatch.setenv("HPCDL_LAB", str(lab))
    monkeypatch.setenv("JPY_SESSION_NAME", str(lab))
    for text in ('{"cells": [{"cell_type": "code", "source": ["import not_there"]}]}', "no notebook", ""):
        lab.write_text(text)
        kernel.load_ipython_extension(types.SimpleNamespace(set_custom_exc=lambda *_: asked.append(1)))
    lab.unlink()
    kernel.load_ipython_extension(types.SimpleNamespace(set_custom_exc=lambda *_: asked.append(1)))
    assert len(asked) == 4  # each kernel is there


@pytest.mark.labs  # starts a kernel
def test_in_a_fresh_kernel_the_cell_ends_in_the_sentence_alone(monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", DATA)
    sources = ('check("gradient_descent.mse_grad")', "misspelt", "check = 1", "np.pi")
    early, misspelt, _, late = (cell.outputs[0] if cell.outputs else None for cell in run(*sources))
    assert len(early.traceback) == 1
    assert early.traceback[0].startswith("`check` is not there yet: run the lab's first cell, which imports it.")
    assert early.ename == "NameError"
    assert all("NameError" in "".join(output.traceback) for output in (misspelt, late))


def test_a_labs_first_cell_says_what_it_does(monkeypatch):
    """Its imports take seconds; other cells, and the first one later, do not."""
    said, hooks = [], {}

    @contextlib.contextmanager
    def saying(text):
        said.append(text)
        yield
        said.append("over")

    def run(source):
        hooks["pre_run_cell"](types.SimpleNamespace(raw_cell=source))
        hooks["post_run_cell"](None)

    monkeypatch.setattr(kernel, "saying", saying)
    kernel.load_ipython_extension(
        shell := types.SimpleNamespace(
            user_ns={}, events=types.SimpleNamespace(register=hooks.__setitem__), set_custom_exc=lambda *_: None
        )
    )
    run("import torch")
    assert not said
    run("import torch\nfrom autograder import check")
    assert said == ["Importing torch and what the lab needs", "over"]
    shell.user_ns["check"] = print
    run("from autograder import check")
    assert len(said) == 2


def test_a_stopped_cell_is_one_sentence(monkeypatch):
    """It says where the notebook's own code was; the frames of the library below it tell nothing."""
    import json

    namespace = {}
    code = "import json\ndef wait():\n    json.loads('1', object_hook=0, cls=Stops)\nwait()\n"

    class Stops(json.JSONDecoder):
        def decode(self, text):
            raise KeyboardInterrupt

    namespace["Stops"] = Stops
    with pytest.raises(KeyboardInterrupt) as caught:
        exec(compile(code, "a cell", "exec"), namespace)
    assert kernel.stopped(caught.value.__traceback__, namespace) == "You stopped this cell at a cell, line 3"


def test_ctrl_c_waits_for_imports_in_every_message():
    """Also where a dashboard's button calls back: the kernel sets its handler again for each message."""
    calls = []
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(pre_handler_hook=lambda: calls.append(1)))
    before = signal.getsignal(signal.SIGINT)
    try:
        kernel.wait_for_imports(shell)
        shell.kernel.pre_handler_hook()
        assert isinstance(signal.getsignal(signal.SIGINT), InterruptAfterImports)
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [1]
    kernel.wait_for_imports(types.SimpleNamespace())
