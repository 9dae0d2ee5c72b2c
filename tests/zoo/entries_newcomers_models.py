"""Loops as newcomers bring them: several models, contexts, changes after wrapping, and losses of other shapes."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from zoo.entries import L, Model, P, mlp, two
from zoo.entries_loops import loop, mlp_seeded, named, step
from zoo.entries_losses import classifier, labelled, with_loss
from zoo.entries_newcomers_loops import trained
from zoo.registry import Entry, Kit, Weights, add, rows, sgd


# -- several models ---------------------------------------------------------------------------------------------------
def wgan(entry: Entry, kit: Kit) -> Weights:
    """A critic with a gradient penalty between real and made samples."""
    made, critic = kit.wrap(mlp_seeded(1)), kit.wrap(mlp_seeded(2))
    optimizers = [kit.optimizer(model, sgd) for model in (made, critic)]
    for batch in entry.batches():
        (x,) = kit.share(batch)
        between = (0.5 * (x + made(x).detach())).requires_grad_()
        (g,) = torch.autograd.grad(critic(between)[:, 0].sum(), between, create_graph=True)
        step(entry, kit, critic, optimizers[1], ((g.norm(dim=1) - 1) ** 2).mean() - critic(x)[:, 0].mean())
        for p in critic.parameters():
            p.requires_grad_(False)
        step(entry, kit, made, optimizers[0], -critic(made(x))[:, 0].mean())
        for p in critic.parameters():
            p.requires_grad_(True)
    return named("made", kit.weights(made)) | named("critic", kit.weights(critic))


def head_outside(entry: Entry, kit: Kit) -> Weights:
    """A wrapped body and a head that is not, in one optimizer."""
    body, head = kit.wrap(entry.build()), mlp_seeded(3)
    optimizer = kit.optimizer(body, lambda params: sgd([*params, *head.parameters()]))
    for batch in entry.batches():
        step(entry, kit, body, optimizer, head(body(*kit.share(batch))).square().mean())
    return kit.weights(body) | {f"head.{name}": x.detach() for name, x in head.named_parameters()}


def greedy(entry: Entry, kit: Kit) -> Weights:
    """One layer after the other, each with an optimizer of its own."""
    model = kit.wrap(entry.build())
    for i, batch in enumerate(entry.batches()):
        for number in (0, 2):
            kit.inner(model)[number].requires_grad_(number == 2 * (i % 2))
        optimizer = kit.optimizer(model, lambda ps: torch.optim.SGD([p for p in ps if p.requires_grad], 0.1))
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


add("WGAN-GP", mlp, loop=wgan)
add("head outside the wrapper", mlp, loop=head_outside)
add("trained layer by layer", mlp, loop=greedy)


# -- contexts ---------------------------------------------------------------------------------------------------------
def within(context):
    def run(entry, kit, model, optimizer, batch, i):
        with context():
            step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))

    return loop(run)


def hooked_globally(entry: Entry, kit: Kit) -> Weights:
    """A hook on every module, as tools that count use it."""
    model, seen = kit.wrap(entry.build()), []
    optimizer = kit.optimizer(model, entry.optimizer)
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, y: seen.append(type(m)))
    try:
        return trained(entry, kit, model, optimizer)
    finally:
        handle.remove()


class Counted(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


add("saved tensors on the CPU", mlp, loop=within(torch.autograd.graph.save_on_cpu))
add(
    "saved tensors in a list",
    mlp,
    loop=within(lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: [x], lambda x: x[0])),
)
add("FlopCounterMode", mlp, loop=within(lambda: FlopCounterMode(display=False)))
add("TorchFunctionMode", mlp, loop=within(Counted))
add("backward on one thread", mlp, loop=within(lambda: torch.autograd.set_multithreading_enabled(False)))
add("hook on every module", mlp, loop=hooked_globally)


# -- after wrapping ---------------------------------------------------------------------------------------------------
def prepared(change):
    """`change(model, kit)` after wrapping and before the optimizer is made."""

    def run(entry: Entry, kit: Kit) -> Weights:
        model = kit.wrap(entry.build())
        change(model, kit)
        return trained(entry, kit, model, kit.optimizer(model, entry.optimizer))

    return run


add("share_memory() after wrapping", mlp, loop=prepared(lambda model, kit: model.share_memory()))
add(
    "channels_last after wrapping",
    lambda: nn.Conv2d(2, 4, 3),
    lambda: [(rows(n, 2, 5, 5, seed=n),) for n in (7, 6, 8)],
    loop=prepared(lambda model, kit: model.to(memory_format=torch.channels_last)),
)
add(
    "requires_grad_() off and on",
    mlp,
    loop=prepared(lambda model, kit: model.requires_grad_(False).requires_grad_(True)),
)
add("weights filled by data", mlp, loop=prepared(lambda model, kit: [p.data.fill_(0.1) for p in model.parameters()]))
add(
    "weights copied from a twin",
    mlp,
    loop=prepared(lambda model, kit: kit.inner(model)[0].load_state_dict(mlp_seeded(9)[0].state_dict())),
)

# -- losses -----------------------------------------------------------------------------------------------------------
for name, f in {
    "pairwise distances": lambda y, t: functional.pdist(y).mean(),
    "balance of classes": lambda y, t: (
        functional.cross_entropy(y, t) + (y.softmax(-1).mean(0) * y.softmax(-1).mean(0).log()).sum()
    ),
    "running maximum": lambda y, t: y.cummax(0)[0].mean(),
    "differences of neighbours": lambda y, t: (y[1:] - y[:-1]).square().mean(),
    "halves of the batch as pairs": lambda y, t: (y[: len(y) // 2] * y[len(y) - len(y) // 2 :]).sum(1).sigmoid().mean(),
    "outputs without their ends": lambda y, t: (y[:, 1:] - y[:, :-1]).square().mean(),
    "sorted outputs": lambda y, t: (y.sort(0)[0] - torch.linspace(0, 1, len(y))[:, None]).square().mean(),
    "first sample only": lambda y, t: y[0].square().mean(),
    "weights of samples": lambda y, t: (functional.cross_entropy(y, t, reduction="none") * (1 + t)).mean(),
    "mean over a subset": lambda y, t: y[t > 0].square().mean(),
    "Huber, sum over outputs": lambda y, t: functional.huber_loss(y, y.detach().tanh(), reduction="none").sum(1).mean(),
}.items():
    add(name, classifier, labelled(), loss=with_loss(f))
add(
    "L1 penalty on one layer",
    two(lambda m, x: m.b(m.a(x))),
    loss=lambda m, x: (
        m(x).square().mean() + 0.01 * sum(p.abs().sum() for n, p in m.named_parameters() if n.endswith("b.weight"))
    ),
)
add("temperature that is learned", lambda: Model(lambda m, x: m.a(x) / m.t.exp(), a=L(6, 6), t=P(1)))
