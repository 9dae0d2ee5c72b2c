"""Modules of repositories: vision, diffusion, speech, experts, quantized training; layers that mix samples."""

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, P, two
from zoo.entries_layers import sequences
from zoo.entries_loops import mlp_seeded
from zoo.entries_losses import labelled
from zoo.registry import add, rows, words


# -- models ------------------------------------------------------------------------------------------------------------
class LayerScale(nn.Module):
    """A block of timm's vision transformers: a scale for each channel, drop path in eval mode, a class token."""

    def __init__(self):
        super().__init__()
        self.token, self.place, self.gamma = P(1, 1, 6), P(1, 4, 6, seed=4), P(6, seed=5)
        self.norm, self.qkv, self.proj = nn.LayerNorm(6), L(6, 18), L(6, 6)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.gamma * self.proj(functional.scaled_dot_product_attention(q, k, v))
        return x[:, 0]


class Timed(nn.Module):
    """A block of a diffusion U-Net: FiLM by the step's embedding, GroupNorm, a skip that is concatenated."""

    def __init__(self):
        super().__init__()
        self.embed, self.film = nn.Sequential(L(4, 8), nn.SiLU(), L(8, 8)), L(8, 4)
        self.norm, self.conv, self.out = nn.GroupNorm(1, 2), nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x, t):
        angles = t[:, None] / 10 ** torch.arange(2.0)
        scale, shift = self.film(self.embed(torch.cat([angles.sin(), angles.cos()], 1)))[..., None, None].chunk(2, 1)
        h = self.conv(functional.silu(self.norm(x) * (1 + scale) + shift))
        return self.out(torch.cat([h, x], 1))


class Transducer(nn.Module):
    """The joint network of an RNN-T: an encoder, a predictor of tokens, and the sum of all pairs."""

    def __init__(self):
        super().__init__()
        self.encoder, self.predictor = nn.LSTM(6, 4, batch_first=True), nn.GRU(4, 4, batch_first=True)
        self.embed, self.joint = nn.Embedding(5, 4), L(4, 5)

    def forward(self, x, tokens):
        audio, text = self.encoder(x)[0], self.predictor(self.embed(tokens))[0]
        return self.joint(torch.tanh(audio[:, :, None] + text[:, None]))


class Mixture(nn.Module):
    """A mixture of experts as in many repositories: a loop over experts, `index_add_`, and a balance loss."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = L(6, 3, bias=False), nn.ModuleList([mlp_seeded(i) for i in range(3)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            row, slot = (chosen == e).nonzero(as_tuple=True)
            if len(row):
                y.index_add_(0, row, expert(x[row]) * weights[row, slot, None])
        return y


def _balanced(model, x):
    p = _inner(model).gate(x).softmax(-1)
    return (
        model(x).square().mean() + 0.1 * (p.mean(0) * (p.argmax(-1)[:, None] == torch.arange(3)).double().mean(0)).sum()
    )


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return (x / scale).round().clamp(-8, 7) * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        inside = ((x / scale).abs() < 7).double()
        return g * inside, (g * ((x / scale).round() - x / scale) * inside).sum().view_as(scale)


class Quantized(nn.Module):
    """A linear layer of quantization-aware training by hand: learned step sizes, an observer as buffer."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = P(6, 6), P(6, seed=4)
        self.step = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        return functional.linear(x, FakeQuantize.apply(self.weight, self.step), self.bias)


class Proxy(nn.Module):
    """Proxies of classes on the unit sphere, with ArcFace's margin in forward."""

    def __init__(self):
        super().__init__()
        self.body, self.proxies = mlp_seeded(1), P(3, 6)

    def forward(self, x, y):
        cosine = functional.linear(functional.normalize(self.body(x)), functional.normalize(self.proxies))
        margin = torch.cos(torch.acos(cosine.clamp(-0.99, 0.99)) + 0.2)
        return functional.cross_entropy(4 * torch.where(functional.one_hot(y, 3).bool(), margin, cosine), y)


def _vector_quantized(m, x):
    """The nearest code, straight through, with both losses."""
    z = m.a(x)
    q = m.codes[torch.cdist(z, m.codes).argmin(1)]
    m.loss = (q - z.detach()).square().mean() + 0.25 * (z - q.detach()).square().mean()
    return m.b(z + (q - z).detach())


def _gumbel(m, x):
    """Gumbel-softmax, hard and straight through, with numbers that each sample brings."""
    soft = (m.a(x) + x.sigmoid()).softmax(-1)
    hard = functional.one_hot(soft.argmax(-1), 6).double()
    return m.b(hard - soft.detach() + soft)


add("vision transformer with a class token", LayerScale, sequences())
add(
    "diffusion block, steps embedded",
    Timed,
    lambda: [(rows(n, 2, 4, 4, seed=n), words(n).double(), rows(n, 2, 4, 4, seed=9)) for n in (7, 6, 8)],
    loss=lambda model, x, t, noise: (model(x + noise, t) - noise).square().mean(),
)
add(
    "transducer",
    Transducer,
    lambda: [(rows(n, 3, 6, seed=n), words(n, 2, below=5)) for n in (7, 6, 8)],
    loss=lambda model, x, y: -model(x, y).log_softmax(-1)[..., 0].mean(),
)
add("mixture of experts by index_add_", Mixture)
add("mixture of experts with a balance loss", Mixture, loss=_balanced)
add("steps of quantization learned", lambda: nn.Sequential(Quantized(), nn.Tanh(), Quantized()))
add("ArcFace", Proxy, labelled(), loss=lambda model, x, y: model(x, y))
add(
    "vector quantization",
    two(_vector_quantized, codes=lambda: P(5, 6)),
    loss=lambda model, x: model(x).square().mean() + _inner(model).loss,
)
add("Gumbel-softmax, straight through", two(_gumbel))


def _inner(model):
    return getattr(model, "module", model)


# -- layers that mix the samples of a batch ----------------------------------------------------------------------------
def _attends_to_samples(m, x):
    y = m.a(x)
    return m.b((y @ y.t()).softmax(-1) @ y)


MIXING = {
    "softmax over samples": lambda m, x: m.b(m.a(x).softmax(0)),
    "batch's mean removed in forward": lambda m, x: m.b(m.a(x) - m.a(x).mean(0)),
    "attention between samples": _attends_to_samples,
    "largest samples kept in forward": lambda m, x: m.b(m.a(x)).square().sum(1).topk(2).values,
    "minibatch discrimination": lambda m, x: m.b(x) + torch.cdist(m.a(x), m.a(x)).neg().exp().sum(1, keepdim=True),
}


for name, forward in MIXING.items():
    add(f"{name}, same batch", two(forward), same=True)
