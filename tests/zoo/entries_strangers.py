"""Models and loops as they are in other people's repositories: vision, language, generative models, self-supervision."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, Model, P, mlp
from zoo.entries_layers import images, sequences, tokens
from zoo.entries_loops import loop, step
from zoo.registry import Entry, Kit, Weights, add, rows, vectors, words


# -- vision
class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, channels last, and a scale for each channel."""

    def __init__(self):
        super().__init__()
        self.dwconv, self.norm = nn.Conv2d(2, 2, 3, padding=1, groups=2), nn.LayerNorm(2)
        self.pwconv1, self.pwconv2, self.gamma = L(2, 8), L(8, 2), P(2)

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.pwconv2(functional.gelu(self.pwconv1(y)))).permute(0, 3, 1, 2)


class WindowAttention(nn.Module):
    """Attention in shifted windows of two tokens, with a table of relative positions."""

    def __init__(self):
        super().__init__()
        self.relative_position_bias_table, self.qkv, self.proj = P(3, 2), L(6, 18), L(6, 6)
        places = torch.arange(2)
        self.register_buffer("relative_position_index", places[:, None] - places[None] + 1)

    def forward(self, x):
        b, n, _ = x.shape
        x = torch.roll(x, 1, 1).view(b * n // 2, 2, 6)
        q, k, v = self.qkv(x).view(-1, 2, 3, 2, 3).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.relative_position_index.flatten()].view(2, 2, 2).permute(2, 0, 1)
        scores = (q @ k.transpose(-2, -1) + bias).softmax(-1)
        return torch.roll(self.proj((scores @ v).transpose(1, 2).reshape(b, n, 6)), -1, 1)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.up = (
            nn.Conv2d(2, 4, 3, padding=1),
            nn.Conv2d(4, 8, 2, 2),
            nn.ConvTranspose2d(8, 4, 2, 2),
        )
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = torch.relu(self.inc(x))
        b = torch.relu(self.down(a))
        return self.out(torch.cat([a, self.up(b)], 1))


class FrozenNorm(nn.Sequential):
    """A backbone whose BatchNorms never leave eval mode."""

    def train(self, mode=True):
        super().train(mode)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
        return self


add("ConvNeXt", lambda: nn.Sequential(nn.Conv2d(2, 2, 1), ConvNeXtBlock(), ConvNeXtBlock()), images())
add("Swin", lambda: nn.Sequential(WindowAttention(), nn.LayerNorm(6), WindowAttention()), sequences(6, 4))
add("U-Net", UNet, images())
add("BatchNorm frozen in train()", lambda: FrozenNorm(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)).train(), images())


# -- language
class RMS(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = P(6)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Llama(nn.Module):
    """Rotary embeddings in buffers, a cache of keys and values for generation, gated layers."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings, self.norm, self.output = nn.Embedding(10, 6), RMS(), L(6, 10, bias=False)
        self.wq, self.wk, self.wv, self.wo = L(6, 6, bias=False), L(6, 3, bias=False), L(6, 3, bias=False), L(6, 6)
        self.w1, self.w2, self.w3 = L(6, 8, bias=False), L(8, 6, bias=False), L(6, 8, bias=False)
        angles = torch.outer(torch.arange(8.0), 1.0 / 10000 ** (torch.arange(0, 2, 2) / 2))
        self.register_buffer("freqs", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.register_buffer("cache", torch.zeros(16, 8, 3), persistent=False)

    def forward(self, x, start=0, cached=False):
        h = self.tok_embeddings(x)
        n = self.norm(h)
        q, k, v = self.wq(n).unflatten(-1, (2, 3)), self.wk(n), self.wv(n)
        turned = torch.view_as_complex(q[..., :2].contiguous()) * self.freqs[start : start + x.shape[1]]
        q = torch.cat([torch.view_as_real(turned), q[..., 2:]], -1)
        if cached:
            self.cache[: len(x), start : start + x.shape[1]] = k
            k = self.cache[: len(x), : start + x.shape[1]]
            v = v.expand(-1, k.shape[1], -1)
        y = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k[:, None].expand(-1, 2, -1, -1), v[:, None].expand(-1, 2, -1, -1), is_causal=not cached
        )
        h = h + self.wo(y.transpose(1, 2).flatten(2))
        return self.output(self.norm(h + self.w2(functional.silu(self.w1(h)) * self.w3(h))))


@dataclass
class Answer:
    loss: torch.Tensor
    logits: torch.Tensor


def _answer(m, x):
    logits = m.h(m.e(x))
    return Answer(functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()), logits)


def next_token(model, x):
    return functional.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())


def _generates(entry, kit, model, optimizer, batch, i):
    """A few tokens are generated between steps, with the cache."""
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    model.eval()
    with torch.no_grad():
        for start in range(2):
            model(words(2, 1), start, cached=True)
    model.train()


add("LLaMA", Llama, tokens(3), loss=next_token)
add("LLaMA that generates between steps", Llama, tokens(3), loss=next_token, loop=loop(_generates))
add(
    "dataclass with a loss",
    lambda: Model(_answer, e=nn.Embedding(10, 6), h=L(6, 10)),
    tokens(3),
    lambda m, x: m(x).loss,
)
add(
    "CTC",
    lambda: L(6, 5),
    lambda: [(rows(n, 6, 6, seed=n), 1 + words(n, 2, below=4)) for n in (7, 6, 8)],
    loss=lambda m, x, y: functional.ctc_loss(
        m(x).log_softmax(-1).transpose(0, 1), y, torch.full((len(x),), 6), torch.full((len(x),), 2)
    ),
)


# -- generative models
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar, self.dec = L(6, 8), L(8, 2), L(8, 2), L(2, 6)

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(mu + x[:, :2].sin() * (0.5 * logvar).exp()), mu, logvar


def elbo(model, x, mean=True):
    y, mu, logvar = model(x)
    if mean:
        return functional.mse_loss(y, x) - 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    bce = functional.binary_cross_entropy_with_logits(y, x.sigmoid(), reduction="sum")
    return bce + -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


class Denoiser(nn.Module):
    """Sines of the time step, and a scale and a shift from them."""

    def __init__(self):
        super().__init__()
        self.time, self.a, self.b = nn.Sequential(L(4, 8), nn.SiLU(), L(8, 16)), L(6, 8), L(8, 6)

    def forward(self, x, t):
        angles = t[:, None] * torch.exp(-math.log(100) * torch.arange(2) / 2)
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1)).chunk(2, 1)
        return self.b(functional.silu(self.a(x) * (1 + scale) + shift))


def noise_loss(model, x):
    t = (x.abs().sum(1) * 10).long() % 10
    noise, alpha = x.cos(), (1 - t / 10)[:, None]
    return functional.mse_loss(model(alpha.sqrt() * x + (1 - alpha).sqrt() * noise, t.double()), noise)


def diffusion(entry: Entry, kit: Kit) -> Weights:
    """A moving average of named parameters, as most repositories have it."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, lambda params: torch.optim.AdamW(params, 0.01))
    shadow = {name: param.detach().clone() for name, param in model.named_parameters()}
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        for name, param in model.named_parameters():
            shadow[name] = 0.9 * shadow[name] + 0.1 * param.detach()
    for name, param in model.named_parameters():
        param.data.copy_(shadow[name])
    return kit.weights(model)


def target_network(entry: Entry, kit: Kit, whole: bool = False) -> Weights:
    """Q-learning: a copy from before wrapping follows the model."""
    module = entry.build()
    target = copy.deepcopy(module).requires_grad_(False)
    model = kit.wrap(module)
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        step(entry, kit, model, optimizer, (model(x) - target(x)).square().mean() + model(x).abs().mean())
        with torch.no_grad():
            if whole:
                for name, value in kit.weights(model).items():
                    target.get_parameter(name).lerp_(value, 0.1)
            else:
                for mean, param in zip(target.parameters(), model.parameters(), strict=True):
                    mean.data.mul_(0.9).add_(0.1 * param.data)
    return kit.weights(model) | {f"target.{name}": x for name, x in target.named_parameters()}


add("VAE", VAE, loss=elbo)
add("VAE with sums, equal parts", VAE, vectors(6, (6, 12, 6)), loss=lambda m, x: elbo(m, x, False))
add("VAE with sums, divided", VAE, vectors(6, (6, 12, 7)), loss=lambda m, x: elbo(m, x, False) / len(x))
add("diffusion", Denoiser, loss=noise_loss, loop=diffusion)
add("target network", mlp, loop=target_network)
add("target network from whole weights", mlp, loop=lambda entry, kit: target_network(entry, kit, True))
