"""Sparse rows like RCV1's: compressed form, lengths, frequencies, and that a linear machine can learn them."""

import pytest
import torch

from hpcdl.data import SparseRows, rcv1_like


def dense(data):
    rows = torch.repeat_interleave(torch.arange(len(data)), data.starts.diff())
    full = torch.zeros(len(data), data.features)
    full[rows, data.columns.long()] = data.values
    return full


def test_shapes_types_and_lengths():
    data = rcv1_like(3000)
    assert len(data) == 3000
    assert data.features == 47_236
    assert data.starts.dtype == torch.int64
    assert data.columns.dtype == torch.int32
    assert data.values.dtype == data.y.dtype == torch.float32
    assert data.starts[0] == 0
    assert data.starts[-1] == len(data.columns) == len(data.values)
    assert data.starts.diff().min() >= 1
    assert abs(data.starts.diff().double().mean() - 76) < 2
    squares = torch.zeros(3000).index_add_(
        0, torch.repeat_interleave(torch.arange(3000), data.starts.diff()), data.values**2
    )
    torch.testing.assert_close(squares, torch.ones(3000))
    assert set(data.y.tolist()) == {-1.0, 1.0}
    assert abs(data.y.mean()) < 0.1


def test_columns_increase_in_a_row_and_low_ones_are_common():
    data = rcv1_like(500, features=1000, nonzeros=20)
    for i in range(500):
        columns = data.columns[data.starts[i] : data.starts[i + 1]]
        assert (columns.diff() > 0).all()
    counts = torch.bincount(data.columns.long(), minlength=1000)
    assert counts[0] > counts[10] > counts[100:200].double().mean() > counts[900:].double().mean()
    assert abs(data.starts.diff().double().mean() - 20) < 1


def test_a_seed_says_it_all():
    a, b, c = rcv1_like(50, seed=1), rcv1_like(50, seed=1), rcv1_like(50, seed=2)
    for name in ("starts", "columns", "values", "y"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert not torch.equal(a.columns[:20], c.columns[:20])


def test_a_linear_machine_learns_it():
    data = rcv1_like(2000, features=300, nonzeros=30, noise=0.0)
    x = dense(data)
    w = torch.linalg.lstsq(x[:1500].double(), data.y[:1500].double()).solution
    right = ((x[1500:].double() @ w).sign() == data.y[1500:]).double().mean()
    assert right > 0.85


@pytest.mark.parametrize("wrong", [{"n": 0}, {"features": 1}, {"nonzeros": 0}, {"nonzeros": 600}, {"noise": 0.5}])
def test_bad_arguments(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} (is )?{next(iter(wrong.values()))}"):
        rcv1_like(**{"n": 10, "features": 1000, "nonzeros": 10, **wrong})


def rows(**changed):
    parts = {
        "starts": torch.tensor([0, 0, 2, 3, 3]),
        "columns": torch.tensor([1, 4, 0], dtype=torch.int32),
        "values": torch.tensor([0.6, 0.8, 1.0]),
        "y": torch.tensor([1.0, -1.0, 1.0, -1.0]),
        "features": 5,
    }
    return SparseRows(**{**parts, **changed})


def test_rows_of_ones_own():
    assert len(rows()) == 4
    assert (
        len(SparseRows(torch.zeros(1, dtype=torch.int64), rows().columns[:0], torch.zeros(0), torch.zeros(0), 3)) == 0
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"columns": torch.tensor([1, 4, 0])}, "columns is torch.int64 of shape .3,.; give one axis of torch.int32"),
        ({"columns": torch.tensor([1, 4, 0], dtype=torch.int16)}, "columns is torch.int16"),
        ({"columns": [1, 4, 0]}, "columns is list"),
        ({"columns": torch.tensor([1, 5, 0], dtype=torch.int32)}, "columns has 0 to 5; they are 0 to 4"),
        ({"columns": torch.tensor([-1, 4, 0], dtype=torch.int32)}, "columns has -1 to 4"),
        ({"columns": torch.tensor([4, 4, 0], dtype=torch.int32)}, "a row's columns do not increase"),
        ({"columns": torch.tensor([4, 1, 0], dtype=torch.int32)}, "a row's columns do not increase"),
        ({"values": torch.ones(3).double()}, "values is torch.float64"),
        ({"values": torch.ones(3, 1)}, "values is torch.float32 of shape .3, 1."),
        ({"values": torch.ones(2)}, "values has 2 numbers and columns 3"),
        ({"starts": torch.tensor([0, 2, 3, 3])}, "starts has 4 numbers .* it has 5, from 0 to 3"),
        ({"starts": torch.tensor([1, 1, 2, 3, 3])}, "from 0 to 3"),
        ({"starts": torch.tensor([0, 0, 2, 3, 4])}, "end with .4."),
        ({"starts": torch.tensor([0, 3, 2, 3, 3])}, "starts decreases"),
        ({"y": torch.tensor([1.0, 0.0, 1.0, 0.0])}, "y has 0; labels are -1 and 1"),
        ({"y": torch.tensor([True, False, True, False])}, "y is torch.bool"),
        ({"features": 4}, "they are 0 to 3"),
    ],
)
def test_rows_that_loops_cannot_trust(changed, sentence):
    with pytest.raises(ValueError, match=sentence):
        rows(**changed)
