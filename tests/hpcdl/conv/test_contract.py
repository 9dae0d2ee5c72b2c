"""What conv2d refuses and why, what `prepare` keeps, and how "auto" chooses."""

import json
import math
import re

import pytest
import torch
from torch.nn.functional import conv2d as torch_conv2d

from hpcdl.conv import ALGORITHMS, Filters, Problem, auto, calibration, conv2d, model, prepare, quickest

X, W = torch.randn(2, 4, 6, 7), torch.randn(5, 4, 3, 3)

REFUSED = {
    "x has shape (4, 6, 7); it must have four axes, (N, C, H, W)": (X[0], W, {}),
    "w has shape (4, 3, 3); it must have four axes, (K, C / groups, R, S)": (X, W[0], {}),
    "x has dtype torch.int64; it must be one of torch.float32, torch.float64,": (X.long(), W.long(), {}),
    "w has dtype torch.int64; it must be one of torch.float32, torch.float64,": (X, W.long(), {}),
    "w has dtype torch.float64; it must be that of x, torch.float32": (X, W.double(), {}),
    "w has device meta; it must be that of x, cpu": (X, W.to("meta"), {}),
    "w.shape[1] is 4; it must be C / groups, 3 / 1": (X[:, :3], W, {}),
    "padding is -1; it must be an integer from 0": (X, W, {"padding": -1}),
    "padding is (1, 1, 1); it must be an integer from 0, or a pair": (X, W, {"padding": (1, 1, 1)}),
    "padding is [0, -1]; it must be an integer from 0, or a pair": (X, W, {"padding": [0, -1]}),
    'padding is "same" and stride is (1, 2); "same" is for stride 1': (X, W, {"padding": "same", "stride": (1, 2)}),
    'padding is \'full\'; it must be "same", "valid", an integer': (X, W, {"padding": "full"}),
    "dilation is 0; it must be an integer from 1, or a pair": (X, W, {"dilation": 0}),
    "R is 3 and reaches over 7 pixels with dilation 3; the kernel must fit": (X, W, {"dilation": 3}),
    "bias has shape (4,); it must be (K,), (5,)": (X, W, {"bias": torch.zeros(4)}),
    "bias has dtype torch.float64; it must be that of x, torch.float32": (X, W, {"bias": torch.zeros(5).double()}),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1.0]], W), "x is of type list; it must be a torch.Tensor (N, C, H, W)"),
        ((X, None), "w is of type NoneType; it must be a torch.Tensor"),
        ((X, W, 1), "bias is 1; it must be None or a torch.Tensor (K,); stride is the argument after it"),
    ],
)
def test_what_is_no_tensor_is_refused(arguments, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        conv2d(*arguments)


def test_half_precision_is_torchs_on_a_cpu_and_an_algorithm_says_so():
    torch.testing.assert_close(conv2d(X.bfloat16(), W.bfloat16()), torch_conv2d(X.bfloat16(), W.bfloat16()))
    with pytest.raises(ValueError, match=r"algorithm is 'direct'; on cpu it takes .* \(here torch.float16\)"):
        conv2d(X.half(), W.half(), algorithm="direct")


def test_an_algorithm_says_on_which_devices_it_runs():
    problem = Problem.of(X, W)
    assert ALGORITHMS["fft"].limits(problem, "cuda") == "it runs on cpu (here cuda)"
    assert ALGORITHMS["direct"].limits(problem, "meta") == "it runs on cpu and cuda (here meta)"
    with pytest.raises(ValueError, match=r"algorithm is 'direct'; it runs on cpu and cuda \(here meta\)"):
        conv2d(X.to("meta"), W.to("meta"), algorithm="direct")
    with pytest.raises(ValueError, match="algorithm is 'fft'; it has no kernels for GPUs to interpret"):
        ALGORITHMS["fft"].interpreted()


@pytest.mark.parametrize("name", ["winograd_2x2", "winograd_4x4"])
def test_winograd_cannot_dilate(name):
    with pytest.raises(ValueError, match="3 x 3 filters with stride 1 only, not dilated"):
        conv2d(X, W, dilation=2, algorithm=name)


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
        monkeypatch.setattr(auto, "rates", lambda dtype, threads: {})
        monkeypatch.setattr(auto, "predict", lambda candidate, situation, rates: float(candidate != name))
        auto.by_model.cache_clear()

    yield choose
    auto.by_model.cache_clear()


@pytest.mark.parametrize("name", sorted({*model.TORCH, *model.WANT_CHANNELS_LAST}))
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
    assert "winograd_4x4" in model.candidates(Problem(1, 64, 9, 9, 64, 3, 3, groups=2))
    for problem in (Problem(1, 4, 9, 9, 4, 3, 3, stride=2), Problem(1, 4, 9, 9, 4, 3, 3, groups=4)):
        names = model.candidates(problem)
        assert set(model.TORCH) <= set(names)
        assert not any(name in ALGORITHMS and ALGORITHMS[name].limits(problem) for name in names)


def test_an_empty_batch_needs_no_choice(quick_only):
    quick_only("winograd_4x4")
    assert quickest(X[:0], W, Problem.of(X[:0], W)) == "torch"
    assert conv2d(X[:0], W).shape == (0, 5, 4, 5)


# What a GPU is asked to try: torch, and the algorithms with kernels for the problem.
ON_GPU = {
    "a layer": (Problem(32, 64, 56, 56, 64, 3, 3, padding=1), {"direct", "im2col", "winograd_2x2", "winograd_4x4"}),
    "strided": (Problem(32, 64, 56, 56, 64, 3, 3, (2, 1), 1), {"direct", "im2col"}),
    "two groups": (Problem(32, 64, 56, 56, 64, 3, 3, padding=1, groups=2), {"direct"}),
    "depthwise": (Problem(32, 128, 56, 56, 128, 31, 31, padding=15, groups=128), {"direct", "toeplitz"}),
    "dilated": (Problem(32, 64, 56, 56, 64, 3, 3, padding=2, dilation=2), set()),
}


@pytest.mark.parametrize("case", ON_GPU)
def test_a_gpu_tries_what_has_kernels_for_the_problem(case, monkeypatch):
    problem, ours = ON_GPU[case]
    monkeypatch.setattr(auto, "has_triton", lambda: True)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        situation = model.Situation(problem, dtype, True, False, 1, "cuda")
        assert set(auto.candidates_on_gpu(situation)) == {*model.TORCH, *ours}
    assert set(auto.candidates_on_gpu(situation._replace(dtype=torch.float64))) == set(model.TORCH)
    monkeypatch.setattr(auto, "has_triton", lambda: False)
    assert set(auto.candidates_on_gpu(situation)) == set(model.TORCH)


def test_a_gpu_takes_the_quickest_where_trying_is_welcome(monkeypatch):
    seconds = {"torch": 1.0, "torch_channels_last": 0.9, "direct": 0.8, "winograd_4x4": 0.7, "im2col": 2.0}
    asked = []

    def measured(situation, names):
        asked.append(situation)
        return {name: seconds.get(name, 3.0) for name in names}

    monkeypatch.setattr(auto, "has_triton", lambda: True)
    monkeypatch.setattr(auto, "seconds_on_gpu", measured)
    layer = model.Situation(ON_GPU["a layer"][0], torch.float16, True, False, 1, "cuda")
    strided = layer._replace(problem=ON_GPU["strided"][0])
    auto.by_trying.cache_clear()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert auto.choose(layer) == "torch"
    assert not asked
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert [auto.choose(layer), auto.choose(layer), auto.choose(strided)] == ["winograd_4x4", "winograd_4x4", "direct"]
    assert asked == [layer, strided], "a problem is tried once"
    seconds["direct"] = 0.89  # within the error of a few measurements
    auto.by_trying.cache_clear()
    assert auto.choose(strided) == "torch_channels_last"
    auto.by_trying.cache_clear()


SAMPLES = (Problem(2, 16, 12, 12, 16, 3, 3, padding=1), Problem(1, 8, 20, 20, 16, 5, 5), Problem(1, 16, 6, 6, 32, 1, 1))


def test_rates_are_measured_and_explain_the_samples(monkeypatch):
    monkeypatch.setattr(calibration, "LIMIT", math.inf)  # on a busy machine too
    state = torch.get_rng_state()
    rates = calibration.calibrate(torch.float32, SAMPLES, seconds=0.01)
    assert torch.equal(torch.get_rng_state(), state)
    assert set(rates) == set(model.candidates(SAMPLES[0]))
    assert all(rate >= 0 for part in rates.values() for rate in part)
    situation = model.Situation(SAMPLES[0], torch.float32, True, True, torch.get_num_threads())
    assert all(model.predict(name, situation, rates) > 0 for name in rates)


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
