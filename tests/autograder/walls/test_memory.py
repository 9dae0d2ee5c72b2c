"""The processes of all lanes together take no more memory than the machine has free."""

import os
import resource

import pytest

from autograder import doctor
from autograder.grading import alone
from autograder.grading.run import run_lab
from autograder.grading.seeds import seeds
from autograder.results import CheckResult, ExerciseResult
from autograder.walls import memory, sandbox
from autograder.walls.memory import MOST, Allowance

GIB = 2**30
walled = pytest.mark.skipif(sandbox.tier() == "weak", reason=f"no sandbox on this system: {doctor.needs()}")
HUNGRY = "import numpy as np\ndef double(f, x):\n    np.ones(256 << 17)\n    return 2 * f(x)\n"  # 256 MiB


@pytest.mark.parametrize("available", [GIB, 4 * GIB, 24 * GIB, 500 * GIB])
@pytest.mark.parametrize("lanes", [1, 2, 16])
def test_lanes_together_take_less_than_there_is(available, lanes):
    each = memory.allowance(lanes, available)
    assert 0 < each.rank <= each.first <= MOST
    assert each.together * lanes <= memory.USED * available + memory.RANKS * lanes


def test_a_large_machine_gives_each_process_all_that_it_may_take():
    assert memory.allowance(2, 128 * GIB) == Allowance(MOST, MOST)


def group(folder, version, limit, use, cached):
    folder.mkdir(parents=True)
    for name, value in zip(
        memory.FILES[version], (limit, use, f"x 1\n{memory.FILES[version][2]} {cached}"), strict=True
    ):
        (folder / ("memory.stat" if "inactive" in name else name)).write_text(f"{value}\n")


@pytest.mark.parametrize(
    ("version", "line", "below"), [(2, "0::/pod/mine", ""), (1, "5:cpu,memory:/pod/mine\n0::/", "memory")]
)
def test_a_container_has_what_its_narrowest_group_leaves(tmp_path, monkeypatch, version, line, below):
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "sys")
    monkeypatch.setattr(memory, "OF_GROUP", tmp_path / "mine")
    (tmp_path / "mine").write_text(line)
    group(tmp_path / "sys" / below / "pod", version, 900, 300, 100)
    group(tmp_path / "sys" / below / "pod" / "mine", version, "max", 200, 0)
    assert memory.free() == 700


def test_a_system_without_groups_has_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "OF_GROUP", tmp_path / "none")
    assert memory.free() > 0


@walled
def test_processes_have_the_limits_of_their_allowance(remote, zygote, monkeypatch):
    """As the kernel counts them: the first process's, and a rank's."""
    monkeypatch.setattr(zygote, "memory", Allowance(600 << 20, 300 << 20))
    code = "import resource\ndef limit(comm=None):\n    return resource.getrlimit(resource.RLIMIT_AS)[0]"
    session = remote(code)
    session.start_check(20)
    alone_ = session.student.limit()
    first, second = session.student.ranks("limit", 2, lambda rank: ()).results
    assert alone_ == first
    assert abs(first - second - (300 << 20)) < 64 << 20  # what is mapped differs a little


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS") or os.name != "posix", reason="no limits on memory")
@walled
def test_what_lacked_memory_beside_others_is_asked_again_with_all_of_it(
    tmp_path, tiny, remote, zygote, monkeypatch, solution
):
    monkeypatch.setattr(alone, "FLOOR", alone.Floor(tmp_path / "lanes"))
    monkeypatch.setattr(memory, "allowance", lambda: Allowance(GIB, GIB))
    monkeypatch.setattr(zygote, "memory", Allowance(128 << 20, 128 << 20))
    session = remote(solution["mean"], solution["count"], HUNGRY)
    found = run_lab(tiny, session, seeds(b"", ""))
    assert [result.points for result in found] == [60, 20]
    alone.ask_again(tiny, found, session, seeds(b"", ""))
    assert [result.points for result in found] == [60, 40]
    assert found[1].note == alone.SAID
    assert zygote.memory.rank == 128 << 20


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("exception", "Your code used more memory than it may.", True),
        ("exception", "Your code raised RuntimeError: DefaultCPUAllocator: can't allocate memory", True),
        ("exception", "Your code raised RuntimeError: can't start new thread.", True),
        ("exception", "Your code raised ValueError: no.", False),
        ("values", "A memory is 3, expected 4.", False),
        ("ended", "Your code ended the Python process: a segmentation fault.", True),
    ],
)
def test_which_failures_may_want_memory(kind, message, expected):
    check = CheckResult("c", "t", 1.0, kind=kind, message=message)
    assert alone.wants_memory(ExerciseResult("tiny.e", "e", 1.0, [check])) is expected
