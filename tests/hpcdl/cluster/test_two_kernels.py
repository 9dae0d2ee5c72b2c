"""Two notebooks open in one JupyterLab: whatever happens to one, the other's check and engines continue."""

import json
import os
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

import hpcdl.jupyter
from hpcdl.cluster import lifeline
from hpcdl.cluster.ports import HeldPorts

MARK = "HPCDL_TEST_MARK"
KERNELS = str(Path(hpcdl.jupyter.__file__).with_name("kernels"))
START = """
import os, time
from pathlib import Path
from autograder import check
from hpcdl.cluster import Cluster
cluster = Cluster(n=2).start()
pids = lambda: cluster.run(lambda comm: os.getpid())
"""
CHECK = """
def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).mean()

def mse_grad(w, X, y):
    {wait}
    return 2 / len(y) * X.T @ (X @ w - y)

check("gradient_descent.mse_grad")
"""
ENDLESS = CHECK.format(wait="Path('{0}').touch()\n    while True:\n        time.sleep(0.01)")
RIGHT = CHECK.format(wait="pass")
TRAINING = """
def training(comm):
    Path(f"{0}{{comm.rank}}").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return comm.rank

print(cluster.run(training))
"""


class Notebook:
    """A kernel as `hpcdl lab` starts it; its cells run one by one, beside those of other notebooks."""

    def __init__(self, held: HeldPorts, folder: Path):
        self.mark = uuid.uuid4().hex  # in the environment of its processes
        specs = KernelSpecManager(kernel_dirs=[KERNELS])
        self.manager = KernelManager(kernel_name="python3", kernel_spec_manager=specs)
        held.for_kernel(self.manager)
        self.manager.start_kernel(env=os.environ | {MARK: self.mark}, cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def begin(self, source: str) -> None:
        """Run a cell, without waiting for its end."""
        self.cell = self.client.execute(source)

    def end(self) -> str:
        """Return what the cell begun last has shown at its end."""
        shown = []
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") == self.cell:
                content = message["content"]
                shown += [content.get("text", ""), *content.get("traceback", []), str(content.get("data", ""))]
                if content.get("execution_state") == "idle":
                    return "".join(shown)

    def run(self, source: str) -> str:
        self.begin(source)
        return self.end()

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """Two notebooks of one server: one folder of labs, and one runtime folder."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    with HeldPorts() as held:
        pair = [Notebook(held, tmp_path) for _ in range(2)]
        yield pair
        for notebook in pair:
            notebook.close()


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


@pytest.mark.mpi
@pytest.mark.timeout(500)
@pytest.mark.labs  # two kernels with engines
@pytest.mark.skipif(sys.platform != "linux", reason="reads the environment of processes")
def test_what_happens_to_one_notebook_leaves_the_others_engines_alone(notebooks, left, alive, tmp_path):
    one, two = notebooks
    for notebook in notebooks:
        notebook.begin(START)
    for notebook in notebooks:
        notebook.end()
    ours, theirs = (json.loads(notebook.run("print(pids())")) for notebook in notebooks)

    for number, notebook in enumerate(notebooks):
        notebook.begin(ENDLESS.format(f"check{number}"))
    until(lambda: all((tmp_path / f"check{number}").exists() for number in (0, 1)))
    one.manager.interrupt_kernel()
    assert one.end().endswith("You stopped the check of `mse_grad`. It can be run again.")
    two.manager.restart_kernel(now=True)  # in its check
    assert "10 / 10 points" in one.run(RIGHT)
    assert json.loads(one.run("print(pids())")) == ours
    until(lambda: not any(map(alive, theirs)))

    two.client.wait_for_ready(timeout=60)
    two.run(START)
    for number, notebook in enumerate(notebooks):
        notebook.begin(TRAINING.format(f"training{number}"))
    until(lambda: len(list(tmp_path.glob("training*"))) == 4)
    files = [file for pid in family(one) for file in lifeline.shared_memory(pid)]
    psutil.Process(one.manager.provisioner.pid).kill()
    until(lambda: not left(one.mark))
    assert not any(Path(file).exists() for file in files)
    assert len(list((tmp_path / "runtime").glob("hpcdl-*"))) == 1, "the other notebook's"
    (tmp_path / "go").touch()
    assert two.end().endswith("[0, 1]\n")
    assert "10 / 10 points" in two.run(RIGHT)

    two.close()
    until(lambda: not left(two.mark) and not list((tmp_path / "runtime").glob("hpcdl-*")))


def family(notebook: Notebook) -> list[int]:
    kernel = psutil.Process(notebook.manager.provisioner.pid)
    return [process.pid for process in kernel.children(recursive=True)]
