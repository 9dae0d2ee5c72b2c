"""What conv2d refuses and why, what `prepare` keeps, and how "auto" chooses."""

import json
import re

import pytest
import torch
from torch.nn.functional import conv2d as torch_conv2d

from hpcdl.conv import ALGORITHMS, Filters, Problem, auto, calibration, conv2d, prepare, quickest

X, W = torch.randn(2, 4, 6, 7), torch.randn(5, 4, 3, 3)

REFUSED = {
    "x has shape (4, 6, 7); it must have four axes, (N, C, H, W)": (X[0], W, {}),
    "w has shape (4, 3, 3); it must have four axes, (K, C / groups, R, S)": (X, W[0], {}),
    "x has dtype torch.float16; it must be torch.float32 or torch.float64": (X.half(), W.half(), {}),
    "w has dtype torch.int64; it must be torch.float32 or torch.float64": (X, W.long(), {}),
    "w has dtype torch.float64; it must be that of x, torch.float32": (X, W.double(), {}),
    "w has device meta; it must be that of x, cpu": (X, W.to("meta"), {}),
    "w.shape[1] is 4; it must be C / groups, 3 / 1": (X[:, :3], W, {}),
    "padding is -1; it must be an integer from 0": (X, W, {"padding": -1}),
    "padding is (1, 1); it must be an integer from 0": (X, W, {"padding": (1, 1)}),
    "stride is 0; it must be an integer from 1": (X, W, {"stride": 0}),
    "stride is 1.0; it must be an integer from 1": (X, W, {"stride": 1.0}),
    "groups is True; it must be an integer from 1": (X, W, {"groups": True}),
    "C is 4; it must be a multiple of groups, 3": (X, W, {"groups": 3}),
    "K is 5; it must be a multiple of groups, 2": (X, W[:, :2], {"groups": 2}),
    "R is 3; the kernel must fit into the padded image, H + 2 padding = 2": (X[:, :, :2], W, {}),
    "S is 3; the kernel must fit into the padded image, W + 2 padding = 1": (X[..., :1], W, {}),
    "C is 0; it must be an integer from 1": (X[:, :0], W[:, :0], {}),
    "algorithm is 'magic'; it must be \"auto\" or one of direct, im2col,": (X, W, {"algorithm": "magic"}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_arguments_are_refused_with_name_value_and_rule(message):
    x, w, options = REFUSED[message]
    with pytest.raises(ValueError, match=re.escape(message)):
        conv2d(x, w, **options)
    algorithm = options.pop("algorithm", None)
    if not algorithm:
        with pytest.raises(ValueError, match=re.escape(message)):
            ALGORITHMS["direct"](x, w, **options)


@pytest.mark.parametrize("name", ["winograd_2x2", "winograd_4x4"])
@pytest.mark.parametrize(("w", "stride"), [(W, 2), (W[..., :2], 1), (W[:, :, :1, :1], 1)])
def test_winograd_says_what_it_can_do(name, w, stride):
    with pytest.raises(ValueError, match=f"algorithm is '{name}'; it can do 3 x 3 filters with stride 1 only"):
        conv2d(X, w, stride=stride, algorithm=name)


def test_toeplitz_says_how_large_its_matrix_may_be():
    with pytest.raises(ValueError, match=r"algorithm is 'toeplitz'; its matrix may have .* non-zeros"):
        conv2d(torch.empty(1, 64, 224, 224), torch.empty(64, 64, 3, 3), algorithm="toeplitz")


# -- prepared filters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_prepared_filters_are_transformed_once_for_all_batches(name):
    filters, made = prepare(W), []
    make = filters.made
    filters.made = lambda key, function: make(key, lambda w: made.append(key) or function(w))
    for x in (X, X[:1], torch.cat([X, X])):
        y = conv2d(x, filters, padding=1, algorithm=name)
        torch.testing.assert_close(y, torch_conv2d(x, W, padding=1), rtol=1e-4, atol=1e-4)
    assert len(made) == 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_filters_prepared_for_one_problem_are_right_for_another(name):
    filters = prepare(W[:4, :2])
    for shape, options in (((1, 4, 6, 7), {"groups": 2}), ((1, 2, 6, 7), {}), ((2, 2, 5, 5), {"padding": 2})):
        x = torch.randn(shape)
        expected = torch_conv2d(x, W[:4, :2], **options)
        torch.testing.assert_close(conv2d(x, filters, **options, algorithm=name), expected, rtol=1e-4, atol=1e-4)


def test_prepared_filters_are_a_copy_and_get_no_gradient():
    w = W.clone().requires_grad_()
    x = X.clone().requires_grad_()
    filters = prepare(w)
    with torch.no_grad():
        w.zero_()
    y = conv2d(x, filters, algorithm="direct")
    torch.testing.assert_close(y, torch_conv2d(X, W), rtol=1e-5, atol=1e-5)
    y.sum().backward()
    assert x.grad is not None
    assert w.grad is None


def test_weights_changed_before_the_backward_pass_are_noticed():
    w = W.clone().requires_grad_()
    y = conv2d(X, w, algorithm="direct")
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# -- auto --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_only(monkeypatch):
    """`quick_only(name)`: a machine on which this candidate takes no time, and the others take some."""

    def choose(name):
        monkeypatch.setattr(calibration, "rates", lambda dtype, threads: {})
        monkeypatch.setattr(auto, "predict", lambda candidate, situation, rates: float(candidate != name))
        auto.choose.cache_clear()

    yield choose
    auto.choose.cache_clear()


@pytest.mark.parametrize("name", sorted({*auto.TORCH, *auto.WANT_CHANNELS_LAST}))
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_auto_takes_what_the_model_says(quick_only, name, layout):
    quick_only(name)
    x = X.contiguous(memory_format=layout).requires_grad_()
    w = W.clone().requires_grad_()
    assert quickest(x, w, Problem.of(x, w, padding=1)) == name
    y, expected = conv2d(x, w, padding=1), torch_conv2d(x, w, padding=1)
    assert y.is_contiguous(memory_format=layout)
    pairs = (*torch.autograd.grad(y.sum(), (x, w)), y), (*torch.autograd.grad(expected.sum(), (x, w)), expected)
    for found, right in zip(*pairs, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def test_candidates_are_those_that_can_do_it():
    assert "winograd_4x4" in auto.candidates(Problem(1, 64, 9, 9, 64, 3, 3, groups=2))
    for problem in (Problem(1, 4, 9, 9, 4, 3, 3, stride=2), Problem(1, 4, 9, 9, 4, 3, 3, groups=4)):
        names = auto.candidates(problem)
        assert set(auto.TORCH) <= set(names)
        assert not any(name in ALGORITHMS and ALGORITHMS[name].limits(problem) for name in names)


def test_an_empty_batch_needs_no_choice(quick_only):
    quick_only("winograd_4x4")
    assert quickest(X[:0], W, Problem.of(X[:0], W)) == "torch"
    assert conv2d(X[:0], W).shape == (0, 5, 4, 5)


SAMPLES = (Problem(2, 16, 12, 12, 16, 3, 3, padding=1), Problem(1, 8, 20, 20, 16, 5, 5), Problem(1, 16, 6, 6, 32, 1, 1))


def test_rates_are_measured_and_explain_the_samples():
    state = torch.get_rng_state()
    rates = calibration.calibrate(torch.float32, SAMPLES, seconds=0.01)
    assert torch.equal(torch.get_rng_state(), state)
    assert set(rates) == set(auto.candidates(SAMPLES[0]))
    assert all(rate >= 0 for part in rates.values() for rate in part)
    situation = auto.Situation(SAMPLES[0], torch.float32, True, True, torch.get_num_threads())
    assert all(auto.predict(name, situation, rates) > 0 for name in rates)


def test_the_fit_finds_the_rates_of_a_machine_that_keeps_to_the_model():
    truth = [2e-6, 3e-9, 1e-11]
    works = [(1.0, 100.0, 1e6), (1.0, 1e5, 1e4), (1.0, 1e3, 1e8), (1.0, 0.0, 1e5)]
    measured = [(work, sum(rate * amount for rate, amount in zip(truth, work, strict=True))) for work in works]
    assert calibration._fit(measured) == pytest.approx(truth)


def test_rates_are_kept_for_the_next_process_and_measured_again_for_another_torch(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    monkeypatch.setattr(calibration, "calibrate", lambda dtype: measured.append(dtype) or {"torch": [1.0]})
    fresh = calibration.rates.__wrapped__  # without this process's memory
    assert fresh(torch.float32, 2) == fresh(torch.float32, 2) == {"torch": [1.0]}
    assert len(measured) == 1
    fresh(torch.float32, 1)
    fresh(torch.float64, 2)
    monkeypatch.setattr(torch, "__version__", "9.9")
    fresh(torch.float32, 2)
    assert len(measured) == 4
    assert len(json.loads((tmp_path / "convolution.json").read_text())) == 4


def test_a_damaged_or_forbidden_cache_costs_a_measurement_only(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "calibrate", lambda dtype: {"torch": [2.0]})
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    (tmp_path / "convolution.json").write_text("{")
    assert calibration.rates.__wrapped__(torch.float32, 2) == {"torch": [2.0]}
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path / "convolution.json" / "no folder"))
    assert calibration.rates.__wrapped__(torch.float32, 2) == {"torch": [2.0]}


def test_filters_make_each_transform_once():
    filters = Filters(W)
    assert filters.made("sum", torch.sum) is filters.made("sum", torch.sum)
