"""Eight bits: torch's casts and products do what the rounding says, gradients are near, and a network learns."""

import pytest
import torch
from torch import nn

from hpcdl.data import digits
from hpcdl.numerics.rounding import FP8_E4M3, FP8_E5M2, FP16, round_nearest
from hpcdl.training import Momentum
from hpcdl.training.fp8 import FP8Linear, multiply, quantize, scale_for, to_fp8, vanished

FORMATS = pytest.mark.parametrize("fmt", [FP8_E4M3, FP8_E5M2], ids=str)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g) * 10 ** (6 * torch.rand(shape, generator=g) - 4)


@FORMATS
@pytest.mark.parametrize("size", [1e-20, 3e-4, 1.0, 448.0, 449.0, 57344.0, 1e9])
def test_the_scale_is_the_largest_power_of_two_that_fits(fmt, size):
    x = torch.tensor([0.0, -size, size / 3])
    scale = scale_for(x, fmt).item()
    assert torch.log2(torch.tensor(scale)).item().is_integer()
    assert size * scale <= fmt.max * (1 + 1e-6)
    assert 2 * size * scale > fmt.max * (1 - 1e-6)


@FORMATS
def test_tensors_without_a_largest_number_have_scale_1(fmt):
    for x in (torch.zeros(3), torch.zeros(0), torch.tensor([1.0, float("inf")]), torch.tensor([float("nan")])):
        assert scale_for(x, fmt).item() == 1.0


@FORMATS
def test_torchs_cast_gives_the_bits_of_the_rounding(fmt):
    x = torch.cat([numbers(20_000), torch.arange(-449, 449) / 2, torch.tensor([0.0, -0.0])])
    ours, native = quantize(x, fmt, native=False), quantize(x, fmt, native=True)
    assert torch.equal(ours.values.view(torch.uint8), native.values.view(torch.uint8))
    assert ours.scale == native.scale
    assert torch.equal(ours.float(), round_nearest(x * ours.scale, fmt) / ours.scale)


@pytest.mark.parametrize("left", [FP8_E4M3, FP8_E5M2], ids=str)
@pytest.mark.parametrize("sides", [(32, 48, 16), (3, 5, 7)], ids=["suits", "does not suit"])
def test_torchs_product_is_that_of_the_numbers(left, sides):
    m, n, k = sides
    a, b = quantize(numbers(m, k), left), quantize(numbers(n, k, seed=1))
    exact = a.float().double() @ b.float().double().t()
    bound = 1e-5 * (a.float().abs() @ b.float().abs().t())
    for native in (False, True):
        assert ((multiply(a, b, native) - exact).abs() <= bound).all()


def test_forward_and_backward_are_the_products_of_rounded_numbers():
    layer, x = FP8Linear(24, 8), numbers(2, 5, 24).requires_grad_()
    y = layer(x)
    g = numbers(2, 5, 8, seed=3)
    y.backward(g)
    x8, w8 = quantize(x).float().view(10, 24), quantize(layer.weight).float()
    g8 = quantize(g, FP8_E5M2).float().view(10, 8)
    torch.testing.assert_close(y, (x8 @ w8.t() + layer.bias).view(2, 5, 8))
    torch.testing.assert_close(x.grad, (g8 @ w8).view(2, 5, 24))
    torch.testing.assert_close(layer.weight.grad, g8.t() @ x8)
    torch.testing.assert_close(layer.bias.grad, g.sum((0, 1)))


def test_a_model_keeps_its_parameters_and_other_layers():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 2, bias=False)))
    before = list(model.parameters())
    assert to_fp8(model) is model
    assert all(ours is theirs for ours, theirs in zip(model.parameters(), before, strict=True))
    assert isinstance(model[0], FP8Linear)
    assert isinstance(model[2][0], FP8Linear)
    assert model[2][0].bias is None
    assert isinstance(to_fp8(nn.Linear(2, 2)), FP8Linear)
    with pytest.raises(TypeError, match=r"torch\.float16.*\.float\(\)"):
        to_fp8(nn.Linear(2, 2).half())


@pytest.mark.labs  # 100 steps, each with nine tensors rounded in float64
def test_a_network_learns_the_digits_in_eight_bits():
    data = digits()
    torch.manual_seed(0)
    model = to_fp8(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = Momentum(model.parameters(), lr=0.1)
    for step in range(100):
        rows = torch.arange(step * 32, step * 32 + 32) % len(data.y)
        model.zero_grad()
        nn.functional.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
        optimizer.step()
    right = (model(data.x_held_out).argmax(1) == data.y_held_out).float().mean().item()
    assert right > 0.9


def test_a_scale_of_its_own_keeps_small_gradients():
    gradients = 1e-9 * 10 ** -torch.linspace(0, 12, 1000)
    assert vanished(gradients, FP8_E5M2, scale=1.0) == 1
    shares = [vanished(gradients, fmt) for fmt in (FP8_E4M3, FP8_E5M2, FP16)]
    decades = [
        torch.log10(torch.tensor(2.0 * fmt.max / 2.0**fmt.min_exponent * 2**fmt.mantissa_bits))
        for fmt in (FP8_E4M3, FP8_E5M2, FP16)
    ]
    assert shares == pytest.approx([max(0.0, 1 - reach.item() / 12) for reach in decades], abs=0.03)


@pytest.mark.gpu
def test_a_gpu_does_what_the_processor_does(need):
    need("gpu", torch.cuda.is_available(), "torch's float8 on a card")
    x, w = numbers(64, 32), numbers(16, 32, seed=1)
    for fmt in (FP8_E4M3, FP8_E5M2):
        assert torch.equal(
            quantize(x.cuda(), fmt).values.cpu().view(torch.uint8), quantize(x, fmt).values.view(torch.uint8)
        )
    found, exact = multiply(quantize(x.cuda()), quantize(w.cuda())).cpu(), multiply(quantize(x), quantize(w))
    most = quantize(x).float().abs() @ quantize(w).float().abs().t()
    assert ((found - exact).abs() / most).max() < 2**-9  # a card's 8-bit units sum with some 14 bits
