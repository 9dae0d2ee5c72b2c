"""Penalties on weights as newcomers write them: in place, of one vector, by distances, spectra and learned factors."""

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, Model, P, mlp
from zoo.entries_loops import loop, step
from zoo.registry import add


def penalized(penalty, factor: float = 0.01):
    """A loop that adds `factor * penalty(parameters)` to the loss."""

    def run(entry, kit, model, optimizer, batch, i):
        params = [param for param in model.parameters() if param.requires_grad]
        loss = entry.loss(model, *kit.share(batch))
        step(entry, kit, model, optimizer, loss + factor * penalty(params))

    return loop(run)


def _in_place(entry, kit, model, optimizer, batch, i):
    loss = entry.loss(model, *kit.share(batch))
    for param in model.parameters():
        loss += 0.01 * param.pow(2).sum()
    step(entry, kit, model, optimizer, loss)


def _logged(entry, kit, model, optimizer, batch, i):
    """The loss with its penalty is read for a log."""
    loss = entry.loss(model, *kit.share(batch)) + 0.01 * sum(param.abs().sum() for param in model.parameters())
    model.__dict__.setdefault("_log", []).append(loss.item())
    step(entry, kit, model, optimizer, loss)


def _from_the_first(entry, kit, model, optimizer, batch, i):
    """A penalty on the distance to the first weights (elastic weight consolidation)."""
    first = model.__dict__.setdefault("_first", [param.detach().clone() for param in model.parameters()])
    far = sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), first, strict=True))
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)) + 0.1 * far)


def _by_gradients(entry, kit, model, optimizer, batch, i):
    """torch.autograd.grad of a loss with a penalty, put into .grad by hand."""
    params = list(model.parameters())
    loss = entry.loss(model, *kit.share(batch)) + 0.01 * sum(param.square().sum() for param in params)
    for param, gradient in zip(params, torch.autograd.grad(loss, params), strict=True):
        param.grad = gradient
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _norms_of_gradients(entry, kit, model, optimizer, batch, i):
    """The norms of the weights' gradients, not squared, in the loss."""
    loss = entry.loss(model, *kit.share(batch))
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    step(entry, kit, model, optimizer, loss + 0.1 * sum(g.norm() for g in grads))


def _learned_factor(entry, kit, model, optimizer, batch, i):
    inner = kit.inner(model)
    loss = entry.loss(model, *kit.share(batch)) + inner.s.exp().sum() * inner.a.weight.square().sum()
    step(entry, kit, model, optimizer, loss)


for name, penalty in {
    "penalty of one vector": lambda ps: torch.cat([p.view(-1) for p in ps]).pow(2).sum(),
    "norm of one vector in the loss": lambda ps: nn.utils.parameters_to_vector(ps).norm(),
    "mean of penalties": lambda ps: torch.stack([functional.softplus(p).sum() for p in ps]).mean(),
    "penalty by mse_loss": lambda ps: sum(functional.mse_loss(p, torch.zeros_like(p), reduction="sum") for p in ps),
    "spectral penalty": lambda ps: torch.linalg.matrix_norm(ps[0], 2),
    "largest weight in the loss": lambda ps: sum(p.abs().max() for p in ps),
    "group lasso": lambda ps: ps[0].pow(2).sum(1).sqrt().sum(),
    "differences of weights in the loss": lambda ps: (ps[0][1:] - ps[0][:-1]).abs().sum(),
}.items():
    add(name, mlp, loop=penalized(penalty))
add("norms of the weights' gradients in the loss", mlp, loop=loop(_norms_of_gradients))
add("penalty added in place", mlp, loop=loop(_in_place))
add("loss read with its penalty", mlp, loop=loop(_logged))
add("distance to the first weights", mlp, loop=loop(_from_the_first))
add("gradients of a penalty by torch.autograd.grad", mlp, loop=loop(_by_gradients))
add(
    "penalty with a learned factor",
    lambda: Model(lambda m, x: m.a(x), a=L(6, 6), s=P(1)),
    loop=loop(_learned_factor),
)
