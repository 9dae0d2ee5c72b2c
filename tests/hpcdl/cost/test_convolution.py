"""The cost of a convolution is what the plain versions do, counted operation by operation."""

import pytest
import torch

from hpcdl.conv import ALGORITHMS, Problem, fft, im2col, toeplitz, winograd
from hpcdl.conv.direct import by_group
from hpcdl.cost.convolution import COSTS, cost, least_bytes
from hpcdl.kernels.winograd_transforms import DATA, TAPS

PROBLEMS = [
    Problem(1, 1, 3, 3, 1, 2, 2),  # the lecture's
    Problem(2, 3, 8, 9, 4, 3, 3, padding=1),
    Problem(1, 4, 7, 6, 6, 3, 3, groups=2),
    Problem(2, 2, 9, 5, 3, 3, 2, stride=2, padding=1),
    Problem(1, 3, 5, 5, 2, 5, 5),
    Problem(2, 3, 4, 4, 2, 1, 1),
    Problem(1, 4, 13, 9, 4, 3, 3, padding=1, groups=4),
]


def tensors(problem):
    torch.manual_seed(5)
    return torch.randn(problem.x_shape), torch.randn(problem.w_shape)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_arithmetic_is_what_the_plain_version_does(name, problem, count):
    if ALGORITHMS[name].limits(problem):
        with pytest.raises(ValueError, match="3 x 3"):
            cost(name, problem)
        return
    x, w = tensors(problem)
    with count:
        ALGORITHMS[name].plain(x, w, problem)
    found = cost(name, problem)
    assert (count.products, count.multiplications, count.additions) == found[:3]


def stored(name, x, w, problem):
    """The arrays that the plain version makes between x, w and y."""
    if name.startswith("winograd"):
        m = int(name[-1])
        U, V = winograd.both(TAPS[m], w), winograd.both(DATA[m], winograd.tiles(m, x, problem))
        return [U, V, winograd.products(U, V, problem.groups)]
    if name == "fft":
        size = tuple(fft.power_of_two(n) for n in fft.least_size(problem))
        X, W = fft.spectrum(fft.shifted(x, problem), size), fft.spectrum(w, size)
        return [X, W, torch.empty(problem.N, problem.K, *X.shape[2:], dtype=X.dtype)]
    if name == "toeplitz":
        T = toeplitz.toeplitz(w, problem)
        return [T.values(), T.indices()]
    return [im2col.im2col(x, problem)] if name == "im2col" else []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_memory_is_that_of_the_arrays_between(name, problem, dtype):
    if ALGORITHMS[name].limits(problem):
        return
    x, w = (tensor.to(dtype) for tensor in tensors(problem))
    y = ALGORITHMS[name].plain(x, w, problem)
    scratch = sum(array.nbytes for array in stored(name, x, w, problem))
    found = cost(name, problem, itemsize=dtype.itemsize)
    assert found.scratch == scratch
    assert found.nbytes == x.nbytes + w.nbytes + y.nbytes + 2 * scratch


def test_toeplitz_matrix_of_the_lecture():
    w = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    T = toeplitz.toeplitz(w, PROBLEMS[0]).to_dense()
    expected = [[1, 2, 0, 3, 4, 0, 0, 0, 0], [0, 1, 2, 0, 3, 4, 0, 0, 0]]
    expected += [[0, 0, 0, 1, 2, 0, 3, 4, 0], [0, 0, 0, 0, 1, 2, 0, 3, 4]]
    assert T.tolist() == expected


def test_winograd_makes_sixteen_products_where_direct_makes_thirty_six():
    tile = Problem(1, 1, 4, 4, 1, 3, 3)
    assert cost("winograd_2x2", tile).products == 16
    assert cost("direct", tile).products == 36
    tile = Problem(1, 1, 6, 6, 1, 3, 3)
    assert cost("direct", tile).products / cost("winograd_4x4", tile).products == 4


def test_a_larger_kernel_costs_the_transform_nothing_and_the_others_much():
    small, large = (Problem(8, 16, 32, 32, 16, r, r) for r in (3, 15))
    assert cost("fft", large).multiplications <= cost("fft", small).multiplications
    assert cost("direct", large).multiplications > 8 * cost("direct", small).multiplications
    assert cost("direct", large).flops > 5 * cost("fft", large).flops


def test_an_unknown_algorithm_is_refused_by_name():
    with pytest.raises(ValueError, match="algorithm is 'magic'; it must be one of direct, im2col"):
        cost("magic", PROBLEMS[0])


def test_every_algorithm_has_its_cost_and_the_least_traffic_is_below_all():
    assert set(COSTS) == set(ALGORITHMS)
    problem = PROBLEMS[1]
    assert all(cost(name, problem).nbytes >= least_bytes(problem) for name in COSTS)
    assert by_group(torch.empty(problem.w_shape), problem).numel() * 4 < least_bytes(problem)
