"""Evaluation, saving, clipping, schedulers and optimizers; and what is refused when it is wrapped."""

import copy

import torch
from torch import nn
from zoo.entries import L, mlp, two
from zoo.entries_loops import loop, step
from zoo.registry import Entry, Kit, Weights, add, plain, squares


def _evaluated(entry, kit, model, optimizer, batch, i):
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    model.eval()
    with torch.no_grad():
        model(*kit.share(batch))
    with torch.inference_mode():
        model(*kit.share(batch))
    model.train()


def reloaded(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, lambda params: torch.optim.SGD(params, 0.1))
    state = copy.deepcopy(model.state_dict())
    for i, batch in enumerate(entry.batches()):
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        if i == 1:
            model.load_state_dict(state)
    return kit.weights(model)


def _clipped(entry, kit, model, optimizer, batch, i):
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    kit.clip(model, 0.01)
    optimizer.step()
    optimizer.zero_grad()


def by_name(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())

    def make(_):
        groups: dict[bool, list] = {True: [], False: []}
        for name, param in model.named_parameters():
            groups[name.endswith("bias")].append(param)
        return torch.optim.AdamW([{"params": groups[True], "weight_decay": 0.0}, {"params": groups[False]}], 0.05)

    optimizer = kit.optimizer(model, make)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def scheduled(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        scheduler.step()
    return kit.weights(model)


def _set_to_none(entry, kit, model, optimizer, batch, i):
    optimizer.zero_grad(set_to_none=False)
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    optimizer.step()


def late_rows(entry: Entry, kit: Kit) -> Weights:
    """The last rank of several has no rows in the second batch."""
    batches = entry.batches()
    return plain(entry._replace(batches=lambda: [batches[0], (batches[1][0][:2],), batches[2]]), kit)


add("evaluation between steps", mlp, loop=loop(_evaluated))
add(
    "evaluation of a Transformer layer",
    lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, dropout=0.0),
    loop=loop(_evaluated),
    batches=lambda: [(torch.ones(6, 3, 6, dtype=torch.float64) * torch.arange(6).view(6, 1, 1) * torch.arange(6),)],
)
add("state_dict loaded again", mlp, loop=reloaded)
add("clipping by norm", mlp, loop=loop(_clipped))
add("parameter groups by name", mlp, loop=by_name)
add("scheduler", mlp, loop=scheduled)
add("zero_grad(set_to_none=False)", mlp, loop=loop(_set_to_none))
add("a rank without rows", mlp, loop=late_rows)
for name, make in {
    "Adam": lambda p: torch.optim.Adam(p, 0.05, foreach=False),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, 0.05, foreach=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, 0.05, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.05),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.01),
}.items():
    add(name, mlp, optimizer=make)
add(
    "unused layer with weight decay",
    two(lambda m, x: m.a(x)),
    optimizer=lambda p: torch.optim.AdamW(p, 0.05),
    loss=squares,
)


def only_wrapped(entry: Entry, kit: Kit) -> Weights:
    return kit.weights(kit.wrap(entry.build()))


add("everything frozen", lambda: mlp().requires_grad_(False), loop=only_wrapped)
add("no parameters", lambda: nn.Sequential(nn.Tanh()), loop=only_wrapped)
add("on the meta device", lambda: L(6, 6, device="meta"), loop=only_wrapped)


def wrapped_twice(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    return kit.weights(kit.inner(kit.wrap(model)))


add("wrapped twice", mlp, loop=wrapped_twice)
add("wrapped inside", mlp, loop=lambda entry, kit: kit.weights(kit.wrap(nn.Sequential(kit.wrap(entry.build())))))
