"""What Binder does, step by step in an empty environment, and every lab in the memory that it gives.

mybinder.org promises 1 to 2 GB; the course keeps a visitor's server, notebook and engines together below 1.8 GB.
Source of the steps: the Dockerfile that repo2docker writes for this repository (tests/test_binder.py).
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest

from autograder.authors import build

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[1]
LIMIT = 1_800_000_000
GROUPS = Path("/sys/fs/cgroup/memory")  # version 1 of Linux's control groups; version 2 has one tree
ONE_TREE = Path("/sys/fs/cgroup")


class Box:
    """A control group: what runs in it has `LIMIT` bytes of memory together, and is ended when it takes more."""

    def __init__(self, name: str):
        first = GROUPS.is_dir()
        self.path = (GROUPS if first else ONE_TREE) / name
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(LIMIT))
        self.peak = self.path / ("memory.max_usage_in_bytes" if first else "memory.peak")

    def start(self, command: list, **how) -> subprocess.Popen:
        enter = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        return subprocess.Popen(["bash", "-c", enter, "-", *command], start_new_session=True, **how)

    def close(self) -> None:
        """The group goes when the last of its processes has gone."""
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)


@pytest.fixture
def box():
    try:
        box = Box(f"hpcdl-binder-{os.getpid()}")
    except OSError as error:
        pytest.skip(f"a memory limit needs a control group, and none can be made here: {error}")
    yield box
    box.close()


def retries() -> dict:
    """Where PyTorch's index is out of reach, another one may have the CPU build: ask once, not five times a package."""
    try:
        socket.getaddrinfo("download.pytorch.org", 443)
        return {}
    except OSError:
        return {"PIP_RETRIES": "0"}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory):
    """The repository and the environment of a visitor: a clone, and binder/requirements.txt in an empty venv."""
    home = tmp_path_factory.mktemp("binder")
    subprocess.run(["git", "clone", "-q", ROOT, home / "repo"], check=True)
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    install = [home / "venv/bin/pip", "install", "-q", "--no-cache-dir", "-r", "binder/requirements.txt"]
    subprocess.run(install, cwd=home / "repo", env=os.environ | retries(), check=True, timeout=900)
    return home


def in_binder(visitor: Path) -> dict:
    """How a visitor's process starts: in the repository, with the environment's programs first."""
    names = {"PATH": f"{visitor / 'venv/bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(visitor)}
    return {"cwd": visitor / "repo", "env": {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | names}


def test_nothing_but_the_pins_is_installed(visitor):
    listed = subprocess.run([visitor / "venv/bin/pip", "freeze"], capture_output=True, text=True, check=True).stdout
    names = {line.split("==")[0].lower() for line in listed.splitlines()}
    assert "torch==2.13.0" in listed
    assert not [name for name in names if name.startswith(("nvidia", "cuda"))]


def status(page: str, seconds: float = 60) -> int:
    """The server's answer, once it is up."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return urllib.request.urlopen(page, timeout=30).status
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def test_jupyterlab_opens_the_map_of_the_labs(visitor, box, held_port):
    port = held_port()
    options = ["--no-browser", "--allow-root", "--ServerApp.token=t", "--ip=127.0.0.1", f"--port={port}"]
    server = box.start(["binder/start", "jupyter", "lab", *options], **in_binder(visitor))
    try:
        for path in ("lab/tree", "api/contents"):
            assert status(f"http://127.0.0.1:{port}/{path}/labs/map.ipynb?token=t") == 200
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.parametrize("slug", [build.slug_of(path) for path in build.sources()])
def test_a_lab_runs_in_the_memory_of_binder(visitor, box, slug, tmp_path):
    path = tmp_path / f"{slug}.ipynb"
    nbformat.write(build.solved(slug), path)
    command = ["binder/start", "jupyter", "nbconvert", "--to", "notebook", "--execute", "--output", "done", path]
    begin = time.perf_counter()
    run = box.start(command, **in_binder(visitor), stderr=subprocess.PIPE, text=True)
    said = run.communicate(timeout=400)[1]
    peak = int(box.peak.read_text()) / 1e6
    print(f"{slug}: {time.perf_counter() - begin:.0f} s, at most {peak:.0f} MB with the pages of files")
    assert run.returncode == 0, said[-3000:]
