"""Parameters, buffers and modules arranged in unusual ways: shared, tied, frozen, in lists, changed by hooks."""

import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint
from zoo.registry import add, rows, words

from hpcdl.sharding import checkpointed

L = nn.Linear


class Model(nn.Module):
    """A module from its parts and a forward pass: `Model(lambda m, x: m.a(x), a=nn.Linear(6, 6))`."""

    def __init__(self, forward, **parts):
        super().__init__()
        self._call = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self._call(self, *args, **kwargs)


def P(*shape, seed=3):
    return nn.Parameter(rows(*shape, seed=seed))


def mlp():
    return nn.Sequential(L(6, 8), nn.Tanh(), L(8, 6))


def two(forward, **more):
    """A model of two linear layers, `a` and `b`."""
    return lambda: Model(forward, a=L(6, 6), b=L(6, 6), **{name: make() for name, make in more.items()})


def changed(module, change):
    change(module)
    return module


def legacy(f, *args):
    """An old utility of torch, which warns that it is old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args)


add("linear", lambda: L(6, 6))
add("linear without bias", lambda: L(6, 6, bias=False))
add("MLP", mlp)
add("one parameter of one element", lambda: Model(lambda m, x: x * m.s, s=nn.Parameter(torch.tensor(1.5).double())))
add("scalar parameter", two(lambda m, x: m.b(m.a(x)) * m.s, s=lambda: nn.Parameter(torch.tensor(1.5).double())))
add("empty parameter", two(lambda m, x: m.b(m.a(x)) + m.e.sum(), e=lambda: P(0, 6)))
add("transposed parameter", two(lambda m, x: m.a(x) @ m.w, w=lambda: nn.Parameter(rows(6, 6).t())))
add("residual", two(lambda m, x: x + m.b(torch.relu(m.a(x)))))

# -- shared and tied
add("module in two places", lambda: changed(Model(lambda m, x: m.b(m.a(x)), a=L(6, 6)), lambda m: setattr(m, "b", m.a)))
add("tied weights", lambda: changed(two(lambda m, x: m.b(m.a(x)))(), lambda m: setattr(m.b, "weight", m.a.weight)))
add(
    "tied embedding and head",
    lambda: changed(
        Model(lambda m, x: m.head(torch.tanh(m.mid(m.emb(x)))), emb=nn.Embedding(10, 6), mid=L(6, 6), head=L(6, 10)),
        lambda m: setattr(m.head, "weight", m.emb.weight),
    ),
    lambda: [(words(n, 2),) for n in (7, 6, 8)],
)
add(
    "head by the embedding's weight",
    lambda: Model(
        lambda m, x: functional.linear(torch.tanh(m.mid(m.emb(x))), m.emb.weight), emb=nn.Embedding(10, 6), mid=L(6, 6)
    ),
    lambda: [(words(n, 2),) for n in (7, 6, 8)],
)
add("layer used twice", two(lambda m, x: m.a(torch.tanh(m.b(torch.tanh(m.a(x)))))))
add("recurrent loop", two(lambda m, x: sum(torch.tanh(m.a(x) + m.b(x) * i) for i in range(3))))
add("weight used outside its layer", two(lambda m, x: functional.linear(m.a(x), m.b.weight)))
add("bias used outside its layer", two(lambda m, x: m.a(x) + m.b.bias))
add("weight used inside and outside", two(lambda m, x: functional.linear(torch.tanh(m.b(m.a(x))), m.b.weight)))
add("penalty on weights in forward", two(lambda m, x: m.b(m.a(x)) + m.a.weight.square().sum()))

# -- lists
add("ParameterList", lambda: Model(lambda m, x: (x @ m.ws[0]) @ m.ws[1], ws=nn.ParameterList([P(6, 6), P(6, 6)])))
add("ParameterDict", lambda: Model(lambda m, x: x @ m.ws["u"], ws=nn.ParameterDict({"u": P(6, 6)}), a=L(6, 6)))
add(
    "ParameterList of a list's module",
    lambda: nn.Sequential(L(6, 6), Model(lambda m, x: x * m.p[0], p=nn.ParameterList([P(6)]))),
)
add(
    "parameters in a list of its own",
    lambda: changed(
        Model(lambda m, x: functional.linear(torch.tanh(m.a(x)), m.kept[0]), a=L(6, 6)),
        lambda m: setattr(m, "kept", [m.a.weight]),
    ),
)
add("ModuleList", lambda: Model(lambda m, x: m.ls[1](m.ls[0](x)), ls=nn.ModuleList([L(6, 6), L(6, 6)])))
add("ModuleDict", lambda: Model(lambda m, x: m.ls["v"](m.ls["u"](x)), ls=nn.ModuleDict({"u": L(6, 6), "v": L(6, 6)})))

# -- frozen and unused
add("frozen layer", lambda: changed(mlp(), lambda m: m[0].requires_grad_(False)))
add(
    "frozen in the middle",
    lambda: changed(nn.Sequential(*[L(6, 6) for _ in range(3)]), lambda m: m[1].requires_grad_(False)),
)
add("frozen bias", lambda: changed(mlp(), lambda m: m[0].bias.requires_grad_(False)))
add("unused layer", two(lambda m, x: m.a(x)))
add("part without gradient", two(lambda m, x: m.b(m.a(x).detach())))


def _no_grad_part(m, x):
    with torch.no_grad():
        h = m.a(x)
    return m.b(h)


add("part under no_grad", two(_no_grad_part))
add("routed by sample", two(lambda m, x: torch.where(x[:, :1] > 0, m.a(x), m.b(x))))
add("route that one rank has", two(lambda m, x: m.a(x) if x.sum() > 0 else m.b(x)), same=True)


# -- buffers
def buffered(value, persistent=True):
    def make():
        model = Model(lambda m, x: m.a(x) * m.t.sum(), a=L(6, 6))
        model.register_buffer("t", value(), persistent=persistent)
        return model

    return make


add("buffer", buffered(lambda: rows(6)))
add("non-persistent buffer", buffered(lambda: rows(6), persistent=False))
add("transposed buffer", buffered(lambda: rows(2, 3).t()))
add("expanded buffer", buffered(lambda: torch.ones(1, dtype=torch.float64).expand(5)))
add("integer buffer", buffered(lambda: torch.arange(4)))
add("scalar buffer", buffered(lambda: torch.tensor(2.0)))
add("empty buffer", lambda: changed(buffered(lambda: rows(6))(), lambda m: m.register_buffer("e", torch.zeros(0))))
add("buffer of None", lambda: changed(buffered(lambda: rows(6))(), lambda m: m.register_buffer("e", None)))


def shared_buffer():
    model = nn.Sequential(buffered(lambda: rows(6))(), buffered(lambda: rows(6))())
    model[1].t = model[0].t
    return model


add("buffer shared by two modules", shared_buffer)


def _counting(m, x):
    m.seen += 1
    m.mean = 0.9 * m.mean + 0.1
    return m.a(x) * m.mean


def counting():
    model = Model(_counting, a=L(6, 6))
    model.register_buffer("seen", torch.tensor(0))
    model.register_buffer("mean", torch.tensor(1.0).double())
    return model


add("buffers changed in forward", counting)


class Extra(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.steps = L(6, 6), 0

    def forward(self, x):
        self.steps += 1
        return self.a(x)

    def get_extra_state(self):
        return {"steps": self.steps}

    def set_extra_state(self, state):
        self.steps = state["steps"]


add("extra state", Extra)

# -- weights that hooks make
add("weight_norm, old", lambda: nn.Sequential(L(6, 6), legacy(nn.utils.weight_norm, L(6, 6))))
add("weight_norm, parametrization", lambda: nn.Sequential(L(6, 6), parametrizations.weight_norm(L(6, 6))))
add("spectral_norm, old", lambda: nn.Sequential(L(6, 6), nn.utils.spectral_norm(L(6, 6))), same=True)
add(
    "spectral_norm, parametrization", lambda: nn.Sequential(L(6, 6), parametrizations.spectral_norm(L(6, 6))), same=True
)
add("orthogonal parametrization", lambda: nn.Sequential(L(6, 6), parametrizations.orthogonal(L(6, 6))), tolerance=1e-11)
add("pruned", lambda: nn.Sequential(L(6, 6), prune.l1_unstructured(L(6, 6), "weight", amount=0.3)))
add(
    "pruned twice", lambda: changed(mlp(), lambda m: [prune.ln_structured(m[0], "weight", a, 2, 0) for a in (0.3, 0.2)])
)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).t()


add(
    "symmetric weight",
    lambda: nn.Sequential(changed(L(6, 6), lambda m: parametrize.register_parametrization(m, "weight", Symmetric()))),
)
add(
    "forward pre-hook", lambda: changed(mlp(), lambda m: m[2].register_forward_pre_hook(lambda _, args: (args[0] * 2,)))
)
add(
    "forward hook",
    lambda: changed(mlp(), lambda m: m[0].register_forward_hook(lambda _, args, out: out + args[0].sum(1, True))),
)
add(
    "hook that uses the weight",
    lambda: changed(mlp(), lambda m: m[0].register_forward_hook(lambda l, _, out: out * l.weight.mean())),
)
add(
    "full backward hook inside",
    lambda: changed(mlp(), lambda m: m[2].register_full_backward_hook(lambda _, gi, go: (gi[0] * 2,))),
)
add("hook on the output", two(lambda m, x: _doubled(m.b(m.a(x)))))


def _doubled(y):
    y.register_hook(lambda g: 2 * g)
    return y


def _clamped(m, x):
    with torch.no_grad():
        m.w.clamp_(-0.5, 0.5)
    return m.a(x) @ m.w


add("weight clamped in forward", lambda: Model(_clamped, a=L(6, 6), w=P(6, 6)))

# -- checkpointed
add(
    "checkpoint",
    two(lambda m, x: m.b(checkpoint(lambda h: torch.tanh(m.b(torch.tanh(h))), m.a(x), use_reentrant=False))),
)
add("checkpointed block", two(lambda m, x: checkpoint(m.b, torch.tanh(m.a(x)), use_reentrant=False)))
add("checkpoint, reentrant", two(lambda m, x: checkpoint(m.b, torch.tanh(m.a(x)), use_reentrant=True)))
add("checkpointed of hpcdl", two(lambda m, x: checkpointed(m.b, torch.tanh(m.a(x)))))

# -- inputs and outputs
add(
    "dict in and out",
    two(lambda m, batch: {"y": m.b(m.a(batch["x"]))}),
    lambda: [({"x": rows(6, 6)},)],
    loss=lambda m, b: m(b)["y"].square().mean(),
    same=True,
)
add("several outputs", two(lambda m, x: (m.a(x), [m.b(x)])), loss=lambda m, x: _both(*m(x)))
add(
    "keyword input",
    two(lambda m, x, scale=None: m.b(m.a(x)) * scale),
    loss=lambda m, x: m(x=x, scale=2.0).square().mean(),
)
add(
    "input with gradient",
    two(lambda m, x: m.b(m.a(x))),
    loss=lambda m, x: m(x.clone().requires_grad_()).square().mean(),
)
add("input changed in place", two(lambda m, x: m.b(torch.relu_(m.a(x)))))


def _both(y, others):
    return y.square().mean() + others[0].abs().mean()


def gradient_penalty(model, x):
    x = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    return g.square().mean()


add("gradient penalty", lambda: nn.Sequential(L(6, 8), nn.Tanh(), L(8, 1)), loss=gradient_penalty)
