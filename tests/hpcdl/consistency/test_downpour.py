"""Downpour SGD on simulated ranks: its value, and the bytes of fetches and pushes."""

from math import ceil

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.consistency import Server
from hpcdl.consistency.downpour import adagrad, downpour

N, STEPS, LR = 9, 12, 0.5


def start():
    return torch.linspace(-1, 1, N, dtype=torch.float64)


def quadratic(w, k):
    return (w - 0.25) * (1 + k % 4)


def run(servers, replicas, **options):
    def rank(comm):
        if comm.rank < servers:
            return Server(comm, start(), adagrad(LR), servers).serve()
        return downpour(comm, start(), quadratic, STEPS, servers, **options)

    return simulate(rank, servers + replicas, alpha=0.5)


def whole(found, servers):
    return torch.cat([served.w for served in found.results[:servers]])


def serial(n_push=1, n_fetch=1, lr=0.0):
    """One replica and one Adagrad by hand."""
    w, squares, mine, total = start(), torch.zeros(N, dtype=torch.float64), start(), 0
    for k in range(STEPS):
        if k % n_fetch == 0:
            mine = w.clone()
        g = quadratic(mine, k)
        mine = mine - lr * g
        total = total + g
        if (k + 1) % n_push == 0 or k + 1 == STEPS:
            squares = squares + total**2
            w = w - LR * total / (squares.sqrt() + 1e-10)
            total = 0
    return w


@pytest.mark.parametrize("servers", [1, 2, 4])
@pytest.mark.parametrize(
    ("n_push", "n_fetch", "lr"), [(1, 1, 0.0), (3, 1, 0.0), (1, 4, 0.0), (5, 2, 0.125), (4, 3, 0.0)]
)
def test_one_replica_is_adagrad_by_hand(servers, n_push, n_fetch, lr):
    found = run(servers, 1, n_push=n_push, n_fetch=n_fetch, lr=lr)
    torch.testing.assert_close(whole(found, servers), serial(n_push, n_fetch, lr), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 1), (3, 2), (5, 7), (20, 20)])
def test_bytes_are_those_of_the_fetches_and_the_pushes(n_push, n_fetch):
    servers, replicas = 2, 3
    found = run(servers, replicas, n_push=n_push, n_fetch=n_fetch)
    times = ceil(STEPS / n_push) + ceil(STEPS / n_fetch)
    requests = 16 * servers * (times + 2) + 8 * servers  # each push and fetch, hello and stop; the clocks
    assert sum(found.bytes_sent) == replicas * (times * N * 8 + requests)


def test_replicas_bring_the_loss_down_and_every_push_is_logged():
    found = run(3, 4, n_push=3, n_fetch=2)
    assert (whole(found, 3) - 0.25).abs().max() < 0.3 < 1.25  # where it began
    for served in found.results[:3]:
        assert len(served.log) == 4 * ceil(STEPS / 3)
        assert {update.clock for update in served.log} == {3, 6, 9, 12}
    assert any(update.staleness for update in found.results[0].log)


@pytest.mark.parametrize("option", ["n_push", "n_fetch"])
def test_less_than_each_iteration_is_refused(option):
    def rank(comm):
        if comm.rank == 1:
            with pytest.raises(ValueError, match=f"{option} is 0"):
                downpour(comm, start(), quadratic, STEPS, **{option: 0})

    simulate(rank, 2)
