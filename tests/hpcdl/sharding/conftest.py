"""One training, on one machine and in the parts of p ranks; and what a rank sends meanwhile."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.nn.awkward import MODELS
from hpcdl.sharding import load

BATCHES = (11, 11, 4, 13)  # samples of each step: also another number than in the step before


class Tiny(nn.Module):
    """Five elements: some of many ranks own none."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x * self.shift).tanh() * self.scale


KINDS = MODELS | {"tiny": Tiny}
MAKES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.3, momentum=0.9, weight_decay=0.1),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.05, weight_decay=0.1),
}


def build(kind, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return KINDS[kind]().double()


def batch(n):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.arange(n) % 3


def counts(n, p):
    """How many samples each rank gets: unequal, and where there is more than one rank, the first gets none."""
    if p == 1:
        return [n]
    found = [n * rank // (p * (p - 1) // 2) for rank in range(p)]
    found[-1] += n - sum(found)
    return found


def mine(n, comm):
    """A rank's part of a batch of n samples."""
    each = counts(n, comm.size)
    part = slice(sum(each[: comm.rank]), sum(each[: comm.rank + 1]))
    return tuple(values[part] for values in batch(n))


def learn(model, optimizer, comm, batches=BATCHES, after=lambda: None):
    """Train on this rank's parts of the batches; `after` each backward pass comes the step."""
    for n in batches:
        x, y = mine(n, comm)
        optimizer.count(len(x))
        if len(x):
            cross_entropy(model(x), y).backward()
        after()
        optimizer.step()


def resume(folder, optimizer, comm):
    """Take the weights and the optimizer's states of a saved step."""
    saved = load(folder, comm)
    saved.fill(optimizer.shards())
    saved.restore(optimizer.optimizer, optimizer.shards())
    optimizer.gather()


def assert_as_serial(models):
    """Assert that the weights are those of one machine that trained with AdamW."""
    for model in models:
        for name, value in serial("plain", "adamw")[0].items():
            found = dict(model.named_parameters())[name]
            torch.testing.assert_close(found.detach(), value.detach(), rtol=1e-12, atol=1e-12)


def serial(kind, make, max_norm=None):
    """One machine with the whole batches: the weights after the last step, and the norms of its gradients."""
    model, norms = build(kind), []
    optimizer = MAKES[make](model.parameters())
    for n in BATCHES:
        optimizer.zero_grad()
        x, y = batch(n)
        cross_entropy(model(x), y).backward()
        if max_norm is not None:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).item())
        optimizer.step()
    return dict(model.named_parameters()), norms


def sent(trace, since=0):
    """Bytes that a rank has sent since so many events."""
    return sum(event.nbytes for event in trace[since:] if event.op == "send")


@pytest.fixture
def training():
    functions = (build, batch, mine, learn, resume, assert_as_serial, serial, sent)
    return SimpleNamespace(batches=BATCHES, makes=MAKES, kinds=list(KINDS), **{f.__name__: f for f in functions})
