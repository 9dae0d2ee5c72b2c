"""Every lab runs top to bottom: solved without an error, blank without anything worse than an open exercise.

Where there is a Chromium, tests/browser runs the solved labs in a page with the same checks; here they are then left to
the long tests.
"""

import os
import time

import nbclient
import nbformat
import pytest

from autograder import exercises
from autograder.authors import build
from hpcdl import guesses
from tests.labs.learned import PROBES, assert_learned

LABS = [build.slug_of(path) for path in build.sources()]
SECONDS = 300  # a limit against hangs; a lab takes under a minute on two quiet cores, and the run prints how long


def client_of(notebook, folder, allow_errors: bool = False):
    """What runs a notebook in its own kernel, in `folder`."""
    return nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        allow_errors=allow_errors,
        resources={"metadata": {"path": str(folder)}},
        kernel_name="python3",
    )


def execute(notebook, folder, allow_errors: bool = False):
    """Run a notebook in its own kernel, in `folder`, with torch on one thread per core."""
    client = client_of(notebook, folder, allow_errors)
    client.execute(env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    return notebook


def outputs(notebook, kind: str):
    return [out for cell in notebook.cells for out in cell.get("outputs", []) if out.output_type == kind]


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """The executed solved notebook of a lab and its seconds, each run once."""
    done = {}

    def run(slug: str):
        if slug not in done:
            begin, notebook = time.perf_counter(), build.solved(slug)
            if slug in PROBES:
                notebook.cells.append(nbformat.v4.new_code_cell(PROBES[slug]))
            execute(notebook, tmp_path_factory.mktemp(slug))
            done[slug] = notebook, time.perf_counter() - begin
        return done[slug]

    return run


@pytest.mark.without_page
@pytest.mark.each_lab("calculus")
@pytest.mark.parametrize("slug", LABS)
def test_the_solved_lab_runs_top_to_bottom(slug, solved):
    notebook, seconds = solved(slug)
    print(f"{slug}: {seconds:.1f} s")
    assert not [out for out in outputs(notebook, "stream") if out.name == "stderr"], "a student would see red text"


@pytest.mark.without_page
@pytest.mark.each_lab("calculus")
@pytest.mark.parametrize("slug", [slug for slug in LABS if slug in exercises.LABS])
def test_every_check_of_the_solved_lab_passes(slug, solved):
    notebook, _ = solved(slug)
    shown = [str(out.data.get("text/plain", "")) for out in outputs(notebook, "display_data")]
    shown += [str(out.data.get("text/plain", "")) for out in outputs(notebook, "execute_result")]
    lab = exercises.load(slug)
    assert any(f"{lab.points:g} / {lab.points:g}" in text for text in shown), "the last check shows the full total"


@pytest.mark.each_lab("gradient_descent", turn=(1, 6))
@pytest.mark.parametrize("slug", [slug for slug in LABS if slug in exercises.LABS])
def test_the_blank_lab_shows_its_pictures_and_says_what_is_open(slug, tmp_path):
    notebook = execute(build.student(slug), tmp_path, allow_errors=True)
    errors = [out for out in outputs(notebook, "error") if out.ename != "NotImplementedError"]
    assert not errors, f"{errors[0].ename}: {errors[0].evalue}"


@pytest.mark.long  # half a minute each
@pytest.mark.parametrize("make", [build.student, build.solved], ids=["blank", "solved"])
@pytest.mark.parametrize("slug", LABS)
def test_open_guesses_stop_nothing(slug, make, tmp_path, monkeypatch):
    """As "Run All" does on a page, where every guess is still to be made."""
    monkeypatch.delenv(guesses.VARIABLE)
    client = client_of(make(slug), tmp_path, allow_errors=True)
    with client.setup_kernel():
        client.kc.allow_stdin = True
        for number, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, number)
    errors = [out for out in outputs(client.nb, "error") if out.ename != "NotImplementedError"]
    assert not errors, f"{errors[0].ename}: {errors[0].evalue}"
    assert not [out.text for out in outputs(client.nb, "stream") if out.name == "stderr"]
    if "guess(" in "".join(cell.source for cell in client.nb.cells):
        assert any("First your guess" in out.text for out in outputs(client.nb, "stream"))


@pytest.mark.mpi
@pytest.mark.without_page
@pytest.mark.each_lab
@pytest.mark.parametrize("slug", PROBES)
def test_a_lab_learns_on_four_engines(slug, solved):
    notebook, _ = solved(slug)
    assert_learned(slug, "".join(out.text for out in outputs(notebook, "stream")))
