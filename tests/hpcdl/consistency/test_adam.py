"""Project Adam's factors: the same weights by fewer bytes."""

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.consistency.adam import cheaper, crossover, fc_bytes, leave, pull_layer, push_layer, serve_layer

M, N, LR = 6, 4, 0.5


def batches(rank, rows):
    generator = torch.Generator().manual_seed(rank)
    return [
        (torch.randn(rows, M, generator=generator).double(), torch.randn(rows, N, generator=generator).double())
        for _ in range(3)
    ]


def rank_of(rows, how):
    def rank(comm):
        if comm.rank == 0:
            weight = torch.ones(N, M, dtype=torch.float64)
            return weight, serve_layer(comm, weight, LR, list(range(1, comm.size)))
        for x, delta in batches(comm.rank, rows):
            push_layer(comm, x, delta, how=how)
        weight = torch.zeros(N, M, dtype=torch.float64)
        pull_layer(comm, weight)
        leave(comm)
        return weight

    return rank


def expected(rows, p):
    """By autograd, through a layer."""
    weight = torch.ones(N, M, dtype=torch.float64, requires_grad=True)
    for rank in range(1, p):
        for x, delta in batches(rank, rows):
            (x @ weight.T).backward(delta)
    return (weight - LR * weight.grad).detach()


@pytest.mark.parametrize("how", ["gradient", "factors", None])
@pytest.mark.parametrize(("rows", "p"), [(1, 2), (2, 3), (5, 4), (0, 2)])
def test_both_ways_give_the_serial_weights(rows, p, how):
    found = simulate(rank_of(rows, how), p, alpha=1.0, slow={p - 1: 3.0})
    weight, came = found.results[0]
    torch.testing.assert_close(weight, expected(rows, p), rtol=1e-12, atol=1e-12)
    assert came == {how or cheaper(rows, M, N): 3 * (p - 1)}
    if p == 2:
        torch.testing.assert_close(found.results[1], weight, rtol=0, atol=0)


@pytest.mark.parametrize("how", ["gradient", "factors"])
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_the_bytes_are_the_formulas(rows, how):
    found = simulate(rank_of(rows, how), 2)
    assert found.bytes_sent[1] == 3 * fc_bytes(rows, M, N, how, 8) + 16 * 5
    assert found.bytes_sent[0] == M * N * 8


def test_the_crossover():
    assert crossover(M, N) == 2.4
    assert [cheaper(rows, M, N) for rows in (1, 2, 3)] == ["factors", "factors", "gradient"]
    vgg16 = {"fc6": (25088, 4096), "fc7": (4096, 4096), "fc8": (4096, 1000)}
    assert {name: round(crossover(*shape)) for name, shape in vgg16.items()} == {"fc6": 3521, "fc7": 2048, "fc8": 804}
    assert cheaper(2048, 4096, 4096) == "gradient"


def test_another_way_is_refused():
    with pytest.raises(ValueError, match="how is 'zip'"):
        fc_bytes(1, 2, 3, "zip")
