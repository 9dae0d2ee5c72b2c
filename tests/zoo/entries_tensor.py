"""Layers with the options that tensor parallelism takes over or refuses: heads, words, masks, experts."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, Model, changed
from zoo.entries_layers import images, sequences, tokens
from zoo.registry import add

FIRST = {"batch_first": True, "dropout": 0.0}


class Head(nn.Module):
    """A vocabulary's logits and the loss of each token."""

    def __init__(self, bias: bool = True, **options):
        super().__init__()
        self.linear, self.options = L(6, 10, bias=bias), options

    def forward(self, x, y):
        return functional.cross_entropy(self.linear(x), y, reduction="none", **self.options)


class Mixture(nn.Module):
    """Each row through the `k` experts of the largest probabilities, which `renormalize` divides by their sum."""

    def __init__(self, k: int, renormalize: bool):
        super().__init__()
        self.gate, self.experts, self.k, self.renormalize = (
            L(6, 4),
            nn.ModuleList([L(6, 6) for _ in range(4)]),
            k,
            renormalize,
        )

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(self.k)
        if self.renormalize:
            weights = weights / weights.sum(-1, keepdim=True)
        each = torch.stack([expert(x) for expert in self.experts], 1)
        return (each[torch.arange(len(x))[:, None], chosen] * weights[..., None]).sum(1)


class Grouped(nn.Module):
    """Three query heads with one head of keys and values."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = L(6, 6), L(6, 2, bias=False), L(6, 2, bias=False), L(6, 6)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, 2)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))


def language(**options):
    """An embedding and a head that are one parameter, or two."""
    tie, frozen = options.pop("tie", False), options.pop("frozen", False)
    model = Model(
        lambda m, x: m.head(torch.tanh(m.mid(m.emb(x))).flatten(0, 1), x.roll(1, 1).flatten()),
        emb=nn.Embedding(10, 6, padding_idx=options.pop("padding_idx", None)),
        mid=L(6, 6),
        head=Head(**options),
    )
    if tie:
        model.head.linear.weight = model.emb.weight
    model.emb.weight.requires_grad_(not frozen)
    return model


def per_sample(model, x):
    """Losses of tokens, summed by sample."""
    return model(x).sum() / len(x)


for name, options in {
    "language model": {},
    "language model, tied head without bias": {"tie": True, "bias": False},
    "language model, tied and frozen": {"tie": True, "frozen": True},
    "language model with ignore_index": {"ignore_index": 3},
    "language model with ignore_index, tied": {"ignore_index": 3, "tie": True},
    "language model with smoothed labels": {"label_smoothing": 0.1, "ignore_index": 0},
    "language model with padding_idx, tied": {"padding_idx": 2, "tie": True},
}.items():
    add(name, partial(language, **options), tokens(3), loss=per_sample)

for name, (k, renormalize) in {
    "mixture of experts, one each": (1, False),
    "mixture of experts, two each": (2, False),
    "mixture of experts, two renormalized": (2, True),
}.items():
    add(name, partial(Mixture, k, renormalize))
add("experts between layers", lambda: nn.Sequential(L(6, 6), nn.Tanh(), Mixture(2, True), L(6, 3)))
add("grouped queries", Grouped, sequences())


def _masked(m, x, causal=True, padded=True):
    n = x.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    padding = (torch.arange(n) == n - 1).expand(len(x), n) if padded else None
    return m.att(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]


def attends(forward=_masked, **options):
    return lambda: Model(forward, att=nn.MultiheadAttention(6, 3, **{"batch_first": True} | options))


add("attention with a causal mask", attends(partial(_masked, padded=False)), sequences())
add("attention with padding", attends(partial(_masked, causal=False)), sequences())
add("attention with both masks", attends(), sequences())
add("attention without bias", attends(bias=False), sequences())
add(
    "attention with add_zero_attn",
    attends(partial(_masked, padded=False, causal=False), add_zero_attn=True),
    sequences(),
)
add("attention with dropout in eval mode", lambda: attends(dropout=0.5)().eval(), sequences())
add(
    "attention with frozen projections",
    lambda: changed(attends()(), lambda m: m.att.in_proj_weight.requires_grad_(False)),
    sequences(),
)
add(
    "encoder layer, norm first, with GELU and without bias",
    lambda: nn.TransformerEncoderLayer(6, 3, 8, activation="gelu", norm_first=True, bias=False, **FIRST),
    sequences(),
)
add(
    "encoder layer whose activation has weights",
    lambda: nn.TransformerEncoderLayer(6, 3, 8, activation=nn.PReLU(), norm_first=True, **FIRST),
    sequences(),
)
add(
    "convolution, strided and dilated",
    lambda: nn.Conv2d(3, 4, 3, stride=2, padding=2, dilation=2, bias=False),
    images(3),
)
add("convolution with reflections", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), images(3))
add(
    "linear in two dtypes",
    lambda: nn.Sequential(L(6, 6), Model(lambda m, x: m.l(x.float()).double(), l=L(6, 6).float())),
    tolerance=1e-6,
)
