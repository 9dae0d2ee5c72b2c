"""The arguments of torch's conv2d: every way to give them, results and gradients as torch has them."""

import itertools

import pytest
import torch
from torch.nn.functional import conv2d as torch_conv2d

from hpcdl.conv import ALGORITHMS, Problem, conv2d, prepare

STRIDES = (1, 2, (1, 2), [2, 1])
PADDINGS = (0, 1, (1, 2), [3, 0], "same", "valid")
DILATIONS = (1, 2, (1, 2))
CHANNELS = {  # groups, C, K, R, S
    "one group": (1, 3, 4, 3, 3),
    "two groups": (2, 4, 6, 3, 3),
    "depthwise": (4, 4, 4, 3, 3),
    "even kernel": (1, 3, 5, 2, 4),
}
CALLS = [
    pytest.param(channels, {"stride": stride, "padding": padding, "dilation": dilation}, id=f"{channels} {i}")
    for i, (channels, stride, padding, dilation) in enumerate(itertools.product(CHANNELS, STRIDES, PADDINGS, DILATIONS))
    if padding != "same" or stride == 1
]
ignore_torchs_copy = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


def tensors(channels: str):
    groups, C, K, R, S = CHANNELS[channels]
    generator = torch.Generator().manual_seed(0)
    shapes = (2, C, 9, 11), (K, C // groups, R, S), (K,)
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes], groups


def with_gradients(convolve, inputs, options):
    y = convolve(*inputs, **options)
    dy = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return y.detach(), *torch.autograd.grad(y, inputs, dy)


@pytest.mark.thinned(6, 4)
@ignore_torchs_copy
@pytest.mark.parametrize(("channels", "options"), CALLS)
def test_every_algorithm_takes_torchs_arguments(channels, options):
    inputs, groups = tensors(channels)
    options = options | {"groups": groups}
    expected = with_gradients(torch_conv2d, inputs, options)
    done = []
    for name, algorithm in ALGORITHMS.items():
        try:
            found = with_gradients(algorithm, inputs, options)
        except ValueError:
            if name.startswith("winograd"):  # it is for a few problems only, and says so
                continue
            raise
        done.append(name)
        for ours, torchs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")
    assert {"direct", "im2col", "toeplitz", "fft"} <= set(done)


@ignore_torchs_copy
@pytest.mark.parametrize("options", [{"padding": "same"}, {"padding": 2, "dilation": 2}, {"stride": (2, 1)}])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_layouts_plain_forms_and_prepared_filters_too(options, layout):
    (x, w, bias), _ = tensors("even kernel")
    x = x.detach().contiguous(memory_format=layout)
    expected = torch_conv2d(x, w, bias, **options)
    for name in ("direct", "im2col", "toeplitz", "fft"):
        y = conv2d(x, prepare(w), bias, **options, algorithm=name)
        assert y.is_contiguous(memory_format=layout)
        torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    if options.get("padding") != "same":
        problem = Problem.of(x, w, **options)
        for name in ("direct", "im2col", "toeplitz", "fft"):
            y = ALGORITHMS[name].plain(x, w, problem)
            torch.testing.assert_close(y, expected - bias[:, None, None], rtol=1e-10, atol=1e-10)


def test_arguments_in_order_are_torchs():
    (x, w, bias), groups = tensors("two groups")
    order = bias, 2, (1, 0), (1, 2), groups
    torch.testing.assert_close(conv2d(x, w, *order, algorithm="direct"), torch_conv2d(x, w, *order))


def test_a_problem_with_equal_pairs_is_the_same_problem():
    one = Problem(1, 2, 8, 8, 2, 3, 3, stride=2, padding=1, dilation=2)
    assert Problem(1, 2, 8, 8, 2, 3, 3, stride=(2, 2), padding=[1, 1], dilation=(2, 2)) == one
    assert (one.stride, one.strides, one.paddings, one.dilations, one.reach) == (2, (2, 2), (1, 1), (2, 2), (5, 5))
    assert one.y_shape == (1, 2, 3, 3)


# -- derivatives of any order ------------------------------------------------------------------------------------------


def second(convolve, x, w, **options):
    """Derivatives of the squared gradients: what a penalty on gradients needs."""
    dx, dw = torch.autograd.grad(convolve(x, w, **options).square().sum(), (x, w), create_graph=True)
    return torch.autograd.grad(dx.square().sum() + dw.square().sum(), (x, w))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_second_derivatives_are_differences(name):
    generator = torch.Generator().manual_seed(1)
    x, w = (
        torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in ((1, 2, 4, 3), (2, 1, 3, 3))
    )
    assert torch.autograd.gradgradcheck(lambda x, w: ALGORITHMS[name](x, w, padding=1, groups=2), (x, w))


@pytest.mark.labs
@pytest.mark.thinned(1, 4)
@pytest.mark.parametrize("name", [*ALGORITHMS, "torch", "torch_channels_last"])
def test_second_derivatives_do_not_depend_on_what_auto_chooses(name, monkeypatch):
    monkeypatch.setattr("hpcdl.conv.choose", lambda situation: name)
    (x, w, _), _ = tensors("one group")
    for ours, torchs in zip(second(conv2d, x, w, padding=1), second(torch_conv2d, x, w, padding=1), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-8, atol=1e-8)


def test_an_empty_batch_has_second_derivatives_too():
    (x, w, _), _ = tensors("one group")
    x = x.detach()[:0].requires_grad_()
    assert [g.abs().sum().item() for g in second(ALGORITHMS["direct"], x, w)] == [0.0, 0.0]


def test_choices_are_made_for_the_problem_that_the_arguments_make(monkeypatch):
    seen = []
    monkeypatch.setattr("hpcdl.conv.choose", lambda situation: seen.append(situation.problem) or "torch")
    monkeypatch.setattr("hpcdl.conv.experience.note", lambda *call: None)  # it would measure the machine's rates
    (x, w, _), _ = tensors("one group")
    conv2d(x, w, padding="same", dilation=2)
    assert seen == [Problem(2, 3, 9, 11, 4, 3, 3, padding=2, dilation=2)]
