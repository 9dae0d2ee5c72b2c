"""Models collected from courses, papers and repositories: what one layer does to another, and what torch wraps."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import fusion, parametrizations, parametrize
from torch.utils.checkpoint import checkpoint
from zoo.entries import L, Model, P, changed, mlp, two
from zoo.entries_layers import images, sequences
from zoo.registry import add, rows, vectors


# -- layers whose parameters are read elsewhere
class Tokenizer(nn.Module):
    """A layer with methods of its own, and no use of `forward`."""

    def __init__(self):
        super().__init__()
        self.w = P(6, 6)

    def encode(self, x):
        return torch.tanh(x @ self.w)

    def decode(self, x):
        return x @ self.w.t()


class Adapted(nn.Module):
    """LoRA by a hook on a layer that knows nothing of it."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = L(6, 6).requires_grad_(False), P(6, 2), P(2, 6)
        self.base.register_forward_hook(lambda layer, args, y: y + args[0] @ self.down @ self.up)

    def forward(self, x):
        return self.base(x)


class Forwarding(nn.Module):
    """Asks the module inside for whatever it has not."""

    def __init__(self):
        super().__init__()
        self.inside = two(lambda m, x: m.b(x))()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inside"), name)

    def forward(self, x):
        return self.inside(torch.tanh(self.a(x)))


class Slotted(nn.Module):
    __slots__ = ("factor", "layer_list")

    def __init__(self):
        super().__init__()
        self.l, self.factor = L(6, 6), 0.5
        self.layer_list = [self.l]

    def forward(self, x):
        return self.layer_list[0](x) * self.factor


class Called(nn.Module):
    """`__call__` instead of `forward`."""

    def __init__(self):
        super().__init__()
        self.w = P(6, 6)

    def __call__(self, x):
        return x @ self.w


add("layer's own methods", lambda: Model(lambda m, x: m.t.decode(m.l(m.t.encode(x))), t=Tokenizer(), l=L(6, 6)))
add("LoRA by a hook", lambda: nn.Sequential(Adapted(), nn.Tanh(), L(6, 6)))
add("__getattr__ that forwards", Forwarding)
add("__slots__", Slotted)
add("__call__ instead of forward", lambda: Model(lambda m, x: m.l(m.c(x)), c=Called(), l=L(6, 6)))
add(
    "autoencoder with one tied kernel",
    lambda: Model(lambda m, x: functional.conv_transpose2d(torch.relu(m.c(x)), m.c.weight), c=nn.Conv2d(2, 3, 3)),
    images(),
)
add(
    "convolution and BatchNorm fused",
    lambda: nn.Sequential(
        fusion.fuse_conv_bn_eval(nn.Conv2d(2, 2, 3).eval(), nn.BatchNorm2d(2).eval()), nn.Flatten(), L(32, 3)
    ),
    images(),
)
add(
    "spectral norm, three iterations",
    lambda: nn.Sequential(L(6, 6), parametrizations.spectral_norm(L(6, 6), n_power_iterations=3)),
)
add(
    "parametrization made permanent",
    lambda: changed(
        nn.Sequential(parametrizations.weight_norm(L(6, 6)), L(6, 6)),
        lambda m: parametrize.remove_parametrizations(m[0], "weight"),
    ),
)
add(
    "orthogonal by Householder",
    lambda: nn.Sequential(L(6, 6), parametrizations.orthogonal(L(6, 6), orthogonal_map="householder")),
)
add("traced by torch.fx", lambda: torch.fx.symbolic_trace(mlp()))
add("compiled before wrapping", lambda: nn.Sequential(torch.compile(mlp(), backend="eager"), L(6, 6)))


def _assigned(m, x):
    m.a.weight = nn.Parameter(m.a.weight.detach() * 0.5)
    return m.b(m.a(x))


def _decayed(m, x):
    m.a.weight.data.mul_(0.99)
    return m.b(m.a(x))


def _follows(m, x):
    """A target network inside the model, which follows in each forward pass (BYOL)."""
    with torch.no_grad():
        for mean, param in zip(m.b.parameters(), m.a.parameters(), strict=True):
            mean.lerp_(param, 0.1)
        goal = m.b(x)
    return m.a(x) - goal


add("parameter assigned in forward", two(_assigned))
add("data changed in forward", two(_decayed))
add("target network inside", lambda: changed(two(_follows)(), lambda m: m.b.requires_grad_(False)))


# -- architectures
def _dense_net(m, x):
    for layer in m.ls:
        x = torch.cat([x, torch.relu(layer(x))], 1)
    return m.out(x)


def _albert(m, x):
    for _ in range(3):
        x = m.norm(x + m.att(x, x, x, need_weights=False)[0])
    return x


def _coupling(m, x):
    """RealNVP: half of the numbers scale and shift the other half; the loss has the logarithm of the volume."""
    a, b = x.chunk(2, 1)
    log, shift = m.net(a).chunk(2, 1)
    return torch.cat([a, b * torch.tanh(log).exp() + shift], 1) - torch.tanh(log).sum(1, keepdim=True)


def _scan(m, x):
    """A linear recurrence over the words, one decay for each channel."""
    decay, state, found = torch.sigmoid(m.decay), 0, []
    for word in m.l(x).unbind(1):
        state = decay * state + word
        found.append(state)
    return torch.stack(found, 1)


def _linear_attention(m, x):
    q, k, v = m.l(x).chunk(3, -1)
    q, k = functional.elu(q) + 1, functional.elu(k) + 1
    return torch.einsum("bnd,bde->bne", q, torch.einsum("bnd,bne->bde", k, v)) / (q @ k.sum(1)[..., None])


def _alibi(m, x):
    q, k, v = m.l(x).chunk(3, -1)
    places = torch.arange(x.shape[1], dtype=x.dtype)
    return (q @ k.mT / math.sqrt(6) - m.slope.exp() * (places[:, None] - places).abs()).softmax(-1) @ v


def _spectral(m, x):
    """A Fourier layer: complex weights for the lowest frequencies."""
    return torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(m.w), n=6) + m.l(x)


def _squeezed(m, x):
    y = m.c(x)
    return y * torch.sigmoid(m.l(y.mean((2, 3))))[..., None, None]


def _supervised(m, x):
    found = []
    for layer, head in zip(m.ls, m.heads, strict=True):
        x = torch.tanh(layer(x))
        found.append(head(x))
    return torch.stack(found, 1)


def _splines(m, x):
    """KAN: each edge has a function of its own, a sum of bumps."""
    bumps = torch.exp(-(x[..., None] - m.centres).square())
    return torch.einsum("nig,oig->no", bumps, m.w)


def _checkpointed(reentrant):
    def forward(m, x):
        x = x.requires_grad_() if reentrant else x
        for layer in m.ls:
            x = checkpoint(layer, x, use_reentrant=reentrant)
        return x

    return lambda: Model(forward, ls=nn.ModuleList([mlp(), mlp()]))


def _layers(*widths):
    return nn.ModuleList([L(a, b) for a, b in widths])


add("DenseNet", lambda: Model(_dense_net, ls=_layers((6, 3), (9, 3)), out=L(12, 6)))
add(
    "ALBERT",
    lambda: Model(_albert, att=nn.MultiheadAttention(6, 2, batch_first=True), norm=nn.LayerNorm(6)),
    sequences(),
)
add("normalizing flow", lambda: Model(_coupling, net=L(3, 6)))
add("state space scan", lambda: Model(_scan, l=L(6, 6), decay=P(6)), sequences())
add("linear attention", lambda: Model(_linear_attention, l=L(6, 18)), sequences())
add(
    "ALiBi with a learned slope",
    lambda: Model(_alibi, l=L(6, 18), slope=nn.Parameter(torch.tensor(0.5).double())),
    sequences(),
)
add("Fourier layer", lambda: Model(_spectral, l=L(6, 6), w=P(4, 2)))
add("squeeze and excitation", lambda: Model(_squeezed, c=nn.Conv2d(2, 4, 3), l=L(4, 4)), images())
add("deep supervision", lambda: Model(_supervised, ls=_layers((6, 6), (6, 6)), heads=_layers((6, 2), (6, 2))))
add("splines on edges", lambda: Model(_splines, w=P(4, 6, 5), centres=nn.Buffer(torch.linspace(-2, 2, 5))))
add("checkpoints in a row", _checkpointed(False))
add("checkpoints in a row, reentrant", _checkpointed(True))
add(
    "Fourier features",
    lambda: Model(
        lambda m, x: m.l(torch.cat([(x @ m.b).sin(), (x @ m.b).cos()], 1)), b=nn.Buffer(rows(6, 4)), l=L(8, 6)
    ),
)
add(
    "bfloat16 inside",
    lambda: nn.Sequential(L(6, 6), Model(lambda m, x: m.l(x.bfloat16()).double(), l=L(6, 6).bfloat16())),
    tolerance=2e-2,
)
add(
    "sparse adjacency",
    lambda: Model(lambda m, x: torch.stack([torch.sparse.mm(torch.eye(3).to_sparse(), y) for y in m.l(x)]), l=L(6, 6)),
    sequences(),
)
add("batches of one sample", mlp, vectors(6, (3, 3, 3)))
