"""Hooks on gradients of parameters: they see the gradient of the whole batch."""

import torch
from zoo.entries import mlp
from zoo.entries_loops import step
from zoo.registry import Entry, Kit, Weights, add


def clamp(grad):
    return grad.clamp(-0.01, 0.01)


def unit(grad):
    return grad / grad.norm()


def first_row(grad):
    """Train the first row only, or the first element of a bias."""
    grad = grad.clone()
    grad[1:] = 0
    return grad


def in_place(grad):
    grad.sign_()


def on_params(hook, before, accumulate=False, register="register_hook"):
    """`hook` on every parameter, registered before the model is wrapped or after."""

    def run(entry: Entry, kit: Kit) -> Weights:
        module = entry.build()
        for param in module.parameters() if before else ():
            getattr(param, register)(hook)
        model = kit.wrap(module)
        optimizer = kit.optimizer(model, entry.optimizer)
        for param in () if before else model.parameters():
            getattr(param, register)(hook)
        for batch in entry.batches():
            if accumulate:
                (x,) = batch
                with kit.no_sync(model):
                    (entry.loss(model, *kit.share((x[:6].flip(1),))) / 2).backward()
                step(entry, kit, model, optimizer, entry.loss(model, *kit.share((x[:6],))) / 2)
            else:
                step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        return kit.weights(model)

    return run


for name, hook in {"clamps": clamp, "normalizes": unit, "keeps one row": first_row, "is in place": in_place}.items():
    add(f"hook that {name}", mlp, loop=on_params(hook, before=True))
    add(f"hook that {name}, after wrapping", mlp, loop=on_params(hook, before=False))
for name, hook in {"doubles": lambda grad: 2 * grad, "clamps": clamp}.items():
    add(f"hook that {name}, accumulation", mlp, loop=on_params(hook, before=True, accumulate=True))
    add(f"hook that {name}, after wrapping, accumulation", mlp, loop=on_params(hook, before=False, accumulate=True))


def removed(entry: Entry, kit: Kit) -> Weights:
    """A hook from before wrapping is removed after the first step."""
    module = entry.build()
    handle = module[0].weight.register_hook(clamp)
    model = kit.wrap(module)
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        handle.remove()
    return kit.weights(model)


def rounds(entry: Entry, kit: Kit) -> Weights:
    """Two rounds of backward and synchronize before each step."""
    module = entry.build()
    for param in module.parameters():
        param.register_hook(clamp)
    model = kit.wrap(module)
    optimizer = kit.optimizer(model, entry.optimizer)
    for (x,) in entry.batches():
        for each in (x, x.flip(1)):
            entry.loss(model, *kit.share((each,))).backward()
            kit.synchronize(model)
        optimizer.step()
        optimizer.zero_grad()
    return kit.weights(model)


def _clamp_grad(param):
    param.grad = param.grad.clamp(-0.01, 0.01)


def accumulated(before):
    return on_params(_clamp_grad, before, register="register_post_accumulate_grad_hook")


def stepping(entry: Entry, kit: Kit) -> Weights:
    """An optimizer for each parameter, which steps in a hook and drops the gradient."""
    model = kit.wrap(entry.build())
    kit.optimizer(model, entry.optimizer)
    optimizers = {param: torch.optim.SGD([param], 0.1) for param in model.parameters()}

    def hook(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in optimizers:
        param.register_post_accumulate_grad_hook(hook)
    for batch in entry.batches():
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
    return kit.weights(model)


def late(entry: Entry, kit: Kit) -> Weights:
    """A hook registered between forward and backward."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for i, batch in enumerate(entry.batches()):
        loss = entry.loss(model, *kit.share(batch))
        if i == 1:
            next(iter(model.parameters())).register_hook(clamp)
        step(entry, kit, model, optimizer, loss)
    return kit.weights(model)


add("hook removed after a step", mlp, loop=removed)
add("hook that clamps, two rounds", mlp, loop=rounds)
add("hook after accumulation that clamps", mlp, loop=accumulated(True))
add("hook after accumulation that clamps, after wrapping", mlp, loop=accumulated(False))
add("optimizer that steps in a hook", mlp, loop=stepping)
add("hook between forward and backward", mlp, loop=late)
