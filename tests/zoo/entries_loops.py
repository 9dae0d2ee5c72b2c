"""Training loops as users write them: several models, accumulation, freezing on the way, several losses."""

import torch
from torch.nn import functional
from zoo.entries import L, Model, mlp
from zoo.registry import Entry, Kit, Weights, add, sgd


def named(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}.{name}": x for name, x in weights.items()}


def loop(step):
    """A loop that takes one step by `step(entry, kit, model, optimizer, batch, i)`."""

    def run(entry: Entry, kit: Kit) -> Weights:
        model = kit.wrap(entry.build(), **entry.options)
        optimizer = kit.optimizer(model, entry.optimizer)
        for i, batch in enumerate(entry.batches()):
            step(entry, kit, model, optimizer, batch, i)
        return kit.weights(model)

    return run


def step(entry, kit, model, optimizer, loss):
    loss.backward()
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


# -- accumulation
def _accumulate(entry, kit, model, optimizer, batch, i):
    optimizer.zero_grad()
    x = batch[0][:6]
    with kit.no_sync(model):
        entry.loss(model, *kit.share((x,))).div(2).backward()
    entry.loss(model, *kit.share((x.flip(1),))).div(2).backward()
    kit.synchronize(model)
    optimizer.step()


def _two_backwards(entry, kit, model, optimizer, batch, i):
    optimizer.zero_grad()
    for x in (batch[0], batch[0].flip(1)):
        entry.loss(model, *kit.share((x,))).div(2).backward()
    kit.synchronize(model)
    optimizer.step()


def _synchronize_each(entry, kit, model, optimizer, batch, i):
    optimizer.zero_grad()
    for x in (batch[0], batch[0].flip(1)):
        entry.loss(model, *kit.share((x,))).div(2).backward()
        kit.synchronize(model)
    optimizer.step()


def _two_losses(entry, kit, model, optimizer, batch, i):
    y = model(*kit.share(batch))
    step(entry, kit, model, optimizer, y.square().mean() + 0.1 * y.abs().mean())


def _two_losses_apart(entry, kit, model, optimizer, batch, i):
    y = model(*kit.share(batch))
    y.square().mean().backward(retain_graph=True)
    step(entry, kit, model, optimizer, 0.1 * y.abs().mean())


def _two_forwards(entry, kit, model, optimizer, batch, i):
    (x,) = kit.share(batch)
    step(entry, kit, model, optimizer, model(x).square().mean() + model(x.flip(1)).abs().mean())


def _no_synchronize(entry, kit, model, optimizer, batch, i):
    entry.loss(model, *kit.share(batch)).backward()
    if kit.comm is not None:  # one process need not synchronize
        optimizer.step()


add("accumulation with no_sync", mlp, loop=loop(_accumulate))
add("accumulation, one layer", lambda: L(6, 6), loop=loop(_accumulate))
add("two backwards, one synchronize", mlp, loop=loop(_two_backwards))
add("two backwards, two synchronize", mlp, loop=loop(_synchronize_each))
add("two losses", mlp, loop=loop(_two_losses))
add("two losses apart", mlp, loop=loop(_two_losses_apart))
add("two forwards, one backward", mlp, loop=loop(_two_forwards))
add("no synchronize", mlp, loop=loop(_no_synchronize))


# -- frozen and thawed on the way
def _freeze(model, kit, number, flag):
    for param in kit.inner(model)[number].parameters():
        param.requires_grad_(flag)


def _freeze_later(entry, kit, model, optimizer, batch, i):
    if i == 1:
        _freeze(model, kit, 0, False)
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


def _thaw_later(entry, kit, model, optimizer, batch, i):
    _freeze(model, kit, 0, i > 0)
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


def _back_and_forth(entry, kit, model, optimizer, batch, i):
    _freeze(model, kit, 2 * (i % 2), False)
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    _freeze(model, kit, 2 * (i % 2), True)


def frozen_first():
    model = mlp()
    model[0].requires_grad_(False)
    return model


add("frozen after a step", mlp, loop=loop(_freeze_later))
add("thawed after a step", frozen_first, loop=loop(_thaw_later))
add("frozen and thawed in turns", mlp, loop=loop(_back_and_forth))


def _one_parameter(entry, kit, model, optimizer, batch, i):
    kit.inner(model)[0].bias.requires_grad_(i != 1)
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


add("one bias frozen in a step", mlp, loop=loop(_one_parameter))


# -- several models
def gan(entry: Entry, kit: Kit, freeze: bool = False) -> Weights:
    made, judge = kit.wrap(mlp_seeded(1)), kit.wrap(mlp_seeded(2))
    optimizers = [kit.optimizer(model, sgd) for model in (made, judge)]
    for batch in entry.batches():
        (x,) = kit.share(batch)
        with torch.no_grad():
            fake = made(x)
        step(entry, kit, judge, optimizers[1], judge(x).square().mean() + (judge(fake) - 1).square().mean())
        for param in judge.parameters():
            param.requires_grad_(not freeze)
        judge(made(x)).square().mean().backward()
        kit.synchronize(made)
        if not freeze:
            kit.synchronize(judge)
        for param in judge.parameters():
            param.requires_grad_(True)
        optimizers[0].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    return named("made", kit.weights(made)) | named("judge", kit.weights(judge))


def mlp_seeded(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return mlp()


add("GAN", mlp, loop=gan)
add("GAN, judge frozen", mlp, loop=lambda entry, kit: gan(entry, kit, True))


def pair(entry: Entry, kit: Kit, order: int) -> Weights:
    first, second = kit.wrap(mlp_seeded(1)), kit.wrap(mlp_seeded(2))
    optimizers = [kit.optimizer(model, sgd) for model in (first, second)]
    for batch in entry.batches():
        second(first(*kit.share(batch))).square().mean().backward()
        kit.synchronize(*(first, second)[::order])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return named("first", kit.weights(first)) | named("second", kit.weights(second))


add("encoder and decoder apart", mlp, loop=lambda entry, kit: pair(entry, kit, 1))
add("encoder and decoder, synchronized backwards", mlp, loop=lambda entry, kit: pair(entry, kit, -1))


def actor_critic_seeded(entry, kit):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        parts = {"body": mlp(), "a": L(6, 3), "v": L(6, 1)}
    return _actor_critic(entry, kit, Model(lambda m, x: (m.a(m.body(x)), m.v(m.body(x))), **parts))


def _actor_critic(entry, kit, module):
    model = kit.wrap(module)
    optimizer = kit.optimizer(model, sgd)
    for batch in entry.batches():
        logits, values = model(*kit.share(batch))
        policy = -(functional.log_softmax(logits, -1)[:, 0] * (1 - values.detach()[:, 0])).mean()
        step(entry, kit, model, optimizer, policy + (values - 1).square().mean())
    return kit.weights(model)


add("actor-critic", mlp, loop=actor_critic_seeded)


def ema(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    average = kit.weights(model)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        average = {name: 0.9 * average[name] + 0.1 * x for name, x in kit.weights(model).items()}
    return kit.weights(model) | named("ema", average)


add("EMA of the weights", mlp, loop=ema)


def distill(entry: Entry, kit: Kit) -> Weights:
    teacher, model = mlp_seeded(4).eval(), kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        with torch.no_grad():
            goal = teacher(x)
        step(entry, kit, model, optimizer, (model(x) - goal).square().mean())
    return kit.weights(model)


add("distillation", mlp, loop=distill)
