"""The data-parallel step against the serial one: the same gradients, weights and optimizer, whatever the ranks hold."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import RankError, simulate
from hpcdl.ddp.naive import average_gradients, broadcast_parameters, fingerprint, identical_replicas, train_step


class Awkward(nn.Module):
    """Tied, frozen, unused and scalar parameters, and one that only some inputs use."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.encode.weight  # tied
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.sometimes = nn.Parameter(torch.ones(6))
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        h = self.norm(torch.tanh(self.frozen(self.encode(x))) * self.scale)
        if x[:, 0].max() > 0:
            h = h + (x[:, :1] > 0) * self.sometimes
        return self.again(h)


def awkward(seed=0):
    torch.manual_seed(seed)
    return Awkward().double()


def batch(n):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    x[: n // 2, 0] = -1.0  # the first ranks' samples do not use `sometimes`
    return x, torch.randn(n, 6, generator=generator, dtype=torch.float64)


def shares(n, p, uneven):
    """How many samples each rank gets; uneven: ever more, the first none."""
    if not uneven:
        return [len(part) for part in torch.arange(n).tensor_split(p)]
    counts = [n * rank // (p * (p - 1) // 2) for rank in range(p)] if p > 1 else [n]
    counts[-1] += n - sum(counts)
    return counts


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)  # moves whatever has a gradient, even 0


def serial(steps, x, y):
    model = awkward()
    optimizer = optimizer_of(model)
    for _ in range(steps):
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_p_ranks_take_the_steps_of_one_machine_with_the_whole_batch(p, uneven):
    x, y = batch(23)
    parts = shares(23, p, uneven)

    def rank(comm):
        model = copy.deepcopy(start)
        optimizer = optimizer_of(model)
        for _ in range(3):
            mine = slice(sum(parts[: comm.rank]), sum(parts[: comm.rank + 1]))
            loss = train_step(model, mse_loss, x[mine], y[mine], optimizer, comm)
            assert (loss == loss) == (parts[comm.rank] > 0), "the loss of no samples is NaN"
        return model

    start, expected = awkward(), serial(3, x, y)
    replicas = simulate(rank, p).results
    for (name, param), (_, reference) in zip(replicas[0].named_parameters(), expected.named_parameters(), strict=True):
        torch.testing.assert_close(
            param, reference, rtol=1e-6, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )
        if reference.grad is None:
            assert param.grad is None, f"{name} has no gradient on one machine"
        else:
            torch.testing.assert_close(param.grad, reference.grad, rtol=1e-6, atol=1e-9)
    assert len({fingerprint(replica) for replica in replicas}) == 1


def test_the_mean_is_weighted_by_how_many_samples_each_rank_saw():
    def rank(comm):
        grads = [torch.full((2,), float(comm.rank)), torch.tensor(10.0 * comm.rank)]
        total = average_gradients(grads, comm.rank + 1, comm)
        return total, grads[0].tolist(), grads[1].item()

    mean = (0 * 1 + 1 * 2 + 2 * 3) / 6
    for total, vector, scalar in simulate(rank, 3).results:
        assert total == 6
        assert vector == pytest.approx([mean] * 2)
        assert scalar == pytest.approx(10 * mean)


def test_one_step_is_one_all_reduce_of_all_gradients():
    def rank(comm):
        model = nn.Linear(9, 7)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, mse_loss, torch.ones(2, 9), torch.ones(2, 7), sgd, comm)

    run = simulate(rank, 2)
    elements = 9 * 7 + 7 + 2 + 1  # weights, biases, who used them, the number of samples
    assert run.bytes_sent == [4 * elements, 4 * elements], "a ring of two sends n elements per rank"


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_any_all_reduce_will_do(name):
    def rank(comm):
        grads = [torch.full((5,), float(comm.rank))]
        average_gradients(grads, 1, comm, ALL_REDUCE[name])
        return grads[0].tolist()

    assert simulate(rank, 4).results == [[1.5] * 5] * 4


def test_a_step_without_a_single_sample_is_an_error():
    with pytest.raises(RankError, match="no rank has a sample"):
        simulate(lambda comm: average_gradients([torch.ones(2)], 0, comm), 2)


@pytest.mark.parametrize("root", [0, 2])
def test_differently_seeded_replicas_become_the_roots_in_place(root):
    def rank(comm):
        model = awkward(comm.rank)
        pointers = [param.data_ptr() for param in model.parameters()]
        before = identical_replicas(model, comm)
        broadcast_parameters(model.parameters(), comm, root)
        assert pointers == [param.data_ptr() for param in model.parameters()]
        return before, identical_replicas(model, comm), fingerprint(model)

    for before, after, digest in simulate(rank, 3).results:
        assert (before, after) == (1, 3)
        assert digest == fingerprint(awkward(root))


def test_one_bit_changes_the_fingerprint():
    model = awkward()
    before = fingerprint(model)
    with torch.no_grad():
        model.scale += 2.0**-52
    assert fingerprint(model) != before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_in_16_bits_of_thousands_of_samples_do_not_overflow(dtype):
    def f(comm):
        grads = [torch.full((2,), 20.0 + comm.rank, dtype=dtype)]
        return average_gradients(grads, 6001, comm), grads[0].dtype, grads[0].tolist()

    assert simulate(f, 3).results == [(18003, dtype, [21.0, 21.0])] * 3
