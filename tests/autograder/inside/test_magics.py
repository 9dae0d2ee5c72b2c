"""Every magic and every method of IPython's shell is done, harmless, or has a sentence."""

import os
import sys
from collections import Counter

import pytest

from autograder.inside import known_magics as known
from autograder.inside import magics, source
from autograder.inside.absent import Absent, NoOutputsError, NoProgramsError
from autograder.inside.shell import Shell
from autograder.inside.worker import Worker

SETS = ("DONE", "BINDS", "REFUSED", "PROGRAMS", "HARMLESS")


@pytest.fixture(scope="module")
def kernel():
    """The class of a notebook's shell, and an object of the class that it extends."""
    from ipykernel.zmqshell import KernelMagics, ZMQInteractiveShell
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.register_magics(KernelMagics)
    yield ZMQInteractiveShell, shell
    InteractiveShell.clear_instance()


def test_each_magic_is_known(kernel):
    _, shell = kernel
    found = shell.magics_manager.magics
    assert {*found["line"]} <= known.LINE_MAGICS
    assert {*found["cell"]} - {"debug", "code_wrap"} <= known.CELL_MAGICS
    counts = Counter(name for each in SETS for name in getattr(known, each))
    assert {name for name, count in counts.items() if count > 1} == set()


def test_what_is_done_has_a_method():
    assert {name for name in known.DONE if not hasattr(Shell, f"magic_{name}")} == set()
    assert {name[6:] for name in dir(Shell) if name.startswith("magic_")} == known.DONE


def test_each_method_is_done_or_quiet_or_has_a_sentence(kernel):
    """Whatever an IPython has, no cell gets a silent None for it."""
    zmq, shell = kernel
    mine, unknown = Shell({}), []
    for name in {*dir(zmq), *vars(shell)}:
        quiet = name in known.QUIET_METHODS | known.QUIET_OBJECTS or name.startswith("init_")
        if name.startswith("_") or quiet or hasattr(Shell, name) or name in vars(mine):
            continue
        found = getattr(mine, name)
        for use in (found, found.refuse, found.__iter__):
            with pytest.raises(NoOutputsError, match=rf"get_ipython\(\).{name}` does nothing in grading"):
                use()
        unknown.append(name)
    assert {"events", "register_magic_function", "find_line_magic"} <= {*unknown}


def test_quiet_names_are_those_of_a_shell(kernel):
    zmq, shell = kernel
    assert {name for name in known.QUIET_METHODS | known.QUIET_OBJECTS if not hasattr(zmq, name)} <= {*dir(shell)}


# -- what each does


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """`ran(*cells)`: the names after grading has run the statements that `answer` needs, and what they raised."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("os.environ", dict(os.environ))

    def run(*cells):
        shell = Shell({"__name__": "__main__"})
        monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
        labelled = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(cells, start=1)]
        worker = Worker(shell.user_ns)
        statements, _ = source.needed(labelled, ["answer"])
        problems = worker.run_cells(statements)
        return shell.user_ns, " ".join(each["text"] for _, each in problems)

    return run


ENV = "import os\ndef answer(): return os.environ['SIGN']"
HERE = "import os\ndef answer(): return os.path.basename(os.getcwd())"
SEEN = {  # cells, and what the answer returns
    "env by a call": (['get_ipython().run_line_magic("env", "SIGN=-1")', ENV], "-1"),
    "env by keywords": (["get_ipython().run_line_magic(magic_name='set_env', line='SIGN -1')", ENV], "-1"),
    "env of a name": (["ip = get_ipython()\nN = -1\nip.run_line_magic('env', f'SIGN={N}')", ENV], "-1"),
    "env by magic": (["get_ipython().magic('env SIGN=-1')", ENV], "-1"),
    "env in a function": (["def f():\n    get_ipython().run_line_magic('env', 'SIGN=-1')", "f()", ENV], "-1"),
    "env that is read": (["%env SIGN=-1", "S = %env SIGN", "def answer(): return S"], "-1"),
    "pushd": (["%mkdir data", "%pushd data", HERE], "data"),
    "popd": (["%mkdir a b", "%cd a", "%pushd ../b", "%popd", HERE], "a"),
    "cd back": (["%mkdir a b", "%cd a", "%cd ../b", "%cd -", HERE], "a"),
    "without a percent sign": (["mkdir data", "cd data", HERE], "data"),
    "pylab by a call": (["get_ipython().run_line_magic('pylab', 'inline')", "def answer(): return pi > 3"], True),
    "prun by a call": (["get_ipython().run_line_magic('prun', '-q X = {1: 2}[1]')", "def answer(): return X"], 2),
    "store by a call": (["X = 1", "get_ipython().run_line_magic('store', '-r X')", "def answer(): return X"], 1),
    "precision": (
        ["import numpy as np", "%precision 2", "def answer(): return str(np.array([1 / 3]))"],
        "[0.33]",
    ),
    "ev": (["X = 3", "Y = get_ipython().ev('X + 1')", "def answer(): return Y"], 4),
    "its class": (["K = get_ipython().__class__.__name__", "def answer(): return K"], "ZMQInteractiveShell"),
    "its config": (["K = 'IPKernelApp' in get_ipython().config", "def answer(): return K"], True),
    "quiet ones": (
        [
            "ip = get_ipython()\nip.display_formatter.formatters['t'].for_type(int, str)\nX = 1\nip.set_hook('x', 1)",
            "def answer(): return X",
        ],
        1,
    ),
    "a magic that binds nothing new": (["X = 1", "%%mine\nX = 1", "%memit X = 1", "def answer(): return X"], 1),
}


@pytest.mark.parametrize(("cells", "value"), SEEN.values(), ids=SEEN)
def test_magics_do_what_they_do_in_a_notebook(ran, cells, value):
    before, path = os.getcwd(), list(sys.path)
    try:
        names, problems = ran(*cells)
        assert problems == ""
        assert names["answer"]() == value
    finally:
        os.chdir(before)
        sys.path[:] = path


SAID = {
    "%%bash --out X\necho -1": "`%%bash` has no value in grading",
    "%%capture out\n%%script bash --out X --err e\necho": "`%%script` has no value in grading",
    "%sc -l X=ls": "`%sc` has no value in grading",
    "X = %sx ls": "`!ls` runs a program",
    "X = !ls": "`!ls` runs a program",
    "%macro X 1-2": "`%macro` has no value in grading",
    "%%mine --fast\nX = -1": "Grading does not run `%%mine`",
    "%%mine\nimport math as X": "Grading does not run `%%mine`",
    "%%debug\nX = -1": "Grading does not run `%%debug`",
    "%memit X = -1": "Grading does not run `%memit`",
    "%rerun 1": "`%rerun` does nothing in grading",
    "%cd -b there": "`%cd -b` does nothing in grading",
    "X = %who_ls": "`%who_ls` has no value in grading",
    "X = get_ipython().last_execution_result.result": "`get_ipython().last_execution_result` does nothing in grading",
    "get_ipython().events.register('pre_run_cell', print)": "`get_ipython().events` does nothing in grading",
    "get_ipython().ast_transformers.append(1)": "`get_ipython().ast_transformers` does nothing in grading",
}


@pytest.mark.parametrize(("cell", "sentence"), SAID.items(), ids=SAID)
def test_what_grading_cannot_do_has_a_sentence(ran, cell, sentence):
    names, problems = ran(cell, "def answer(): return float(X)")
    if "X" in names:
        assert isinstance(names["X"], Absent)
        with pytest.raises((NoOutputsError, NoProgramsError)) as raised:
            names["answer"]()
        problems = str(raised.value)
    assert sentence in problems


def test_a_magic_that_shows_is_left_out(ran):
    shown = [f"%{name} -x" for name in known.HARMLESS | known.PROGRAMS] + [f"%%{name}\n-" for name in known.TEXTS]
    names, problems = ran(*shown, "%%!\nls", "!ls", "get_ipython().set_next_input('x')", "def answer(): return 1")
    assert problems == ""
    assert {*names} <= {"__name__", "__builtins__", "answer", "In", "Out"}
