"""Modules as newcomers bring them: layers of every kind, and weights that are computed."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from zoo.entries import L, Model, P, changed, two
from zoo.entries_layers import images, sequences, tokens
from zoo.registry import add, rows

# -- layers of torch.nn -----------------------------------------------------------------------------------------------
add("PixelShuffle", lambda: nn.Sequential(nn.Conv2d(2, 12, 1), nn.PixelShuffle(2), nn.Conv2d(3, 3, 1)), images())
add("Conv1d, circular", lambda: nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"), sequences(6, 3))
add("Conv3d", lambda: Model(lambda m, x: m.c(x[:, None]), c=nn.Conv3d(1, 2, (2, 2, 3))), images(6))
add(
    "MaxUnpool",
    lambda: Model(
        lambda m, x: m.u(*m.p(m.c(x))),
        c=nn.Conv2d(2, 3, 1),
        p=nn.MaxPool2d(2, return_indices=True),
        u=nn.MaxUnpool2d(2),
    ),
    images(),
)
add(
    "spatial transformer",
    lambda: Model(
        lambda m, x: functional.grid_sample(
            x,
            functional.affine_grid(m.l(x.flatten(1)).view(-1, 2, 3), list(x.shape), align_corners=False),
            align_corners=False,
        ),
        l=L(72, 6),
    ),
    images(),
)
add(
    "Unfold and Fold",
    lambda: Model(lambda m, x: m.f(m.l(m.u(x).mT).mT), u=nn.Unfold(2), l=L(8, 8), f=nn.Fold(6, 2)),
    images(),
)
add(
    "upsampled",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(3, 3, 1)),
    images(),
)
add(
    "LocalResponseNorm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.LocalResponseNorm(2), nn.AdaptiveAvgPool2d(1)),
    images(),
)
for mode in ("sum", "max"):
    add(f"EmbeddingBag, {mode}", lambda mode=mode: nn.EmbeddingBag(10, 6, mode=mode), tokens(3))
add(
    "EmbeddingBag with weights of samples",
    lambda: Model(lambda m, x: m.e(x, per_sample_weights=m.w[x]), e=nn.EmbeddingBag(10, 6, mode="sum"), w=P(10)),
    tokens(3),
)
add(
    "last hidden state of a GRU",
    lambda: Model(lambda m, x: m.r(x)[1][-1], r=nn.GRU(6, 4, 2, batch_first=True)),
    sequences(),
)
add(
    "RNN with an initial state",
    lambda: Model(
        lambda m, x: m.r(x, m.h[:, None].expand(-1, len(x), -1).contiguous())[0],
        r=nn.RNN(6, 4, nonlinearity="relu", batch_first=True),
        h=P(1, 4),
    ),
    sequences(),
)


def _gru_cells(m, x):
    h, found = x.new_zeros(len(x), 4), []
    for t in range(x.shape[1]):
        h = m.cell(x[:, t], h)
        found.append(m.out(h))
    return torch.stack(found, 1)


add("GRUCell", lambda: Model(_gru_cells, cell=nn.GRUCell(6, 4), out=L(4, 6)), sequences())


def _decoded(m, x):
    """One token after the other, with the keys that came before."""
    past = x[:, :1]
    for t in range(x.shape[1]):
        y = m.d(x[:, t : t + 1], past)
        past = torch.cat([past, y], 1)
    return past


add(
    "decoder layer, token by token",
    lambda: Model(_decoded, d=nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True)),
    sequences(),
)
add(
    "attention with its weights",
    lambda: Model(
        lambda m, x: torch.cat([y.flatten(1) for y in m.a(x, x, x, average_attn_weights=False)], 1),
        a=nn.MultiheadAttention(6, 2, batch_first=True),
    ),
    sequences(),
)
add("Maxout", lambda: Model(lambda m, x: m.a(x).unflatten(1, (3, 4)).amax(2), a=L(6, 12)))


# -- weights that are computed ----------------------------------------------------------------------------------------
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = P(6, 1)

    def forward(self, x):
        return x * self.log_scale.exp()


class Raw(nn.Module):
    """The weight is a property."""

    def __init__(self):
        super().__init__()
        self.raw = P(6, 6)

    @property
    def weight(self):
        return functional.softplus(self.raw)

    def forward(self, x):
        return functional.linear(x, self.weight)


def _standardized(m, x):
    w = m.c.weight
    w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-3)
    return functional.conv2d(x, w, m.c.bias)


add(
    "two parametrizations of one weight",
    lambda: nn.Sequential(
        changed(L(6, 6), lambda m: [parametrize.register_parametrization(m, "weight", Scaled()) for _ in range(2)])
    ),
)
add("orthogonal by Cayley", lambda: parametrizations.orthogonal(L(6, 6), orthogonal_map="cayley"), tolerance=1e-11)
add("weight as a property", lambda: nn.Sequential(L(6, 6), Raw()))
add("weight standardization", lambda: Model(_standardized, c=nn.Conv2d(2, 4, 3)), images())
add(
    "normalized head",
    two(lambda m, x: functional.linear(functional.normalize(m.a(x)), functional.normalize(m.b.weight))),
)
add("low rank plus diagonal", lambda: Model(lambda m, x: x * m.d + x @ m.u @ m.v, d=P(6), u=P(6, 2), v=P(2, 6)))
add("strided parameter", lambda: Model(lambda m, x: x @ m.w, w=nn.Parameter(rows(6, 12)[:, ::2])))
add(
    "inverse of a parameter",
    lambda: Model(lambda m, x: torch.linalg.solve(m.w @ m.w.T + torch.eye(6), x.T).T, w=P(6, 6)),
)
add(
    "exponential of a matrix", lambda: Model(lambda m, x: x @ torch.matrix_exp(m.w - m.w.T), w=P(6, 6)), tolerance=1e-11
)
