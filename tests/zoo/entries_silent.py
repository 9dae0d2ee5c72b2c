"""Loops that would train differently without an error: unequal parts, gradients changed by hand, ranks that differ."""

import copy
import warnings

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, Model, P, mlp, two
from zoo.entries_loops import loop, mlp_seeded, step
from zoo.registry import Entry, Kit, Weights, add, rows, sgd, vectors, words

from hpcdl.training import LAMB, LARS


# -- unequal parts
def _short_last(entry, kit, model, optimizer, batch, i):
    """Accumulation whose last microbatch is shorter, and losses divided by the number of microbatches."""
    (x,) = batch
    with kit.no_sync(model):
        (entry.loss(model, *kit.share((x[:4],))) / 2).backward()
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share((x[4:],))) / 2)


def _other_length(entry, kit, model, optimizer, batch, i):
    (x,) = batch
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share((x,))) + entry.loss(model, *kit.share((x[:5],))))


def _ignored(n):
    y = words(n, 3)
    y[: n // 2, 1:] = -100
    return y


add("accumulation, last microbatch shorter", mlp, vectors(6, (7, 9, 11)), loop=loop(_short_last))
add("two forwards of other lengths", mlp, loop=loop(_other_length))
add(
    "first input without samples",
    lambda: Model(lambda m, mask, x: m.a(x * mask[0]), a=L(6, 6)),
    loss=lambda m, x: m(torch.ones(3, 6), x).square().mean(),
)
add(
    "ignore_index, tokens counted",
    lambda: Model(
        lambda m, x, y: functional.cross_entropy(m.h(m.e(x)).flatten(0, 1), y.flatten()),
        e=nn.Embedding(10, 6),
        h=L(6, 10),
    ),
    lambda: [(words(n, 3), _ignored(n)) for n in (7, 6, 8)],
    loss=lambda m, x, y: m(x, y),
    options={"samples": lambda x, y: int((y != -100).sum())},
)


# -- gradients by hand
def by_hand(change, before):
    """`change(parameters)` before or after the ranks' gradients are synchronized."""

    def run(entry, kit, model, optimizer, batch, i):
        entry.loss(model, *kit.share(batch)).backward()
        for early in (True, False):
            if early == before:
                change(model.parameters())
            if early:
                kit.synchronize(model)
        optimizer.step()
        optimizer.zero_grad()

    return loop(run)


def _halve(params):
    for param in params:
        if param.grad is not None:
            param.grad.data.div_(2)


def _drop(entry, kit, model, optimizer, batch, i):
    entry.loss(model, *kit.share(batch)).backward()
    if i == 1:
        model.zero_grad()
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def clip_norm(params):
    nn.utils.clip_grad_norm_(params, 0.01)


add("torch's clip_grad_norm_", mlp, loop=by_hand(clip_norm, before=False))
add("torch's clip_grad_norm_, too early", mlp, loop=by_hand(clip_norm, before=True))
add(
    "torch's clip_grad_value_",
    mlp,
    loop=by_hand(lambda params: nn.utils.clip_grad_value_(list(params), 0.01), before=False),
)
add("gradients halved too early", mlp, loop=by_hand(_halve, before=True))
add("model.zero_grad() before synchronize", mlp, loop=loop(_drop))


# -- ranks that differ
def alone(change):
    """Before the second step `change(model)` on rank 0 alone; a single process does not."""

    def run(entry, kit, model, optimizer, batch, i):
        if i == 1 and kit.comm is not None and kit.rank == 0 and kit.size > 1:
            with torch.no_grad():
                change(kit.inner(model))
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))

    return loop(run)


def _own_rate(entry: Entry, kit: Kit) -> Weights:
    """A learning rate from this rank's loss."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        loss = entry.loss(model, *kit.share(batch))
        step(entry, kit, model, optimizer, loss)
        for group in optimizer.param_groups:
            group["lr"] = loss.item() / 10 if kit.size > 1 else 0.1
    return kit.weights(model)


add("rank 0 alone loads a state", mlp, loop=alone(lambda model: model.load_state_dict(mlp_seeded(7).state_dict())))
add("rank 0 alone changes a bias", mlp, loop=alone(lambda model: model[2].bias.add_(1)))
add("learning rate from one rank's loss", mlp, loop=_own_rate)
add(
    "functional embedding with max_norm",
    lambda: Model(lambda m, x: functional.embedding(x, m.w, max_norm=0.5), w=P(10, 6)),
    lambda: [(words(n, 2),) for n in (7, 6, 8)],
)

# -- optimizers
for name, make in {
    "LAMB": lambda params: LAMB(list(params), 0.05),
    "LARS": lambda params: LARS(list(params), 0.05),
    "Adafactor": lambda params: torch.optim.Adafactor(params, 0.05),
    "groups by p.dim()": lambda params: _by_axes(list(params)),
}.items():
    add(name, mlp, optimizer=make)


def _by_axes(params):
    weights, biases = [p for p in params if p.dim() > 1], [p for p in params if p.dim() < 2]
    return torch.optim.AdamW([{"params": weights, "weight_decay": 0.5}, {"params": biases, "weight_decay": 0.0}], 0.05)


def early(entry: Entry, kit: Kit) -> Weights:
    """The optimizer is made before the model is wrapped."""
    module = entry.build()
    optimizer = entry.optimizer(module.parameters())
    model = kit.wrap(module)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def halves(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizers = [kit.optimizer(kit.inner(model)[i], make) for i, make in ((0, sgd), (2, torch.optim.Adagrad))]
    for batch in entry.batches():
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return kit.weights(model)


def criterion(entry: Entry, kit: Kit) -> Weights:
    """A loss with a weight of its own, which the same optimizer steps."""
    model, scale = kit.wrap(entry.build()), nn.Parameter(torch.tensor([1.5]))
    optimizer = kit.optimizer(model, lambda params: entry.optimizer([*params, scale]))
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)) * scale.square().sum())
    return kit.weights(model)


add("optimizer made before wrapping", mlp, loop=early)
add("two optimizers, half of the layers each", mlp, lambda: [(rows(6, 6, seed=n),) for n in range(3)], loop=halves)
add("loss with a weight of its own", mlp, loop=criterion)


# -- the model from outside
def _penalty(entry, kit, model, optimizer, batch, i):
    norms = sum(param.norm() for param in model.parameters())
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)) + 0.1 * norms)


def average(entry: Entry, kit: Kit) -> Weights:
    """A moving average in a deepcopy of the inner module."""
    model = kit.wrap(entry.build())
    optimizer, twin = kit.optimizer(model, entry.optimizer), copy.deepcopy(kit.inner(model))
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        with torch.no_grad():
            for mean, param in zip(twin.parameters(), kit.inner(model).parameters(), strict=True):
                mean.lerp_(param, 0.1)
    return kit.weights(model) | {f"twin.{name}": x.detach() for name, x in twin.named_parameters()}


add("norms of weights in the loss", mlp, loop=loop(_penalty))
add("moving average in a deepcopy", mlp, loop=average)
add("SyncBatchNorm", lambda: nn.Sequential(L(6, 6), nn.SyncBatchNorm(6)))


# -- modules
def _routed(m, x):
    """Each rank uses the layers that its samples need."""
    y, first = torch.zeros_like(x), x[:, 0] > 0
    for rows_of, layer in ((first, m.a), (~first, m.b)):
        if rows_of.any():
            y[rows_of] = layer(x[rows_of])
    return y


def _inner_gradient(m, x):
    z = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(m.a(z).square().sum(), z)
    return m.b(x - 0.1 * g)


add("layers by sample, some unused on a rank", two(_routed), vectors(6, (5, 4, 6, 3)))
add("torch.autograd.grad inside", two(_inner_gradient))
add(
    "complex linear",
    lambda: Model(
        lambda m, x: torch.view_as_real(m.a(x.to(torch.complex128))).flatten(1), a=L(6, 6, dtype=torch.complex128)
    ),
)


def no_width() -> nn.Module:
    """Return two linear layers with nothing between them; torch warns that it has nothing to initialize."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(L(6, 0), L(0, 6))


add("layer of no width", no_width)
