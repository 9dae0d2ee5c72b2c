"""Changes of a model after it is wrapped."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from zoo.entries import L, Model, Symmetric, mlp, two
from zoo.entries_loops import mlp_seeded, named, step
from zoo.registry import Entry, Kit, Weights, add, rows, words


def after(change, first=False):
    """A loop that changes the wrapped model before the first step, `first` also before the optimizer is made."""

    def run(entry: Entry, kit: Kit) -> Weights:
        model = kit.wrap(entry.build())
        if first:
            change(model, kit)
        optimizer = kit.optimizer(model, entry.optimizer)
        if not first:
            change(model, kit)
        for batch in entry.batches():
            step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        return kit.weights(model)

    return run


def square():
    return nn.Sequential(L(6, 6), nn.Tanh(), L(6, 6))


def _replace_layer(model, kit):
    kit.inner(model)[2] = L(8, 6)
    nn.init.constant_(kit.inner(model)[2].weight, 0.3)
    nn.init.constant_(kit.inner(model)[2].bias, 0.1)


def _replace_parameter(model, kit):
    kit.inner(model)[0].bias = nn.Parameter(torch.full((8,), 0.2))


def _replace_data(model, kit):
    kit.inner(model)[0].bias.data = torch.full_like(kit.inner(model)[0].bias, 0.2)


def _parametrize(model, kit):
    parametrize.register_parametrization(kit.inner(model)[0], "weight", Symmetric())


add("to(float64) after wrapping", mlp, loop=after(lambda model, kit: model.to(torch.float64)))
add(
    "to(float32) after wrapping",
    mlp,
    loop=after(lambda model, kit: model.to(torch.float32)),
    loss=lambda m, x: m(x.float()).square().mean(),
    tolerance=1e-5,
)
add(
    "half() of the inner module",
    mlp,
    loop=after(lambda model, kit: kit.inner(model).to(torch.bfloat16)),
    loss=lambda m, x: m(x.bfloat16()).square().mean(),
)
add("layer replaced after wrapping", mlp, loop=after(_replace_layer))
add("parameter replaced after wrapping", mlp, loop=after(_replace_parameter))
add("data replaced after wrapping", mlp, loop=after(_replace_data))
add("layer added after wrapping", mlp, loop=after(lambda model, kit: kit.inner(model).append(nn.Tanh())))
add(
    "layer with weights added after wrapping",
    mlp,
    loop=after(lambda model, kit: kit.inner(model).append(nn.LayerNorm(6))),
)
add("parametrized after wrapping", lambda: nn.Sequential(L(6, 6), L(6, 6)), loop=after(_parametrize))
add("weight_norm after wrapping", mlp, loop=after(lambda model, kit: parametrizations.weight_norm(kit.inner(model)[0])))
add("compiled after wrapping", mlp, loop=after(lambda model, kit: model.compile(backend="eager")))
add(
    "forward hook after wrapping",
    mlp,
    loop=after(lambda model, kit: kit.inner(model)[0].register_forward_hook(lambda m, a, y: 2 * y)),
)
add(
    "forward pre-hook after wrapping",
    mlp,
    loop=after(lambda model, kit: kit.inner(model)[0].register_forward_pre_hook(lambda m, a: (2 * a[0],))),
)
add(
    "full backward hook after wrapping",
    mlp,
    loop=after(lambda model, kit: kit.inner(model)[2].register_full_backward_hook(lambda m, gi, go: (2 * gi[0],))),
)
add(
    "backward pre-hook after wrapping",
    mlp,
    loop=after(lambda model, kit: kit.inner(model)[2].register_full_backward_pre_hook(lambda m, go: (2 * go[0],))),
)
add("hook of the wrapper", mlp, loop=after(lambda model, kit: model.register_forward_hook(lambda m, a, y: 2 * y)))


for name, change in {
    "layer replaced": _replace_layer,
    "parameter replaced": _replace_parameter,
    "parametrized": _parametrize,
    "layer with weights added": lambda model, kit: kit.inner(model).append(nn.LayerNorm(6)),
    "weight_norm": lambda model, kit: parametrizations.weight_norm(kit.inner(model)[0]),
}.items():
    add(
        f"{name} before the optimizer is made",
        square if name == "parametrized" else mlp,
        loop=after(change, first=True),
    )


def copied(entry: Entry, kit: Kit) -> Weights:
    """A deepcopy of the wrapped model, as EMA classes make it."""
    model = kit.wrap(entry.build())
    twin = copy.deepcopy(model)
    del twin
    return kit.weights(model)


def loaded(options, change=lambda state: state):
    def run(entry: Entry, kit: Kit) -> Weights:
        model = kit.wrap(entry.build())
        optimizer = kit.optimizer(model, entry.optimizer)
        model.load_state_dict(change({name: 2 * x for name, x in model.state_dict().items()}), **options)
        for batch in entry.batches():
            step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        return kit.weights(model)

    return run


def without_a_bias(state):
    return {name: x for name, x in state.items() if not name.endswith("2.bias")}


add("deepcopy of the wrapped model", mlp, loop=copied)
add("load_state_dict(strict=False)", mlp, loop=loaded({"strict": False}, without_a_bias))
add("load_state_dict(assign=True)", mlp, loop=loaded({"assign": True}))


def inner_loaded(entry: Entry, kit: Kit) -> Weights:
    """The inner module loads a state of its own."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    kit.inner(model).load_state_dict({name: 2 * x for name, x in entry.build().state_dict().items()})
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def added_group(entry: Entry, kit: Kit) -> Weights:
    """A layer is thawed, and its parameters added to the optimizer."""
    model = kit.wrap(entry.build())
    kit.inner(model)[0].requires_grad_(False)
    optimizer = kit.optimizer(model, lambda params: torch.optim.SGD([p for p in params if p.requires_grad], 0.1))
    for i, batch in enumerate(entry.batches()):
        if i == 1:
            kit.inner(model)[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(kit.inner(model)[0].parameters()), "lr": 0.05})
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    return kit.weights(model)


def pseudo_labels(entry: Entry, kit: Kit) -> Weights:
    """The model's own outputs under no_grad are targets of its next step."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        (x,) = kit.share(batch)
        with torch.no_grad():
            goal = model(x).tanh()
        step(entry, kit, model, optimizer, (model(x) - goal).square().mean())
    return kit.weights(model)


def siamese(entry: Entry, kit: Kit) -> Weights:
    """One model on two views, the second without gradient, and a predictor that is wrapped apart."""
    model, head = kit.wrap(mlp_seeded(1)), kit.wrap(mlp_seeded(2))
    optimizers = [kit.optimizer(each, entry.optimizer) for each in (model, head)]
    for batch in entry.batches():
        (x,) = kit.share(batch)
        a, b = model(x), model(x.flip(1)).detach()
        (head(a) - b).square().mean().backward()
        kit.synchronize(model, head)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return named("model", kit.weights(model)) | named("head", kit.weights(head))


add("inner module loads a state", mlp, loop=inner_loaded)
add("thawed layer added to the optimizer", mlp, loop=added_group)
add("pseudo-labels", mlp, loop=pseudo_labels)
add("siamese", mlp, loop=siamese)
add(
    "batch in a list",
    two(lambda m, xs: m.b(m.a(xs[0]))),
    lambda: [([rows(6, 6)],)],
    loss=lambda m, b: m(b).square().mean(),
    same=True,
)
add(
    "tokens and labels",
    lambda: Model(
        lambda m, x, y: functional.cross_entropy(m.h(m.e(x)).flatten(0, 1), y.flatten()),
        e=nn.Embedding(10, 6),
        h=L(6, 10),
    ),
    lambda: [(words(n, 3), words(n, 3)) for n in (7, 6, 8)],
    loss=lambda m, x, y: m(x, y),
)
