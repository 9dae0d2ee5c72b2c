"""Layers of torch.nn, as they are."""

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, Model, P, changed
from zoo.registry import add, rows, words

N = (7, 6, 8)


def sequences(width=6, length=3):
    return lambda: [(rows(n, length, width, seed=n),) for n in N]


def images(channels=2):
    return lambda: [(rows(n, channels, 6, 6, seed=n),) for n in N]


def tokens(*shape, below=10):
    return lambda: [(words(n, *shape, below=below),) for n in N]


def attend(m, x, **kw):
    return m.att(x, x, x, **kw)[0]


FIRST = {"batch_first": True, "dropout": 0.0}

add("LayerNorm", lambda: nn.Sequential(L(6, 6), nn.LayerNorm(6)))
add("RMSNorm", lambda: nn.Sequential(L(6, 6), nn.RMSNorm(6)))
add("GroupNorm", lambda: nn.Sequential(L(6, 6), nn.GroupNorm(2, 6)))
add("InstanceNorm", lambda: nn.InstanceNorm2d(2, affine=True), images())
add("BatchNorm, same batch", lambda: nn.Sequential(L(6, 6), nn.BatchNorm1d(6)), same=True)
add("BatchNorm in eval mode", lambda: nn.Sequential(L(6, 6), nn.BatchNorm1d(6)).eval())
add("BatchNorm without affine", lambda: nn.Sequential(L(6, 6), nn.BatchNorm1d(6, affine=False)), same=True)
add("convolution", lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), L(64, 3)), images())
add("grouped convolution", lambda: nn.Conv2d(2, 4, 3, groups=2, padding=1), images())
add("transposed convolution", lambda: nn.ConvTranspose2d(2, 3, 3), images())
add("channels_last", lambda: nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last), images())
add("bilinear", lambda: Model(lambda m, x: m.f(x, x.flip(1)), f=nn.Bilinear(6, 6, 4)))
add("PReLU", lambda: nn.Sequential(L(6, 6), nn.PReLU(6)))
add("in-place activations", lambda: nn.Sequential(L(6, 6), nn.ReLU(inplace=True), L(6, 6), nn.SiLU(inplace=True)))
add("lazy linear", lambda: nn.Sequential(nn.LazyLinear(6), L(6, 6)))
add("lazy linear after a call", lambda: changed(nn.Sequential(nn.LazyLinear(6), L(6, 6)), lambda m: m(rows(2, 6))))

add("embedding", lambda: nn.Embedding(10, 6), tokens(3))
add("embedding with padding_idx", lambda: nn.Embedding(10, 6, padding_idx=3), tokens(3))
add("embedding scaled by frequency", lambda: nn.Embedding(10, 6, scale_grad_by_freq=True), tokens(3), same=True)
add("embedding with max_norm", lambda: nn.Sequential(nn.Embedding(10, 6, max_norm=1.0), L(6, 6)), tokens(3))
add("sparse embedding", lambda: nn.Sequential(nn.Embedding(10, 6, sparse=True), L(6, 6)), tokens(3))
add("EmbeddingBag", lambda: nn.EmbeddingBag(10, 6), tokens(3))
add("sparse EmbeddingBag", lambda: nn.EmbeddingBag(10, 6, sparse=True), tokens(3))
add("frozen pretrained embedding", lambda: nn.Sequential(nn.Embedding.from_pretrained(rows(10, 6)), L(6, 6)), tokens(3))
add(
    "functional sparse embedding",
    lambda: Model(lambda m, x: functional.embedding(x, m.w, sparse=True), w=P(10, 6)),
    tokens(3),
)

add("RNN", lambda: Model(lambda m, x: m.r(x)[0], r=nn.RNN(6, 5, batch_first=True)), sequences())
add("LSTM", lambda: Model(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, batch_first=True)), sequences())
add(
    "LSTM of two layers, both ways",
    lambda: Model(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)),
    sequences(),
)
add(
    "LSTM with projection",
    lambda: Model(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, proj_size=3, batch_first=True)),
    sequences(),
)
add("GRU", lambda: Model(lambda m, x: m.r(x)[0], r=nn.GRU(6, 5, batch_first=True)), sequences())
add("LSTMCell", lambda: Model(lambda m, x: m.r(x)[0], r=nn.LSTMCell(6, 5)))
add("LSTM with time first", lambda: Model(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5)), sequences())
add(
    "LSTM with time first, counted",
    lambda: Model(lambda m, x: m.r(x.transpose(0, 1))[0], r=nn.LSTM(6, 5)),
    sequences(),
    options={"samples": len},
)

add("MultiheadAttention", lambda: Model(attend, att=nn.MultiheadAttention(6, 2, batch_first=True)), sequences())
add(
    "MultiheadAttention with kdim",
    lambda: Model(
        lambda m, x: m.att(x, m.k(x), m.k(x))[0],
        k=L(6, 4),
        att=nn.MultiheadAttention(6, 2, kdim=4, vdim=4, batch_first=True),
    ),
    sequences(),
)
add(
    "MultiheadAttention with bias_kv",
    lambda: Model(attend, att=nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)),
    sequences(),
)
add(
    "MultiheadAttention, frozen output",
    lambda: changed(
        Model(attend, att=nn.MultiheadAttention(6, 2, batch_first=True)), lambda m: m.att.out_proj.requires_grad_(False)
    ),
    sequences(),
)
add(
    "scaled_dot_product_attention",
    lambda: Model(
        lambda m, x: m.o(functional.scaled_dot_product_attention(*m.qkv(x).chunk(3, -1), is_causal=True)),
        qkv=L(6, 18),
        o=L(6, 6),
    ),
    sequences(),
)
add("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(6, 2, 8, **FIRST), sequences())
add(
    "TransformerEncoderLayer, norm first",
    lambda: nn.TransformerEncoderLayer(6, 2, 8, norm_first=True, **FIRST),
    sequences(),
)
add("TransformerEncoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, **FIRST), 2), sequences())
add(
    "TransformerDecoderLayer",
    lambda: Model(lambda m, x: m.d(x, x), d=nn.TransformerDecoderLayer(6, 2, 8, **FIRST)),
    sequences(),
)
add("Transformer", lambda: Model(lambda m, x: m.t(x, x.flip(1)), t=nn.Transformer(6, 2, 1, 1, 8, **FIRST)), sequences())
add(
    "AdaptiveLogSoftmax",
    lambda: Model(
        lambda m, x: m.s(m.a(x), torch.arange(len(x)) % 10).loss,
        a=L(6, 6),
        s=nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6], 1.5),
    ),
    same=True,
    loss=lambda m, x: m(x),
)

add(
    "complex parameter",
    lambda: Model(
        lambda m, x: m.a(x).to(torch.complex128) @ m.w,
        a=L(6, 6),
        w=nn.Parameter(torch.complex(rows(6, 6), rows(6, 6, seed=1))),
    ),
)
add(
    "conjugate in forward",
    lambda: Model(
        lambda m, x: x.to(torch.complex128) @ m.w.conj() @ m.w,
        w=nn.Parameter(torch.complex(rows(6, 6), rows(6, 6, seed=1))),
    ),
)
add(
    "imaginary part",
    lambda: Model(
        lambda m, x: (x.to(torch.complex128) @ m.w).imag, w=nn.Parameter(torch.complex(rows(6, 6), rows(6, 6, seed=1)))
    ),
)
add("view of a parameter", lambda: Model(lambda m, x: x @ m.w.view(6, 6) + m.w[:6], w=P(36)))
add(
    "layers of two types",
    lambda: Model(lambda m, x: m.b(m.a(x.float()).double()), a=L(6, 6).float(), b=L(6, 6)),
    tolerance=1e-6,
)
add(
    "integer parameter",
    lambda: Model(lambda m, x: m.a(x) * m.k, a=L(6, 6), k=nn.Parameter(torch.arange(6), requires_grad=False)),
)
