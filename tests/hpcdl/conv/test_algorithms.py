"""Every algorithm computes what torch computes in float64: results, gradients, awkward shapes, both memory formats."""

import itertools

import numba
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import conv2d as torch_conv2d

from hpcdl.conv import ALGORITHMS, Problem
from hpcdl.conv.direct import by_definition
from hpcdl.kernels.cpu import threads as pool

# Errors against float64, relative to the largest value.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}
FOUR_BY_FOUR = {torch.float32: 3e-5, torch.float64: 2e-13}
SHAPES = {  # N, C, H, W, K, R, S, groups
    "square": (2, 3, 8, 8, 4, 3, 3, 1),
    "wide": (2, 20, 9, 14, 37, 3, 3, 1),
    "1x1": (3, 5, 6, 7, 4, 1, 1, 1),
    "rectangular": (1, 3, 7, 10, 5, 2, 5, 1),
    "as large as the image": (2, 4, 5, 6, 3, 5, 6, 1),
    "one pixel": (1, 1, 3, 3, 1, 3, 3, 1),
    "two groups": (2, 4, 7, 6, 6, 3, 3, 2),
    "depthwise": (2, 6, 9, 8, 6, 3, 3, 6),
    "large kernel": (1, 2, 11, 12, 3, 9, 7, 1),
    "empty batch": (0, 4, 8, 8, 4, 3, 3, 1),
}
PROBLEMS = {
    f"{name}, stride {stride}, padding {padding}": Problem(*shape[:-1], stride, padding, shape[-1])
    for (name, shape), stride, padding in itertools.product(SHAPES.items(), (1, 2, 3), (0, 1, 3))
}
GRID = [
    pytest.param(algorithm, problem, dtype, id=f"{algorithm.name}, {name}, {dtype}")
    for algorithm in ALGORITHMS.values()
    for name, problem in PROBLEMS.items()
    for dtype in (torch.float32, torch.float64)
    if not algorithm.limits(problem)
]


def tensors(problem, dtype, layout=torch.contiguous_format):
    generator = torch.Generator().manual_seed(problem.H + 10 * problem.stride + 100 * problem.padding)
    x = torch.randn(problem.x_shape, generator=generator, dtype=dtype).contiguous(memory_format=layout)
    w = torch.randn(problem.w_shape, generator=generator, dtype=dtype)
    dy = torch.randn(problem.y_shape, generator=generator, dtype=dtype)
    return x.requires_grad_(), w.requires_grad_(), dy


def options(problem):
    return {"stride": problem.stride, "padding": problem.padding, "groups": problem.groups}


def oracle(x, w, dy, problem):
    """Result and gradients by torch in float64."""
    x, w = (tensor.detach().double().requires_grad_() for tensor in (x, w))
    y = torch_conv2d(x, w, **options(problem))
    return y, *torch.autograd.grad(y, (x, w), dy.double())


def error(found, expected):
    """The largest difference, relative to the largest value, or to 1, about which all data are."""
    if not expected.numel():
        return 0.0 if found.shape == expected.shape else float("inf")
    return ((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1)).item()


def tolerance(algorithm, dtype):
    return (FOUR_BY_FOUR if algorithm.name == "winograd_4x4" else TOLERANCE)[dtype]


def test_the_grid_is_large():
    assert len(GRID) >= 300


@pytest.mark.parametrize(("algorithm", "problem", "dtype"), GRID)
def test_results_and_gradients_are_those_of_torch_in_float64(algorithm, problem, dtype):
    x, w, dy = tensors(problem, dtype)
    y = algorithm(x, w, **options(problem))
    assert (y.shape, y.dtype) == (problem.y_shape, dtype)
    for found, expected in zip((y, *torch.autograd.grad(y, (x, w), dy)), oracle(x, w, dy, problem), strict=True):
        assert error(found, expected) <= tolerance(algorithm, dtype)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_plain_versions_compute_the_same(problem):
    x, w, dy = tensors(problem, torch.float64)
    expected = oracle(x, w, dy, problem)[0]
    for algorithm in ALGORITHMS.values():
        if not algorithm.limits(problem):
            assert error(algorithm.plain(x, w, problem), expected) <= 1e-13, algorithm.name


@pytest.mark.parametrize("stride", [1, 2])
def test_the_definition_is_torchs(stride):
    problem = Problem(1, 4, 4, 5, 4, 3, 2, stride, 1, 2)
    x, w, dy = tensors(problem, torch.float64)
    assert error(by_definition(x.detach(), w.detach(), problem), oracle(x, w, dy, problem)[0]) <= 1e-14


problems = st.builds(
    lambda n, g, c, k, h, w, r, s, stride, padding: Problem(
        n, g * c, max(1, r - 2 * padding) + h, max(1, s - 2 * padding) + w, g * k, r, s, stride, padding, g
    ),
    *(st.integers(*bounds) for bounds in ((0, 10), (1, 3), (1, 20), (1, 40), (0, 12), (0, 12), (1, 6), (1, 6))),
    st.integers(1, 3),
    st.integers(0, 6),
)


@pytest.mark.labs  # properties; the table of problems is in the first tier
@given(problems, st.sampled_from(list(ALGORITHMS.values())), st.sampled_from([torch.float32, torch.float64]))
def test_any_problem(problem, algorithm, dtype):
    if algorithm.limits(problem):
        return
    x, w, dy = tensors(problem, dtype, torch.channels_last)
    y = algorithm(x, w, **options(problem))
    for found, expected in zip((y, *torch.autograd.grad(y, (x, w), dy)), oracle(x, w, dy, problem), strict=True):
        assert error(found, expected) <= 2 * tolerance(algorithm, dtype)


@pytest.mark.labs  # properties; the table of problems is in the first tier
@given(problems, st.sampled_from(["winograd_2x2", "winograd_4x4"]))
def test_any_problem_that_winograd_can_do(problem, name):
    border = max(problem.padding, 1)
    problem = Problem(*problem.x_shape, problem.K, 3, 3, 1, border, problem.groups)
    x, w, dy = tensors(problem, torch.float64)
    y = ALGORITHMS[name](x, w, **options(problem))
    for found, expected in zip((y, *torch.autograd.grad(y, (x, w), dy)), oracle(x, w, dy, problem), strict=True):
        assert error(found, expected) <= 2 * FOUR_BY_FOUR[torch.float64]


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_are_differences(algorithm, groups):
    problem = Problem(1, 2, 4, 3, 2, 3, 3, 1, 1, groups)
    x, w, _ = tensors(problem, torch.float64)
    assert torch.autograd.gradcheck(lambda x, w: algorithm(x, w, **options(problem)), (x, w))


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_result_has_the_memory_format_of_the_image(algorithm, layout):
    problem = Problem(2, 4, 6, 7, 5, 3, 3, padding=1)
    x, w, _ = tensors(problem, torch.float32, layout)
    y = algorithm(x, w, padding=1)
    assert y.is_contiguous(memory_format=layout)
    assert y.stride() == torch_conv2d(x, w, padding=1).stride()


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_strided_views_and_expanded_gradients_are_taken_as_they_are(algorithm):
    problem = Problem(2, 4, 6, 7, 5, 3, 3, padding=1)
    wide = torch.randn(2, 6, 7, 8, dtype=torch.float64).permute(0, 3, 1, 2)[:, ::2]
    w = torch.randn(3, 3, 4, 5, dtype=torch.float64).permute(3, 2, 0, 1)
    x, w = wide.requires_grad_(), w.requires_grad_()
    y = algorithm(x, w, padding=1)
    ones = torch.ones(()).double().expand(problem.y_shape)
    for found, expected in zip((y, *torch.autograd.grad(y.sum(), (x, w))), oracle(x, w, ones, problem), strict=True):
        assert error(found, expected) <= 2e-13


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_without_openmp_the_caller_does_all(algorithm, monkeypatch):
    problem = Problem(3, 40, 18, 17, 36, 3, 3, padding=1)
    x, w, dy = tensors(problem, torch.float64)
    monkeypatch.setattr(pool, "_gomp_parallel", lambda: None)
    assert error(algorithm(x, w, padding=1), oracle(x, w, dy, problem)[0]) <= 2e-13


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_one_thread_and_two_find_the_same_bits(algorithm):
    problem = Problem(3, 48, 18, 17, 40, 3, 3, padding=1)
    x, w, _ = tensors(problem, torch.float32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(algorithm(x, w, padding=1))
    finally:
        torch.set_num_threads(threads)
    assert error(*results) <= (0 if algorithm.name not in ("im2col", "fft") else 1e-6)


def test_kernels_compile_where_nothing_can_be_kept(monkeypatch):
    compile_, asked = numba.cfunc, []

    def cfunc(signature, cache=False):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_(signature)

    monkeypatch.setattr(numba, "cfunc", cfunc)
    assert pool.compiled.__wrapped__(nothing).address
    assert asked == [True, False]


def nothing(job):
    """A kernel without tasks."""
