"""Evaluation, saving, clipping, schedulers and optimizers; and what is refused when it is wrapped."""

import copy

import torch
from torch import nn
from zoo.entries import L, mlp, two
from zoo.entries_loops import loop, mlp_seeded, named, step
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
    model = kit.wrap(entry.build())
    if kit.comm is not None:  # torch's optimizers, too, refuse a module without parameters
        kit.optimizer(model, entry.optimizer)
    return kit.weights(model)


add("everything frozen", lambda: mlp().requires_grad_(False), loop=only_wrapped)
add("no parameters", lambda: nn.Sequential(nn.Tanh()), loop=only_wrapped)
add("on the meta device", lambda: L(6, 6, device="meta"), loop=only_wrapped)


def wrapped_twice(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    return kit.weights(kit.inner(kit.wrap(model)))


add("wrapped twice", mlp, loop=wrapped_twice)
add("wrapped inside", mlp, loop=lambda entry, kit: kit.weights(kit.wrap(nn.Sequential(kit.wrap(entry.build())))))


def hooked(entry: Entry, kit: Kit) -> Weights:
    """Hooks on the parameters that the optimizer has, registered after wrapping."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for param in model.parameters():
        param.register_hook(lambda grad: 2 * grad)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def hooked_before(entry: Entry, kit: Kit) -> Weights:
    module = entry.build()
    for param in module.parameters():
        param.register_hook(lambda grad: 2 * grad)
    return plain(entry._replace(make=lambda: module), kit)


def shared_by_two(entry: Entry, kit: Kit) -> Weights:
    """Two wrapped models that have a layer in common."""
    body = entry.build()
    first, second = kit.wrap(nn.Sequential(body, mlp_seeded(1))), kit.wrap(nn.Sequential(body, mlp_seeded(2)))
    optimizer = kit.optimizer(first, entry.optimizer, second)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        (first(x).square().mean() + second(x).square().mean()).backward()
        kit.synchronize(first, second)
        optimizer.step()
        optimizer.zero_grad()
    return kit.weights(first) | named("second", kit.weights(second))


def two_optimizers(entry: Entry, kit: Kit) -> Weights:
    """Two optimizers of all parameters, which step in turns."""
    model = kit.wrap(entry.build())
    optimizers = [kit.optimizer(model, entry.optimizer), kit.optimizer(model, torch.optim.Adagrad)]
    for batch, optimizer in zip(entry.batches(), [*optimizers, optimizers[0]], strict=True):
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        for each in optimizers:
            each.zero_grad()
    return kit.weights(model)


def replaced_optimizer(entry: Entry, kit: Kit) -> Weights:
    """Another optimizer takes the place of the first after a step."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for i, batch in enumerate(entry.batches()):
        if i == 1:
            optimizer = kit.optimizer(model, lambda params: torch.optim.AdamW(params, 0.05))
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


add("hook on the parameters, after wrapping", mlp, loop=hooked)
add("hook on the parameters, before wrapping", mlp, loop=hooked_before)
add("layer shared by two models", mlp, loop=shared_by_two)
add("two optimizers in turns", mlp, loop=two_optimizers)
add("optimizer replaced after a step", mlp, loop=replaced_optimizer)
