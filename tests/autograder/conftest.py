"""A tiny lab of two exercises, a zygote for the whole run, and notebooks made from cells."""

import json
import sys
import tempfile
import types
from pathlib import Path

import pytest
import torch

from autograder import checks, exercises
from autograder.authoring import Lab
from autograder.grading import grade
from autograder.sessions.local import LocalSession
from autograder.sessions.remote import RemoteSession
from autograder.walls.zygote import Zygote

SOLUTION = {
    "mean": "import torch\n\ndef mean(x):\n    return x.sum() / x.numel()\n",
    "count": "def count(n):\n    for i in range(n):\n        yield i\n\ndef double(f, x):\n    return 2 * f(x)\n",
}


def make_lab() -> Lab:
    lab = Lab("tiny", number=0, title="Tiny")
    mean = lab.exercise("mean", points=60, minutes=1)
    count = lab.exercise("count", points=40, minutes=1, functions=("count", "double"))

    @mean.check(points=40)
    def value(student, rng):
        "The mean of the elements."
        x = torch.rand(7, generator=rng) + 1
        sentence = "This is the sum: divide by the number of elements."
        checks.close(student.mean(x), x.mean(), name="mean(x)", mistakes={sentence: x.sum()})

    @mean.check(points=20, needs="value")
    def leaves_x_alone(student, rng):
        "x is the same after the call."
        x = torch.rand(7, generator=rng)
        before = x.clone()
        student.mean(x)
        checks.unchanged(x, before, name="x")

    @count.check(points=20, seconds=1.0)
    def items(student, rng):
        "It gives 0, 1, ... n - 1."
        checks.equal(student.count(4), [0, 1, 2, 3], name="list(count(4))")

    @count.check(points=20, seconds=1.0)
    def doubles(student, rng):
        "It calls f once."
        f = checks.counted(lambda x: x + 1)
        checks.equal(student.double(f, 3), 8, name="double(f, 3)")
        checks.equal(f.calls, 1, name="the number of calls of f")

    return lab


@pytest.fixture(scope="module", autouse=True)
def tiny():
    """The tiny lab, known to the autograder beside the real ones while a file of these tests runs."""
    module = types.ModuleType("autograder.exercises.tiny")
    module.lab = make_lab()
    before, exercises.LABS = exercises.LABS, (*exercises.LABS, "tiny")
    sys.modules[module.__name__] = module
    yield module.lab
    exercises.LABS = before
    del sys.modules[module.__name__]


@pytest.fixture
def graded(monkeypatch):
    """The names of the students that were really graded, in order."""
    names, original = [], grade.grade

    def spy(submission, *rest):
        names.append(submission.student)
        return original(submission, *rest)

    monkeypatch.setattr(grade, "grade", spy)
    return names


@pytest.fixture(scope="session")
def zygote():
    with Zygote() as running:
        yield running


@pytest.fixture
def local():
    """Start a session on code in this process."""

    def start(code: str) -> LocalSession:
        namespace = {}
        exec(code, namespace)
        return LocalSession(namespace)

    return start


@pytest.fixture
def remote(zygote):
    """Start a session on code in a worker of its own. (Only root may look below pytest's `tmp_path`.)"""
    open_sessions, folder = [], tempfile.TemporaryDirectory()

    def start(*cells: str, **options) -> RemoteSession:
        labelled = [(f"cell {i}", code) for i, code in enumerate(cells, start=1)]
        open_sessions.append(RemoteSession(zygote, labelled, folder.name, **options))
        return open_sessions[-1]

    yield start
    for session in open_sessions:
        session.close()
    folder.cleanup()


@pytest.fixture(params=["local", "remote"])
def session(request):
    """Start a session either way: a check cannot tell them apart."""
    return request.getfixturevalue(request.param)


def notebook_text(*cells: str, **metadata) -> str:
    blank = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    code = [{**blank, "id": f"cell-{i}", "source": source} for i, source in enumerate(cells, start=1)]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": code})


@pytest.fixture(scope="session", name="notebook_text")
def notebook_text_fixture():
    return notebook_text


@pytest.fixture(scope="session")
def solution():
    """The right answers of the tiny lab, by exercise."""
    return dict(SOLUTION)


@pytest.fixture
def write_notebook(tmp_path):
    """Write a notebook of code cells under a folder of submissions."""

    def write(name: str, *cells: str, **metadata) -> Path:
        path = tmp_path / "submissions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook_text(*cells, **metadata))
        return path

    return write
