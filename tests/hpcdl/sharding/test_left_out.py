"""What one rank alone leaves out of a step, a batch or a parameter, is refused on every rank, and never averaged."""

from typing import Any

import pytest
import torch
from torch import nn

from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer

P, STEPS = 3, 4
KINDS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def batch(step: int, rows: int = 6) -> torch.Tensor:
    return torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step))


def sgd(params):
    return torch.optim.SGD(params, 0.1, momentum=0.9)


class Training:
    """A model of one of the `KINDS`, with the same methods for each."""

    def __init__(self, kind: str, comm, model: nn.Module | None = None):
        self.model: Any = None
        self.kind, model = kind, model or network()
        self.params = list(model.parameters())
        self.outputs = len(self.params[-1])
        if kind in ("ZeRO-1", "ZeRO-2"):
            self.model, self.optimizer = model, ShardedOptimizer(self.params, comm, sgd, stage=int(kind[-1]))
        else:
            wrap = DistributedDataParallel if kind == "DDP" else FullyShardedDataParallel
            self.model = wrap(model, comm)
            self.params = list(self.model.parameters())
            self.optimizer = sgd(self.params)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.optimizer, ShardedOptimizer):
            self.optimizer.count(len(x))
        return self.model(x).square().sum() / max(1, self.outputs * len(x))

    def step(self, zero: bool = True) -> None:
        if self.kind in ("DDP", "ZeRO-3"):
            self.model.synchronize()
        self.optimizer.step()
        if zero:
            self.optimizer.zero_grad()

    def weights(self) -> torch.Tensor:
        return torch.cat([x.detach().flatten() for x in self.model.state_dict().values()])


def in_one_process(steps=range(STEPS)) -> torch.Tensor:
    model = network()
    optimizer = sgd(model.parameters())
    for step in steps:
        model(batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([x.detach().flatten() for x in model.state_dict().values()])


def train(kind: str, change) -> list[torch.Tensor]:
    """Return each rank's weights after steps, with `change(training, comm, step, x)` for forward and backward."""

    def rank(comm):
        training = Training(kind, comm)
        for step in range(STEPS):
            change(training, comm, step, batch(step)[comm.rank :: P])
            training.step()
        return training.weights()

    return simulate(rank, P).results


def assert_same(results, right) -> None:
    for found in results:
        torch.testing.assert_close(found, right, rtol=1e-11, atol=1e-13)


# -- a batch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", range(STEPS))
def test_a_batch_left_out_by_one_rank(kind, step):
    def change(training, comm, now, x):
        loss = training.loss(x)
        if (now, comm.rank) != (step, 1):
            loss.backward()

    with pytest.raises(RankError, match=r"rank 1 counted samples .* had no backward|layers .* in other orders"):
        train(kind, change)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_batch_left_out_by_several_ranks(kind):
    def change(training, comm, now, x):
        loss = training.loss(x)
        if comm.rank == 0 or now < 2:
            loss.backward()

    with pytest.raises(RankError, match="ranks 1, 2 counted samples"):
        train(kind, change)


@pytest.mark.parametrize("kind", KINDS[1:3])
def test_an_error_between_count_and_backward(kind):
    def change(training, comm, now, x):
        training.optimizer.count(len(x))
        if (now, comm.rank) != (1, 2):
            training.model(x).square().mean().backward()

    with pytest.raises(RankError, match="rank 2 counted samples"):
        train(kind, change)


@pytest.mark.parametrize("kind", KINDS[1:3])
def test_without_a_count_all_ranks_have_backward(kind):
    def change(training, comm, now, x):
        if (now, comm.rank) != (1, 2):
            training.model(x).square().mean().backward()

    with pytest.raises(RankError, match="rank 2 counted samples"):
        train(kind, change)


def test_a_mean_of_an_earlier_round_is_no_backward_pass():
    """Rounds of DDP that add up: rank 1 leaves out the second."""

    def rank(comm):
        training = Training("DDP", comm)
        for i in range(2):
            loss = training.loss(batch(i)[comm.rank :: P])
            if (i, comm.rank) != (1, 1):
                loss.backward()
            training.model.synchronize()

    with pytest.raises(RankError, match="rank 1 counted samples"):
        simulate(rank, P)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_batch_left_out_by_all_ranks(kind):
    def change(training, comm, now, x):
        loss = training.loss(x)
        if now != 2:
            loss.backward()

    def still() -> torch.Tensor:  # ShardedOptimizer and SGD step no parameter without a gradient
        return in_one_process([0, 1, 3])

    assert_same(train(kind, change), still())


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_without_samples(kind):
    """With an empty batch, and a backward pass or none."""

    def change(training, comm, now, x):
        x = batch(now)[2 * comm.rank :][: 6 if comm.rank == 2 else 2] if now % 2 else batch(now)[comm.rank :: P]
        if comm.rank == 1 and now % 2:
            x = x[:0]
        elif comm.rank == 0 and now % 2:
            x = batch(now)[:4]
        loss = training.loss(x)
        if len(x) or kind == "ZeRO-3":
            loss.backward()

    assert_same(train(kind, change), in_one_process())


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_does_not_use_the_first_layers(kind):
    """Two models: rank 1's batch goes through the second alone, in a backward pass that reaches no weight of the
    first."""

    def networks():
        torch.manual_seed(0)
        return [nn.Linear(4, 4).double() for _ in range(2)]

    def rank(comm):
        one, other = (Training(kind, comm, model) for model in networks())
        for step in range(STEPS):
            x = batch(step)[comm.rank :: P]
            loss = other.loss(x)
            first = one.loss(x)
            (loss if comm.rank == 1 and kind != "ZeRO-3" else loss + first).backward()
            one.step()
            other.step()
        return torch.cat([one.weights(), other.weights()])

    def right():
        one, other = networks()
        optimizers = sgd(one.parameters()), sgd(other.parameters())
        for step in range(STEPS):
            first = one(batch(step)).square().mean(1)
            if kind != "ZeRO-3":
                first = first * (torch.arange(6) % P != 1)
            (first.mean() + other(batch(step)).square().mean()).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return torch.cat([x.detach().flatten() for model in (one, other) for x in model.state_dict().values()])

    assert_same(simulate(rank, P).results, right())


# -- a parameter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [slice(0, 1), slice(3, 4), slice(0, 2), slice(0, 5)])
def test_parameters_frozen_on_one_rank(kind, which):
    def change(training, comm, now, x):
        if (now, comm.rank) == (2, 1):
            for param in training.params[which]:
                param.requires_grad_(False)
        training.loss(x).backward()

    with pytest.raises(RankError, match=r"is frozen on rank 1 and trained on others|layers .* in other orders"):
        train(kind, change)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [slice(0, 1), slice(0, 2), slice(2, 5)])
def test_parameters_frozen_on_all_ranks(kind, which):
    def freeze(params, now):
        for param in params[which]:
            param.requires_grad_(now != 2)

    def change(training, comm, now, x):
        freeze(training.params, now)
        training.loss(x).backward()

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for now in range(STEPS):
        freeze(list(model.parameters()), now)
        model(batch(now)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same(train(kind, change), torch.cat([x.detach().flatten() for x in model.state_dict().values()]))
