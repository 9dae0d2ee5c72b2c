"""Convolution kernels by Triton's interpreter: against float64, on odd sizes, between guard bytes."""

import pytest
import torch
from torch.nn.functional import conv2d, unfold

from hpcdl import kernels

pytestmark = pytest.mark.usefixtures("interpreter")

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
LIMIT = {FP32: 1e-6, FP16: 1e-3, BF16: 4e-3}  # of the largest value: twice the rounding of the result, or sums in fp32
# N, C, H, W, K, R, S, stride, padding, groups
PROBLEMS = {
    "odd": (2, 3, 7, 9, 5, 3, 2, 2, 1, 1),
    "groups": (1, 4, 5, 6, 6, 3, 3, 1, 1, 2),
    "1x1 between pixels": (1, 2, 5, 6, 3, 1, 1, 2, 0, 1),
    "stride as wide as the filter": (1, 2, 9, 8, 3, 3, 3, 3, 2, 1),
    "filter as large as the image": (2, 3, 4, 5, 2, 4, 5, 1, 0, 1),
    "more channels than a block": (1, 19, 3, 3, 18, 2, 2, 1, 1, 1),
    "no image": (0, 2, 5, 5, 3, 3, 3, 1, 1, 1),
}


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    largest = max(1e-30, float(exact.abs().max())) if exact.numel() else 1.0
    return float((found.double() - exact).abs().max()) / largest if exact.numel() else 0.0


def draw(guards, dtype, *shape):
    x = guards.around(torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype))
    return x, x.double().requires_grad_()


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_implicit_product_and_both_gradients(guards, problem, dtype):
    N, C, H, W, K, R, S, stride, padding, groups = problem
    (x, x64), (w, w64) = draw(guards, dtype, N, C, H, W), draw(guards, dtype, K, C // groups, R, S)
    y64 = conv2d(x64, w64, stride=stride, padding=padding, groups=groups)
    dy, dy64 = draw(guards, dtype, *y64.shape)
    y = kernels.conv2d_implicit(x.requires_grad_(), w.requires_grad_(), stride, padding, groups)
    y.backward(dy)
    y64.backward(dy64.detach())
    assert (y.dtype, x.grad.dtype, w.grad.dtype) == (dtype, dtype, dtype)
    assert error(y.detach(), y64.detach()) <= LIMIT[dtype]
    assert error(x.grad, x64.grad) <= LIMIT[dtype]
    assert error(w.grad, w64.grad) <= LIMIT[dtype]


def test_the_weight_gradient_adds_many_parts(guards):
    (x, x64), (w, w64) = draw(guards, FP32, 3, 1, 8, 9), draw(guards, FP32, 1, 1, 1, 2)
    y = kernels.conv2d_implicit(x, w.requires_grad_())
    y.sum().backward()
    conv2d(x64, w64).sum().backward()
    parts = [buffer for buffer in guards.buffers if buffer.numel() == 2 * 64 + 8 * 2 * 4]
    assert len(parts) == 1, "the pixels were not split into 8 parts of 2 weights"
    assert error(w.grad, w64.grad) <= LIMIT[FP32]


def test_gradients_that_nobody_asked_for_are_not_computed(guards):
    x, w = draw(guards, FP32, 1, 1, 3, 3)[0], draw(guards, FP32, 1, 1, 2, 2)[0]
    kernels.conv2d_implicit(x, w.requires_grad_()).sum().backward()
    assert x.grad is None
    assert w.grad is not None


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity times the zeros beyond the filters
def test_bfloat16_is_rounded_to_nearest_even(guards):
    """A sum of two is exact in float32: so the result is that sum, rounded as torch rounds it, to the bit."""
    codes = torch.arange(0, 2**16, 97, dtype=torch.int32).to(torch.uint16).view(BF16)
    codes = torch.cat([codes, torch.tensor([float("inf"), -float("inf"), float("nan"), 1.0], dtype=BF16)])
    pair = torch.stack([codes, codes.roll(1) / 64]).view(1, 2, 1, -1)
    y = kernels.conv2d_implicit(guards.around(pair), guards.around(torch.ones(1, 2, 1, 1, dtype=BF16)))
    expected = pair.float().sum(1).to(BF16).flatten()
    assert torch.equal(y.flatten().isnan(), expected.isnan())
    assert torch.equal(y.flatten().nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0))


@pytest.mark.parametrize(
    ("m", "limit"), [(2, {FP32: 2e-6, FP16: 2e-3, BF16: 1e-2}), (4, {FP32: 3e-5, FP16: 8e-3, BF16: 5e-2})]
)
@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
def test_winograd(guards, dtype, m, limit):
    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, 5, 7), draw(guards, dtype, 2, 3, 3, 3)
    y = kernels.conv2d_winograd(x, w, padding=1, m=m)
    assert y.dtype == dtype
    assert error(y, conv2d(x64, w64, padding=1).detach()) <= limit[dtype]


def test_winograd_takes_filters_transformed_before(guards):
    (x, x64), (w, w64) = draw(guards, FP32, 1, 2, 3, 4), draw(guards, FP32, 3, 2, 3, 3)
    filters = kernels.winograd_filters(w, 2)
    assert filters.shape == (16, 3, 2)
    assert error(kernels.conv2d_winograd(x, w, m=2, filters=filters), conv2d(x64, w64).detach()) <= 2e-6


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize(
    ("size", "kernel", "padding"), [((9, 37), (7, 7), 3), ((5, 4), (3, 2), 0), ((6, 9), (5, 3), 4)]
)
def test_depthwise(guards, dtype, size, kernel, padding):
    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, *size), draw(guards, dtype, 3, 1, *kernel)
    y = kernels.conv2d_depthwise(x, w, padding)
    assert error(y, conv2d(x64, w64, padding=padding, groups=3).detach()) <= LIMIT[dtype]


def test_depthwise_31x31_and_its_input_gradient(guards):
    (x, x64), (w, w64) = draw(guards, FP32, 1, 1, 8, 34), draw(guards, FP32, 1, 1, 31, 31)
    y64 = conv2d(x64, w64, padding=15)
    assert error(kernels.conv2d_depthwise(x, w, 15), y64.detach()) <= LIMIT[FP32]
    y64.backward(x64.detach())
    assert error(kernels.conv2d_depthwise(x, w.flip(2, 3), 15), x64.grad) <= LIMIT[FP32]


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
def test_im2col_is_torchs_unfold(guards, dtype):
    x, _ = draw(guards, dtype, 2, 3, 6, 7)
    found = kernels.im2col(x, 3, 2, stride=2, padding=1)
    expected = unfold(x.float(), (3, 2), stride=2, padding=1).view(2, 3, 6, -1).permute(0, 3, 2, 1)
    assert torch.equal(found.float(), expected.reshape(found.shape))


@pytest.mark.parametrize("dtype", [FP32, FP16], ids=str)
def test_the_simple_kernel(guards, dtype):
    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, 7, 6), draw(guards, dtype, 4, 3, 3, 2)
    y = kernels.conv2d_simple(x, w, stride=2, padding=1)
    assert error(y, conv2d(x64, w64, stride=2, padding=1).detach()) <= LIMIT[dtype]


X = torch.zeros(1, 4, 5, 5)
REFUSALS = {
    "dimensions": (lambda: kernels.conv2d_implicit(X[0], torch.zeros(2, 4, 3, 3)), "x has shape (4, 5, 5); it needs 4"),
    "channels": (lambda: kernels.conv2d_implicit(X, torch.zeros(2, 3, 3, 3)), "x has 4 channels, w (2, 3, 3, 3)"),
    "groups": (lambda: kernels.conv2d_implicit(X, torch.zeros(3, 2, 3, 3), groups=2), "the groups must divide"),
    "stride": (lambda: kernels.conv2d_implicit(X, torch.zeros(2, 4, 3, 3), stride=0), "stride is 0"),
    "no number": (lambda: kernels.conv2d_implicit(X, torch.zeros(2, 4, 3, 3), stride=True), "stride is True"),
    "padding": (lambda: kernels.conv2d_implicit(X, torch.zeros(2, 4, 3, 3), padding=-1), "padding is -1"),
    "too large": (
        lambda: kernels.conv2d_implicit(X, torch.zeros(2, 4, 7, 3), padding=0),
        "filters of 7 x 3 do not fit",
    ),
    "dtype": (lambda: kernels.conv2d_implicit(X.double(), torch.zeros(2, 4, 3, 3).double()), "torch.float64"),
    "mix": (lambda: kernels.conv2d_implicit(X, torch.zeros(2, 4, 3, 3).half()), "they must agree"),
    "precision": (
        lambda: kernels.conv2d_implicit(X, torch.zeros(2, 4, 3, 3), precision="tf64"),
        "'tf64'; it is one of",
    ),
    "tile": (lambda: kernels.conv2d_winograd(X, torch.zeros(2, 4, 3, 3), m=3), "m is 3; tiles are of m = 2 or 4"),
    "prepared": (
        lambda: kernels.conv2d_winograd(X, torch.zeros(2, 4, 3, 3), m=2, filters=torch.zeros(36, 2, 4)),
        "filters has shape (36, 2, 4); it must be (16, 2, 4)",
    ),
    "filter": (lambda: kernels.conv2d_winograd(X, torch.zeros(2, 4, 5, 5)), "filters (K, C, 3, 3)"),
    "multiplier": (lambda: kernels.conv2d_depthwise(X, torch.zeros(8, 1, 3, 3)), "it takes one for each"),
    "bfloat16": (lambda: kernels.conv2d_simple(X.bfloat16(), torch.zeros(2, 4, 3, 3).bfloat16()), "float16"),
    "no window": (lambda: kernels.im2col(X, 6, 1), "filters of 6 x 1 do not fit into 5 x 5"),
}


def test_what_amd_cannot_multiply_is_refused(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    with pytest.raises(ValueError, match="precision 'tf32x3' is for NVIDIA's cards; on AMD's take 'fp32'"):
        kernels.conv2d_implicit(X, torch.zeros(2, 4, 3, 3), precision="tf32x3")


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_done_is_refused_in_words(case):
    call, words = REFUSALS[case]
    with pytest.raises(ValueError, match=r"^\w+: ") as refusal:
        call()
    assert words in str(refusal.value)
