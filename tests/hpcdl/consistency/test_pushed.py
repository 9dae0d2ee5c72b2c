"""Any flat gradient is pushed; one that does not fit is its worker's own error, and the others continue."""

import pytest
import torch

from hpcdl.comm import RankError, simulate
from hpcdl.consistency import Server, Worker, work
from hpcdl.consistency.downpour import downpour
from hpcdl.consistency.sandblaster import sandblaster

N, STEPS, SERVERS = 7, 3, 2
FORMS = {
    "strided": lambda g: torch.stack([g, -g], 1)[:, 0],
    "a column": lambda g: torch.stack([g, -g]).T.contiguous()[:, 0],
    "expanded": lambda g: g[:1].expand(N) * 0 + g,
    "one number": lambda g: g[3:4].expand(N),
    "with a graph": lambda g: g.requires_grad_() * 1,
    "negated lazily": lambda g: torch.complex(g * 0, -g).conj().imag,
}
MISFITS = {
    "another dtype": lambda g: g.float(),
    "integers": lambda g: g.long(),
    "too short": lambda g: g[1:],
    "too long": lambda g: torch.cat([g, g]),
    "a matrix": lambda g: g[:, None],
    "a list": lambda g: g.tolist(),
    "sparse": lambda g: g.to_sparse(),
}


def start():
    return torch.zeros(N, dtype=torch.float64)


def gradient(k):
    return torch.arange(N, dtype=torch.float64) * 2.0**k


def serve(comm):
    return Server(comm, start(), lambda params: torch.optim.SGD(params, 1.0), SERVERS).serve()


def whole(run):
    return torch.cat([served.w for served in run.results[:SERVERS]])


@pytest.mark.parametrize("train", [work, downpour], ids=["work", "downpour"])
@pytest.mark.parametrize("form", FORMS)
def test_any_form(form, train):
    def rank(comm):
        if comm.rank < SERVERS:
            return serve(comm)
        return train(comm, start(), lambda w, k: FORMS[form](gradient(k)), STEPS, SERVERS)

    expected = -2 * sum(FORMS[form](gradient(k)) for k in range(STEPS)).detach()
    torch.testing.assert_close(whole(simulate(rank, SERVERS + 2)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_misfit_loses_its_worker_only(misfit, capsys):
    def rank(comm):
        if comm.rank < SERVERS:
            return serve(comm)
        if comm.rank == SERVERS:
            return work(comm, start(), lambda w, k: gradient(k), STEPS, SERVERS)
        with pytest.raises(ValueError, match=r"the gradient .* w"):
            work(comm, start(), lambda w, k: MISFITS[misfit](gradient(k)) if k else gradient(k), STEPS, SERVERS)

    run = simulate(rank, SERVERS + 2)
    expected = -sum(gradient(k) for k in range(STEPS)) - gradient(0)
    torch.testing.assert_close(whole(run), expected, rtol=0, atol=0)
    assert [served.lost for served in run.results[:SERVERS]] == [{SERVERS + 1: "it failed, and said so"}] * SERVERS
    assert "is lost after 1 iterations" in capsys.readouterr().out


@pytest.mark.parametrize("iterations", [0, -1, 0.5])
def test_no_iterations(iterations):
    def rank(comm):
        if comm.rank < SERVERS:
            return serve(comm)
        said = r"iterations is .*; a gradient is of 1 iteration"
        with pytest.raises(ValueError, match=said), Worker(comm, start(), SERVERS) as worker:
            worker.push(gradient(0), iterations)

    with pytest.raises(RankError, match="every worker is lost"):
        simulate(rank, SERVERS + 1)


@pytest.mark.parametrize("form", FORMS)
def test_portions_of_any_form(form):
    def rank(comm):
        def portion(w, i):
            mine = slice(i, None, 2)
            slope = torch.zeros_like(w)
            slope[mine] = w[mine] - 1
            return float((w[mine] - 1).square().sum() / 2), FORMS[form](slope) if form != "one number" else slope

        return sandblaster(comm, start(), portion, 2, 1).w

    torch.testing.assert_close(simulate(rank, 4).results[1], torch.ones(N, dtype=torch.float64))
