"""Modules and loops as users bring them: models of other libraries, torch.func, autocast, changes after wrapping."""

import copy

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from zoo.entries import L, Model, P, changed, mlp, two
from zoo.entries_layers import images, sequences, tokens
from zoo.entries_loops import mlp_seeded
from zoo.registry import add


# -- models of other libraries ----------------------------------------------------------------------------------------
class Output(dict):
    """As the outputs of transformers: a dict whose keys are attributes."""

    __getattr__ = dict.__getitem__


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = L(6, 6), L(6, 3, bias=False), L(6, 3, bias=False), L(6, 6)
        self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool).tril(), persistent=False)

    def forward(self, hidden_states, past=None):
        q, k, v = (f(hidden_states).unflatten(-1, (-1, 3)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2)), (k, v)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(6), nn.LayerNorm(6), Attention()
        self.up, self.gate, self.down = L(6, 8), L(6, 8), L(8, 6)

    def forward(self, hidden_states, **kwargs):
        y, present = self.attention(hidden_states=self.norm1(hidden_states), **kwargs)
        h = hidden_states + y
        n = self.norm2(h)
        return (h + self.down(functional.silu(self.gate(n)) * self.up(n)), present)


class Decoder(nn.Module):
    """A causal language model as in transformers: labels in, a loss and logits out, tied embeddings."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(10, 6), nn.Embedding(3, 6)
        self.h = nn.ModuleList([Block(), Block()])
        self.ln_f, self.lm_head = nn.LayerNorm(6), L(6, 10, bias=False)
        self.lm_head.weight = self.wte.weight
        self.config = {"tie_word_embeddings": True}

    def forward(self, input_ids=None, labels=None, return_dict=True):
        h, presents = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1])), []
        for block in self.h:
            h, present = block(h, past=None)
            presents.append(present)
        logits = self.lm_head(self.ln_f(h))
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return Output(loss=loss, logits=logits, past=tuple(presents))


class Residual(nn.Module):
    """A block of a ResNet, with ReLU in place."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.Conv2d(2, 2, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.relu = nn.GroupNorm(1, 2), nn.GroupNorm(1, 2), nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += x
        return self.relu(out)


class Forwards(nn.Module):
    """Attributes that it does not have are those of the model inside, as in PEFT and timm."""

    def __init__(self):
        super().__init__()
        self.base = mlp_seeded(1)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)

    def forward(self, x):
        return self.base(x)


class LoRA(nn.Module):
    """A frozen layer and two small factors beside it."""

    def __init__(self):
        super().__init__()
        self.base, self.a, self.b = L(6, 6).requires_grad_(False), P(6, 2), P(2, 6)

    def forward(self, x):
        return self.base(x) + x @ self.a @ self.b


class Drawn(nn.Module):
    """A list of layers called by number; one returns early."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([L(6, 6) for _ in range(3)])

    def forward(self, x, depth=2):
        for layer in self.layers[:depth]:
            x = torch.tanh(layer(x))
        return x


add(
    "language model of transformers' kind",
    Decoder,
    tokens(3),
    loss=lambda model, x: model(input_ids=x, labels=x).loss,
)
add("ResNet with ReLU in place", lambda: nn.Sequential(nn.Conv2d(2, 2, 1), Residual(), Residual()), images())
add("attributes of the model inside", Forwards)
add("LoRA", lambda: nn.Sequential(LoRA(), nn.Tanh(), LoRA()))
add("layers by depth", Drawn, loss=lambda model, x: model(x, depth=2).square().mean())
add("module made by deepcopy", lambda: copy.deepcopy(mlp()))
add(
    "flatten_parameters each time",
    lambda: Model(lambda m, x: m.r.flatten_parameters() or m.r(x)[0], r=nn.GRU(6, 4, batch_first=True)),
    sequences(),
)
add(
    "forward replaced on the instance", lambda: changed(mlp(), lambda m: setattr(m, "forward", lambda x: m[2](m[0](x))))
)
add(
    "forward of a layer replaced",
    lambda: changed(
        mlp(), lambda m: setattr(m[0], "forward", lambda x: functional.linear(x, m[0].weight * 2, m[0].bias))
    ),
)
add("weights stacked in forward", two(lambda m, x: functional.linear(x, torch.cat([m.a.weight, m.b.weight]))))
add("parameters() used in forward", two(lambda m, x: m.b(m.a(x)) + sum(p.square().sum() for p in m.parameters())))
add("named_parameters() used in forward", two(lambda m, x: m.b(m.a(x)) * dict(m.named_parameters())["a.bias"]))

# -- torch.func, autocast, anomaly ------------------------------------------------------------------------------------
add(
    "functional_call inside",
    two(lambda m, x: functional_call(m.b, {"weight": m.b.weight * 2, "bias": m.b.bias}, (m.a(x),))),
)
add("vmap inside", two(lambda m, x: torch.vmap(m.b)(m.a(x))))
add("jvp inside", two(lambda m, x: m.b(torch.func.jvp(torch.tanh, (m.a(x),), (x,))[1])))
add("func.grad inside", two(lambda m, x: m.b(torch.func.vmap(torch.func.grad(lambda h: h.square().sum()))(m.a(x)))))


def _autocast(m, x):
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        return m.b(torch.relu(m.a(x)))


add("autocast switched off inside", two(_autocast))


def _double_backward(model, x):
    x = x.clone().requires_grad_()
    y = model(x)
    (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    return g.square().mean() + y.square().mean()


add("double backward beside the loss", mlp, loss=_double_backward)
