"""A layer's kernels: their operations are the model's, and what cuts them cuts their seconds."""

import pytest

from hpcdl.cost.blocks import Cut, _attention, _linear, layer, output
from hpcdl.cost.kernels import Kernels
from hpcdl.cost.work import Transformer

DEVICE = Kernels(250e12, 1.4e12, 108)
ARITHMETIC = Kernels(1e12, 1e30)  # no bytes, no tiles
GPT = Transformer(4, 1024, 512, 5000, 16)
MODELS = {
    "plain": GPT,
    "gated": GPT._replace(feedforward=2816, gated=True, kv_heads=4, untied=True),
    "experts": GPT._replace(feedforward=512, experts=8, active=2),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_products_have_the_operations_of_the_model(model):
    cut = Cut(3)
    linear = sum(product.flops for product in _linear(model, cut))
    core = _attention(model, cut, ARITHMETIC).forward * ARITHMETIC.rate
    assert linear + core == pytest.approx(model.layer_flops(3))
    one = layer(model, cut, ARITHMETIC)
    assert one.backward == pytest.approx(2 * one.forward)
    assert one.weights == pytest.approx(linear / ARITHMETIC.rate)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_parameters_are_those_of_the_matrices(model):
    h = model.hidden
    matrices = 2 * h * h + 2 * h * model.keys + model.experts * (2 + model.gated) * h * model.wide
    assert model.layer_weights(model.experts) == pytest.approx(matrices, rel=0.01)
    assert model.used <= model.parameters


@pytest.mark.parametrize("how", [{"tensor": 4}, {"context": 4}])
def test_ranks_divide_the_arithmetic(how):
    alone, cut = layer(GPT, Cut(4), ARITHMETIC), layer(GPT, Cut(4, **how), ARITHMETIC)
    assert cut.forward == pytest.approx(alone.forward / 4)
    assert cut.backward == pytest.approx(alone.backward / 4)
    head = output(GPT, Cut(4, **how), ARITHMETIC)
    assert head.forward == pytest.approx(output(GPT, Cut(4), ARITHMETIC).forward / 4)


def test_scores_in_memory_cost_their_bytes():
    """Written, read and rewritten by softmax and dropout, and read: 6.5 times, beside what flash needs not move."""
    device = Kernels(1e30, 1e12)
    scores, flash = (layer(GPT, Cut(2, attention=how), device).attention for how in ("scores", "flash"))
    moved = 2 * 16 * 512**2 * 2 / 1e12
    assert scores == pytest.approx(6.5 * moved, rel=0.3)
    assert flash < scores / 10


def test_eager_kernels_and_dropout_move_more():
    fused, eager, plain = (layer(GPT, cut, DEVICE) for cut in (Cut(8), Cut(8, kernels="eager"), Cut(8, dropout=False)))
    assert plain.forward < fused.forward < eager.forward
    assert plain.backward < fused.backward < eager.backward


def test_float8_is_faster_but_not_twice():
    wide = GPT._replace(hidden=8192, heads=64)
    half, eight = layer(wide, Cut(8), DEVICE), layer(wide, Cut(8, low=2.0), DEVICE)
    assert 1.2 < half.forward / eight.forward < 2
    assert eight.attention == half.attention


def test_the_fullest_expert_sets_the_pace():
    model = MODELS["experts"]
    even, full = (layer(model, Cut(8, imbalance=factor), ARITHMETIC) for factor in (1.0, 1.5))
    up_and_down = sum(product.flops for product in _linear(model, Cut(8))[2:]) / ARITHMETIC.rate
    assert full.forward - even.forward == pytest.approx(0.5 * up_and_down)


def test_sharing_experts_saves_no_arithmetic():
    """Each rank has fewer experts, and each of those gets the tokens of more ranks."""
    model = MODELS["experts"]
    alone, shared = (layer(model, Cut(8, experts=ranks), ARITHMETIC) for ranks in (1, 4))
    assert shared.forward == pytest.approx(alone.forward)
