"""A student's function over several ranks: as threads in a notebook and as processes, a check sees the same."""

import pytest
import torch

from autograder.checks import CheckFailure
from autograder.sessions import local
from autograder.sessions.errors import StudentError
from hpcdl.nn.awkward import Tied

RING = """
import torch

def pass_on(x, comm, shift=1):
    out = torch.empty_like(x)
    comm.sendrecv(x, (comm.rank + shift) % comm.size, out, (comm.rank - shift) % comm.size)
    x.copy_(out)
    return comm.rank
"""


def start(session, code, seconds=20.0):
    running = session(code)
    running.start_check(seconds)
    return running


def rows(p, n=3):
    return torch.arange(float(p * n)).view(p, n)


@pytest.mark.parametrize("p", [1, 3, 8])
def test_each_rank_gets_its_own_arguments_and_a_communicator(session, p):
    run = start(session, RING).student.ranks("pass_on", p, lambda rank: (rows(p)[rank].clone(),), {"shift": 1})
    assert run.results == list(range(p))
    for rank in range(p):
        assert torch.equal(run.arguments[rank][0], rows(p)[(rank - 1) % p])
    assert run.bytes_sent == [12] * p


def test_the_machine_counts_messages_and_virtual_time(session):
    run = start(session, RING).student.ranks("pass_on", 4, lambda rank: (torch.ones(5),), alpha=1.0, beta=0.5)
    assert run.seconds == 1.0 + 20 * 0.5
    assert sorted((event.rank, event.peer) for event in run.trace if event.op == "send") == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 0),
    ]


def test_requests_groups_and_the_machines_own_collectives_cross(session):
    code = """
import torch
from hpcdl.comm import Group

def mixed(x, comm):
    out = torch.empty_like(x)
    requests = [comm.isend(x, 1 - comm.rank % 2 + comm.rank // 2 * 2), comm.irecv(out, comm.rank ^ 1)]
    for request in requests:
        request.wait()
    pair = Group(comm, [comm.rank & ~1, comm.rank | 1])
    if pair.rank == 0:
        pair.send(out, 1)
    else:
        pair.recv(x, 0)
    comm.all_reduce(x)
    comm.broadcast(out, root=2)
    comm.barrier()
    comm.accumulate(x, out)
    return comm.clock()
"""
    run = start(session, code).student.ranks("mixed", 4, lambda rank: (torch.full((2,), 10.0**rank),), gamma=1.0)
    # ranks 1 and 3 have got their own back; the sum is 1 + 10 + 100 + 1000; rank 2 had received 1000
    assert all(arguments[0].tolist() == [2111.0, 2111.0] for arguments in run.arguments)
    assert all(seconds >= 8 for seconds in run.results)


def test_a_wait_for_any_crosses(session):
    code = """
import torch

def serve(x, comm):
    if comm.rank:
        comm.accumulate(*torch.zeros(2, 4 - comm.rank))  # that many seconds: gamma is 1/4 for a byte
        requests = [comm.isend(x, 0)]
        return comm.wait_any(requests)
    outs = [torch.empty_like(x) for _ in range(1, comm.size)]
    requests = [comm.irecv(out, source) for source, out in enumerate(outs, 1)]
    order = [comm.wait_any(requests) for _ in requests]
    return order, [out.tolist() for out in outs], comm.clock()
"""
    run = start(session, code).student.ranks("serve", 4, lambda rank: (torch.full((2,), float(rank)),), gamma=0.25)
    assert list(run.results[0]) == [[2, 1, 0], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], 3.0]
    assert run.results[1:] == [0, 0, 0]


def test_an_answer_lets_no_time_pass(session):
    """Its seconds would be a message that has no bytes."""
    code = "def tell(x, comm):\n    comm.compute(float(x[0]))\n"
    with pytest.raises(CheckFailure, match=r"Your function calls comm\.compute"):
        start(session, code).student.ranks("tell", 2, lambda rank: (torch.ones(2),))


def test_a_deadlock_names_each_rank_and_its_line(session):
    code = "import torch\n\ndef swap(x, comm):\n    comm.recv(x, 1 - comm.rank)\n"
    with pytest.raises(CheckFailure, match=r"With p = 2 your function never ends: a deadlock") as failure:
        start(session, code).student.ranks("swap", 2, lambda rank: (torch.ones(2),))
    first, second = failure.value.got.splitlines()
    assert first.startswith("rank 0 waits in recv(source=1)")
    assert second.startswith("rank 1 waits in recv(source=0)")
    assert "use sendrecv" in failure.value.why


def test_in_processes_the_deadlock_shows_the_students_line(remote):
    code = "import torch\n\ndef swap(x, comm):\n    comm.recv(x, 1 - comm.rank)\n"
    with pytest.raises(CheckFailure) as failure:
        start(remote, code).student.ranks("swap", 2, lambda rank: (torch.ones(2),))
    assert failure.value.got.splitlines()[0].endswith("at line 4: comm.recv(x, 1 - comm.rank)")


def test_a_message_that_does_not_fit_is_a_failure_in_the_machines_words(session):
    code = """
import torch

def misfit(x, comm):
    if comm.rank == 0:
        comm.send(x, 1)
    else:
        comm.recv(torch.empty(7), 0)
"""
    with pytest.raises(CheckFailure, match=r"rank 0 sends 2 float32 to rank 1, .* an out of 7 float32"):
        start(session, code).student.ranks("misfit", 2, lambda rank: (torch.ones(2),))


def test_a_message_that_nobody_receives_is_a_failure(session):
    code = "def lost(x, comm):\n    if comm.rank == 0:\n        comm.isend(x, 1)\n"
    with pytest.raises(CheckFailure, match="rank 1 returned without receiving it"):
        start(session, code).student.ranks("lost", 2, lambda rank: (torch.ones(2),))


def test_what_a_rank_raises_names_the_rank_and_the_line(session):
    code = "def f(x, comm):\n    return 1 / (comm.rank - 1)\n"
    with pytest.raises(StudentError, match=r"division by zero \(rank 1 of 3\)") as error:
        start(session, code).student.ranks("f", 3, lambda rank: (torch.ones(1),))
    assert error.value.type == "ZeroDivisionError"
    assert error.value.line == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("def f(x, comm):\n    raise NotImplementedError\n", "not_done"),
        ("def g(x, comm):\n    pass\n", "undefined"),
        ("def f(x):\n    pass\n", "signature"),
        ("def f(x, comm):\n    while comm.rank == 1:\n        pass\n", "timeout"),
    ],
)
def test_what_goes_wrong_has_its_kind(session, code, kind):
    with pytest.raises(StudentError) as error:
        start(session, code, seconds=1.0).student.ranks("f", 2, lambda rank: (torch.ones(1),))
    assert error.value.kind == kind


TWO_AT_A_TIME = """
def f(x, comm):
    if comm.rank == 0:
        requests = [comm.isend(x[:2], 1), comm.isend(x[:2], 1)]
    else:
        requests = [comm.irecv(x[:2], 0), comm.irecv(x[{start}:], 0)]
    for request in requests:
        request.wait()
"""


@pytest.mark.parametrize(("start_at", "said"), [(2, []), (1, ["rank 1's irecv from rank 0 begins in memory"])])
def test_a_message_is_received_into_memory_of_its_own(session, start_at, said):
    code = TWO_AT_A_TIME.format(start=start_at).replace("x[1:]", "x[1:3]")
    run = start(session, code).student.ranks("f", 2, lambda rank: (torch.ones(4),))
    assert [sentence[: len(prefix)] for sentence, prefix in zip(run.careless, said, strict=True)] == said


def test_after_a_failure_the_next_run_works(session):
    code = RING + "\ndef hang(x, comm):\n    comm.recv(x, 1 - comm.rank)\n"
    running = start(session, code)
    with pytest.raises(CheckFailure):
        running.student.ranks("hang", 2, lambda rank: (torch.ones(2),))
    running.start_check(20.0)
    assert running.student.ranks("pass_on", 2, lambda rank: (torch.ones(2),)).results == [0, 1]


def test_after_a_failure_the_same_check_asks_on(session):
    code = RING + "\ndef hang(x, comm):\n    comm.recv(x, (comm.rank + 1) % comm.size)\n\ndef g(x):\n    return 2 * x\n"
    running = start(session, code)
    for p in (2, 3):
        with pytest.raises(CheckFailure):
            running.student.ranks("hang", p, lambda rank: (torch.ones(2),))
    assert running.student.g(3) == 6
    assert running.last_call() == "g(3)"
    with pytest.raises(CheckFailure):
        running.student.ranks("hang", 2, lambda rank: (torch.ones(2),))
    assert running.student.ranks("pass_on", 3, lambda rank: (torch.ones(2),)).results == [0, 1, 2]
    assert running.last_call().startswith("rank 0 of 3: pass_on(")


def test_the_call_is_shown_as_rank_0_sees_it(session):
    running = start(session, RING)
    running.student.ranks("pass_on", 2, lambda rank: (torch.ones(1),), {"shift": 1})
    assert running.last_call() == "rank 0 of 2: pass_on(tensor([1.], float32), comm, shift=1)"


def test_processes_share_nothing_but_messages(remote):
    code = "seen = []\n\ndef f(x, comm):\n    seen.append(comm.rank)\n    comm.barrier()\n    return list(seen)\n"
    assert start(remote, code).student.ranks("f", 3, lambda rank: (torch.ones(1),)).results == [[0], [1], [2]]


@pytest.mark.parametrize(
    "call",
    [
        "comm._operate('__init__', None)",
        "comm._operate('wait', [], 'recv', [99], '')",
        "comm._operate('post', [('send', 'dest', x, 10**12, 0, 0)], '')",
        "comm._operate('post', [('recv', 'source', x, -1, 0, 0)], '')",
        "comm._operate('post', [('send', 'dest', 'x', 1, 0, 0)], '')",
        "comm._operate(['wait'])",
    ],
)
def test_forged_operations_are_the_students_own_error(remote, call):
    code = f"def f(x, comm):\n    {call}\n"
    running = start(remote, code)
    with pytest.raises(StudentError):
        running.student.ranks("f", 2, lambda rank: (torch.ones(1),))
    running.start_check(20.0)
    with pytest.raises(StudentError):  # and the grader continues
        running.student.ranks("f", 2, lambda rank: (torch.ones(1),))


@pytest.mark.parametrize("call", ["comm._all_reduce(x)", "comm._operate('all_reduce', x, '')"])
def test_a_closed_collective_is_denied_by_any_name(remote, call):
    closed = "hpcdl.comm.base.Communicator.all_reduce"
    running = start(remote, f"def f(x, comm):\n    {call}\n")
    running.forbid((closed,), ())
    running.start_check(20.0)
    running.student.ranks("f", 2, lambda rank: (torch.ones(1),))
    assert [error.text for error in running.denied] == [closed]


def test_a_harness_builds_the_model_where_the_students_code_runs(session):
    code = """
import torch

def train_step(model, batch, lr, comm, cap_bytes):
    with torch.no_grad():
        for param in model.parameters():
            param += lr * comm.rank
    return type(model).__name__, len(batch[0]), cap_bytes
"""
    weights = [torch.randn(param.shape) for param in Tied().parameters()]
    batches = [[torch.zeros(2, 4), torch.zeros(2)], [torch.zeros(3, 4), torch.zeros(3)]]
    running = start(session, code)
    run = running.student.ranks("train_step", 2, lambda _: ("tied", weights, batches, 0.5, 64), harness="steps")
    for rank, (after, returned) in enumerate(run.results):
        assert returned == [("Tied", 2, 64), ("Tied", 3, 64)]
        for got, before in zip(after, weights, strict=True):
            assert torch.allclose(got, before + rank)  # two steps of half the rank
    assert running.last_call() == "rank 0 of 2: train_step(model, batch, lr, comm, cap_bytes)"


def test_in_a_harness_too_what_a_rank_raises_names_the_line(session):
    code = "def train_step(model, batch, lr, comm, cap_bytes):\n    return model.no_such_layer\n"
    weights = [torch.zeros(param.shape) for param in Tied().parameters()]
    batch = [[torch.zeros(1, 4), torch.zeros(1)]]
    with pytest.raises(StudentError, match="no_such_layer") as error:
        start(session, code).student.ranks(
            "train_step", 2, lambda _: ("tied", weights, batch, 1.0, 64), harness="steps"
        )
    assert (error.value.type, error.value.line) == ("AttributeError", 2)


def test_ranks_that_do_not_end_are_told_where_they_stood(session):
    running = start(session, "def f(x, comm):\n    while comm.rank == 0:\n        x += 0\n", seconds=0.5)
    with pytest.raises(StudentError, match=r"within 0.5 s, so it was stopped\. \(rank 0 of 2\)") as caught:
        running.student.ranks("f", 2, lambda rank: (torch.ones(2),))
    assert (caught.value.kind, caught.value.function) == ("timeout", "f")
    assert caught.value.line in (2, 3)


def test_in_a_notebook_one_rank_has_the_checks_time_and_several_have_less(monkeypatch):
    monkeypatch.setattr(local, "SECONDS", 0.2)
    names: dict = {}
    exec("import time\n\ndef f(comm):\n    time.sleep(0.5)\n    return comm.size", names)
    session = local.LocalSession(names)
    session.start_check(20)
    assert session.student.ranks("f", 1, lambda rank: ()).results == [1]
    with pytest.raises(StudentError) as error:
        session.student.ranks("f", 2, lambda rank: ())
    assert (error.value.kind, error.value.text) == (
        "timeout",
        "Your code did not finish within 0.2 s, so it was stopped.",
    )
