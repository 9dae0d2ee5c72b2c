"""Loops as newcomers bring them: optimizers of their own, schedules, gradients by hand."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from zoo.entries import mlp
from zoo.entries_loops import loop, step
from zoo.entries_strangers_loops import changed_after
from zoo.registry import Entry, Kit, Weights, add


def trained(entry, kit, model, optimizer):
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


# -- optimizers -------------------------------------------------------------------------------------------------------
class Lion(torch.optim.Optimizer):
    """Signs of a moving average, by a user."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(mean.lerp(p.grad, 1 - group["betas"][0]).sign_(), alpha=-group["lr"])
                    mean.lerp_(p.grad, 1 - group["betas"][1])


class Configured(torch.optim.SGD):
    """Its options come in one object, which is no option of a group."""

    def __init__(self, params, config):
        super().__init__(params, lr=config["lr"])


class Normalized(torch.optim.SGD):
    """Divides all gradients by their common norm."""

    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        for p in params:
            p.grad.div_(norm)
        super().step()


for name, make in {
    "RAdam": lambda ps: torch.optim.RAdam(ps, 0.05),
    "Adamax": lambda ps: torch.optim.Adamax(ps, 0.05),
    "ASGD": lambda ps: torch.optim.ASGD(ps, 0.05),
    "AMSGrad": lambda ps: torch.optim.Adam(ps, 0.05, amsgrad=True, maximize=True),
    "Nesterov": lambda ps: torch.optim.SGD(ps, 0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "rate as a tensor": lambda ps: torch.optim.AdamW(ps, torch.tensor(0.05)),
    "Lion by hand": Lion,
    "optimizer made from one object": lambda ps: Configured(ps, {"lr": 0.1}),
    "optimizer with one norm of all gradients": lambda ps: Normalized(ps, 0.1),
}.items():
    add(name, mlp, optimizer=make)
add(
    "SparseAdam",
    lambda: nn.Embedding(10, 6, sparse=True),
    lambda: [(torch.arange(n) % 10,) for n in (7, 6, 8)],
    optimizer=lambda ps: torch.optim.SparseAdam(list(ps), 0.05),
)


def _by_norm_of_sparse(entry, kit, model, optimizer, batch, i):
    """Sparse gradients divided by their norm."""
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    for p in model.parameters():
        p.grad = p.grad.coalesce() if p.grad.is_sparse else p.grad
        p.grad = p.grad / (p.grad.values() if p.grad.is_sparse else p.grad).norm()
    optimizer.step()
    optimizer.zero_grad()


def _of_words(name, **options):
    add(
        name,
        lambda: nn.Embedding(10, 6, sparse=True),
        lambda: [(torch.arange(n) % 10,) for n in (7, 6, 8)],
        **options,
    )


_of_words("Adagrad, sparse", optimizer=lambda ps: torch.optim.Adagrad(ps, 0.05))
_of_words("norm of sparse gradients", loop=loop(_by_norm_of_sparse))


def scheduled(make, *values):
    def run(entry: Entry, kit: Kit) -> Weights:
        model = kit.wrap(entry.build())
        optimizer = kit.optimizer(model, entry.optimizer)
        scheduler = make(optimizer)
        for batch in entry.batches():
            step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
            scheduler.step(*values)
        return kit.weights(model)

    return run


schedulers = torch.optim.lr_scheduler
add("OneCycleLR", mlp, loop=scheduled(lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=4)))
add("ReduceLROnPlateau", mlp, loop=scheduled(lambda o: schedulers.ReduceLROnPlateau(o, patience=0), 1.0))
add(
    "two schedulers in turn",
    mlp,
    loop=scheduled(
        lambda o: schedulers.SequentialLR(o, [schedulers.ConstantLR(o, 0.5, 1), schedulers.ExponentialLR(o, 0.5)], [1])
    ),
)


# -- gradients by hand ------------------------------------------------------------------------------------------------
def _zeroed(entry, kit, model, optimizer, batch, i):
    """zero_grad as it was written in old code."""
    for p in model.parameters():
        if p.grad is not None:
            p.grad.detach_()
            p.grad.zero_()
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    optimizer.step()


def _surgery(entry, kit, model, optimizer, batch, i):
    """Two losses' gradients, each without its part against the other (PCGrad)."""
    (x,) = kit.share(batch)
    y, params = model(x), [p for p in model.parameters() if p.requires_grad]
    first = torch.autograd.grad(y.square().mean(), params, retain_graph=True)
    second = torch.autograd.grad(y.abs().mean(), params)
    dot = sum((a * b).sum() for a, b in zip(first, second, strict=True))
    square = sum((b * b).sum() for b in second)
    for p, a, b in zip(params, first, second, strict=True):
        p.grad = a + b - dot / square * b
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _balanced(entry, kit, model, optimizer, batch, i):
    """The second loss weighted by the ratio of the gradients' norms."""
    (x,) = kit.share(batch)
    y, w = model(x), next(iter(model.parameters()))
    norms = [torch.autograd.grad(loss, w, retain_graph=True)[0].norm() for loss in (y.square().mean(), y.abs().mean())]
    step(entry, kit, model, optimizer, y.square().mean() + norms[0] / norms[1] * y.abs().mean())


def _per_sample(entry, kit, model, optimizer, batch, i):
    """Gradients of single samples, each clipped (DP-SGD)."""
    (x,) = kit.share(batch)
    inner = kit.inner(model)
    params = {name: p.detach() for name, p in inner.named_parameters()}
    of_one = grad(lambda ps, row: functional_call(inner, ps, (row[None],)).square().mean())
    model(x)  # counted
    found = vmap(of_one, (None, 0))(params, x)
    scale = (1 / sum(g.flatten(1).square().sum(1) for g in found.values()).sqrt()).clamp(max=1)
    for name, p in inner.named_parameters():
        p.grad = torch.einsum("n,n...->...", scale, found[name]) / len(x)
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _noise(params):
    generator = torch.Generator().manual_seed(1)
    for p in params:
        p.grad.add_(torch.randn(p.shape, generator=generator), alpha=0.01)


def _kept(params):
    """The gradients are copied, the model's dropped, and the copies put back."""
    params = list(params)
    copies = [None if p.grad is None else p.grad.clone() for p in params]
    for p in params:
        p.grad = None
    for p, copy in zip(params, copies, strict=True):
        p.grad = copy


def _none_of_one(params):
    list(params)[1].grad = None


def _sgd_by_hand(entry, kit, model, optimizer, batch, i):
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None


def _with_seed(entry, kit, model, optimizer, batch, i):
    """backward(dy) of outputs instead of a loss."""
    y = model(*kit.share(batch))
    y.backward(2 * y.detach() / y.numel())
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _hessian(entry, kit, model, optimizer, batch, i):
    """A product of the Hessian and a vector beside the loss."""
    loss, params = entry.loss(model, *kit.share(batch)), list(model.parameters())
    grads = torch.autograd.grad(loss, params, create_graph=True)
    step(entry, kit, model, optimizer, loss + 0.1 * sum((g * torch.ones_like(g)).sum() for g in grads))


def _one_process_alone(entry, kit, model, optimizer, batch, i):
    """Rank 0 drops its gradient after it is synchronized, and does not step."""
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    if i != 1 or kit.rank or kit.size == 1:
        optimizer.step()
    optimizer.zero_grad()


add("zero_grad as in old code", mlp, loop=loop(_zeroed))
add("gradient surgery", mlp, loop=loop(_surgery))
add("losses balanced by their gradients", mlp, loop=loop(_balanced))
add("gradients of single samples clipped", mlp, loop=loop(_per_sample))
add("gradient noise", mlp, loop=changed_after(_noise))
add("gradients kept aside", mlp, loop=changed_after(_kept))
add("one gradient dropped by hand", mlp, loop=changed_after(_none_of_one))
add("SGD by hand", mlp, loop=loop(_sgd_by_hand))
add("backward of outputs", mlp, loop=loop(_with_seed))
add("Hessian times a vector", mlp, loop=loop(_hessian))
add("rank 0 alone does not step", mlp, loop=loop(_one_process_alone))
