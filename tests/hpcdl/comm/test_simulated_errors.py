"""The simulated machine's errors when ranks wait forever, raise, or disagree on a message."""

import time
from contextlib import suppress

import pytest
import torch

from hpcdl.comm import CommError, DeadlockError, RankError, simulate


def test_ranks_that_all_receive_first_are_a_deadlock_with_every_line():
    def both_wait(comm):
        x = torch.zeros(3)
        if comm.rank < 2:
            comm.recv(x, source=1 - comm.rank)  # the line

    begin = time.process_time()
    with pytest.raises(DeadlockError) as caught:
        simulate(both_wait, 3)
    assert time.process_time() - begin < 0.5
    message = str(caught.value)
    line = both_wait.__code__.co_firstlineno + 3
    assert (
        f"rank 0 waits in recv(source=1) at tests/hpcdl/comm/test_simulated_errors.py, line {line}: comm.recv"
        in message
    )
    assert "rank 1 waits in recv(source=0)" in message
    assert "rank 2 returned" in message
    assert "none sends" in message


def test_a_ring_of_sends_is_a_deadlock_because_nothing_is_buffered():
    with pytest.raises(DeadlockError, match=r"rank 0 waits in send\(dest=1\).*\n.*\n(.*\n)*.*use sendrecv"):
        simulate(lambda comm: comm.send(torch.zeros(1), (comm.rank + 1) % comm.size), 20)


def test_a_rank_that_returns_early_leaves_the_others_in_a_deadlock():
    with pytest.raises(DeadlockError, match=r"rank 0 waits in all_reduce\(\)(.*\n)*.*rank 1 returned"):
        simulate(lambda comm: comm.all_reduce(torch.zeros(1)) if comm.rank == 0 else None, 2)


def test_a_request_that_waits_for_ever_is_named_with_its_operation():
    with pytest.raises(DeadlockError, match=r"rank 0 waits in irecv\(source=0, tag=7\)\.wait\(\)"):
        simulate(lambda comm: comm.irecv(torch.zeros(1), 0, tag=7).wait(), 1)


def test_a_rank_that_raises_ends_the_run_with_its_number_line_and_cause():
    def rank(comm):
        if comm.rank == 1:
            raise KeyError("weights")
        comm.recv(torch.zeros(1), 1)

    with pytest.raises(
        RankError, match=r"rank 1 raised KeyError: 'weights' at .*test_simulated_errors.py, line \d+: raise"
    ) as e:
        simulate(rank, 3)
    assert e.value.rank == 1
    assert isinstance(e.value.__cause__, KeyError)


@pytest.mark.parametrize("first", ["send", "recv"])
def test_a_message_that_does_not_fit_is_an_error_on_either_side(first):
    def rank(comm):
        if comm.rank == (first == "recv"):
            comm.send(torch.zeros(8), 1 - comm.rank)
        else:
            comm.recv(torch.zeros(4), 1 - comm.rank)

    with pytest.raises(CommError, match=r"8 float32 to rank \d, whose recv\(source=\d\) has an out of 4 float32"):
        simulate(rank, 2)


def test_an_error_that_a_rank_catches_ends_the_run():
    """Its text would tell one rank the size of a message that is never sent."""

    def rank(comm):
        with suppress(CommError):
            request = (comm.irecv if comm.rank else comm.isend)(torch.zeros(1 + comm.rank), 1 - comm.rank)
            request.wait() if comm.rank else None

    with pytest.raises(CommError, match=r"1 float32 to rank 1"):
        simulate(rank, 2)


def test_a_message_of_another_dtype_is_an_error():
    def rank(comm):
        if comm.rank:
            comm.recv(torch.zeros(4, dtype=torch.int32), 0)
        else:
            comm.send(torch.zeros(4), 1)

    with pytest.raises(CommError, match=r"4 float32 to rank 1.*4 int32"):
        simulate(rank, 2)


def test_ranks_that_call_different_collectives_are_told_so():
    def rank(comm):
        if comm.rank:
            comm.broadcast(torch.zeros(3), root=1)
        else:
            comm.all_reduce(torch.zeros(3))

    with pytest.raises(CommError, match=r"rank 1 calls broadcast\(root=1\) where rank 0 called all_reduce\(\)"):
        simulate(rank, 2)
    with pytest.raises(CommError, match="x is 4 float32 on rank 1 and 3 float32 on rank 0"):
        simulate(lambda comm: comm.all_reduce(torch.zeros(3 + comm.rank)), 2)


def test_a_message_that_nobody_receives_is_an_error():
    with pytest.raises(CommError, match=r"rank 0 sent a message of 2 float32 with isend\(dest=1\).*without receiving"):
        simulate(lambda comm: comm.isend(torch.zeros(2), 1) if comm.rank == 0 else None, 2)


def test_a_communicator_that_outlives_its_run_says_so():
    comm = simulate(lambda comm: comm, 2).results[0]
    with pytest.raises(CommError, match="this simulation has ended"):
        comm.barrier()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"p": 0}, "p is 0"),
        ({"p": 2, "alpha": -1.0}, "alpha is -1.0"),
        ({"p": 2, "per_node": 2}, "per_node is 2 and within None; nodes need both"),
        ({"p": 2, "per_node": 2, "within": (0.0, -1.0)}, "beta_within is -1.0"),
    ],
)
def test_impossible_machines_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        simulate(lambda comm: None, **arguments)
