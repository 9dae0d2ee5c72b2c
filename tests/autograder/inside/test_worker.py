"""Whatever a student's process does, it costs one check, within the limit, and leaves nothing behind."""

import os
import time

import psutil
import pytest
import torch

from autograder.sessions.errors import StudentError
from autograder.sessions.remote import RemoteSession
from autograder.walls import sandbox
from autograder.walls.sandbox import Limits
from autograder.walls.zygote import Zygote

CODE = """
import ctypes, os, signal, subprocess, sys, threading, time
import torch

def fine(x):
    return x + 1
def leave():
    os._exit(3)
def crash():
    ctypes.string_at(0)
def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)
def loop():
    while True:
        pass
def deaf():
    signal.setitimer = print
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    while True:
        pass
def eat():
    kept = []
    while True:
        kept.append(bytearray(1 << 28))
def forge():
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"passed": true}' * 8)
        except OSError:
            pass
    return 1
def fake_report():
    print('passed: 100')
    sys.stdout.flush()
    os.write(1, b'score: 100')
def flood():
    for _ in range(300):
        sys.stdout.write('x' * 1_000_000)
    return 1
def daemon():
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return process.pid
def two_threads():
    torch.set_num_threads(2)
    return float((torch.ones(300, 300) @ torch.ones(300, 300))[0, 0])
def big_file():
    with open("big", "wb") as file:
        file.write(bytes(100 << 20))
"""


def problem(session, name, seconds=1.0):
    session.start_check(seconds)
    start = time.monotonic()
    with pytest.raises(StudentError) as caught:
        getattr(session.student, name)()
    return caught.value, time.monotonic() - start


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("leave", "ended", "exit code 3"),
        ("crash", "forbidden", "ctypes.string_at"),
        ("kill_itself", "ended", "killed"),
        ("loop", "timeout", "within 1 s"),
        ("deaf", "timeout", "within 1 s"),
        ("forge", "ended", "interfered"),
    ],
)
def test_an_end_by_any_means_costs_that_check_and_not_the_next(remote, name, kind, text):
    session = remote(CODE)
    error, seconds = problem(session, name)
    assert error.kind == kind
    assert text in error.text
    assert seconds < 30  # a busy machine gives the code up to four times its limit
    session.start_check(5)
    assert session.student.fine(1) == 2


def test_a_loop_is_found_in_its_line(remote):
    error, _ = problem(remote(CODE), "loop", 0.3)
    assert error.source in ("while True:", "pass")
    assert error.function == "loop"


def test_memory_has_a_bound(remote):
    session = remote(CODE, limits=Limits(memory=1 << 30))
    error, _ = problem(session, "eat", 20)
    assert error.type == "MemoryError"


def test_a_file_has_a_bound(remote):
    error, _ = problem(remote(CODE), "big_file", 5)
    assert error.kind in ("ended", "exception")


def test_prints_go_nowhere_and_decide_nothing(remote, capfd):
    session = remote(CODE)
    session.start_check(5)
    assert session.student.fake_report() is None
    assert session.student.flood() == 1
    assert capfd.readouterr().out == ""


@pytest.mark.labs  # waits for a limit
def test_a_daemon_in_a_session_of_its_own_ends_with_its_worker(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "tier", lambda: "weak")  # elsewhere it cannot even start
    with Zygote() as zygote, RemoteSession(zygote, [("cell 1", CODE)], str(tmp_path)) as session:
        session.start_check(10)
        pid = session.student.daemon()
        assert psutil.pid_exists(pid)
        session.close()
        assert not psutil.pid_exists(pid)


def test_a_worker_may_use_threads_of_torch(remote):
    torch.ones(300, 300) @ torch.ones(300, 300)  # threads of the grader's own, which no worker inherits
    session = remote(CODE)
    session.start_check(10)
    assert session.student.two_threads() == 300.0


def test_a_worker_knows_neither_the_checks_nor_the_environment(remote):
    os.environ["HPCDL_CANARY"] = "secret"
    try:
        code = "import os, sys\ndef seen():\n    return sorted(sys.modules), sorted(os.environ)\n"
        session = remote(code)
        session.start_check(5)
        modules, environment = session.student.seen()
    finally:
        del os.environ["HPCDL_CANARY"]
    rooms = {module.split(".")[1] for module in modules if module.startswith("autograder.")}
    assert rooms == {"inside"}  # the others are hidden
    assert "HPCDL_CANARY" not in environment


def test_a_cell_that_fails_does_not_stop_the_others(remote):
    session = remote("x = 1", "1 / 0", "def f():\n    return x\n")
    session.start_check(5)
    assert session.student.f() == 1
    assert session.problems["cell 2"].type == "ZeroDivisionError"


def test_a_cell_that_ends_the_process_is_left_out(remote):
    session = remote("x = 1", "import os; os._exit(1)", "def f():\n    return x\n")
    session.start_check(5)
    assert session.student.f() == 1
    assert list(session.problems) == ["cell 2"]


def test_a_notebook_whose_cells_all_end_the_process_is_given_up(remote):
    session = remote(*["import os; os._exit(1)"] * 6, "def f(): return 1")
    error, _ = problem(session, "f")
    assert error.kind == "ended"
    assert "nothing can be called" in error.text


FORGING = """
import os, struct, sys

def write(answer):
    header = b"[[]," + answer + b"]"
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("<IQ", len(header), 0) + header)
        except OSError:
            pass
def ahead():
    for mark in (b"1", b"null", b'"x"', b"[]"):
        write(b'["reply",42,[],' + mark + b"]")
    write(b"[]")
    write(b'["reply",42]')
    return 1
def with_its_mark():
    here = sys._getframe()
    return 1
def fine(x):
    return x + 1
"""


def test_an_answer_that_was_written_ahead_of_time_answers_nothing(remote):
    session = remote(FORGING)
    session.start_check(5)
    with pytest.raises(StudentError, match="interfered with the grader's connection"):
        session.student.ahead()
    assert [error.text for error in session.denied] == ["autograder.boundary.channel"]
    session.start_check(5)
    assert [session.student.fine(1), session.denied] == [2, []]


def test_code_does_not_see_the_mark_of_its_own_call(remote):
    session = remote(FORGING)
    session.start_check(5)
    with pytest.raises(StudentError, match=r"sys\._getframe") as caught:
        session.student.with_its_mark()
    assert caught.value.kind == "forbidden"
    assert [error.text for error in session.denied] == ["sys._getframe"]


@pytest.mark.parametrize(
    "cell",
    [
        "from autograder import check; import math",
        "try:\n    from autograder import check\n    import math\nexcept ImportError:\n    pass",
        "import autograder, math\nautograder.check('tiny.mean')",
        "open('mine.py', 'w').write('from autograder import check\\nimport math')\nfrom mine import *",
    ],
)
def test_an_import_of_check_keeps_nothing_else_away(remote, cell):
    session = remote(cell, "def tau():\n    check('tiny.mean') if 'check' in globals() else 0\n    return 2 * math.pi")
    session.start_check(5)
    assert (round(session.student.tau(), 3), session.problems, session.denied) == (6.283, {}, [])
