"""ZeRO-3 against one machine: its weights, the formula's bytes on the wire and in memory, two layers whole at a time."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import TracingComm, simulate
from hpcdl.cost.collectives import TRAFFIC
from hpcdl.cost.memory import zero
from hpcdl.memory import meter
from hpcdl.nn.awkward import takes_time
from hpcdl.sharding import FullyShardedDataParallel


def train(comm, training, kind, make, max_norm=None, **options):
    model = FullyShardedDataParallel(training.build(kind, seed=comm.rank), comm, **options)
    optimizer, norms = training.makes[make](model.parameters()), []
    for n in training.batches:
        optimizer.zero_grad()
        x, y = training.mine(n, comm)
        cross_entropy(model(x), y).backward()
        model.synchronize()
        if max_norm is not None:
            norms.append(model.clip(max_norm))
        optimizer.step()
    return model.whole_state_dict(), norms


def close(found, expected):
    for weights, _ in found:
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value.detach(), rtol=1e-12, atol=1e-12, msg=name)


CASES = [("plain", p) for p in (1, 2, 3, 4, 5)] + [("tiny", 8)]  # eight ranks, five elements
CASES += [(kind, p) for kind in ("tied", "frozen", "unused", "deep") for p in (2, 5)]


@pytest.mark.parametrize(("kind", "p"), CASES)
def test_the_weights_are_those_of_one_machine(training, kind, p):
    make = "sgd" if p % 2 else "adamw"
    found = simulate(train, p, training, kind, make).results
    close(found, training.serial(kind, make)[0])
    for weights, _ in found:
        assert all(torch.equal(weights[name], value) for name, value in found[0][0].items())
