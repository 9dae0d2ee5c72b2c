"""Gradients as users return them: other layouts and dtypes are sent right, and others are refused before a message."""

import numpy as np
import pytest
import torch

from hpcdl.comm import RankError, simulate
from hpcdl.consistency import Server, Worker, work
from hpcdl.consistency.downpour import downpour
from hpcdl.consistency.sandblaster import sandblaster

N, STEPS = 6, 2


def start():
    return torch.arange(N, dtype=torch.float64)


def sgd(params):
    return torch.optim.SGD(params, 0.5)


RIGHT = {
    "strided": lambda g: torch.stack([g, g], 1)[:, 0],
    "float32": torch.Tensor.float,
    "int64": torch.Tensor.long,
    "matrix": lambda g: g.view(2, 3),
    "transposed": lambda g: g.view(2, 3).T.contiguous().T,
    "sparse": torch.Tensor.to_sparse,
    "negative view": lambda g: torch.complex(g, -g).conj().imag,
    "with a graph": lambda g: g.clone().requires_grad_() * 1,
    "expanded": lambda g: g.new_ones(1).expand(N),
}
WRONG = {
    "shorter": lambda g: g[1:],
    "longer": lambda g: torch.cat([g, g]),
    "one number": lambda g: g.sum(),
    "none": lambda g: None,
    "array": torch.Tensor.numpy,
    "list": torch.Tensor.tolist,
    "complex": lambda g: g + 0j,
}


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("way", [work, downpour], ids=["work", "downpour"])
@pytest.mark.parametrize("form", RIGHT.values(), ids=RIGHT)
def test_any_layout_and_dtype(form, way, servers):
    def rank(comm):
        if comm.rank < servers:
            return Server(comm, start(), sgd, servers).serve().w
        return way(comm, start(), lambda w, k: form(start() + 1), STEPS, servers)

    served = torch.cat(simulate(rank, servers + 2).results[:servers])
    each = form(start() + 1).detach().to_dense().reshape(-1).double()
    torch.testing.assert_close(served, start() - 0.5 * 2 * STEPS * each, rtol=0, atol=0)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("way", [work, downpour], ids=["work", "downpour"])
@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
def test_refused_with_its_cause(form, way, servers):
    def rank(comm):
        if comm.rank < servers:
            return Server(comm, start(), sgd, servers).serve()
        return way(comm, start(), lambda w, k: form(start()), STEPS, servers)

    with pytest.raises(RankError, match=r"rank \d raised (TypeError|ValueError): the gradient (is|has)"):
        simulate(rank, servers + 1)


@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
def test_the_other_workers_continue(form):
    def rank(comm):
        if comm.rank == 0:
            return Server(comm, start(), sgd).serve()
        if comm.rank == 1:
            return work(comm, start(), lambda w, k: torch.ones_like(w), STEPS)
        try:
            with Worker(comm, start()) as worker:
                worker.push(form(start()))
        except (TypeError, ValueError):
            return worker.clock

    served, _, clock = simulate(rank, 3).results
    assert clock == 0
    assert list(served.lost) == [2]
    torch.testing.assert_close(served.w, start() - 0.5 * STEPS, rtol=0, atol=0)


def test_arrays_are_named():
    with pytest.raises(RankError, match="the gradient is a ndarray; give a tensor with the 6 elements of w"):
        simulate(
            lambda c: Server(c, start(), sgd).serve() if c.rank == 0 else work(c, start(), lambda w, k: np.ones(N), 1),
            2,
        )


@pytest.mark.parametrize("iterations", [0, -1, 0.5])
def test_a_gradient_is_of_an_iteration_or_more(iterations):
    def rank(comm):
        if comm.rank == 0:
            return Server(comm, start(), sgd).serve()
        said = r"iterations is .*; a gradient is of 1 iteration"
        with pytest.raises(ValueError, match=said), Worker(comm, start()) as worker:
            worker.push(start(), iterations)

    with pytest.raises(RankError, match="every worker is lost"):
        simulate(rank, 2)


@pytest.mark.parametrize("form", [RIGHT[name] for name in RIGHT if name not in ("int64", "expanded")])
def test_portions_of_any_layout_and_dtype(form):
    def rank(comm):
        def portion(w, i):
            mine = slice(i, None, 2)
            slope = torch.zeros_like(w)
            slope[mine] = w[mine] - 1
            return float((w[mine] - 1).square().sum() / 2), form(slope)

        return sandblaster(comm, start(), portion, 2, 1).w

    torch.testing.assert_close(simulate(rank, 4).results[1], torch.ones(N, dtype=torch.float64), rtol=0, atol=1e-6)
