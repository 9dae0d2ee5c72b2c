"""The pass on ranks of a real MPI: what it finds, what it says, and that it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from autograder import checks, doctor, feedback
from autograder.authoring import Lab
from autograder.cli import app
from autograder.grading import real_ranks
from autograder.grading.run import run_lab
from autograder.grading.seeds import seeds
from autograder.outputs.instructor import flags
from autograder.outputs.load import for_student
from autograder.results import LabResult
from autograder.sessions import mpi_team
from autograder.sessions.mpi_slots import launcher
from autograder.sessions.remote import RemoteSession
from autograder.walls import sandbox
from autograder.walls.zygote import Zygote
from hpcdl.cluster.launcher import LauncherError

pytestmark = pytest.mark.mpi

SWAP = """
import torch

def swap(x, comm):
    out = torch.empty_like(x)
    comm.sendrecv(x, comm.size - 1 - comm.rank, out, comm.size - 1 - comm.rank)
    x.copy_(out)
"""
TOTAL = "def total(x, comm):\n    comm.all_reduce(x)\n    return x.sum().item(), comm.size\n"
IS_REAL = "type(comm).__name__ == 'MPIComm'"
TITLE = "On 2 and 3 ranks of a real MPI it gives the same as on simulated ones."


def make_lab(hidden: bool = False) -> Lab:
    lab = Lab("pairs", number=0, title="Pairs")
    swap = lab.exercise("swap", points=50, minutes=1)
    total = lab.exercise("total", points=50, minutes=1)

    @swap.check(points=50, hidden=hidden)
    def swapped(student, rng):
        "Two ranks swap."
        xs = torch.rand(2, 3, generator=rng)
        run = student.ranks("swap", 2, lambda rank: (xs[rank].clone(),))
        for rank in range(2):
            checks.close(run.arguments[rank][0], xs[1 - rank], name=f"x on rank {rank}")

    @total.check(points=50)
    def summed(student, rng):
        "Every rank has the sum."
        for p in (2, 3, 4):
            x = torch.rand(5, generator=rng)
            run = student.ranks("total", p, lambda rank, x=x: (x.clone(),))
            for result, size in run.results:
                checks.close(result, p * x.sum(), name="the sum", rtol=1e-4)
                checks.equal(size, p, name="comm.size")

    return lab


@pytest.fixture(scope="module", autouse=True)
def mpich(need):
    try:
        launcher()
    except LauncherError as error:
        need("mpi", False, str(error))


@pytest.fixture
def graded(zygote):
    """The results of cells as the lab `pairs`, with those of the real ranks, and the notes of the pass.

    Afterwards there is no process that was not there before.
    """
    with tempfile.TemporaryDirectory() as folder, RemoteSession(zygote, [], folder) as session:
        session.team(2)  # from now on the zygote keeps workers ready, for ranks, too
    time.sleep(0.1)
    before = len(descendants(zygote.process.pid))

    def graded(*cells: str, hidden: bool = False) -> tuple[list, list]:
        lab, labelled = make_lab(hidden), [(f"cell {i}", code) for i, code in enumerate(cells)]
        with tempfile.TemporaryDirectory() as folder, RemoteSession(zygote, labelled, folder) as session:
            results = run_lab(lab, session, seeds(b"", "ada"))
        return results, real_ranks.repeat(lab, results, session, zygote)

    yield graded
    assert wait_until(lambda: len(descendants(zygote.process.pid)) <= before)


def only_there(body: str) -> str:
    """SWAP, which does something else on a real MPI."""
    return SWAP.replace("    out =", f"    if {IS_REAL}:\n        {body}\n    out =")


def last(result):
    assert result.checks[-1].name == "on_real_ranks"
    return result.checks[-1]


def test_what_is_right_passes_there_too_and_leaves_nothing(graded):
    before = children()
    results, notes = graded(SWAP, TOTAL)
    assert [(last(result).status, last(result).title, result.status) for result in results] == [
        ("passed", TITLE, "passed")
    ] * 2
    assert [result.points for result in results] == [50, 50]
    assert all(0 <= last(result).seconds < real_ranks.SECONDS for result in results)
    assert notes == []
    assert children() == before


def test_the_ranks_are_those_of_an_mpi(graded, monkeypatch):
    found = []
    monkeypatch.setattr(
        real_ranks, "agree", lambda outcomes, run: found.append((run.p, [result for result, _ in outcomes]))
    )
    code = TOTAL.replace("comm.size", f"comm.mpi.size if {IS_REAL} else comm.size")
    graded(SWAP, code)
    assert [p for p, _ in found] == [2, 2, 3]  # swap on two ranks, total on two and on three
    assert [size for _, size in found[-1][1]] == [3, 3, 3]


def test_another_result_there_is_reported_and_costs_nothing(graded):
    swap, total = graded(only_there("x += 1"), TOTAL)[0]
    check = last(swap)
    assert (check.status, check.kind, swap.points, last(total).status) == ("failed", "values", 50, "passed")
    assert check.message.startswith("Element [1] of argument 0 of swap on rank 0 of 2, after the call,")
    assert check.got != check.expected
    assert "rank 0 of 2: swap(" in check.call
    assert f"✗ {TITLE} (no points)" in feedback.text(swap)
    assert "(no points)" in feedback.html(swap)
    result = LabResult("ada", "pairs", 100, [swap, total])
    assert LabResult.from_json(result.to_json()) == result
    assert flags([result]) == [("ada", f"pairs.swap: “{TITLE}” does not hold, and costs no points")]


def test_of_a_hidden_check_the_student_sees_no_input_there_either(graded):
    swap, _ = graded(only_there("x += 1"), TOTAL, hidden=True)[0]
    assert "tensor(" in last(swap).call
    (shown,) = for_student(LabResult("ada", "pairs", 100, [swap])).exercises
    assert last(shown).status == "failed"
    assert "tensor(" not in feedback.text(shown)


def test_ended_rank_is_reported_and_replaced(graded):
    start = time.monotonic()
    swap, total = graded(only_there("import os; comm.rank == 1 and os._exit(7)"), TOTAL)[0]
    check = last(swap)
    assert check.message == "Your code ended the Python process (exit code 7), as os._exit does. (rank 1 of 2)"
    assert (swap.points, last(total).status) == (50, "passed")
    assert time.monotonic() - start < real_ranks.SECONDS  # rank 0, which waits for it, was not waited for


def test_what_a_rank_raises_there_names_the_rank_and_the_line(graded):
    check = last(graded(only_there("1 / comm.rank"), TOTAL)[0][0])
    assert check.message == "Your code raised ZeroDivisionError: division by zero (rank 0 of 2)"
    assert (check.function, check.line) == ("swap", 6)


def test_a_rank_that_waits_for_ever_takes_one_limit_and_says_where(graded, monkeypatch):
    monkeypatch.setattr(real_ranks, "SECONDS", 0.7)
    monkeypatch.setattr(RemoteSession, "is_asleep", lambda ranks: True)  # as it is where waiting costs little
    swap, total = graded(only_there("comm.recv(x, 1 - comm.rank)"), TOTAL)[0]
    assert (check := last(swap)).kind == "timeout"
    assert check.message.startswith("Your code did not finish within 0.7 s")
    assert (check.line, check.source) == (6, "comm.recv(x, 1 - comm.rank)")
    assert "On simulated ranks the same call was right" in feedback.text(swap)
    assert swap.points == 50
    assert total.checks[-1].name == "summed"  # nothing is tried after it


def test_cells_that_fail_there_are_a_message(graded):
    code = "import os\nif 'PMI_RANK' in os.environ:\n    os._exit(3)\n"
    swap, total = graded(code, SWAP, TOTAL)[0]
    assert "exit code 3" in last(swap).message
    assert "exit code 3" in last(total).message


def test_what_lost_points_is_not_repeated(graded):
    swap, total = graded(SWAP.replace("x.copy_(out)", "pass"), TOTAL)[0]
    assert [check.name for check in swap.checks] == ["swapped"]
    assert last(total).passed


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("autograder.sessions.mpi_slots.find_launcher", "no mpiexec was found"),
        ("autograder.sessions.mpi_team.slots", "MPI did not start"),
    ],
)
def test_without_a_launcher_there_is_a_note_and_the_same_points(graded, monkeypatch, where, why):
    def refuse(*_):
        raise LauncherError(f"{why}\nrun: this")

    monkeypatch.setattr(where, refuse)
    results, notes = graded(SWAP, TOTAL)
    assert notes == [f"nothing was repeated on real MPI ranks: {why}"]
    assert [(result.status, result.points, len(result.checks)) for result in results] == [("passed", 50, 1)] * 2


def test_an_mpiexec_that_starts_nothing_is_a_launcher_error(monkeypatch):
    monkeypatch.setattr("autograder.sessions.mpi_slots.launcher", lambda: ["/bin/false"])
    monkeypatch.setattr("autograder.sessions.mpi_slots.PATIENCE", 0.3)
    with pytest.raises(LauncherError, match="/bin/false did not start 3 processes"), mpi_team.slots(3):
        pass


@pytest.mark.skipif(sandbox.tier() == "weak", reason="no sandbox on this system")
@pytest.mark.parametrize("walls", ["namespaces", pytest.param("restricted", marks=pytest.mark.labs)])
def test_every_canary_finds_a_wall_from_a_rank_too(walls, monkeypatch):
    if walls == "namespaces" and sandbox.tier() != "namespaces":
        pytest.skip(f"this system has the tier {sandbox.tier()}")
    monkeypatch.setattr(sandbox, "tier", lambda: walls)
    with Zygote() as zygote:
        finding = doctor.from_a_rank(zygote)
    assert (finding.held, finding.said) == (True, "refused, all of it")


def test_the_command_repeats_on_real_ranks_unless_it_is_told_not_to(tmp_path, write_notebook, monkeypatch):
    graded = []
    monkeypatch.setattr("autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr("autograder.grading.batch.canaries.require", lambda zygote: None)  # there are no walls to try
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)
    monkeypatch.setattr(
        "autograder.grading.grade.grade", lambda *args: graded.append(args[-1]) or LabResult("ada", "pairs", 1.0)
    )
    write_notebook("ada.ipynb", "x = 1")
    command = ["grade", str(tmp_path / "submissions"), "--allow-weak", "--out", str(tmp_path / "results")]
    for more in (["--no-mpi"], ["--no-mpi"], [], []):  # a kept result is of a run of the same kind
        assert CliRunner().invoke(app, [*command, *more]).exit_code == 0
    assert graded == [False, True]


@pytest.mark.labs
def test_a_grader_that_is_killed_leaves_no_rank_behind():
    program = """
import time
from autograder.sessions import mpi_team
from autograder.walls.zygote import Zygote
if __name__ == "__main__":
    with Zygote() as zygote, mpi_team.team(zygote, []) as ranks:
        print("there", flush=True)
        time.sleep(60)
"""
    grader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert grader.stdout.readline() == "there\n"
    below = descendants(grader.pid)
    shared = [line for pid in below for line in maps(pid) if "/dev/shm/" in line]
    assert len(shared) >= 3  # the ranks are among them
    assert all(line.endswith("(deleted)") for line in shared)  # without a name it ends with the last of them
    grader.send_signal(signal.SIGKILL)
    grader.communicate()
    assert wait_until(lambda: not any(map(alive, below)))


def wait_until(condition) -> bool:
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def children(pid: int | None = None) -> list[int]:
    try:
        return sorted(
            map(int, Path(f"/proc/{pid or os.getpid()}/task/{pid or os.getpid()}/children").read_text().split())
        )
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    return [below for child in children(pid) for below in (child, *descendants(child))]


def maps(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
