"""`.of(dense)` carries over or refuses every option of torch's layers, and everything users attach to a layer."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy as dense_cross_entropy
from torch.nn.utils import parametrizations, prune

from hpcdl.comm import simulate
from hpcdl.parallel import (
    ChannelConv2d,
    ColumnLinear,
    FilterConv2d,
    HeadAttention,
    RowLinear,
    TransformerBlock,
    VocabularyEmbedding,
    share,
)
from hpcdl.parallel.tensor import cross_entropy

F64 = torch.float64
PAIR = {"device": ["cpu"], "dtype": [torch.float32]}
# For every argument of the constructor: values to try, the required ones first. A new option of torch's fails a test.
OPTIONS = {
    nn.Linear: {"in_features": [6], "out_features": [4], "bias": [False], **PAIR},
    nn.Conv2d: {
        "in_channels": [4],
        "out_channels": [6],
        "kernel_size": [3, (1, 2)],
        "stride": [2],
        "padding": [1, "same"],
        "dilation": [2],
        "groups": [2],
        "bias": [False],
        "padding_mode": ["reflect", "circular"],
        **PAIR,
    },
    nn.Embedding: {
        "num_embeddings": [7],
        "embedding_dim": [3],
        "padding_idx": [0, 2, -1],
        "max_norm": [0.5],
        "norm_type": [1.0],
        "scale_grad_by_freq": [True],
        "sparse": [True],
        "_weight": [],
        "_freeze": [],
        **PAIR,
    },
    nn.MultiheadAttention: {
        "embed_dim": [8],
        "num_heads": [4],
        "dropout": [0.1],
        "bias": [False],
        "add_bias_kv": [True],
        "add_zero_attn": [True],
        "kdim": [5],
        "vdim": [5],
        "batch_first": [False, True],
        **PAIR,
    },
    nn.TransformerEncoderLayer: {
        "d_model": [8],
        "nhead": [4],
        "dim_feedforward": [12],
        "dropout": [0.1],
        "activation": ["gelu", torch.tanh, lambda x: x.softmax(-1), nn.PReLU(), nn.SiLU()],
        "layer_norm_eps": [0.1],
        "batch_first": [False],
        "norm_first": [False],
        "bias": [False],
        **PAIR,
    },
}
TOKENS = torch.tensor([[0, 2, 2, 6], [2, 5, 3, 0]])


def attention(dense, x):
    return dense(x, x, x, need_weights=False)[0]


# The split class, its torch class, the input, the dense result, and what a rank gives to its layer.
FORMS = [
    (ColumnLinear, nn.Linear, torch.randn(5, 6), None, lambda x, comm: x),
    (RowLinear, nn.Linear, torch.randn(5, 6), None, lambda x, comm: share(x, comm, 1)),
    (FilterConv2d, nn.Conv2d, torch.randn(2, 4, 7, 7), None, lambda x, comm: x),
    (ChannelConv2d, nn.Conv2d, torch.randn(2, 4, 7, 7), None, lambda x, comm: share(x, comm, 1)),
    (VocabularyEmbedding, nn.Embedding, TOKENS, None, lambda x, comm: x),
    (HeadAttention, nn.MultiheadAttention, torch.randn(2, 5, 8), attention, lambda x, comm: x),
    (TransformerBlock, nn.TransformerEncoderLayer, torch.randn(2, 5, 8), None, lambda x, comm: x),
]
FIXED = {nn.TransformerEncoderLayer: {"dropout": 0.0, "batch_first": True, "norm_first": True}}
REFUSED = {"groups", "padding_mode", "dropout", "add_bias_kv", "add_zero_attn", "kdim", "vdim"}


def required(kind):
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: OPTIONS[kind][p.name][0] for p in parameters if p.default is inspect.Parameter.empty}


def cases():
    for form in FORMS:
        for name, values in OPTIONS[form[1]].items():
            for value in values:
                yield pytest.param(form, name, value, id=f"{form[0].__name__}-{name}-{str(value)[:12]}")


def build(kind, **options):
    torch.manual_seed(1)
    options = {"dtype": F64, **required(kind), **FIXED.get(kind, {}), **options}
    if "norm_type" in options:
        options["max_norm"] = 0.5
    return kind(**options)


def is_refused(form, name, value):
    if form[0] is TransformerBlock and name == "activation":
        return isinstance(value, nn.PReLU) or "lambda" in getattr(value, "__name__", "")
    return name in REFUSED or (form[0] is TransformerBlock and name in ("batch_first", "norm_first"))


def compare(form, dense):
    """Compare forward and gradients of two ranks with the dense layer."""
    split, _, x, call, given = form
    x = x.to(next(dense.parameters()).dtype) if x.is_floating_point() else x
    options = {"causal": False} if split is TransformerBlock else {}

    def rank(comm):
        layer = split.of(dense, comm, **options)
        y = layer(given(x, comm))
        y.square().sum().backward()
        return y.detach(), layer

    found = simulate(rank, 2).results
    whole = (call or (lambda dense, x: dense(x)))(dense, x)
    cut = {ColumnLinear: -1, FilterConv2d: 1}.get(split)
    ys = [y for y, _ in found]
    for y in [torch.cat(ys, cut)] if cut is not None else ys:
        torch.testing.assert_close(y, whole.detach())
    if hasattr(dense, "weight"):
        whole.square().sum().backward()
        grads = [layer.weight.grad for _, layer in found]
        assert all(grad.is_sparse == dense.weight.grad.is_sparse for grad in grads)
        joined = torch.cat([grad.to_dense() for grad in grads], 1 if split in (RowLinear, ChannelConv2d) else 0)
        torch.testing.assert_close(joined, dense.weight.grad.to_dense())


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_has_a_value_to_try(kind):
    assert set(inspect.signature(kind).parameters) == set(OPTIONS[kind])


@pytest.mark.parametrize(("form", "name", "value"), list(cases()))
def test_an_option_is_right_or_refused(form, name, value):
    dense = build(form[1], **{name: value})
    if not is_refused(form, name, value):
        return compare(form, dense)

    def rank(comm):
        with pytest.raises(ValueError, match=r"split|not elementwise|has weights"):
            form[0].of(dense, comm)

    simulate(rank, 2)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0].__name__)
def test_frozen_parameters_stay_frozen(form):
    split, kind, *_ = form
    for name, _ in build(kind).named_parameters():
        dense = build(kind)
        dense.get_parameter(name).requires_grad_(False)
        dense.eval()

        def rank(comm, dense=dense):
            made = split.of(dense, comm)
            return [p.requires_grad for p in made.parameters()], [m.training for m in made.modules()]

        for grads, training in simulate(rank, 2).results:
            assert grads.count(False) == 1, name
            assert not any(training)


def hooked(dense):
    dense.register_forward_hook(lambda *_: None)


def hooked_inside(dense):
    next(m for m in dense.modules() if not list(m.children())).register_forward_pre_hook(lambda *_: None)


def hooked_gradient(dense):
    next(dense.parameters()).register_hook(lambda grad: grad)


def own_forward(dense):
    dense.forward = lambda *_: None


def subclass(dense):
    dense.__class__ = type("Doubled", (type(dense),), {"forward": lambda self, x: 2 * x})


def old_pruning(dense):
    inner = next(m for m in dense.modules() if getattr(m, "weight", None) is not None)
    prune.l1_unstructured(inner, "weight", 0.5)


def new_weight_norm(dense):
    parametrizations.weight_norm(next(m for m in dense.modules() if getattr(m, "weight", None) is not None))


@pytest.mark.parametrize(
    "change", [hooked, hooked_inside, hooked_gradient, own_forward, subclass, old_pruning, new_weight_norm]
)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0].__name__)
def test_what_a_split_layer_would_drop_is_refused(form, change):
    dense = build(form[1])
    change(dense)

    def rank(comm):
        with pytest.raises(ValueError, match=r"would not call|other parameters"):
            form[0].of(dense, comm)

    simulate(rank, 2)


def test_other_and_lazy_layers_are_refused():
    def rank(comm):
        with pytest.raises(ValueError, match=r"is a Conv1d; give an nn\.Conv2d"):
            FilterConv2d.of(nn.Conv1d(4, 4, 1), comm)
        with pytest.raises(ValueError, match="has no shape yet"):
            ColumnLinear.of(nn.LazyLinear(4), comm)

    simulate(rank, 2)


def test_a_tied_head_stays_tied():
    """Embedding and head train one weight, as dense; two layers made of one dense layer do not."""
    torch.manual_seed(0)
    words, head = nn.Embedding(7, 4, dtype=F64), nn.Linear(4, 7, bias=False, dtype=F64)
    head.weight = words.weight

    def rank(comm):
        first, last = VocabularyEmbedding.of(words, comm), ColumnLinear.of(head, comm)
        assert first.weight is last.weight
        assert ColumnLinear.of(head, comm).weight is first.weight
        with pytest.raises(ValueError, match="is tied to that of"):
            RowLinear.of(head, comm)
        optimizer = torch.optim.SGD([first.weight], 0.5)
        for _ in range(3):
            optimizer.zero_grad()
            logits = last(first(TOKENS)).flatten(0, 1)
            cross_entropy(logits, TOKENS.flatten().roll(1), 7, comm).mean().backward()
            optimizer.step()
        return first.weight.detach()

    found = torch.cat(simulate(rank, 2).results)
    optimizer = torch.optim.SGD([words.weight], 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        dense_cross_entropy(head(words(TOKENS)).flatten(0, 1), TOKENS.flatten().roll(1)).backward()
        optimizer.step()
    torch.testing.assert_close(found, words.weight.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("dtype", [F64, torch.bfloat16])
def test_loss_options_are_torchs(smoothing, dtype):
    torch.manual_seed(0)
    logits, target = (3 * torch.randn(6, 7, dtype=F64)).to(dtype), torch.tensor([0, 6, -100, 3, 3, -100])
    whole = logits.double().requires_grad_()  # torch's own bfloat16 rounds on the way
    expected = dense_cross_entropy(whole, target, reduction="none", label_smoothing=smoothing)
    expected.sum().backward()

    def rank(comm):
        mine = share(logits, comm, 1).requires_grad_()
        loss = cross_entropy(mine, target, 7, comm, label_smoothing=smoothing)
        loss.sum().backward()
        return loss.detach(), mine.grad

    found = simulate(rank, 2).results
    for loss, _ in found:
        torch.testing.assert_close(loss, expected.detach().to(dtype))
    torch.testing.assert_close(torch.cat([grad for _, grad in found], 1), whole.grad.to(dtype))
