"""DistributedDataParallel against one machine with the whole batch: the same gradients, whatever model, ranks, buckets.

Started with mpiexec, this file compares on real ranks.
"""

import copy
import sys
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import Group, TracingComm, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.naive import fingerprint, identical_replicas
from hpcdl.nn.lenet import lenet5

TINY_MB = 200 / 2**20  # a bucket of 200 bytes: several buckets, and parameters larger than one


class Awkward(nn.Module):
    """Tied, frozen, unused and scalar parameters, one that only some inputs use, and a buffer that counts."""

    def __init__(self):
        super().__init__()
        self.encode, self.again, self.frozen = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.again.weight = self.encode.weight  # tied
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.sometimes = nn.Parameter(torch.ones(6))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += len(x)
        h = torch.tanh(self.frozen(self.encode(x))) * self.scale
        if x[:, 0].max() > 0:
            h = h + (x[:, :1] > 0) * self.sometimes
        return self.again(h)


class Recurrent(nn.Module):
    """A word's vector is also its score, and one layer is used at each of three positions."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(11, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = torch.zeros(len(x), 8, dtype=self.layer.weight.dtype)
        for position in range(x.shape[1]):
            h = torch.tanh(self.layer(h) + self.words(x[:, position]))
        return h @ self.words.weight.T


class TwoOutputs(nn.Module):
    """Strided weights (channels last), two outputs, a loss that takes weights themselves."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.head, self.other = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        h = self.conv(x).amax((2, 3))
        return self.head(h), self.other(h)


def penalized(outputs, y):
    first, second = outputs
    return cross_entropy(first, y) + 0.3 * second.square().mean()


def numbers(n, *shape):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, *shape, generator=generator, dtype=torch.float64)


def awkward_batch(n):
    x = numbers(n, 6)
    x[: n // 2, 0] = -1.0  # the first ranks' samples do not use `sometimes`
    return x, numbers(n + 1, 6)[:n]


CASES = {  # model, batch of n samples, loss
    "awkward": (Awkward, awkward_batch, mse_loss),
    "recurrent": (Recurrent, lambda n: (torch.arange(3 * n).view(n, 3) % 11, torch.arange(n) % 11), cross_entropy),
    "two outputs": (TwoOutputs, lambda n: (numbers(n, 3, 5, 5), torch.arange(n) % 2), penalized),
    "lenet": (lenet5, lambda n: (numbers(n, 1, 28, 28), torch.arange(n) % 10), cross_entropy),
}


def build(model, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model().double()


def shares(n, p, uneven):
    """How many samples each rank gets; uneven: ever more, the first none."""
    if not uneven or p == 1:
        return [len(part) for part in torch.arange(n).tensor_split(p)]
    counts = [n * rank // (p * (p - 1) // 2) for rank in range(p)]
    counts[-1] += n - sum(counts)
    return counts


def part(x, counts, rank):
    return x[sum(counts[:rank]) : sum(counts[: rank + 1])]


def serial_gradients(case, batches):
    """On one machine: the gradients of each batch in turn, and the mean loss."""
    model, batch, loss_fn = CASES[case]
    model, found = build(model), []
    for n in batches:
        model.zero_grad()
        x, y = batch(n)
        loss = loss_fn(model(x), y)
        loss.backward()
        found.append((loss.item(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
    return found


def compare(comm, case, uneven, **options):
    """A rank's part: three steps, the last with fewer samples, each compared with one machine's."""
    model, batch, loss_fn = CASES[case]
    ddp = DistributedDataParallel(build(model, seed=comm.rank), comm, **options)
    for n, (expected_loss, expected) in zip((23, 23, 11), serial_gradients(case, (23, 23, 11)), strict=True):
        counts = shares(n, comm.size, uneven)
        x, y = (part(values, counts, comm.rank) for values in batch(n))
        ddp.zero_grad()
        loss = None
        if len(x):
            loss = loss_fn(ddp(x), y)
            loss.backward()
        mean = ddp.synchronize(0.0 if loss is None else loss.item())
        assert mean == pytest.approx(expected_loss, rel=1e-6)
        for (name, param), grad in zip(ddp.module.named_parameters(), expected, strict=True):
            same(name, param.grad, grad)
    return fingerprint(ddp.module)


def same(name, grad, expected):
    if expected is None:
        assert grad is None, f"{name} has no gradient on one machine"
    else:
        torch.testing.assert_close(grad, expected, rtol=1e-6, atol=1e-9, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("case", CASES)
def test_p_ranks_have_the_gradients_of_one_machine_with_the_whole_batch(case, p, uneven, overlap):
    run = simulate(compare, p, case, uneven)
    assert len(set(run.results)) == 1, "replicas differ"


def compare_all(comm):
    for case in CASES:
        for overlap in (True, False):
            compare(comm, case, uneven=False, overlap=overlap, bucket_mb=TINY_MB)
        compare(TracingComm(comm), case, uneven=True, bucket_mb=1.0)
    sys.stdout.write(f"rank {comm.rank} has them all\n")


@pytest.mark.labs  # starts MPI; training over MPI is in the first tier: training/test_program.py
@pytest.mark.mpi
def test_two_mpi_ranks_have_the_gradients_of_one_machine(mpiexec):
    code, printed = mpiexec(2, "-W", "error", __file__, seconds=60)
    assert code == 0, printed
    assert sorted(printed.splitlines()) == ["rank 0 has them all", "rank 1 has them all"]


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_any_collective_will_do_in_buckets_of_any_size(name):
    for bucket_mb in (1e-9, TINY_MB, 25):
        simulate(partial(compare, case="awkward", uneven=True, all_reduce=name, bucket_mb=bucket_mb), 4)


def test_a_group_of_ranks_trains_beside_the_others():
    def rank(comm):
        members = [rank for rank in range(5) if rank % 2 == comm.rank % 2]
        return compare(Group(comm, members), "awkward", uneven=False, bucket_mb=TINY_MB)

    simulate(rank, 5)


def test_accumulated_gradients_are_those_of_all_batches_together():
    model, batch, loss_fn = CASES["awkward"]

    def rank(comm):
        ddp = DistributedDataParallel(build(model), comm, bucket_mb=TINY_MB)
        messages = []
        for step in range(2):
            micro = [part(values, [8, 2, 6], comm.rank) for values in batch(16)]
            halves = [tuple(v[i * len(v) // 2 : (i + 1) * len(v) // 2] for v in micro) for i in range(2)]
            ddp.zero_grad(set_to_none=step == 0)
            with ddp.no_sync():
                (loss_fn(ddp(halves[0][0]), halves[0][1]) / 2).backward()
            messages.append(len(comm.machine.trace))
            (loss_fn(ddp(halves[1][0]), halves[1][1]) / 2).backward()
            ddp.synchronize()
            if step == 0:
                first = [None if p.grad is None else p.grad.clone() for p in ddp.module.parameters()]
        return ddp.module, first

    reference = build(model)
    loss_fn(reference(batch(16)[0]), batch(16)[1]).backward()
    for replica, first in simulate(rank, 3).results:
        for (name, param), grad, expected in zip(
            replica.named_parameters(), first, reference.parameters(), strict=True
        ):
            same(name, grad, expected.grad)
            if expected.grad is not None:
                same(name, param.grad, expected.grad)


def test_buffers_are_rank_0s_after_every_step():
    def rank(comm):
        net = build(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), seed=comm.rank)
        ddp = DistributedDataParallel(net, comm)
        alone = copy.deepcopy(net)  # what this rank's buffers would be by itself
        for step in range(3):
            x = numbers(10 * comm.rank + step + 2, 6)
            alone(x)
            ddp(x).square().mean().backward()
            ddp.synchronize()
        return [b.tolist() for b in net.buffers()], [b.tolist() for b in alone.buffers()], identical_replicas(net, comm)

    results = simulate(rank, 3).results
    assert all(buffers == results[0][1] for buffers, _, _ in results)
    assert [replicas for *_, replicas in results] == [3, 3, 3]


class Counting(nn.Module):
    """Puts new tensors in its buffers' places: a count and a strided matrix."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("sums", torch.zeros(3, 2).T)

    def forward(self, x):
        self.seen = self.seen + len(x)
        self.sums = self.sums + torch.arange(6.0).view(3, 2).T * len(x)
        return self.layer(x)


def test_buffers_that_a_module_replaces_are_rank_0s_too():
    def rank(comm):
        net = nn.Sequential(nn.Linear(2, 2), Counting())
        ddp = DistributedDataParallel(net, comm)
        for _ in range(3):
            ddp(torch.ones(2 + comm.rank, 2)).mean().backward()
            ddp.synchronize()
        return net[1].seen.item(), net[1].sums.tolist()

    assert simulate(rank, 3).results == [(6, [[0.0, 12.0, 24.0], [6.0, 18.0, 30.0]])] * 3


@pytest.mark.labs  # many steps
def test_replicas_agree_to_the_last_bit_after_1000_steps():
    def rank(comm):
        net = build(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), seed=comm.rank).float()
        ddp = DistributedDataParallel(net, comm, bucket_mb=TINY_MB / 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        generator = torch.Generator().manual_seed(comm.rank)
        before = fingerprint(net)
        for _ in range(1000):
            x = torch.randn(3, 5, generator=generator)
            optimizer.zero_grad()
            ddp(x).square().mean().backward()
            ddp.synchronize()
            optimizer.step()
        return before, fingerprint(net)

    results = simulate(rank, 3).results
    assert len(set(results)) == 1
    assert results[0][0] != results[0][1]


if __name__ == "__main__":
    from hpcdl.comm import MPIComm

    torch.set_num_threads(1)
    compare_all(MPIComm())
