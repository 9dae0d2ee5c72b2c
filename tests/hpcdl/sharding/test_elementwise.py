"""Which optimizers ShardedOptimizer takes, by what they do; other wrong beginnings are named."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.sharding import Disk, Offloaded, ShardedOptimizer
from hpcdl.training import LAMB

from .small import F64, batch, close, learn, network, weights


class GlobalNorm(torch.optim.SGD):
    """A user's: one step as long as lr, whatever the gradient."""

    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        for p in params:
            p.grad.div_(norm)
        return super().step(closure)


class Centred(torch.optim.SGD):
    """A user's: the mean of each gradient is taken off."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.sub_(p.grad.mean())
        return super().step(closure)


class Shampoo(torch.optim.Optimizer):
    """A user's, with a matrix of each parameter's rows."""

    def __init__(self, params, lr=0.0):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_((p.grad @ p.grad.mT) @ p.grad, alpha=group["lr"])


def by_shape(shards):
    matrices = [shard for shard in shards if shard.dim() > 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.5}, {"params": [s for s in shards if s.dim() < 2]}]
    )


REFUSED = {
    "lbfgs": torch.optim.LBFGS,
    "muon": torch.optim.Muon,
    "adafactor": torch.optim.Adafactor,
    "sparse": torch.optim.SparseAdam,
    "global norm": partial(GlobalNorm, lr=0.0),
    "centred": partial(Centred, lr=0.1),
    "shampoo": Shampoo,
    "by shape": by_shape,
    "offloaded": lambda shards: Offloaded(LAMB(shards, 0.1), Disk("unused")),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("p", [1])
def test_what_is_not_elementwise_is_refused(p, make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def rank(comm):
        model = network()
        before = torch.get_rng_state()  # on one rank, as wrong as on two
        with pytest.raises(ValueError, match=r"elements together|needs norms over all ranks"):
            ShardedOptimizer(model.parameters(), comm, make)
        return torch.equal(before, torch.get_rng_state())

    assert all(simulate(rank, p).results)


ELEMENTWISE = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_elementwise_optimizer_of_torch_passes(name):
    make = getattr(torch.optim, name)
    model = network()
    learn(model, make(model.parameters(), lr=0.01), range(3))

    def rank(comm):
        mine = network()
        learn(mine, ShardedOptimizer(mine.named_parameters(), comm, partial(make, lr=0.01)), range(3), comm)
        return weights(mine)

    for found in simulate(rank, 2).results:
        close(found, weights(model))


def test_mistakes_with_groups_and_counts_are_named():
    def rank(comm):
        model = network()
        params = list(model.parameters())
        with pytest.raises(ValueError, match=r"in group 1 is in another one, too"):
            ShardedOptimizer([{"params": params}, {"params": params[:1]}], comm, torch.optim.Adam)
        with pytest.raises(TypeError, match="params has a str"):
            ShardedOptimizer(["weight"], comm, torch.optim.Adam)
        with pytest.raises(TypeError, match="params is a tensor"):
            ShardedOptimizer(params[0], comm, torch.optim.Adam)
        optimizer = ShardedOptimizer(params, comm, torch.optim.SGD)
        with pytest.raises(ValueError, match="is in another one, too"):
            optimizer.add_param_group({"params": params[:1]})
        optimizer.count(3)
        model(batch(0)[0]).sum().backward()
        optimizer.count(5 + comm.rank)
        with pytest.raises(ValueError, match="in other proportions on other ranks"):
            optimizer.step()

    simulate(rank, 2)


def test_other_wrong_beginnings_are_named():
    def rank(comm):
        model = network()
        own = lambda shards: torch.optim.AdamW(model.parameters())  # noqa: E731
        with pytest.raises(ValueError, match="of parameters that it was not given"):
            ShardedOptimizer(model.parameters(), comm, own)
        assert all(param.grad is None for param in model.parameters())
        with pytest.raises(ValueError, match="make returned list; it returns an optimizer"):
            ShardedOptimizer(model.parameters(), comm, list)
        with pytest.raises(ValueError, match="is lazy"):
            ShardedOptimizer(nn.LazyLinear(2).parameters(), comm, torch.optim.Adam)
        with pytest.raises(ValueError, match="on the meta device"):
            ShardedOptimizer(nn.Linear(2, 2, device="meta").parameters(), comm, torch.optim.Adam)
        words = nn.Embedding(4, 2, max_norm=0.1)
        optimizer = ShardedOptimizer(words.parameters(), comm, torch.optim.Adam)
        optimizer.count(1)
        words(torch.tensor([comm.rank])).sum().backward()
        with pytest.raises(ValueError, match=r"rank 1 has other weights .* Embedding\(max_norm"):
            optimizer.step()

    simulate(rank, 2)


def test_sparse_gradients_are_summed():
    torch.manual_seed(0)
    dense = nn.Embedding(7, 3, sparse=True, dtype=F64)
    words = torch.tensor([1, 1, 4, 6])

    def rank(comm):
        mine = copy.deepcopy(dense)
        optimizer = ShardedOptimizer(mine.parameters(), comm, partial(torch.optim.SGD, lr=0.1))
        for _ in range(2):
            mine(words).square().mean().backward()
            optimizer.step()
        return weights(mine)

    results = simulate(rank, 2).results
    optimizer = torch.optim.SGD(dense.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        dense(words).square().mean().backward()
        optimizer.step()
    for found in results:
        close(found, weights(dense))
