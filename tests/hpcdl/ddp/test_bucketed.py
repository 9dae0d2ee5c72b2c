"""Buckets: the last layer first, up to the cap, the same whatever the data."""

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.ddp.bucketed import Bucket, make_buckets


def params(*sizes, dtype=torch.float32):
    return [torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]


def sizes(buckets):
    return [[param.numel() for param in bucket] for bucket in buckets]


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (4, [[5], [100], [3], [2], [1]]),
        (20, [[5], [100], [3, 2], [1]]),  # 20 bytes: five floats
        (24, [[5], [100], [3, 2, 1]]),
        (419, [[5], [100, 3], [2, 1]]),
        (4000, [[5, 100, 3, 2, 1]]),
    ],
)
def test_buckets_are_filled_backwards_up_to_the_cap(cap, expected):
    assert sizes(make_buckets(params(1, 2, 3, 100, 5), cap)) == expected


def test_two_dtypes_do_not_share_a_bucket():
    mixed = params(1, 2) + params(3, dtype=torch.float64) + params(4)
    assert sizes(make_buckets(mixed, 1000)) == [[4], [3], [2, 1]]


def test_gradients_become_views_of_one_buffer():
    def rank(comm):
        made = []
        comm.empty = lambda numel, dtype: made.append(torch.empty(numel, dtype=dtype)) or made[-1]
        together, alone = params(3, 4), params(9)
        for param in together + alone:
            param.grad = torch.ones_like(param)
        grad = alone[0].grad
        small, large = Bucket(together, 100, comm), Bucket(alone, 100, comm)
        small.put_in_rest()
        large.put_in_rest()
        assert [flat.data_ptr() for flat in made] == [small.flat.data_ptr()]
        assert [p.grad.data_ptr() for p in together] == [small.flat.data_ptr(), small.flat.data_ptr() + 12]
        assert large.flat.data_ptr() == grad.data_ptr() == alone[0].grad.data_ptr()

    simulate(rank, 1)


def test_a_bucket_travels_in_pieces_of_the_cap():
    lengths = []

    def rank(comm):
        bucket = Bucket(params(10), 16, comm)
        bucket.params[0].grad = torch.arange(10.0)
        bucket.put_in_rest()
        bucket.reduce(0.5, lambda x, comm: lengths.append(len(x)), comm)
        bucket.release(4.0, [True])
        return bucket.params[0].grad.tolist()

    assert simulate(rank, 1).results == [[2.0 * i for i in range(10)]]
    assert lengths == [4, 4, 2]


def test_with_weight_0_nothing_counts_not_even_nan():
    def rank(comm):
        bucket = Bucket(params(2), 16, comm)
        bucket.params[0].grad = torch.full((2,), torch.nan)
        bucket.put_in_rest()
        bucket.reduce(0.0, lambda x, comm: None, comm)
        return bucket.flat.tolist()

    assert simulate(rank, 1).results == [[0.0, 0.0]]
