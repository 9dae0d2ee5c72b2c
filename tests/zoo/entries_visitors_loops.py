"""Loops of repositories: adversarial training, teachers, replay, meta and metric learning, several optimizers."""

import copy

import torch
from torch.nn import functional
from zoo.entries import mlp
from zoo.entries_loops import loop, named, step
from zoo.entries_losses import classifier, labelled
from zoo.registry import Entry, Kit, Weights, add


def _fgsm(entry, kit, model, optimizer, batch, i):
    """FGSM as in tutorials: backward reaches the inputs, the model's gradients are dropped, then backward again."""
    (x,) = kit.share(batch)
    x = x.clone().requires_grad_()
    entry.loss(model, x).backward()
    optimizer.zero_grad()
    step(entry, kit, model, optimizer, entry.loss(model, (x + 0.1 * x.grad.sign()).detach()))


def _fgsm_kept(entry, kit, model, optimizer, batch, i):
    """FGSM whose first graph is kept for the loss of clean samples; the layers are called twice."""
    (x,) = kit.share(batch)
    x = x.clone().requires_grad_()
    clean = entry.loss(model, model(x))
    (dx,) = torch.autograd.grad(clean, x, retain_graph=True)
    step(entry, kit, model, optimizer, clean + entry.loss(model, (x + 0.1 * dx.sign()).detach()))


def _fgsm_inputs(entry, kit, model, optimizer, batch, i):
    """FGSM by backward(inputs=x)."""
    (x,) = kit.share(batch)
    x = x.clone().requires_grad_()
    entry.loss(model, x).backward(inputs=x)
    step(entry, kit, model, optimizer, entry.loss(model, (x + 0.1 * x.grad.sign()).detach()))


def _pgd(entry, kit, model, optimizer, batch, i):
    """Two steps up the inputs' gradient, with the weights frozen meanwhile."""
    (x,) = kit.share(batch)
    model.requires_grad_(False)
    for _ in range(2):
        x = x.detach().clone().requires_grad_()
        entry.loss(model, x).backward()
        x = x + 0.1 * x.grad.sign()
    model.requires_grad_(True)
    step(entry, kit, model, optimizer, entry.loss(model, x.detach()))


def _free(entry, kit, model, optimizer, batch, i):
    """Adversarial training for free: one backward pass for the weights and the inputs, two steps on a batch."""
    (x,) = kit.share(batch)
    delta = torch.zeros_like(x)
    for _ in range(2):
        delta = delta.detach().requires_grad_()
        entry.loss(model, x + delta).backward()
        kit.synchronize(model)
        optimizer.step()
        optimizer.zero_grad()
        delta = delta + 0.1 * delta.grad.sign()


def _r1(entry, kit, model, optimizer, batch, i):
    """The gradient penalty of StyleGAN, each second step, of its own backward pass."""
    (x,) = kit.share(batch)
    step(entry, kit, model, optimizer, functional.softplus(-model(x)).mean())
    if i % 2 == 0:
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        step(entry, kit, model, optimizer, g.square().sum(1).mean())


def _clipped(entry, kit, model, optimizer, batch, i):
    """Weights clipped as in WGAN."""
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    for p in kit.inner(model).parameters():
        p.data.clamp_(-0.2, 0.2)


def teacher(entry: Entry, kit: Kit) -> Weights:
    """Mean teacher: a copy follows, and a consistency loss compares both."""
    model = kit.wrap(entry.build())
    other = copy.deepcopy(entry.build()).requires_grad_(False)
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        step(entry, kit, model, optimizer, model(x).square().mean() + (model(x) - other(x)).square().mean())
        state = kit.weights(model)
        with torch.no_grad():
            for name, p in other.named_parameters():
                p.lerp_(state[name], 0.1)
    return kit.weights(model) | named("teacher", dict(other.state_dict()))


def replay(entry: Entry, kit: Kit) -> Weights:
    """Q-learning with a replay memory: every rank keeps what it has seen, weights of samples by their error."""
    model, memory = kit.wrap(entry.build()), []
    target, optimizer = entry.build().requires_grad_(False), kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        memory.extend(kit.share((batch[0][:6],)))
        x = torch.cat(memory)
        q = model(x).gather(1, x.argmax(1, keepdim=True))[:, 0]
        with torch.no_grad():
            goal = x[:, 0] + 0.9 * target(x.roll(1, 1)).amax(1)
        step(entry, kit, model, optimizer, functional.smooth_l1_loss(q, goal))
        target.load_state_dict(kit.weights(model))
    return kit.weights(model)


def ppo(entry: Entry, kit: Kit) -> Weights:
    """PPO: advantages normalized over the batch, two epochs, clipped ratios, entropy."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        action, advantage = x.argmax(1), x[:, 0].tanh()
        with torch.no_grad():
            old = model(x).log_softmax(1).gather(1, action[:, None])[:, 0]
        for _ in range(2):
            logits = model(x).log_softmax(1)
            ratio = (logits.gather(1, action[:, None])[:, 0] - old).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            entropy = -(logits.exp() * logits).sum(1)
            step(entry, kit, model, optimizer, -(gain + 0.01 * entropy).mean())
    return kit.weights(model)


def _normalized_advantages(entry, kit, model, optimizer, batch, i):
    """Advantages less their mean, over their deviation: in the loss, without gradients."""
    (x,) = kit.share(batch)
    gain = x[:, 0]
    gain = (gain - gain.mean()) / gain.std()
    step(entry, kit, model, optimizer, -(gain * model(x).log_softmax(1)[:, 0]).mean())


def mixed(entry: Entry, kit: Kit) -> Weights:
    """Matrices by SGD and vectors by Adam, stepped one after the other."""
    model = kit.wrap(entry.build())
    first = kit.optimizer(model, lambda ps: torch.optim.SGD([p for i, p in enumerate(ps) if i % 2 == 0], 0.1))
    second = kit.optimizer(model, lambda ps: torch.optim.Adam([p for i, p in enumerate(ps) if i % 2], 0.05))
    for batch in entry.batches():
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        for each in (first, second):
            each.step()
            each.zero_grad()
    return kit.weights(model)


def _asam(entry, kit, model, optimizer, batch, i):
    """SAM by epsilons of each element's own sign, so without a norm."""
    x = kit.share(batch)
    entry.loss(model, *x).backward()
    kit.synchronize(model)
    moves = [0.05 * p.grad.sign() for p in model.parameters()]
    with torch.no_grad():
        for p, e in zip(model.parameters(), moves, strict=True):
            p.add_(e)
    optimizer.zero_grad()
    entry.loss(model, *x).backward()
    kit.synchronize(model)
    with torch.no_grad():
        for p, e in zip(model.parameters(), moves, strict=True):
            p.sub_(e)
    optimizer.step()
    optimizer.zero_grad()


def anil(entry: Entry, kit: Kit) -> Weights:
    """ANIL: an inner step of a head that is a tensor, through which the body learns."""
    body, head = kit.wrap(entry.build()), torch.ones(6, 3)
    optimizer = kit.optimizer(body, entry.optimizer)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        w, features = head.clone().requires_grad_(), body(x)
        (g,) = torch.autograd.grad((features @ w).square().mean(), w, create_graph=True)
        step(entry, kit, body, optimizer, (features @ (w - 0.1 * g)).square().mean())
    return kit.weights(body)


def _prototypes(model, x, y):
    """Prototypical networks: the mean of each class in the batch."""
    z = model(x)
    means = torch.stack([z[y == c].mean(0) for c in range(3)])
    return functional.cross_entropy(-torch.cdist(z, means), y)


def _n_pairs(model, x):
    """CLIP: two views of a batch, each sample's other view among all."""
    a, b = functional.normalize(model(x)), functional.normalize(model(x.flip(1)))
    return functional.cross_entropy(4 * a @ b.t(), torch.arange(len(x)))


def _mixup(entry, kit, model, optimizer, batch, i):
    """Mixup with another sample of the same rank."""
    (x,) = kit.share(batch)
    step(entry, kit, model, optimizer, entry.loss(model, 0.7 * x + 0.3 * x.flip(0)))


def swapped(entry: Entry, kit: Kit) -> Weights:
    """EMA weights swapped in for evaluation, and out again."""
    model = kit.wrap(entry.build())
    optimizer, params = kit.optimizer(model, entry.optimizer), None
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        params = list(model.parameters())
        kept = [p.detach().clone() for p in params]
        with torch.no_grad():
            for p in params:
                p.mul_(0.9)
            model.eval()
            model(*kit.share(batch))
            model.train()
            for p, k in zip(params, kept, strict=True):
                p.copy_(k)
    return kit.weights(model)


for name, each in {
    "FGSM by backward": _fgsm,
    "FGSM beside the clean loss": _fgsm_kept,
    "FGSM by backward(inputs=...)": _fgsm_inputs,
    "PGD with frozen weights": _pgd,
    "free adversarial training": _free,
    "R1 penalty in every second step": _r1,
    "weights clipped by data": _clipped,
    "SAM by signs": _asam,
    "EMA weights swapped in": swapped,
}.items():
    add(name, mlp, loop=each if each is swapped else loop(each))
for name, each in {
    "mean teacher": teacher,
    "replay memory": replay,
    "PPO": ppo,
    "matrices by SGD, vectors by Adam": mixed,
    "ANIL": anil,
}.items():
    add(name, mlp, loop=each)
add("prototypes of classes", classifier, labelled((12, 9, 15)), loss=_prototypes)
add("CLIP", mlp, loss=_n_pairs)
add("advantages normalized, same batch", mlp, loop=loop(_normalized_advantages), same=True)
add("mixup, same batch", mlp, loop=loop(_mixup), same=True)
