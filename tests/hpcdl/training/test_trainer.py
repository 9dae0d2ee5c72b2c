"""Any mesh gives the losses of one rank: against a plain loop in float64, on simulated ranks and over MPI."""

import json
import random

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.data.loader import epoch_order
from hpcdl.parallel import SCHEDULES
from hpcdl.training import Configuration, Trainer
from hpcdl.training.hybrid.fitting import meshes, misfit
from hpcdl.training.hybrid.models import MODELS, build

CLOSE = 1e-12  # in float64


def serial(configuration: Configuration, first: int, last: int) -> list[float]:
    """The losses of steps `first` to `last` - 1 by torch alone: the whole model, one batch, one optimizer."""
    model = build(configuration.model, configuration.size)
    with torch.random.fork_rng():
        torch.manual_seed(configuration.seed)
        net = model.dense().to({"fp64": torch.float64}.get(configuration.precision, torch.float32))
    params, lr = net.parameters(), configuration.lr
    optimizer = {
        "sgd": lambda: torch.optim.SGD(params, lr=lr, momentum=0.9),
        "adam": lambda: torch.optim.Adam(params, lr=lr),
        "adamw": lambda: torch.optim.AdamW(params, lr=lr),
    }[configuration.optimizer]()
    x, y = model.data
    losses, epoch = [], -(-len(y) // configuration.batch)
    for step in range(first, last):
        chosen = epoch_order(len(y), configuration.seed, step // epoch).split(configuration.batch)[step % epoch]
        inputs = x[chosen].to(next(net.parameters()).dtype) if x.is_floating_point() else x[chosen]
        out = net(inputs)
        loss = torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y[chosen].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def epoch_of(configuration: Configuration) -> int:
    return -(-len(build(configuration.model).data[1]) // configuration.batch)


def on_mesh(configuration: Configuration, first: int = 0):
    """The losses of every rank from step `first` on, with the seed's weights."""

    def rank(comm):
        trainer = Trainer(comm, configuration)
        trainer.done = first
        return trainer.train()

    return simulate(rank, configuration.ranks).results


def check(configuration: Configuration) -> None:
    """The three steps around the end of an epoch, whose last batch is smaller."""
    end = epoch_of(configuration)
    configuration = configuration.changed(precision="fp64", steps=end + 1)
    expected = torch.tensor(serial(configuration, end - 2, end + 1), dtype=torch.float64)
    for losses in on_mesh(configuration, end - 2):
        assert torch.allclose(torch.tensor(losses, dtype=torch.float64), expected, rtol=CLOSE, atol=CLOSE)


def drawn(seed: int) -> Configuration:
    """A random mesh of 1 to 8 ranks for a random model, with random options, that fits."""
    rng = random.Random(seed)
    while True:
        ranks = rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 8])
        configuration = Configuration(
            model=rng.choice(["mlp", "lenet", "gpt"]),
            mesh=rng.choice(list(meshes(ranks))),
            sharding=rng.randrange(4),
            schedule=rng.choice(list(SCHEDULES)),
            microbatches=rng.randint(1, 4),
            optimizer=rng.choice(["sgd", "adam", "adamw"]),
            batch=rng.choice([7, 8, 11, 16]),
            seed=rng.randrange(100),
        )
        if not misfit(configuration, build(configuration.model), ranks):
            return configuration


@pytest.mark.parametrize(
    ("model", "mesh", "sharding", "schedule", "microbatches", "optimizer"),
    [
        ("mlp", (3, 1, 1, 1), 2, "gpipe", 1, "sgd"),
        ("lenet", (1, 2, 2, 1), 0, "zb_h1", 3, "sgd"),
        ("lenet", (2, 2, 1, 1), 3, "one_f_one_b", 2, "adam"),
        ("mlp", (2, 2, 1, 1), 2, "zb_v", 3, "adam"),
        ("gpt", (1, 1, 1, 2), 1, "one_f_one_b", 1, "adamw"),
        ("gpt", (1, 1, 2, 1), 3, "one_f_one_b", 1, "sgd"),
    ],
)
def test_a_mesh_gives_the_losses_of_one_rank(model, mesh, sharding, schedule, microbatches, optimizer):
    """Batches of 7; an epoch's last has 2 or none for some replicas."""
    options = {"sharding": sharding, "schedule": schedule, "microbatches": microbatches, "optimizer": optimizer}
    check(Configuration(model=model, mesh=mesh, batch=7, seed=3, **options))


def test_layers_have_hooks_only_in_a_pipeline():
    """A hook costs as much as a small operation, in each step and layer."""

    def hooks(comm):
        trainer = Trainer(comm, Configuration(model="gpt", mesh=(1, comm.size, 1, 1)))
        return sum(len(layer._forward_hooks) for module in trainer.replicas.modules for layer in module.modules())

    assert simulate(hooks, 1).results == [0]
    assert min(simulate(hooks, 2).results) > 0


@pytest.mark.labs  # a minute: random meshes of up to 8 ranks
@pytest.mark.parametrize("seed", range(16))
def test_random_meshes_give_the_losses_of_one_rank(seed):
    check(drawn(seed))


@pytest.mark.labs  # eight ranks
def test_three_dimensions_at_once_give_the_losses():
    check(Configuration(model="gpt", mesh=(2, 2, 2, 1), sharding=3, microbatches=2, batch=9, optimizer="sgd"))


@pytest.mark.parametrize(
    ("mesh", "accumulated"),
    [
        ((2, 1, 1, 1), 2),
        pytest.param((1, 1, 1, 1), 4, marks=pytest.mark.long),
        pytest.param((1, 2, 1, 2), 4, marks=pytest.mark.long),
    ],
)
def test_fixed_tokens_give_the_same_losses(mesh, accumulated):
    """The mesh changes, and so do microbatches; tokens of a step and losses do not."""
    configuration = Configuration(model="gpt", mesh=mesh, tokens_per_step=128, microbatch_size=2, seed=5)
    assert (configuration.batch, configuration.microbatches) == (8, accumulated)
    check(configuration)


@pytest.mark.long  # random meshes of up to 8 ranks
@pytest.mark.parametrize("seed", range(6))
def test_fixed_tokens_on_random_meshes(seed):
    rng = random.Random(seed)
    while True:
        ranks, size = rng.randint(1, 8), rng.choice([1, 2, 3])
        configuration = Configuration(
            model="gpt",
            mesh=rng.choice(list(meshes(ranks))),
            sharding=rng.randrange(4),
            tokens_per_step=16 * 12,
            microbatch_size=size,
            optimizer=rng.choice(["sgd", "adam"]),
        )
        if not misfit(configuration, build("gpt"), ranks):
            break
    assert configuration.batch == 12 == configuration.mesh[0] * configuration.microbatches * size
    check(configuration)


def test_replicas_without_samples_take_part():
    """One sample is left for four replicas, each with two microbatches."""
    n = len(build("mlp").data[1])
    batch = next(b for b in range(8, n) if n % b == 1)
    for sharding in (0, 3):
        check(Configuration(model="mlp", mesh=(4, 1, 1, 1), sharding=sharding, microbatches=2, batch=batch))


PROGRAM = """
import json
import sys
import torch
from hpcdl.comm import MPIComm
from hpcdl.training import Configuration, Trainer

torch.set_num_threads(1)
comm = MPIComm()
for mesh, options in json.loads(sys.argv[1]):
    losses = Trainer(comm, Configuration(precision="fp64", steps=2, batch=8, mesh=tuple(mesh), **options)).train()
    if comm.rank == 0:
        print(json.dumps(losses))
"""


@pytest.mark.mpi
@pytest.mark.labs  # starts 2 and 4 processes
@pytest.mark.parametrize(
    ("ranks", "cases"),
    [
        (
            2,
            [
                ((2, 1, 1, 1), {"model": "gpt"}),
                ((1, 2, 1, 1), {"model": "lenet", "microbatches": 4, "schedule": "zb_v"}),
                ((1, 1, 2, 1), {"model": "mlp"}),
                ((1, 1, 1, 2), {"model": "gpt"}),
            ],
        ),
        (
            4,
            [
                ((2, 2, 1, 1), {"model": "gpt", "sharding": 1, "microbatches": 2}),
                ((2, 1, 2, 1), {"model": "mlp", "sharding": 3}),
                ((1, 2, 2, 1), {"model": "gpt", "microbatches": 2, "schedule": "zb_h1"}),
            ],
        ),
    ],
)
def test_mpi_ranks_give_the_losses_of_one_rank(ranks, cases, mpiexec):
    code, printed = mpiexec(ranks, "-c", PROGRAM, json.dumps(cases))
    assert code == 0, printed
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    for losses, (_, options) in zip(found, cases, strict=True):
        expected = serial(Configuration(precision="fp64", batch=8, **options), 0, 2)
        assert losses == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@pytest.mark.labs  # float64 is asked in the first tier
def test_float32_losses_agree_to_rounding():
    configuration = Configuration(model="gpt", mesh=(2, 1, 1, 1), batch=8, steps=4)
    assert on_mesh(configuration)[0] == pytest.approx(serial(configuration, 0, 4), rel=1e-5)


def test_bfloat16_computes_in_16_bits_and_keeps_32():
    """Losses near those of float32, and not the same: products have 8 bits."""
    configuration = Configuration(model="lenet", mesh=(1, 2, 2, 1), batch=8, steps=3, precision="bf16")
    losses, expected = on_mesh(configuration)[0], serial(configuration.changed(precision="fp32"), 0, 3)
    assert losses == pytest.approx(expected, rel=2e-2)
    assert losses != expected


@pytest.mark.labs  # 20 steps of each model
@pytest.mark.parametrize("model", MODELS)
def test_training_brings_the_loss_down(model):
    losses = on_mesh(Configuration(model=model, batch=64, steps=20, lr=1e-2))[0]
    assert sum(losses[-3:]) < 0.98 * sum(losses[:3])


def test_ranks_with_different_options_are_refused():
    configuration = Configuration(model="mlp", mesh=(3, 1, 1, 1))
    said = "rank 2 has another configuration than rank 0: seed = 2 instead of seed = 0; start all ranks with the same"

    def rank(comm):
        with pytest.raises(ValueError, match=said):
            Trainer(comm, configuration.changed(seed=2 * (comm.rank == 2)))

    simulate(rank, 3)


def test_a_loss_that_is_not_finite_changes_no_weight():
    configuration = Configuration(model="mlp", mesh=(2, 1, 1, 1), lr=1e200, precision="fp64", optimizer="sgd", steps=9)

    def rank(comm):
        trainer = Trainer(comm, configuration)
        with pytest.raises(FloatingPointError, match=r"the loss is .*; the weights are still those of the step before"):
            trainer.train()
        return trainer.done, all(bool(p.isfinite().all()) for p in trainer.replicas.modules[0].parameters())

    assert all(done < 9 and finite for done, finite in simulate(rank, 2).results)
