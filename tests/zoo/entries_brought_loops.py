"""Loops and optimizers that users brought."""

import copy

import torch
from torch import nn
from zoo.entries import L, mlp
from zoo.entries_loops import step
from zoo.registry import Entry, Kit, Weights, add


def lbfgs(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, lambda params: torch.optim.LBFGS(list(params), 0.1, max_iter=2))
    for batch in entry.batches():

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = entry.loss(model, *kit.share(batch))
            loss.backward()
            kit.synchronize(model)
            return torch.tensor(1.0)

        optimizer.step(closure)
    return kit.weights(model)


def averaged(entry: Entry, kit: Kit) -> Weights:
    """torch's AveragedModel of the module inside."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    mean = torch.optim.swa_utils.AveragedModel(kit.inner(model))
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        mean.update_parameters(kit.inner(model))
    return kit.weights(model) | {f"mean.{name}": x.detach() for name, x in mean.module.named_parameters()}


def initialized(entry: Entry, kit: Kit) -> Weights:
    """model.apply(...) after wrapping, with one seed on all ranks."""
    model = kit.wrap(entry.build())

    def fill(module):
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.1)
            nn.init.zeros_(module.bias)

    model.apply(fill)
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def tied_later(entry: Entry, kit: Kit) -> Weights:
    """Two layers share a weight from after wrapping."""
    model = kit.wrap(entry.build())
    kit.inner(model)[1].weight = kit.inner(model)[0].weight
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def optimizer_state(entry: Entry, kit: Kit) -> Weights:
    """The optimizer's state is saved and loaded on the way."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, lambda params: torch.optim.Adam(params, 0.05))
    for i, batch in enumerate(entry.batches()):
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        if i == 1:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = kit.optimizer(model, lambda params: torch.optim.Adam(params, 0.5))
            optimizer.load_state_dict(state)
    return kit.weights(model)


add("LBFGS", mlp, loop=lbfgs)
add("AveragedModel", mlp, loop=averaged)
add("apply after wrapping", mlp, loop=initialized)
add("tied after wrapping", lambda: nn.Sequential(L(6, 6), L(6, 6)), loop=tied_later)
add("optimizer's state loaded", mlp, loop=optimizer_state)
add(
    "Muon",
    lambda: nn.Sequential(L(6, 8, bias=False), nn.Tanh(), L(8, 6, bias=False)),
    optimizer=lambda ps: torch.optim.Muon(list(ps), 0.05),
)
add("SGD that maximizes", mlp, optimizer=lambda ps: torch.optim.SGD(ps, 0.01, maximize=True, weight_decay=0.1))
add("Rprop", mlp, optimizer=lambda ps: torch.optim.Rprop(ps, 0.01))
add("Adadelta", mlp, optimizer=lambda ps: torch.optim.Adadelta(ps, 0.5))
