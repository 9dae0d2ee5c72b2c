"""`%%px` in a real notebook kernel."""

from types import SimpleNamespace

import cloudpickle
import nbformat
import pytest
from nbclient import NotebookClient

from hpcdl import saying
from hpcdl.cluster import run

pytestmark = pytest.mark.mpi

START = """
import warnings
warnings.simplefilter("ignore")
from hpcdl.cluster import Cluster
cluster = Cluster(n=2).start()
"""


def run_cells(*sources) -> list[str]:
    """What each cell showed, in one kernel; errors as they stand in the notebook."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=100, allow_errors=True, kernel_name="python3").execute()
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells]


def _text(output) -> str:
    if output.output_type == "error":
        return "ERROR " + "\n".join(output.traceback)
    if output.output_type == "stream":
        return output.text
    return str(output.data or "")  # a line that is over has none


@pytest.mark.labs  # a kernel with engines of its own
def test_px_cells_run_on_every_rank(mpiexec):
    _, value, exchange, wrong, hung, after, line, typing, picture, option, stopped = run_cells(
        START,
        "%%px\nimport torch\nx = torch.full((2,), comm.rank + 1.0)\nmine = comm\nx.sum().item()",
        "%%px\nmine.all_reduce(x)\nprint('sum', x.tolist())",
        "%%px\n# a comment\nif comm.rank == 1:\n    y = x @ torch.ones(3)\ncomm.barrier()",
        "%%px --timeout 0.5\nmine.recv(x, source=1 - comm.rank)",
        "%%px\nmine.all_reduce(x)\nx.tolist()",
        "%px print(comm.rank * 10)",
        "%%px\nx = = 1",
        "%%px\nfrom IPython.display import HTML, display\nif comm.rank == 1: display(HTML('<b>bold</b>'))",
        "%%px --targets 0\n1",
        "cluster.stop()\n%px 1",
    )
    assert sorted(value.splitlines()) == ["[rank 0] 2.0", "[rank 1] 4.0"]
    assert sorted(exchange.splitlines()) == ["[rank 0] sum [3.0, 3.0]", "[rank 1] sum [3.0, 3.0]"]
    assert "rank 1 raised RuntimeError" in wrong
    assert "at Cell In[4], line 4: y = x @ torch.ones(3)" in wrong
    assert "rank 0 stood in barrier() at Cell In[4], line 5" in wrong
    assert "did not return within 0.5 s" in hung
    assert "Deadlock: rank 0 waits to receive from rank 1, rank 1 waits to receive from rank 0." in hung
    assert sorted(after.splitlines()) == ["[rank 0] [6.0, 6.0]", "[rank 1] [6.0, 6.0]"], "variables and comm live on"
    assert sorted(line.splitlines()) == ["[rank 0] 0", "[rank 1] 10"]
    assert "SyntaxError" in typing
    assert "[rank" not in typing
    assert "[rank 1]" in picture
    assert "<b>bold</b>" in picture
    assert "%%px: it says '--targets 0'; it takes --timeout SECONDS" in option
    assert "this cluster was stopped" in stopped


def test_a_start_that_takes_long_says_how_far_it_is(monkeypatch):
    """One line that changes, after two seconds, in a notebook or of a command; nothing if it is quick, or elsewhere."""
    now, lines = [0.0], []

    class Line:
        def update(self, content, raw):
            lines.append(content.get("text/plain"))

    def display(content, raw, display_id):
        lines.append(["a new line", content["text/plain"]])
        return Line()

    monkeypatch.setattr(saying, "display", display)
    for shell, expected in (
        (SimpleNamespace(kernel=1), [["a new line", "0 are up (3 s)"], "1 are up (4 s)", "all are up (4 s)"]),
        (None, []),
    ):
        monkeypatch.setattr(saying, "get_ipython", lambda shell=shell: shell)
        now[0], lines[:] = 0.0, []
        line = saying.StatusLine(clock=lambda: now[0])
        for seconds, text in ((1, "0 are up"), (3, "0 are up"), (3.1, "0 are up"), (4, "1 are up")):
            now[0] = seconds
            line.say(text)
        line.end("all are up")
        assert lines == expected
        line.clear()
        assert lines == expected + [None] * bool(shell)
    now[0], lines[:] = 0.0, []
    with saying.told(lines.append):
        line = saying.StatusLine(clock=lambda: now[0])
        for now[0], text in ((1, "0 are up"), (3, "0 are up"), (3.1, "0 are up"), (4, "1 are up")):
            line.say(text)
    line.say("2 are up")
    assert lines == ["0 are up (3 s)", "1 are up (4 s)"]
    saying.StatusLine().end("all are up")


class Answer:
    """An engine's answer, which comes once the notebook has looked `looks` times."""

    def __init__(self, looks: int):
        self.looks, self.metadata = looks, {"data": {}, "stdout": "", "stderr": "", "outputs": []}

    def ready(self) -> bool:
        return self.looks <= 0

    def wait(self, _seconds: float) -> None:
        self.looks -= 1

    def successful(self) -> bool:
        return True

    def wait_for_output(self, _seconds: float) -> None: ...

    def get(self, _seconds: float) -> dict:
        return {"end": "returned", "value": cloudpickle.dumps(self.looks)}


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_run_that_takes_long_says_how_many_ranks_have_returned(monkeypatch, tmp_path, way):
    """A line of `run`, empty at the end; the reader of a stream shows what it reads."""
    lines = []
    line = SimpleNamespace(update=lambda content, raw: lines.append(content.get("text/plain")))
    monkeypatch.setattr(saying, "display", lambda content, **_: lines.append(content["text/plain"]) or line)
    monkeypatch.setattr(saying, "get_ipython", lambda: SimpleNamespace(kernel=1))
    monkeypatch.setattr(saying, "QUIET", 0.0)
    monkeypatch.setattr(run, "StatusLine", lambda: saying.StatusLine(clock=lambda: 7.0))
    views = [SimpleNamespace(apply_async=lambda *_, looks=looks: Answer(looks)) for looks in (2, 3)]
    engines = [SimpleNamespace(view=view, alive=lambda: True) for view in views]
    cluster = SimpleNamespace(engines=engines, clean=True, directory=tmp_path, stopped=False)
    cluster.finished, cluster.black_box = lambda reports: None, lambda rank: {}
    one = run.Run(cluster, 1, len, (), 60.0)
    if way == "stream":
        assert (list(one), one.results, lines) == ([], [0, 0], [])
        return
    assert one.wait() == [0, 0]
    said = "Running on 2 engines: {} have returned (0 s)"
    assert lines == [said.format(0), said.format(1), None]
