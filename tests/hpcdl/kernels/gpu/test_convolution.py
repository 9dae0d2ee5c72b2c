"""The registry's GPU kernels in Triton's interpreter: against float64, on odd sizes, between guard bytes."""

import pytest
import torch
from torch.nn.functional import conv2d, unfold

from hpcdl.conv import ALGORITHMS, Problem, prepare

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
    "pairs": (2, 3, 7, 9, 5, 3, 2, (2, 1), (1, 2), 1),
    "pairs in groups": (1, 4, 9, 8, 6, 3, 3, (1, 3), (0, 2), 2),
}


def on_gpu(name: str):
    """An algorithm by its kernels for GPUs, interpreted."""
    return ALGORITHMS[name].interpreted()


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    largest = max(1e-30, float(exact.abs().max())) if exact.numel() else 1.0
    return float((found.double() - exact).abs().max()) / largest if exact.numel() else 0.0


def draw(guards, dtype, *shape):
    x = guards.around(torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype))
    return x, x.double().requires_grad_()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_implicit_product_and_both_gradients(guards, problem, dtype):
    N, C, H, W, K, R, S, stride, padding, groups = problem
    (x, x64), (w, w64) = draw(guards, dtype, N, C, H, W), draw(guards, dtype, K, C // groups, R, S)
    y64 = conv2d(x64, w64, stride=stride, padding=padding, groups=groups)
    dy, dy64 = draw(guards, dtype, *y64.shape)
    options = {"stride": stride, "padding": padding, "groups": groups}
    y = on_gpu("direct")(x.requires_grad_(), w.requires_grad_(), **options)
    y.backward(dy)
    y64.backward(dy64.detach())
    assert (y.dtype, x.grad.dtype, w.grad.dtype) == (dtype, dtype, dtype)
    assert error(y.detach(), y64.detach()) <= LIMIT[dtype]
    assert error(x.grad, x64.grad) <= LIMIT[dtype]
    assert error(w.grad, w64.grad) <= LIMIT[dtype]


def test_the_weight_gradient_adds_many_parts(guards):
    (x, x64), (w, w64) = draw(guards, FP32, 3, 1, 8, 9), draw(guards, FP32, 1, 1, 1, 2)
    y = on_gpu("direct")(x, w.requires_grad_())
    y.sum().backward()
    conv2d(x64, w64).sum().backward()
    parts = [buffer for buffer in guards.buffers if buffer.numel() == 2 * 64 + 8 * 2 * 4]
    assert len(parts) == 1, "the pixels were not split into 8 parts of 2 weights"
    assert error(w.grad, w64.grad) <= LIMIT[FP32]


def test_gradients_that_nobody_asked_for_are_not_computed(guards):
    x, w = draw(guards, FP32, 1, 1, 3, 3)[0], draw(guards, FP32, 1, 1, 2, 2)[0]
    on_gpu("direct")(x, w.requires_grad_()).sum().backward()
    assert x.grad is None
    assert w.grad is not None


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity times the zeros beyond the filters
def test_bfloat16_is_rounded_to_nearest_even(guards):
    """A sum of two is exact in float32: so the result is that sum, rounded as torch rounds it, to the bit."""
    codes = torch.arange(0, 2**16, 97, dtype=torch.int32).to(torch.uint16).view(BF16)
    codes = torch.cat([codes, torch.tensor([float("inf"), -float("inf"), float("nan"), 1.0], dtype=BF16)])
    pair = torch.stack([codes, codes.roll(1) / 64]).view(1, 2, 1, -1)
    y = on_gpu("direct")(guards.around(pair), guards.around(torch.ones(1, 2, 1, 1, dtype=BF16)))
    expected = pair.float().sum(1).to(BF16).flatten()
    assert torch.equal(y.flatten().isnan(), expected.isnan())
    assert torch.equal(y.flatten().nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0))


@pytest.mark.parametrize(
    ("m", "limit"), [(2, {FP32: 2e-6, FP16: 2e-3, BF16: 1e-2}), (4, {FP32: 3e-5, FP16: 8e-3, BF16: 5e-2})]
)
@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.labs  # many seconds in Triton's interpreter
def test_winograd(guards, dtype, m, limit):
    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, 5, 7), draw(guards, dtype, 2, 3, 3, 3)
    y = on_gpu(f"winograd_{m}x{m}")(x.requires_grad_(), w, padding=1)
    y64 = conv2d(x64, w64, padding=1)
    assert y.dtype == dtype
    assert error(y.detach(), y64.detach()) <= limit[dtype]
    dy, dy64 = draw(guards, dtype, *y64.shape)
    y.backward(dy)
    y64.backward(dy64.detach())
    assert error(x.grad, x64.grad) <= 2 * limit[dtype]


@pytest.mark.parametrize("padding", [(0, 1), (2, 1), (3, 0), (1, 4)])
@pytest.mark.parametrize("name", ["winograd_2x2", "winograd_4x4", "toeplitz"])
@pytest.mark.labs  # many seconds in Triton's interpreter
def test_gradients_with_padding_in_pairs(guards, name, padding):
    channels = 1 if name == "toeplitz" else 2
    (x, x64), (w, w64) = draw(guards, FP32, 1, 2, 6, 5), draw(guards, FP32, 2, channels, 3, 3)
    options = {"padding": padding, "groups": 2 // channels}
    y, y64 = on_gpu(name)(x.requires_grad_(), w.requires_grad_(), **options), conv2d(x64, w64, **options)
    dy, dy64 = draw(guards, FP32, *y64.shape)
    y.backward(dy)
    y64.backward(dy64.detach())
    for found, exact in ((y.detach(), y64.detach()), (x.grad, x64.grad), (w.grad, w64.grad)):
        assert error(found, exact) <= 3e-5


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
def test_im2col_and_its_product(guards, dtype):
    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, 6, 7), draw(guards, dtype, 4, 3, 3, 2)
    y = on_gpu("im2col")(x, w, stride=(2, 1), padding=1)
    assert error(y, conv2d(x64, w64, stride=(2, 1), padding=1).detach()) <= LIMIT[dtype]


@pytest.mark.parametrize("name", ["direct", "winograd_2x2"])
@pytest.mark.labs  # many seconds in Triton's interpreter
def test_second_derivatives(guards, name):
    (x, x64), (w, w64) = draw(guards, FP32, 1, 2, 5, 4), draw(guards, FP32, 2, 2, 3, 3)
    found = []
    for convolve, a, b in ((on_gpu(name), x.requires_grad_(), w.requires_grad_()), (conv2d, x64, w64)):
        dx, dw = torch.autograd.grad(convolve(a, b, padding=1).square().sum(), (a, b), create_graph=True)
        found.append(torch.autograd.grad(dx.square().sum() + dw.square().sum(), (a, b)))
    for ours, exact in zip(*found, strict=True):
        assert error(ours, exact) <= 1e-5


def test_winograd_takes_filters_transformed_before(guards):
    (x, x64), (w, w64) = draw(guards, FP32, 1, 2, 3, 4), draw(guards, FP32, 3, 2, 3, 3)
    filters, algorithm = prepare(w), on_gpu("winograd_2x2")
    for _ in range(2):
        assert error(algorithm(x, filters), conv2d(x64, w64).detach()) <= 2e-6
    (transformed,) = filters._made.values()
    assert transformed.shape == (16, 3, 2)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize(
    ("size", "kernel", "padding"), [((9, 37), (7, 7), 3), ((5, 4), (3, 2), 0), ((6, 9), (5, 3), 4)]
)
@pytest.mark.thinned(4)
def test_depthwise(guards, dtype, size, kernel, padding):
    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, *size), draw(guards, dtype, 3, 1, *kernel)
    y = on_gpu("toeplitz")(x, w, padding=padding, groups=3)
    assert error(y, conv2d(x64, w64, padding=padding, groups=3).detach()) <= LIMIT[dtype]


def test_depthwise_31x31_and_its_input_gradient(guards):
    (x, x64), (w, w64) = draw(guards, FP32, 1, 1, 8, 34), draw(guards, FP32, 1, 1, 31, 31)
    y64 = conv2d(x64, w64, padding=15)
    y = on_gpu("toeplitz")(x.requires_grad_(), w, padding=15)
    assert error(y.detach(), y64.detach()) <= LIMIT[FP32]
    y64.backward(x64.detach())
    y.backward(x.detach())
    assert error(x.grad, x64.grad) <= LIMIT[FP32]


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
def test_im2col_is_torchs_unfold(guards, dtype):
    from hpcdl.kernels.gpu.im2col import im2col

    x, _ = draw(guards, dtype, 2, 3, 6, 7)
    found = im2col(x, (3, 2), (3, 4), (2, 2), (1, 1))
    expected = unfold(x.float(), (3, 2), stride=2, padding=1).view(2, 3, 6, -1).permute(0, 3, 2, 1)
    assert torch.equal(found.float(), expected.reshape(found.shape))


@pytest.mark.parametrize("dtype", [FP32, FP16], ids=str)
def test_the_simple_kernel(guards, dtype):
    from hpcdl.kernels.gpu.direct_simple import direct_simple

    (x, x64), (w, w64) = draw(guards, dtype, 2, 3, 7, 6), draw(guards, dtype, 4, 3, 3, 2)
    y = direct_simple(x, w, (4, 4), stride=2, padding=1)
    assert error(y, conv2d(x64, w64, stride=2, padding=1).detach()) <= LIMIT[dtype]


X = torch.zeros(1, 4, 5, 5)
REFUSALS = {
    "dtype": ("direct", X.double(), (2, 4, 3, 3), {}, "it takes torch.float32, torch.float16, torch.bfloat16"),
    "dilation": ("direct", X, (2, 4, 2, 2), {"dilation": 2}, "it can do filters that are not dilated"),
    "groups": ("im2col", X, (2, 2, 3, 3), {"groups": 2}, "it can do one group of filters"),
    "groups of tiles": ("winograd_4x4", X, (2, 2, 3, 3), {"groups": 2}, "on a GPU it can do one group only"),
    "filter": ("winograd_4x4", X, (2, 4, 5, 5), {}, "it can do 3 x 3 filters with stride 1 only"),
    "multiplier": ("toeplitz", X, (8, 1, 3, 3), {"groups": 4}, "it can do one filter for each channel"),
    "stride": ("toeplitz", X, (4, 1, 3, 3), {"groups": 4, "stride": 2}, "with stride 1, not dilated"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_kernels_cannot_do_is_refused_in_words(case):
    name, x, shape, options, words = REFUSALS[case]
    rule = ALGORITHMS[name].limits(Problem.of(x, torch.zeros(shape, dtype=x.dtype), **options), "cuda", x.dtype)
    assert words in rule
    if x.dtype == FP32:
        with pytest.raises(ValueError, match=f"algorithm is '{name}'; .* and this is Problem"):
            on_gpu(name)(x, torch.zeros(shape), **options)


def test_what_is_too_large_to_count_is_refused():
    huge = Problem(1 << 20, 64, 8, 8, 64, 3, 3, padding=1)
    for name in ("direct", "im2col", "winograd_2x2", "winograd_4x4"):
        assert "count to 2^31 elements (here" in ALGORITHMS[name].limits(huge, "cuda")
    windows = Problem(256, 64, 128, 128, 64, 3, 3, padding=1)  # only what is stored between x and y is too large
    assert ALGORITHMS["direct"].limits(windows, "cuda") is None
    assert "2,415,919,104" in ALGORITHMS["im2col"].limits(windows, "cuda")


def test_precisions_that_there_are_not_are_refused(monkeypatch):
    from hpcdl.kernels.gpu.direct import known_precision

    with pytest.raises(ValueError, match="precision is 'tf64'; it is one of fp32, tf32, tf32x3"):
        known_precision("tf64")
    monkeypatch.setattr(torch.version, "hip", "7.0")
    with pytest.raises(ValueError, match="precision 'tf32x3' is for NVIDIA's cards; on AMD's take 'fp32'"):
        known_precision("tf32x3")
