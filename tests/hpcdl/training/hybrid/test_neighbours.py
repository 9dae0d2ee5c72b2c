"""Copies in the next rank's memory: which parts they have, what they cost, and how many deaths they survive."""

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.training import Configuration, Trainer
from hpcdl.training.hybrid.neighbours import NeighbourCopies, find, needs, resume

MESHES = [
    ((4, 1, 1, 1), 0, "adam", "fp64"),
    ((3, 1, 1, 1), 3, "adam", "fp32"),
    ((2, 2, 1, 1), 1, "sgd", "fp16"),
    ((1, 1, 2, 1), 0, "adamw", "fp64"),
]


def configured(mesh, sharding, optimizer, precision) -> Configuration:
    return Configuration("mlp", mesh=mesh, sharding=sharding, optimizer=optimizer, precision=precision, batch=12)


def trained(comm, configuration, steps, memory, source=None):
    """Train, copy each step, and return the whole state at the end."""
    trainer = Trainer(comm, configuration)
    if source:
        resume(trainer, memory, source)
    copies = NeighbourCopies(trainer, memory, 1 if source else 0)
    counter, sent = trainer.comm.meter, 0
    for step, mine in trainer._sampler.shares(trainer.done, trainer.done + steps):
        trainer.step(step, mine)
        before = counter.counts["bytes_sent"]
        copies.keep()
        sent = counter.counts["bytes_sent"] - before
    state = [trainer.whole.gather(trainer.values, kind) for kind in ("", *trainer.states)]
    return sent, torch.cat([x.flatten() for kind in state for x in kind]), trainer.scale.value


def held(memory) -> int:
    """The bytes of a memory; moments share their places."""
    parts = [part for parts in memory.values() for part in parts.values()]
    places = {part.places.data_ptr(): part.places.nbytes for part in parts}
    return sum(places.values()) + sum(part.values.nbytes for part in parts)


@pytest.mark.parametrize(("mesh", "sharding", "optimizer", "precision"), MESHES)
def test_copies_cost_what_was_said_and_keep_the_state(mesh, sharding, optimizer, precision):
    """One rank's memory is lost; another mesh has the same bits from the others'."""
    configuration = configured(mesh, sharding, optimizer, precision)
    memories = [{} for _ in range(configuration.ranks)]
    run = simulate(lambda comm: trained(comm, configuration, 3, memories[comm.rank]), configuration.ranks)
    assert (sum(sent for sent, *_ in run.results), sum(map(held, memories))) == needs(configuration)
    assert max(sent for sent, *_ in run.results) < 2 * needs(configuration)[0] / configuration.ranks

    del memories[1]
    source, found = find(memories, 1)
    assert source.moment.step == 3
    one = configured((1, 1, 1, 1), 0, optimizer, precision)
    (after,) = simulate(lambda comm: trained(comm, one.changed(steps=4), 0, found[0], source), 1).results
    assert torch.equal(after[1], run.results[0][1])
    assert after[2] == run.results[0][2]
