"""What messages cost that share ports: as counted by hand, whatever the number of ranks and the order of posting."""

import pytest
import torch

from hpcdl.comm import simulate

ALPHA, BETA, GAMMA = 1e-5, 1e-9, 1e-10


def with_both_neighbours(comm, order):
    """Send to both neighbours and receive from both; `order` says who is posted first, by rank."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    x, outs = torch.zeros(250), torch.zeros(2, 250)
    posts = [
        lambda: comm.irecv(outs[0], left, tag=0),
        lambda: comm.irecv(outs[1], right, tag=1),
        lambda: comm.isend(x, right, tag=0),
        lambda: comm.isend(x, left, tag=1),
    ]
    for request in [posts[i]() for i in order(comm.rank)]:
        request.wait()
    return comm.clock()


ORDERS = {
    "receives first": lambda rank: (0, 1, 2, 3),
    "receives first, the other way": lambda rank: (1, 0, 2, 3),
    "sends first": lambda rank: (2, 3, 0, 1),
    "one side after the other": lambda rank: (0, 3, 1, 2),
    "every other rank the other way": lambda rank: (0, 1, 2, 3) if rank % 2 else (1, 0, 3, 2),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("p", [*range(2, 10), 31, 32, 64])
def test_an_exchange_with_both_neighbours_costs_two_messages(p, order):
    for seed in (0, 1):
        run = simulate(with_both_neighbours, p, ORDERS[order], alpha=0.5, beta=0.001, seed=seed)
        assert run.results == pytest.approx([2 * 1.5] * p)


@pytest.mark.parametrize("p", [2, 5, 32])
def test_two_exchanges_in_a_row_cost_as_much(p):
    def rank(comm):
        left, right, x, out = (comm.rank - 1) % p, (comm.rank + 1) % p, torch.zeros(250), torch.zeros(250)
        comm.sendrecv(x, right, out, left)
        comm.sendrecv(x, left, out, right)

    assert simulate(rank, p, alpha=0.5, beta=0.001).seconds == pytest.approx(2 * 1.5)


def ring_in_both_directions(x, comm):
    """A student's all-reduce: half of `x` goes round to the right, the other half to the left."""
    p, rank = comm.size, comm.rank
    halves = [half.tensor_split(p) for half in x.tensor_split(2)]
    ways = [((rank + 1) % p, (rank - 1) % p, 1), ((rank - 1) % p, (rank + 1) % p, -1)]
    for step in range(2 * (p - 1)):
        requests, sums = [], []
        for tag, ((dest, source, sign), chunks) in enumerate(zip(ways, halves, strict=True)):
            taken = chunks[(rank - sign * (step + 1)) % p]
            incoming = torch.empty_like(taken)
            requests += [comm.irecv(incoming, source, tag), comm.isend(chunks[(rank - sign * step) % p], dest, tag)]
            sums.append((taken, incoming))
        for request in requests:
            request.wait()
        for taken, incoming in sums:
            if step < p - 1:
                comm.accumulate(taken, incoming)
            else:
                taken.copy_(incoming)


@pytest.mark.thinned(6, 2)
@pytest.mark.parametrize("p", range(2, 65))
def test_a_ring_in_both_directions_costs_what_alpha_and_beta_say(p):
    n = 2 * p * 16

    def rank(comm):
        x = torch.full((n,), float(comm.rank))
        ring_in_both_directions(x, comm)
        return x

    run = simulate(rank, p, alpha=ALPHA, beta=BETA, gamma=GAMMA)
    assert all((x == p * (p - 1) / 2).all() for x in run.results)
    chunk = 4 * n / (2 * p)  # each of 2 (p-1) steps: two chunks through each port; half of them add both
    assert run.seconds == pytest.approx(2 * (p - 1) * 2 * (ALPHA + chunk * BETA) + (p - 1) * 2 * chunk * GAMMA)


@pytest.mark.parametrize("side", ["sends", "receives"])
def test_a_port_takes_one_message_at_a_time(side):
    def rank(comm):
        others, x = range(1, comm.size), torch.zeros(250)
        post = comm.isend if (comm.rank == 0) == (side == "sends") else comm.irecv
        for request in [post(torch.zeros(250), other) for other in others] if comm.rank == 0 else [post(x, 0)]:
            request.wait()
        return comm.clock()

    hub, *others = simulate(rank, 5, alpha=0.5, beta=0.001).results
    assert hub == pytest.approx(4 * 1.5)
    assert sorted(others) == pytest.approx([1.5, 3.0, 4.5, 6.0])


def test_a_request_whose_other_side_has_come_long_ago_is_waited_for():
    def rank(comm):
        if comm.rank == 0:
            request = comm.irecv(torch.zeros(1), 1)
            comm.compute(0.5)
            request.wait()
        else:
            comm.isend(torch.zeros(1), 0).wait()
        return comm.clock()

    assert simulate(rank, 2, alpha=2.0).results == [2.0, 2.0]
