"""Cores are counted as a process may use them: its affinity, and the quota of its container, of both versions."""

import os
import subprocess
import sys

import psutil
import pytest

from hpcdl.machine import QuietTogether, cores, others_worked

ALL = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def sixteen(monkeypatch):
    """A machine whose sixteen cores this process may all use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)


def system(folder, groups: str, files: dict[str, str]):
    """A root with /proc/self/cgroup and those files below /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def version_1(quota: int, period: int = 100_000) -> dict[str, str]:
    return {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": f"{period}\n"}


def test_without_control_groups_the_affinity_counts(tmp_path):
    assert cores(tmp_path) == 16


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 16), ("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("9900000 100000", 16)],
)
def test_the_quota_of_version_2(tmp_path, quota, expected):
    assert cores(system(tmp_path, "0::/\n", {"cpu.max": f"{quota}\n"})) == expected


def test_the_tightest_group_around_the_process_counts(tmp_path):
    files = {"job/cpu.max": "300000 100000\n", "job/step/cpu.max": "max 100000\n", "cpu.max": "800000 100000\n"}
    assert cores(system(tmp_path, "0::/job/step\n", files)) == 3


@pytest.mark.parametrize(("quota", "expected"), [(-1, 16), (300_000, 3), (20_000, 1)])
def test_the_quota_of_version_1(tmp_path, quota, expected):
    files = {f"cpu,cpuacct/{name}": text for name, text in version_1(quota).items()}
    assert cores(system(tmp_path, "4:memory:/\n3:cpu,cpuacct:/\n", files)) == expected


def test_container_reads_its_mounted_group(tmp_path):
    files = {f"cpu/{name}": text for name, text in version_1(500_000).items()}
    assert cores(system(tmp_path, "1:cpu:/docker/0123456789ab\n", files)) == 5


@pytest.mark.parametrize("groups", ["", "nonsense", "0::/\n"])
def test_files_that_say_nothing_are_no_quota(tmp_path, groups):
    assert cores(system(tmp_path, groups, {"cpu.max": "who knows\n"})) == 16


def test_here_there_is_at_least_one_core(monkeypatch):
    monkeypatch.undo()
    assert 1 <= cores() <= ALL


@pytest.mark.parametrize(
    ("waited", "others", "quiet"),
    [(0.1, 0, True), (0.1, 9, True), (9, 0, True), (9, 1, True), (9, 9, False)],  # seconds of ten
)
def test_quiet_unless_this_program_waited_and_others_worked(waited, others, quiet):
    """Four engines on two cores wait for each other; other programs may have cores of their own."""
    clocks = {"clock": iter([0, 10, 10]), "waited": iter([0, waited]), "others": iter([0, others])}
    assert bool(QuietTogether(**{name: values.__next__ for name, values in clocks.items()})) is quiet


BURN = "import time\nwhile time.process_time() < 0.5:\n    pass"


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system does not say what all programs worked")
def test_children_are_no_other_programs(monkeypatch):
    """Neither while they run nor when they have ended."""
    monkeypatch.setattr(psutil, "cpu_times", lambda: NOBODY)  # all others stand still
    before = others_worked()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    ended = others_worked()
    with subprocess.Popen([sys.executable, "-c", BURN + "\nprint(flush=True)\ninput()"], stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        running = others_worked()
        child.communicate(b"\n")
    assert ended <= before - 0.4
    assert running <= ended - 0.4


NOBODY = psutil.cpu_times()
