"""Modules and loops that users brought, each unlike the other files' in one respect."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize
from zoo.entries import L, Model, P, legacy, mlp, two
from zoo.entries_layers import sequences
from zoo.entries_loops import loop, step
from zoo.registry import add, words

# -- modules
add(
    "Transformer, norm first, GELU, no bias",
    lambda: Model(
        lambda m, x: m.t(x, x.flip(1), tgt_is_causal=False),
        t=legacy(partial(nn.Transformer, norm_first=True, bias=False, batch_first=True), 6, 2, 1, 1, 8, 0.0, "gelu"),
    ),
    sequences(),
)
add(
    "TransformerEncoder with masks",
    lambda: Model(
        lambda m, x: m.t(
            x,
            mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype),
            src_key_padding_mask=torch.zeros(x.shape[:2], dtype=x.dtype),
        ),
        t=nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), 2, norm=nn.LayerNorm(6)),
    ),
    sequences(),
)
add(
    "slices of one parameter",
    lambda: Model(lambda m, x: torch.tanh(x @ m.w[:, :6] + m.w[0, 6:]) @ m.w[:, 6:], w=P(6, 12)),
)
add("transposes tied", lambda: Model(lambda m, x: torch.tanh(x @ m.w) @ m.w.t(), w=P(6, 4)))


class Pair(nn.Module):
    """A parametrization with a parameter of its own and an inverse of two tensors."""

    def __init__(self):
        super().__init__()
        self.scale = P(6)

    def forward(self, u, v):
        return u @ v * self.scale

    def right_inverse(self, w):
        u, s, v = torch.linalg.svd(w)
        return u[:, :2] * s[:2], v[:2]


def pair():
    model = nn.Sequential(L(6, 6), nn.Tanh(), L(6, 6))
    parametrize.register_parametrization(model[2], "weight", Pair(), unsafe=True)
    return model


def _cached(m, x):
    with parametrize.cached():
        return m.net(torch.tanh(m.net(x)))


add("parametrization of two tensors", pair)
add("parametrization, cached", lambda: Model(_cached, net=pair()))
add(
    "EmbeddingBag with offsets",
    lambda: Model(lambda m, x, offsets: m.bag(x.flatten(), offsets), bag=nn.EmbeddingBag(10, 6, mode="mean")),
    lambda: [(words(n, 2), torch.arange(n) * 2) for n in (7, 6, 8)],
    loss=lambda m, x, offsets: m(x, offsets - offsets[:1]).square().mean(),
)
add(
    "EmbeddingBag, words first",
    lambda: Model(lambda m, x, offsets: m.bag(x, offsets), bag=nn.EmbeddingBag(10, 6, mode="sum")),
    lambda: [(words(n, 3),) for n in (7, 6, 8)],
    loss=lambda m, x: m(x[:, : 1 + len(x) % 2].flatten(), torch.arange(len(x)) * (1 + len(x) % 2)).square().mean(),
)
add("gates in float32", two(lambda m, x: m.b(m.a(x)) * m.g.double(), g=lambda: nn.Parameter(torch.ones(6).float() / 3)))
add(
    "packed sequences",
    lambda: Model(
        lambda m, x: nn.utils.rnn.pad_packed_sequence(
            m.r(nn.utils.rnn.pack_padded_sequence(x, torch.full((len(x),), 2), batch_first=True))[0], batch_first=True
        )[0],
        r=nn.GRU(6, 4, batch_first=True),
    ),
    sequences(),
)
add(
    "ConvTranspose with weight norm and GLU",
    lambda: nn.Sequential(L(6, 12), nn.GLU(), nn.utils.parametrizations.weight_norm(L(6, 6))),
)


# -- loops
def _scaled(entry, kit, model, optimizer, batch, i):
    """torch's GradScaler."""
    scaler = model.__dict__.setdefault("_scaler", torch.amp.GradScaler("cpu", init_scale=4.0))
    scaler.scale(entry.loss(model, *kit.share(batch))).backward()
    kit.synchronize(model)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def _zero_late(entry, kit, model, optimizer, batch, i):
    """zero_grad between forward and backward."""
    loss = entry.loss(model, *kit.share(batch))
    optimizer.zero_grad()
    loss.backward()
    kit.synchronize(model)
    optimizer.step()


def _all_without_sync(entry, kit, model, optimizer, batch, i):
    """All backward passes in no_sync, then synchronize."""
    (x,) = batch
    with kit.no_sync(model):
        for part in (x[:6], x[:6].flip(1)):
            (entry.loss(model, *kit.share((part,))) / 2).backward()
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _as_many_as_rows(entry, kit, model, optimizer, batch, i):
    """A microbatch for each row, so that ranks have different numbers of them."""
    (x,) = kit.share(batch)
    for row in x[:-1]:
        with kit.no_sync(model):
            (entry.loss(model, row[None]) / len(x)).backward()
    step(entry, kit, model, optimizer, entry.loss(model, x[-1:]) / len(x))


def _sam(entry, kit, model, optimizer, batch, i):
    """Sharpness-aware minimization: a step up, a second gradient, and back."""
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    with torch.no_grad():
        params = [param for param in model.parameters() if param.grad is not None]
        norm = torch.stack([param.grad.norm() for param in params]).norm()
        ups = [0.05 * param.grad / norm for param in params]
        for param, up in zip(params, ups, strict=True):
            param.add_(up)
    optimizer.zero_grad()
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    with torch.no_grad():
        for param, up in zip(params, ups, strict=True):
            param.sub_(up)
    optimizer.step()
    optimizer.zero_grad()


def _normalized(entry, kit, model, optimizer, batch, i):
    """Weights are normalized after each step."""
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    with torch.no_grad():
        for param in model.parameters():
            param.div_(1 + param.norm())


def _clipped_weights(entry, kit, model, optimizer, batch, i):
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    for param in model.parameters():
        param.data.clamp_(-0.3, 0.3)


def _squares_by_hand(entry, kit, model, optimizer, batch, i):
    """Clipping by a norm that the loop computes."""
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    norm = torch.stack([(param.grad**2).sum() for param in model.parameters()]).sum().sqrt()
    for param in model.parameters():
        param.grad.mul_(0.01 / norm)
    optimizer.step()
    optimizer.zero_grad()


def _signs(entry, kit, model, optimizer, batch, i):
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    for param in model.parameters():
        param.grad.sign_()
    optimizer.step()
    optimizer.zero_grad()


def _truncated(entry, kit, model, optimizer, batch, i):
    """Backward through some steps of a recurrence, then continue from a detached state."""
    (x,) = kit.share(batch)
    h = torch.zeros_like(x)
    for _ in range(2):
        h = model(x + h.detach())
        h = model(h)
        step(entry, kit, model, optimizer, h.square().mean())


def _gradient_penalty_of_weights(entry, kit, model, optimizer, batch, i):
    """The norm of the weights' gradient in the loss."""
    loss = entry.loss(model, *kit.share(batch))
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    step(entry, kit, model, optimizer, loss + 0.1 * sum(g.square().sum() for g in grads))


def _spread(entry, kit, model, optimizer, batch, i):
    """A term of the batch's standard deviation."""
    y = model(*kit.share(batch))
    step(entry, kit, model, optimizer, y.square().mean() + y.std())


def _coupled(entry, kit, model, optimizer, batch, i):
    """A contrastive loss: samples are compared with each other."""
    y = functional.normalize(model(*kit.share(batch)), dim=-1)
    step(entry, kit, model, optimizer, functional.cross_entropy(y @ y.t(), torch.arange(len(y))))


def _without_batch(entry, kit, model, optimizer, batch, i):
    loss = entry.loss(model, *kit.share(batch)) + 0.01 * kit.inner(model)[0].weight.square().sum()
    step(entry, kit, model, optimizer, loss)


for name, each in {
    "torch's GradScaler": _scaled,
    "zero_grad between forward and backward": _zero_late,
    "all backwards in no_sync": _all_without_sync,
    "microbatches as many as rows": _as_many_as_rows,
    "sharpness-aware minimization": _sam,
    "weights normalized after steps": _normalized,
    "weights clamped after steps": _clipped_weights,
    "clipping by squares summed by hand": _squares_by_hand,
    "signs of gradients": _signs,
    "truncated backward through time": _truncated,
    "norm of the weights' gradient in the loss": _gradient_penalty_of_weights,
    "standard deviation over the batch": _spread,
    "contrastive loss": _coupled,
    "penalty on one layer in the loss": _without_batch,
}.items():
    add(name, mlp, loop=loop(each))
