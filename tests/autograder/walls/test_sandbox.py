"""A student's code reaches no file, network or process but its own; and what it needs, it still can use."""

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from autograder import doctor
from autograder.cli import app
from autograder.sessions import canaries
from autograder.sessions.errors import StudentError
from autograder.sessions.remote import RemoteSession
from autograder.walls import aliases, landlock, sandbox
from autograder.walls.zygote import Zygote, ZygoteError

walled = pytest.mark.skipif(sandbox.tier() == "weak", reason=f"no sandbox on this system: {doctor.needs()}")

CODE = """
import os, threading, tempfile
import torch

def thread():
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    return done
def files():
    with tempfile.TemporaryFile() as file:
        file.write(b"here")
    with open("notes.txt", "w") as file:
        file.write("mine")
    return open("notes.txt").read()
def libraries():
    import fractions, scipy.linalg, hpcdl.comm
    return float(scipy.linalg.norm([3.0, 4.0]))
def fill():
    for i in range(100_000):
        open(f"file-{i}", "w").close()
    return "all"
def modules():
    import autograder.checks
def descriptors():
    return sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd"))
"""


@pytest.fixture(params=["namespaces", "restricted"])
def walls(request, monkeypatch):
    """Each tier that this system has; the weaker ones are there wherever a stronger one is."""
    if sandbox.tier() == "weak" or (request.param == "namespaces" and sandbox.tier() != "namespaces"):
        pytest.skip(f"this system has the tier {sandbox.tier()}")
    monkeypatch.setattr(sandbox, "tier", lambda: request.param)
    return request.param


def test_every_canary_of_the_doctor_finds_a_wall(walls):
    with Zygote() as zygote:
        findings = canaries.attack(zygote)
    assert len(findings) > 12
    assert [f"{finding.title}: {finding.said}" for finding in findings if not finding.held] == []


def test_the_canaries_find_no_wall_where_there_is_none(monkeypatch):
    monkeypatch.setattr(sandbox, "tier", lambda: "weak")
    with Zygote() as zygote:
        open_doors = {finding.title for finding in canaries.attack(zygote) if not finding.held}
    assert {"read another submission", "list the exercises", "reach a service of this machine", "start a process"} <= (
        open_doors
    )
    assert not canaries.PLANTED.exists()  # what the canary wrote, since it could, is gone


@walled
def test_what_honest_code_needs_works_inside(remote):
    session = remote(CODE)
    session.start_check(20)
    assert session.student.thread() == [1]
    assert session.student.files() == "mine"
    assert session.student.libraries() == 5.0


DATABASE = """
import fcntl, sqlite3
db = sqlite3.connect("my.db")
db.execute("create table t (x int)")
db.execute("begin exclusive")
db.execute("insert into t values (7)")
lock = open("my.lock", "x")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
def found(comm):
    return db.execute("select x from t").fetchone()[0]
"""


def test_each_process_has_files_and_locks_of_its_own(walls):
    """Processes of a session follow each other, or work at the same time: for each the file is new and not locked."""
    cells = [("cell 1", DATABASE)]
    with contextlib.ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        one, other = (stack.enter_context(RemoteSession(zygote, cells, folder)) for _ in range(2))
        for session in (one, other, one):
            session.start_check(30)
            assert session.student.ranks("found", 2, lambda rank: ()).results == [7, 7]
            assert not session.problems
            session.close()


@walled
def test_the_graders_modules_cannot_be_imported_nor_its_descriptors_seen(remote):
    session = remote(CODE)
    for name in ("modules", "descriptors"):
        session.start_check(5)
        with pytest.raises(StudentError) as caught:
            getattr(session.student, name)()
        assert caught.value.type in ("PermissionError", "ModuleNotFoundError", "ImportError")


@pytest.mark.skipif(sandbox.tier() != "namespaces", reason="a private folder needs namespaces")
def test_a_million_files_end_at_the_bound_and_vanish_with_the_worker(remote):
    session = remote(CODE)
    session.start_check(20)
    with pytest.raises(StudentError, match="No space left"):
        session.student.fill()
    assert os.listdir(session.folder) == []


@pytest.mark.labs  # grades twice
@walled
def test_weak_isolation_is_refused_for_a_folder_unless_it_is_allowed(tmp_path, write_notebook, monkeypatch):
    write_notebook("ada.ipynb", "x = 1")
    monkeypatch.setattr(sandbox, "tier", lambda: "weak")
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)
    command = ["grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "results")]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 4
    assert "weak isolation" in refused.output
    assert not (tmp_path / "results" / "grades.csv").exists()
    assert CliRunner().invoke(app, [*command, "--allow-weak"]).exit_code == 0
    assert "weak" in CliRunner().invoke(app, [*command, "--allow-weak"]).output


def test_a_folder_without_its_secrets_is_what_is_left(tmp_path):
    for name in ("a", "b/secret", "b/open", "c/deep/secret"):
        (tmp_path / name).mkdir(parents=True)
    secrets = [str(tmp_path / "b/secret"), str(tmp_path / "c/deep/secret")]
    left = landlock.without(str(tmp_path), secrets)
    assert sorted(left) == [str(tmp_path / "a"), str(tmp_path / "b/open")]
    assert landlock.without(secrets[0], secrets) == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_students_processes_end_first(zygote):
    """Their sum may be more than the machine's memory: then Linux ends one of them, and not the grader."""
    file, end = Path(f"/proc/{zygote.process.pid}/oom_score_adj"), time.monotonic() + 240
    while file.read_text().strip() != "1000" and time.monotonic() < end:
        time.sleep(0.1)  # it says so first of all, once Python has started
    assert file.read_text().strip() == "1000"
    assert Path("/proc/self/oom_score_adj").read_text().strip() != "1000"


@walled
def test_the_walls_take_little_time(zygote):
    """The benchmark of grading measures them, 15 ms is the aim; here they only must not cost seconds."""
    taken = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            with RemoteSession(zygote, [("cell", "def f(): return 1")], folder) as session:
                session.start_check(5)
                assert session.student.f() == 1
            taken.append(time.perf_counter() - start)
    assert min(taken) < 2


def test_root_takes_a_spare_user_id_only_where_it_can_still_import(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert sandbox.spare_uid() == 0
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "os.py")
        module.touch(mode=0o644)
        monkeypatch.setattr(os, "__file__", str(module))
        for holder, name in ((sys, "executable"), (sys, "prefix")):
            monkeypatch.setattr(holder, name, folder)
        monkeypatch.setattr(sandbox, "PACKAGE", Path(folder))
        Path(folder).chmod(0o755)
        assert sandbox.spare_uid() in sandbox.SPARE_UIDS
        Path(folder).chmod(0o700)
        assert sandbox.spare_uid() == 0


def test_refused_zygote_is_an_error(monkeypatch):
    monkeypatch.setattr("autograder.walls.zygote.PROGRAM", "raise SystemExit(1)")
    with Zygote() as refused, tempfile.TemporaryDirectory() as folder, pytest.raises(ZygoteError):
        RemoteSession(refused, [], folder)


def test_a_link_brings_back_nothing_that_is_left_out(tmp_path):
    (tmp_path / "lib" / "secret").mkdir(parents=True)
    (tmp_path / "lib" / "open").mkdir()
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "lib" / "round").symlink_to(tmp_path)
    assert landlock.without(str(tmp_path), [str(tmp_path / "lib" / "secret")]) == [str(tmp_path / "lib" / "open")]


def test_a_bind_mount_shows_a_secret_in_other_places():
    table = [
        aliases.Mount("8:1", "/", "/"),
        aliases.Mount("8:1", "/venv/lib", "/mnt/whole"),
        aliases.Mount("8:1", "/venv/lib/secret/deep", "/mnt/part"),
        aliases.Mount("8:1", "/other", "/mnt/other"),
        aliases.Mount("8:2", "/venv/lib", "/mnt/another disk"),
    ]
    assert aliases.shown("/venv/lib/secret", table) == ["/venv/lib/secret", "/mnt/whole/secret", "/mnt/part"]
    assert aliases.shown("/mnt/whole/secret", table) == ["/mnt/whole/secret", "/venv/lib/secret", "/mnt/part"]
    assert aliases.shown("/venv/lib", []) == ["/venv/lib"]


def test_a_hard_link_is_a_second_name_of_a_secret_file(tmp_path):
    for name in ("secret/deep", "cache"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("secret/deep/one.py", "secret/alone.py", "cache/other.py"):
        (tmp_path / name).touch()
    os.link(tmp_path / "secret/deep/one.py", tmp_path / "cache/second.py")
    found = aliases.hard_links([str(tmp_path / "secret")], [str(tmp_path / "cache")])
    assert found == [str(tmp_path / "cache" / "second.py")]
    assert landlock.without(str(tmp_path / "cache"), found) == [str(tmp_path / "cache/other.py")]


def test_hole_in_the_walls_is_found_first(tmp_path, write_notebook, monkeypatch):
    write_notebook("ada.ipynb", "x = 1")
    hole = canaries.AttackOutcome("read the checks", False, "it can: 4711")
    monkeypatch.setattr(canaries, "attack", lambda zygote: [hole])
    monkeypatch.setattr(sandbox, "tier", lambda: "restricted")
    monkeypatch.setattr(
        "autograder.grading.batch.Zygote", lambda **_: contextlib.nullcontext(SimpleNamespace(walls="x"))
    )
    monkeypatch.setattr("hpcdl.machine.cores", lambda: 1)
    command = ["grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "results")]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 4
    assert "a student's code can read the checks" in refused.output
    assert not (tmp_path / "results" / "grades.csv").exists()
