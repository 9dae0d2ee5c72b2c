"""Fully sharded models that are awkward: layers inside layers, used again, or in another order each time."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import RankError, simulate
from hpcdl.sharding import FullyShardedDataParallel


class Recurrent(nn.Module):
    """A word's vector is also its score, and one layer is used at each of three positions."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(11, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = torch.zeros(len(x), 8, dtype=torch.float64)
        for position in range(x.shape[1]):
            h = torch.tanh(self.layer(h) + self.words(x[:, position]))
        return h @ self.words.weight.T


class Changing(nn.Module):
    """Layers whose order is another in every pass."""

    def __init__(self):
        super().__init__()
        self.layers, self.passes = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), 0
        self.embed = nn.Embedding(11, 8)

    def forward(self, x):
        self.passes += 1
        h = self.embed(x).sum(1)
        for i in range(self.passes % 3 + 1):
            h = torch.tanh(self.layers[(i * self.passes) % 4](h))
        return h


def transformer():
    return nn.Sequential(
        nn.Embedding(11, 8), *[nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True) for _ in range(2)]
    )


AWKWARD = {
    "recurrent": (Recurrent, {"layers": (Recurrent,)}),
    "changing": (Changing, {}),
    "blocks": (transformer, {"layers": (nn.TransformerEncoderLayer,)}),
}


def steps(module, parameters, after, part=slice(None)):
    """Three steps on words, and a look without gradients after each."""
    optimizer, looks = torch.optim.SGD(parameters, 0.3, momentum=0.9), []
    for n in (6, 9, 12):
        words = (torch.arange(3 * n).view(n, 3) * 7 % 11)[part]
        optimizer.zero_grad()
        cross_entropy(module(words).flatten(1), words[:, 0] % 8).backward()
        after()
        optimizer.step()
        with torch.no_grad():
            looks.append(module(torch.arange(3).view(1, 3)))
    return looks


def initial(build):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build().double()


@pytest.mark.parametrize("name", AWKWARD)
def test_layers_inside_layers_used_again_or_in_another_order(name):
    build, options = AWKWARD[name]

    def sharded(comm):
        model = FullyShardedDataParallel(initial(build), comm, **options)
        looks = steps(model, model.parameters(), model.synchronize, slice(comm.rank, None, comm.size))
        return model.whole_state_dict(), looks

    whole = initial(build)
    looks = steps(whole, whole.parameters(), lambda: None)
    for weights, seen in simulate(sharded, 3).results:
        for name, value in whole.named_parameters():
            torch.testing.assert_close(weights[name], value.detach(), rtol=1e-12, atol=1e-12, msg=name)
        torch.testing.assert_close(seen, looks, rtol=1e-12, atol=1e-12)


class Chosen(nn.Module):
    """One of two layers of other sizes, by the rank's input."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(4, 3, bias=False), nn.Linear(4, 3)

    def forward(self, x):
        return (self.small if x[0, 0] > 0 else self.large)(x)


def choose(comm, layers=()):
    model = FullyShardedDataParallel(initial(Chosen), comm, layers)
    x = torch.full((2, 4), 1.0 - 2 * comm.rank, dtype=torch.float64)
    model(x).square().mean().backward()
    model.synchronize()
    return [param.grad is not None for param in model.parameters()]


def test_layers_chosen_by_a_ranks_input_are_refused():
    with pytest.raises(RankError, match=r"other orders, .* name the module that chooses between them in layers="):
        simulate(choose, 2)


def test_a_module_that_chooses_is_gathered_as_a_whole():
    assert simulate(choose, 2, (Chosen,)).results == [[True] * 3] * 2


def test_another_number_of_passes_is_refused():
    def rank(comm):
        model = FullyShardedDataParallel(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), comm)
        for _ in range(1 + comm.rank):
            with model.no_sync():
                model(torch.ones(1, 3)).mean().backward()
        model.synchronize()

    with pytest.raises(RankError, match="called layers of a FullyShardedDataParallel in other orders"):
        simulate(rank, 2)
