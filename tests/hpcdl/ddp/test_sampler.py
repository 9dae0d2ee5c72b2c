"""Every sample once an epoch, whatever n, p and the batch; the same order everywhere, a new one each epoch."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Sampler, TensorDataset

from hpcdl.ddp import ShardedSampler


def everyone(n, batch, p, first, last, seed=0):
    """What each rank gets at each step: {step: [indices of rank 0, of rank 1, ...]}."""
    steps = {}
    for rank in range(p):
        for step, mine in ShardedSampler(n, batch, rank, p, seed).shares(first, last):
            steps.setdefault(step, []).append(mine.tolist())
    return steps


@given(n=st.integers(1, 60), batch=st.integers(1, 70), p=st.integers(1, 6), epochs=st.integers(1, 3))
def test_each_epoch_has_every_sample_once_and_even_shares(n, batch, p, epochs):
    per_epoch = ShardedSampler(n, batch, 0, p).steps
    steps = everyone(n, batch, p, 0, epochs * per_epoch)
    assert list(steps) == list(range(epochs * per_epoch))
    for epoch in range(epochs):
        seen = [i for step in range(epoch * per_epoch, (epoch + 1) * per_epoch) for share in steps[step] for i in share]
        assert sorted(seen) == list(range(n))
    for shares in steps.values():
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) <= batch


def test_global_batches_do_not_depend_on_the_number_of_ranks():
    alone, four = everyone(50, 16, 1, 0, 4), everyone(50, 16, 4, 0, 4)
    assert all(set(alone[step][0]) == {i for share in four[step] for i in share} for step in alone)


def test_order_is_new_each_epoch_and_with_each_seed_and_the_same_again():
    def order(seed, first):
        return [i for shares in everyone(50, 50, 1, first, first + 1, seed).values() for i in shares[0]]

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


@given(first=st.integers(0, 12))
def test_a_later_start_goes_on_where_an_earlier_one_would_be(first):
    whole = everyone(23, 5, 3, 0, 12)
    assert everyone(23, 5, 3, first, 12) == {step: shares for step, shares in whole.items() if step >= first}


@pytest.mark.parametrize(("n", "batch"), [(0, 5), (5, 0)])
def test_no_samples_or_no_batch_is_refused(n, batch):
    with pytest.raises(ValueError, match=f"batch is {batch} and n is {n}"):
        ShardedSampler(n, batch, 0, 1)


def test_it_is_a_batch_sampler_of_torch_with_the_same_order():
    loader_of = partial(DataLoader, TensorDataset(torch.arange(23)))
    for rank in range(3):
        sampler = ShardedSampler(23, 5, rank, 3, seed=4)
        assert isinstance(sampler, Sampler)
        assert len(sampler) == len(loader_of(batch_sampler=sampler)) == sampler.steps == 5
        for epoch in (0, 2, 1):
            sampler.set_epoch(epoch)
            loaded = [x.tolist() for (x,) in loader_of(batch_sampler=sampler)]
            first = epoch * sampler.steps
            assert loaded == [mine.tolist() for _, mine in sampler.shares(first, first + 5)]
            assert loaded == list(sampler), "a second iteration is over the same epoch"


def test_an_empty_share_is_a_step_too():
    sampler = ShardedSampler(5, 4, 1, 2)
    assert [len(mine) for mine in sampler] == [2, 0]
    loader = DataLoader(TensorDataset(torch.arange(5)), batch_sampler=sampler, collate_fn=len)
    assert list(loader) == [2, 0]


@pytest.mark.parametrize(("rank", "size"), [(4, 4), (5, 4), (-1, 4), (0, 0)])
def test_a_rank_that_is_not_there_is_refused(rank, size):
    with pytest.raises(ValueError, match=rf"rank is {rank} of size {size}; ranks are 0 to size - 1"):
        ShardedSampler(12, 8, rank, size)
