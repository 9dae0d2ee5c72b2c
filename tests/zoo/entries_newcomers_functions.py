"""Modules as newcomers bring them: functions of their own, graphs, solvers, experts, and what is made late."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from zoo.entries import L, Model, P, changed, two
from zoo.entries_layers import sequences
from zoo.registry import add, rows, words


# -- functions of their own -------------------------------------------------------------------------------------------
class Product(torch.autograd.Function):
    """A linear layer by hand, which saves its weight."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy @ weight.T, x.T @ dy


class Keeps(torch.autograd.Function):
    """The same, which keeps its weight as an attribute."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.x, ctx.weight = x, weight
        return x @ weight

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.weight.T, ctx.x.T @ dy


class Chosen(torch.autograd.Function):
    """The largest, and where it was: integers without a gradient."""

    @staticmethod
    def forward(ctx, x):
        y, i = x.max(1)
        ctx.save_for_backward(i)
        ctx.width = x.shape[1]
        ctx.mark_non_differentiable(i)
        return y, i

    @staticmethod
    def backward(ctx, dy, _):
        (i,) = ctx.saved_tensors
        return functional.one_hot(i, ctx.width) * dy[:, None]


add("function that saves its weight", lambda: Model(lambda m, x: m.a(Product.apply(x, m.w)), a=L(6, 6), w=P(6, 6)))
add("function that keeps its weight", lambda: Model(lambda m, x: m.a(Keeps.apply(x, m.w)), a=L(6, 6), w=P(6, 6)))
add("function with integers", two(lambda m, x: m.b(m.a(x)) * Chosen.apply(m.a(x))[0][:, None]))


# -- graphs, sets, solvers --------------------------------------------------------------------------------------------
EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])


def _messages(m, x):
    sent = torch.relu(m.a(torch.cat([x[:, EDGES[0]], x[:, EDGES[1]]], -1)))
    return m.b(torch.zeros_like(x).index_add(1, EDGES[1], sent))


def _reduced(m, x):
    index = EDGES[1][None, :, None].expand(len(x), -1, 6)
    sent = m.a(x)[:, EDGES[0]]
    return m.b(torch.zeros_like(x).scatter_reduce(1, index, sent, "amax", include_self=False))


def _euler(m, x):
    for _ in range(4):
        x = x + 0.25 * torch.tanh(m.a(x))
    return x


class Equilibrium(nn.Module):
    """A fixed point found without a graph, and its gradient by another one in a hook."""

    def __init__(self):
        super().__init__()
        self.f = changed(L(6, 6), lambda m: m.weight.data.mul_(0.3))

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(30):
                z = torch.tanh(self.f(z) + x)
        return torch.tanh(self.f(z) + x)


def _routed_votes(m, x):
    """Capsules: agreement by three rounds; only the last has a gradient."""
    votes = m.a(x).unflatten(1, (3, 4))
    logits = torch.zeros_like(votes[..., :1])
    for _ in range(2):
        out = (logits.softmax(1) * votes.detach()).sum(1, keepdim=True)
        logits = logits + (votes.detach() * out).sum(-1, keepdim=True)
    return (logits.softmax(1) * votes).sum(1)


def _chain(m, x):
    """The forward algorithm of a chain with learned transitions."""
    a = m.a(x)
    alpha = a[:, 0]
    for t in range(1, x.shape[1]):
        alpha = (alpha[:, :, None] + m.t).logsumexp(1) + a[:, t]
    return alpha


add("messages along edges", lambda: Model(_messages, a=L(12, 6), b=L(6, 6)), sequences())
add("largest message", two(_reduced), sequences())
add("mean over a set", two(lambda m, x: m.b(torch.relu(m.a(x)).mean(1))), sequences())
add("ordinary differential equation", lambda: Model(_euler, a=L(6, 6)))
add("deep equilibrium", Equilibrium)
add("capsules", lambda: Model(_routed_votes, a=L(6, 12)))
add("conditional random field", lambda: Model(_chain, a=L(6, 4), t=P(4, 4)), sequences())


# -- experts and depth ------------------------------------------------------------------------------------------------
def _by_token(m, x):
    """The best of four experts for each token; an expert without tokens is not called."""
    p = m.gate(x).softmax(-1)
    best, which = p.max(-1)
    y = torch.zeros_like(x)
    for i, expert in enumerate(m.experts):
        (at,) = (which == i).nonzero(as_tuple=True)
        if len(at):
            y = y.index_add(0, at, expert(x[at]) * best[at, None])
    return y


def _kept_features(m, x):
    """Dropout of features, drawn with a generator of its own."""
    kept = torch.rand(6, generator=torch.Generator().manual_seed(m.drawn)) > 0.3
    return m.b(torch.tanh(m.a(x)) * kept / 0.7)


def _random_depth(m, x):
    """Layers skipped at random, the same on every rank."""
    skipped = torch.randperm(3, generator=torch.Generator().manual_seed(len(m.layers)))[:1]
    for i, layer in enumerate(m.layers):
        x = x if i in skipped else x + torch.tanh(layer(x))
    return x


for name in ("experts by token", "experts by token, their module in layers="):
    add(name, lambda: Model(_by_token, gate=L(6, 4), experts=nn.ModuleList([L(6, 6) for _ in range(4)])))
add("dropout of features", two(_kept_features, drawn=lambda: 7))
add("stochastic depth", lambda: Model(_random_depth, layers=nn.ModuleList([L(6, 6) for _ in range(3)])))


# -- made late, or in other ways --------------------------------------------------------------------------------------
class Late(nn.Module):
    """`late(self)` in its first forward pass."""

    def __init__(self, late, **parts):
        super().__init__()
        self._late = late
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        if self._late:
            late, self._late = self._late, None
            late(self)
        return self.a(x) * getattr(self, "s", 1.0)


def _dotted(m):
    m._modules["a.b"] = L(6, 6)
    m._call = lambda m, x: m._modules["a.b"](m.a(x))


def _renamed(m):
    m._register_state_dict_hook(
        lambda _, state, prefix, __: state.update({f"{prefix}old": state.pop(f"{prefix}weight")})
    )
    m.register_load_state_dict_pre_hook(
        lambda _, state, prefix, *__: state.update({f"{prefix}weight": state.pop(f"{prefix}old")})
    )


def _inferred():
    with torch.inference_mode():
        return torch.ones(6, dtype=torch.float64)


def _generated(m, x):
    yield m.a(x)
    yield m.b(m.a(x))


add("parameter made in forward", lambda: Late(lambda m: setattr(m, "s", P(6)), a=L(6, 6)))
add("buffer made in forward", lambda: Late(lambda m: m.register_buffer("s", rows(6), persistent=False), a=L(6, 6)))
add("weight filled in forward", lambda: Late(lambda m: nn.init.constant_(m.a.weight, 0.1), a=L(6, 6)))
add("layer frozen in forward", lambda: Late(lambda m: m.s.requires_grad_(False), a=L(6, 6), s=P(6)))
add("module whose name has a dot", lambda: changed(Model(None, a=L(6, 6)), _dotted))
add("names changed by a state_dict hook", lambda: nn.Sequential(L(6, 6), changed(L(6, 6), _renamed)))
add("layers in a plain list", lambda: Model(lambda m, x: m.hidden[0](m.a(x)), a=L(6, 6), hidden=[L(6, 6)]))
add("buffer from inference_mode", lambda: Model(lambda m, x: m.a(x) + m.s, a=L(6, 6), s=nn.Buffer(_inferred())))
add("outputs by a generator", two(_generated), loss=lambda m, x: sum(y.square().mean() for y in m(x)))
add("a function as output", two(lambda m, x: lambda: m.b(m.a(x))), loss=lambda m, x: m(x)().square().mean())
add(
    "time beside the batch",
    two(lambda m, t, x: m.b(m.a(x) * t)),
    loss=lambda m, x: m(torch.tensor(0.3), x).square().mean(),
)
add("numpy as input", two(lambda m, x: m.b(m.a(torch.from_numpy(x)))), loss=lambda m, x: m(x.numpy()).square().mean())
add("without inputs", two(lambda m: m.b(m.a(torch.eye(6)))), loss=lambda m, _: m().square().mean())
add(
    "nested checkpoints",
    two(
        lambda m, x: checkpoint(
            lambda h: m.b(checkpoint(torch.tanh, m.a(h), use_reentrant=False)), x, use_reentrant=False
        )
    ),
)
add(
    "rotary positions",
    lambda: Model(
        lambda m, x: m.b(
            torch.view_as_real(
                torch.view_as_complex(m.a(x).unflatten(-1, (3, 2))) * m.turns[: x.shape[1], None]
            ).flatten(2)
        ),
        a=L(6, 6),
        b=L(6, 6),
        turns=nn.Buffer(torch.polar(torch.ones(5), torch.arange(5.0)), persistent=False),
    ),
    sequences(),
)
add(
    "flags as buffers",
    lambda: Model(
        lambda m, x: m.a(x) * m.on + m.low.double(),
        a=L(6, 6),
        on=nn.Buffer(torch.tensor([True, False] * 3)),
        low=nn.Buffer(torch.ones(6, dtype=torch.bfloat16)),
    ),
)
add(
    "words of two vocabularies",
    lambda: Model(lambda m, x: m.a(x % 4) + m.b(x), a=nn.Embedding(4, 6), b=nn.Embedding(10, 6)),
    lambda: [(words(n, 2),) for n in (7, 6, 8)],
)
