"""`check` in a real kernel, among cells that did not run, were renamed, ask for input, exit, or were interrupted."""

import os
import signal
import threading
import time

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.labs  # twenty seconds, mostly for a kernel

FIRST = "import torch\nfrom autograder import check"
RIGHT = (
    "def mse_loss(w, X, y):\n    return ((X @ w - y) ** 2).mean()\n\n"
    "def mse_grad(w, X, y):\n    return 2 / len(y) * X.T @ (X @ w - y)"
)
CHECK = 'check("gradient_descent.mse_grad")'


class Client(NotebookClient):
    """Runs cells in one kernel and says, as JupyterLab does, which cell it is."""

    pid = 0

    def run(self, source: str, name: str = "") -> str:
        """What a cell shows: its text, or the lines of its error. A cell of the same name is the same cell."""
        cell = nbformat.v4.new_code_cell(source)
        cell.metadata["name"] = name
        self.nb.cells.append(cell)
        self.execute_cell(cell, len(self.nb.cells) - 1)
        return "".join(map(shown, cell.outputs))  # a print may come in several messages


def shown(output) -> str:
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.get("text") or output.data["text/plain"]


@pytest.fixture(scope="module")
def kernel():
    client = Client(nbformat.v4.new_notebook(), timeout=60, allow_errors=True)
    with client.setup_kernel():
        client.kc.allow_stdin = True  # as a page does, which shows a box
        send = client.kc.session.send

        def with_cell(stream, message, *args, **kwargs):
            if isinstance(message, dict) and message["msg_type"] == "execute_request" and client.nb.cells:
                message["metadata"]["cellId"] = client.nb.cells[-1].metadata.get("name") or None
            return send(stream, message, *args, **kwargs)

        client.kc.session.send = with_cell
        client.run(FIRST)
        client.pid = int(client.run("import os; print(os.getpid())"))
        yield client


@pytest.fixture(autouse=True)
def right(kernel):
    """Each test begins with the right answer, which has its points."""
    assert kernel.run(RIGHT, name="answer") == ""
    assert kernel.run(CHECK).startswith("✓ mse_grad: 10 / 10 points")


def test_a_syntax_error_leaves_no_old_function_to_be_judged(kernel):
    kernel.run(RIGHT.replace("len(y) *", "len(y) *)"), name="answer")
    said = kernel.run(CHECK)
    assert said.startswith("○ mse_grad: not checked")
    assert "The cell that defines `mse_loss` did not run: SyntaxError in line 5: unmatched ')'" in said
    assert "Lab total so far: 0 / 100" in said


def test_so_does_an_indentation_error_in_a_new_cell(kernel):
    kernel.run("def mse_grad(w, X, y):\nreturn 0", name="another")
    assert "`mse_grad` did not run: IndentationError in line 2: expected an indented block" in kernel.run(CHECK)


def test_so_does_an_error_before_the_definition_and_none_after_it(kernel):
    kernel.run("print(undefined)\n" + RIGHT, name="answer")
    assert "`mse_loss` did not run: NameError: name 'undefined' is not defined" in kernel.run(CHECK)
    kernel.run(RIGHT + "\nprint(undefined)", name="answer")
    assert kernel.run(CHECK).startswith("✓ mse_grad")


def test_a_renamed_function_is_missed_and_so_is_a_deleted_one(kernel):
    kernel.run(RIGHT.replace("mse_grad", "mse_gradient"), name="answer")
    assert "now defines `mse_gradient`: call it `mse_grad`" in kernel.run(CHECK)
    kernel.run(RIGHT.partition("def mse_grad")[0], name="answer")
    assert "The cell that defined `mse_grad` no longer does so" in kernel.run(CHECK)


def test_a_cell_that_runs_again_is_checked_again(kernel):
    kernel.run("def mse_grad(w X, y):\n    return 0", name="answer")
    assert "not checked" in kernel.run(CHECK)
    kernel.run(RIGHT, name="answer")
    assert kernel.run(CHECK).startswith("✓ mse_grad: 10 / 10")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("check()", 'Say which exercise, with its lab: check("tensors.pick")'),
        ("check(mse_grad)", 'The name of an exercise stands in quotes: check("gradient_descent.mse_grad")'),
        ("check(mse_loss)", 'The name of an exercise stands in quotes: check("gradient_descent.mse_grad")'),
        ("check(3)", "The name of an exercise stands in quotes"),
        ("check(None)", "The name of an exercise stands in quotes"),
        ('check(["gradient_descent"])', "The name of an exercise stands in quotes"),
        ('check("")', "Say which exercise"),
        ('check("mse_grad")', "Did you mean 'gradient_descent.mse_grad'?"),
    ],
)
def test_no_argument_shows_a_frame(kernel, call, sentence):
    said = kernel.run(call)
    assert sentence in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("leaving", ["exit()", "quit()", "exit(3)", "import sys; sys.exit()"])
def test_exit_in_an_answer_is_a_sentence_and_the_kernel_lives(kernel, leaving):
    kernel.run(f"def mse_grad(w, X, y):\n    {leaving}", name="another")
    assert "Your code ended the program" in kernel.run(CHECK)
    assert kernel.run("print(1 + 1)") == "2\n"
    assert "ExitAutocall" in kernel.run("print(type(exit), type(quit))")


@pytest.mark.parametrize("asking", ["input()", "int(input('lr? '))", "import pdb; pdb.set_trace()"])
def test_input_in_an_answer_is_a_sentence_and_blocks_nothing(kernel, asking):
    kernel.run(f"def mse_grad(w, X, y):\n    {asking}\n    return w", name="another")
    assert "Your code asks for input()" in kernel.run(CHECK)


LOOP = "def mse_grad(w, X, y):\n    print('begun', flush=True)\n    while True:\n        pass"


@pytest.mark.parametrize("code", [LOOP, LOOP.replace("pass", "torch.ones(300, 300) @ torch.ones(300, 300)")])
def test_stopping_a_check_is_one_sentence(kernel, code):
    kernel.run(code, name="another")
    threading.Timer(1.0, os.kill, (kernel.pid, signal.SIGINT)).start()
    start = time.monotonic()
    said = kernel.run(CHECK)
    assert said == "You stopped the check of `mse_grad`. It can be run again."
    assert time.monotonic() - start < 4  # its limit is 5 s
    assert kernel.run("print(1 + 1)") == "2\n"


def test_ranks_are_stopped_too(kernel):
    kernel.run("def ring_all_reduce(x, comm):\n    while True:\n        pass", name="ring")
    threading.Timer(1.0, os.kill, (kernel.pid, signal.SIGINT)).start()
    assert (
        kernel.run('check("ddp.ring_all_reduce")') == "You stopped the check of `ring_all_reduce`. It can be run again."
    )
    assert kernel.run("print(1 + 1)") == "2\n"


def test_ranks_that_ask_or_exit_are_told(kernel):
    kernel.run("def ring_all_reduce(x, comm):\n    input()", name="ring")
    assert "Your code asks for input()" in kernel.run('check("ddp.ring_all_reduce")')
    kernel.run("def ring_all_reduce(x, comm):\n    exit()", name="ring")
    assert "Your code ended the program" in kernel.run('check("ddp.ring_all_reduce")')
