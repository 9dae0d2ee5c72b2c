"""Loops collected from courses, papers and repositories: windows, second forward passes, optimizers with hooks."""

import copy

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from zoo.entries import L, Model, mlp
from zoo.entries_loops import loop, mlp_seeded, named, step
from zoo.entries_strangers_loops import changed_after
from zoo.registry import Entry, Kit, Weights, add, vectors


def trained(entry, kit, model, optimizer):
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


# -- accumulation
def windows(entry: Entry, kit: Kit) -> Weights:
    """Two microbatches to a step, and the last window has one."""
    model = kit.wrap(entry.build())
    optimizer, batches = kit.optimizer(model, entry.optimizer), [batch[0][:6] for batch in entry.batches()]
    for i, x in enumerate(batches):
        last = i % 2 == 1 or i == len(batches) - 1
        loss = entry.loss(model, *kit.share((x,))) / (2 if i < 2 else 1)
        if last:
            step(entry, kit, model, optimizer, loss)
        else:
            with kit.no_sync(model):
                loss.backward()
    return kit.weights(model)


def never_zeroed(entry: Entry, kit: Kit) -> Weights:
    """zero_grad is forgotten."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        optimizer.step()
    return kit.weights(model)


def _zeroed_between(entry, kit, model, optimizer, batch, i):
    """zero_grad after the forward pass."""
    loss = entry.loss(model, *kit.share(batch))
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    kit.synchronize(model)
    optimizer.step()


def _set_by_hand(entry, kit, model, optimizer, batch, i):
    """Gradients by torch.autograd.grad, put where there are some already."""
    loss, params = entry.loss(model, *kit.share(batch)), list(model.parameters())
    for param, g in zip(params, torch.autograd.grad(loss, params), strict=True):
        param.grad = torch.zeros_like(param) if param.grad is None else param.grad
        param.grad.copy_(g)
    kit.synchronize(model)
    optimizer.step()


def _anomalies(entry, kit, model, optimizer, batch, i):
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


def _retained(entry, kit, model, optimizer, batch, i):
    """The gradient of an output is kept and read."""
    y = model(*kit.share(batch))
    y.retain_grad()
    y.square().mean().backward()
    assert y.grad is not None
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _clipped_output(entry, kit, model, optimizer, batch, i):
    """A hook on the output clips the gradient of each sample."""
    (x,) = kit.share(batch)
    y = model(x)
    y.register_hook(lambda dy: (dy * len(x)).clamp(-0.1, 0.1) / len(x))
    step(entry, kit, model, optimizer, y.square().mean())


add("accumulation, last window shorter", mlp, loop=windows)
add("zero_grad forgotten", mlp, loop=never_zeroed)
add("zero_grad before backward, to zeros", mlp, loop=loop(_zeroed_between))
add("gradients copied into .grad", mlp, loop=loop(_set_by_hand))
add("detect_anomaly", mlp, loop=loop(_anomalies))
add("output's gradient retained", mlp, loop=loop(_retained))
add("output's gradient clamped by sample", mlp, loop=loop(_clipped_output))


# -- several forward passes
def _triplet(entry, kit, model, optimizer, batch, i):
    (x,) = kit.share(batch)
    a, b, c = model(x), model(x.flip(1)), model(-x)
    step(entry, kit, model, optimizer, ((a - b).square().sum(1) - (a - c).square().sum(1) + 1).relu().mean())


def _in_turns(entry, kit, model, optimizer, batch, i):
    """Even steps train on one loss, odd steps on another."""
    y = model(*kit.share(batch))
    step(entry, kit, model, optimizer, y.square().mean() if i % 2 else y.abs().mean())


def by_task(entry: Entry, kit: Kit) -> Weights:
    """One head to a task, and each batch has one task."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, lambda ps: torch.optim.AdamW(ps, 0.05))
    for task, batch in zip("aba", entry.batches(), strict=True):
        (x,) = kit.share(batch)
        step(entry, kit, model, optimizer, model(x, task).square().mean())
    return kit.weights(model)


def _many_rates(entry, kit, model, optimizer, batch, i):
    for group in optimizer.param_groups:
        group["lr"], group["momentum"] = 0.1 / (i + 1), 0.5 + 0.1 * i
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


def reptile(entry: Entry, kit: Kit) -> Weights:
    """Weights go a part of the way that the last steps went."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    trained(entry, kit, model, optimizer)
    with torch.no_grad():
        for p, start in zip(model.parameters(), before, strict=True):
            p.copy_(start + 0.5 * (p - start))
    return kit.weights(model)


def momentum_cleared(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for i, batch in enumerate(entry.batches()):
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        if i == 1:
            optimizer.state.clear()
    return kit.weights(model)


def swa(entry: Entry, kit: Kit) -> Weights:
    """SWA with its rate; the means of its BatchNorm come from all batches."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    scheduler, mean = SWALR(optimizer, 0.02, anneal_epochs=2), AveragedModel(kit.inner(model))
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        mean.update_parameters(kit.inner(model))
        scheduler.step()
    update_bn([x for (x,) in entry.batches()], mean)
    return kit.weights(model) | named("mean", {n: x.detach() for n, x in mean.module.state_dict().items()})


def perturbed(entry: Entry, kit: Kit) -> Weights:
    """Evolution: the noise that all ranks draw alike is kept if it helps; no gradient at all."""
    model = kit.wrap(entry.build())
    with torch.no_grad():
        for i, batch in enumerate(entry.batches()):
            for p in model.parameters():
                p.add_(torch.full_like(p, 0.01 * i))
            entry.loss(model, *kit.share(batch))
    return kit.weights(model)


def hooked(entry: Entry, kit: Kit) -> Weights:
    """Hooks of the optimizer before and after its step."""
    model, said = kit.wrap(entry.build()), []
    optimizer = kit.optimizer(model, entry.optimizer)
    optimizer.register_step_pre_hook(lambda *_: said.append("before"))
    optimizer.register_step_post_hook(lambda *_: said.append("after"))
    trained(entry, kit, model, optimizer)
    assert said == ["before", "after"] * 3, said
    return kit.weights(model)


def progressive(entry: Entry, kit: Kit) -> Weights:
    """A model that has grown is wrapped again, with a new optimizer."""
    module = entry.build()
    for depth in range(2):
        model = kit.wrap(module)
        trained(entry, kit, model, kit.optimizer(model, entry.optimizer))
        state, module = kit.weights(model), nn.Sequential(*mlp_seeded(depth), *mlp_seeded(7))
        module.load_state_dict({k: v for k, v in state.items() if k in module.state_dict()}, strict=False)
    return state


def resumed(entry: Entry, kit: Kit) -> Weights:
    """The state of the model and the optimizer goes into new ones."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, lambda ps: torch.optim.AdamW(ps, 0.05))
    trained(entry, kit, model, optimizer)
    state, of_optimizer = kit.weights(model), copy.deepcopy(optimizer.state_dict())
    module = mlp_seeded(8)
    module.load_state_dict(state)
    model = kit.wrap(module)
    optimizer = kit.optimizer(model, lambda ps: torch.optim.AdamW(ps, 0.05))
    optimizer.load_state_dict(of_optimizer)
    trained(entry, kit, model, optimizer)
    return kit.weights(model)


def _clip_each(params):
    for p in params:
        nn.utils.clip_grad_norm_([p], 0.01)


add("triplets by three forwards", mlp, loop=loop(_triplet))
add("losses in turns", mlp, loop=loop(_in_turns))
add(
    "head by task",
    lambda: Model(
        lambda m, x, task: m.heads[task](m.body(x)), body=mlp(), heads=nn.ModuleDict({"a": L(6, 2), "b": L(6, 2)})
    ),
    loop=by_task,
)
add("rate and momentum set by hand", mlp, loop=loop(_many_rates))
add("Reptile", mlp, loop=reptile)
add("momentum cleared", mlp, loop=momentum_cleared)
add("SWA with BatchNorm", lambda: nn.Sequential(L(6, 6), nn.BatchNorm1d(6), L(6, 6)).eval(), loop=swa)
add("weights moved without gradients", mlp, loop=perturbed)
add("hooks of the optimizer", mlp, loop=hooked)
add("model that grows, wrapped again", mlp, loop=progressive)
add("model and optimizer resumed", mlp, loop=resumed)
add("each gradient clipped by its own norm", mlp, loop=changed_after(_clip_each))
add(
    "clip_grad_norm_ to the largest",
    mlp,
    loop=changed_after(lambda ps: nn.utils.clip_grad_norm_(list(ps), 0.01, norm_type=float("inf"))),
)
add(
    "gradients clipped by foreach",
    mlp,
    loop=changed_after(lambda ps: torch._foreach_clamp_max_([p.grad for p in ps], 0.001)),
)
add(
    "requires_grad_() of the wrapper off for one step",
    mlp,
    loop=loop(
        lambda entry, kit, model, optimizer, batch, i: (
            model.requires_grad_(i != 1),
            i != 1 and step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch))),
        )
    ),
)


class Cautious(torch.optim.SGD):
    """Steps only where gradient and momentum have one sign."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    mean.lerp_(p.grad, 0.5)
                    p.data.add_(mean * (mean * p.grad > 0), alpha=-group["lr"])


class Trusting(torch.optim.SGD):
    """Divides each parameter's step by its own mean magnitude."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad / p.grad.abs().mean(), alpha=-0.01)


for name, make in {
    "cautious momentum": lambda ps: Cautious(ps, 0.05),
    "step divided by the gradient's mean": lambda ps: Trusting(ps, 0.05),
    "Adam, decoupled decay": lambda ps: torch.optim.Adam(ps, 0.05, weight_decay=0.1, decoupled_weight_decay=True),
    "SGD, fused": lambda ps: torch.optim.SGD(ps, 0.05, momentum=0.9, fused=True),
    "SGD with dampening": lambda ps: torch.optim.SGD(ps, 0.05, momentum=0.9, dampening=0.5),
    "Adagrad, fused": lambda ps: torch.optim.Adagrad(ps, 0.05, fused=True),
    "NAdam, decoupled": lambda ps: torch.optim.NAdam(ps, 0.05, weight_decay=0.1, decoupled_weight_decay=True),
    "RMSprop, centered": lambda ps: torch.optim.RMSprop(ps, 0.01, centered=True, momentum=0.5),
}.items():
    add(name, mlp, optimizer=make)
add("batches of two", mlp, vectors(6, (2, 3, 2)))
