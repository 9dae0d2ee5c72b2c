"""Losses that compare samples or sum them, and loops, as they are in other people's repositories."""

import copy
import pickle

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential
from zoo.entries import L, Model, P, mlp
from zoo.entries_loops import loop, step
from zoo.entries_losses import classifier, labelled, with_loss
from zoo.registry import Entry, Kit, Weights, add, rows


# -- losses that compare samples, and sums
def _off_diagonal(c):
    return c.square().sum() - c.diagonal().square().sum()


def _barlow(y, t):
    z = y / len(y) ** 0.5
    c = z.t() @ z.tanh()
    return (c.diagonal() - 1).square().sum() + 0.1 * _off_diagonal(c)


def _variance(y, t):
    return functional.relu(1 - y.var(0).add(1e-4).sqrt()).mean() + y.square().mean()


def _dice(y, t):
    p = y.softmax(-1)[:, 1]
    return 1 - 2 * (p * (t == 1)).sum() / (p.sum() + (t == 1).sum() + 1)


def _hardest(y, t):
    d = torch.cdist(y, y)
    same = t[:, None] == t[None]
    return functional.relu((d * same).amax(1) - d.masked_fill(same, 1e3).amin(1) + 1).mean()


def _info_nce(y, t):
    return functional.cross_entropy(
        functional.cosine_similarity(y[:, None], y.tanh()[None], dim=-1) / 0.1, torch.arange(len(y))
    )


def _mmd(y, t):
    return torch.exp(-(y[:, None] - y.roll(1, 0)[None]).square().sum(-1)).mean()


def _ranked(y, t):
    return functional.softplus(y[:, 0] - y[:, 0].flip(0)).mean()


def _focal(y, t):
    ce = functional.cross_entropy(y, t, reduction="none")
    return ((1 - torch.exp(-ce)) ** 2 * ce).mean()


for name, f in {
    "Barlow twins": _barlow,
    "VICReg's variance": _variance,
    "dice": _dice,
    "hardest triplets": _hardest,
    "InfoNCE by cosine_similarity": _info_nce,
    "kernel means": _mmd,
    "pairs of the batch": _ranked,
    "centred outputs": lambda y, t: (y - y.mean(0)).square().mean(),
    "focal": _focal,
    "triplet margin": lambda y, t: functional.triplet_margin_loss(y, y.tanh(), y.sin()),
    "cosine embedding": lambda y, t: functional.cosine_embedding_loss(y, y.sin(), 2.0 * (t > 0) - 1),
    "gaussian NLL": lambda y, t: functional.gaussian_nll_loss(y[:, 0], t.double(), y[:, 1].exp()),
    "poisson NLL": lambda y, t: functional.poisson_nll_loss(y[:, 0], t.double()),
    "multi-margin": lambda y, t: functional.multi_margin_loss(y, t),
    "hinge": lambda y, t: functional.hinge_embedding_loss(y[:, 0], 2.0 * (t > 0) - 1),
    "log-sum-exp over classes": lambda y, t: (y.logsumexp(1) - y[:, 0]).mean() + 1e-2 * y.logsumexp(1).square().mean(),
    "dot product of outputs and targets": lambda y, t: torch.dot(y[:, 0], t.double()) / len(y),
    "einsum": lambda y, t: torch.einsum("ij,ij->", y, y) / y.shape[0],
    "mean by matmul": lambda y, t: (torch.ones(1, len(y)) / len(y) @ y.square()).sum(),
    "loop over samples": lambda y, t: sum(functional.mse_loss(each, each.detach().sin()) for each in y) / len(y),
    "norms of rows": lambda y, t: y.norm(dim=1).mean(),
    "mean of the largest": lambda y, t: y.square().sum(1).topk(2)[0].mean(),
    "trimmed by a quantile": lambda y, t: y.square()[y.square() < y.square().detach().quantile(0.5)].mean(),
}.items():
    add(name, classifier, labelled(), loss=with_loss(f))
for name, f in {
    "sum, equal parts": lambda y, t: functional.cross_entropy(y, t, reduction="sum"),
    "half of a sum, equal parts": lambda y, t: 0.5 * y.square().sum(),
}.items():
    add(name, classifier, labelled((6, 12, 6)), loss=with_loss(f))


# -- loops
def lookahead(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    slow = [param.detach().clone() for param in model.parameters()]
    for i, batch in enumerate(entry.batches()):
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        if i % 2:
            for kept, param in zip(slow, model.parameters(), strict=True):
                kept.add_(param.data - kept, alpha=0.5)
                param.data.copy_(kept)
    return kit.weights(model)


def swa(entry: Entry, kit: Kit) -> Weights:
    """AveragedModel of the wrapped model."""
    model = kit.wrap(entry.build())
    optimizer, mean = kit.optimizer(model, entry.optimizer), torch.optim.swa_utils.AveragedModel(model)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        mean.update_parameters(model)
    return kit.weights(model) | {name.split(".", 2)[-1]: x.detach() for name, x in mean.named_parameters()}


def pickled(entry: Entry, kit: Kit) -> Weights:
    model = kit.wrap(entry.build())
    return kit.weights(pickle.loads(pickle.dumps(model)))


def layer_rates(entry: Entry, kit: Kit) -> Weights:
    """A rate for each layer, and a schedule that warms up."""
    model = kit.wrap(entry.build())
    inner = kit.inner(model)
    optimizer = kit.optimizer(
        model,
        lambda _: torch.optim.SGD(
            [{"params": inner[0].parameters(), "lr": 0.01}, {"params": inner[2].parameters()}], 0.1
        ),
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: (i + 1) / 3)
    for batch in entry.batches():
        step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
        scheduler.step()
    return kit.weights(model)


def _centralized(params):
    for param in params:
        param.grad.sub_(param.grad.mean())


def _adaptive(params):
    for param in params:
        limit = 0.01 * param.detach().norm().clamp(min=1e-3)
        param.grad.mul_((limit / param.grad.norm()).clamp(max=1.0))


def _trust(params):
    """A rate from the weights' norm, as in LARS."""
    for param in params:
        param.grad.mul_(param.norm().detach())


def _decayed(params):
    for param in params:
        param.data.mul_(0.99)


def _as_vector(params):
    params = list(params)
    nn.utils.vector_to_parameters(0.9 * nn.utils.parameters_to_vector(params), params)


def changed_after(change):
    """`change(parameters)` after the gradients are synchronized."""

    def run(entry, kit, model, optimizer, batch, i):
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        change(model.parameters())
        optimizer.step()
        optimizer.zero_grad()

    return loop(run)


def _logged(read):
    """`read(parameters)` is trained upon: what is logged decides."""

    def run(entry, kit, model, optimizer, batch, i):
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        optimizer.step()
        optimizer.zero_grad()
        value = read(list(model.parameters()))
        for group in optimizer.param_groups:
            group["lr"] = (value.item() if isinstance(value, torch.Tensor) else float(value)) / 100  # float() warns

    return loop(run)


def _backward_of_two(entry, kit, model, optimizer, batch, i):
    y = model(*kit.share(batch))
    torch.autograd.backward([y.square().mean(), y.abs().mean()])
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _carried(entry, kit, model, optimizer, batch, i):
    """A recurrent state that passes from batch to batch."""
    (x,) = kit.share(batch)
    h = model.__dict__.get("_carried")
    y, h = model(x, h)
    model.__dict__["_carried"] = h.detach()
    step(entry, kit, model, optimizer, y.square().mean())


def _maml(entry, kit, model, optimizer, batch, i):
    """One inner step with its graph, and the loss after it."""
    (x,) = kit.share(batch)
    params = dict(model.named_parameters())
    grads = torch.autograd.grad(entry.loss(model, x), list(params.values()), create_graph=True)
    fast = {name: param - 0.1 * grad for (name, param), grad in zip(params.items(), grads, strict=True)}
    step(entry, kit, model, optimizer, torch.func.functional_call(model, fast, (x,)).square().mean())


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


def ensemble():
    """Three models' weights stacked, called by vmap."""
    nets = [mlp() for _ in range(3)]
    stacked, _ = torch.func.stack_module_state(nets)
    kept = nn.ParameterDict({name.replace(".", "_"): nn.Parameter(x.detach()) for name, x in stacked.items()})
    bare = [copy.deepcopy(nets[0]).to("meta")]

    def call(m, x):
        params = {name.replace("_", "."): value for name, value in m.kept.items()}
        one = lambda p: torch.func.functional_call(bare[0], p, (x,))  # noqa: E731
        return torch.vmap(one)(params).mean(0)

    return Model(call, kept=kept)


def quantized():
    stub = torch.ao.quantization
    return nn.Sequential(stub.QuantStub(), L(6, 8), nn.ReLU(), L(8, 6), stub.DeQuantStub())


add("Lookahead", mlp, loop=lookahead)
add("AveragedModel of the wrapper", mlp, loop=swa)
add("pickled", mlp, loop=pickled)
add("rates by layer, warmed up", mlp, loop=layer_rates)
add("stacked ensemble under vmap", ensemble)
add("quantization stubs", quantized)
add("straight-through estimator", lambda: Model(lambda m, x: m.b(Straight.apply(m.a(x))), a=L(6, 6), b=L(6, 6)))
add("checkpoint_sequential", lambda: Model(lambda m, x: checkpoint_sequential(m.s, 2, x, use_reentrant=False), s=mlp()))
add("loss in the model", lambda: Model(lambda m, x: m.net(x).square().mean(), net=mlp()), loss=lambda m, x: m(x))
add(
    "weights of tasks inside",
    lambda: Model(
        lambda m, x: (
            sum(torch.exp(-s) * y for s, y in zip(m.s, m.net(x).square().mean(0)[:2], strict=True)) + m.s.sum()
        ),
        net=mlp(),
        s=P(2),
    ),
    loss=lambda m, x: m(x),
)
add("hypernetwork", lambda: Model(lambda m, x: functional.linear(x, m.h(m.z).view(6, 6)), h=L(4, 36), z=P(4)))
add("gradients centralized", mlp, loop=changed_after(_centralized))
add("adaptive gradient clipping", mlp, loop=changed_after(_adaptive))
add("rate by the weights' norm", mlp, loop=changed_after(_trust))
add("weight decay by hand", mlp, loop=changed_after(_decayed))
add("parameters as one vector", mlp, loop=changed_after(_as_vector))
add("norm of all weights logged", mlp, loop=_logged(lambda ps: nn.utils.get_total_norm(ps)))
add("largest weight logged", mlp, loop=_logged(lambda ps: torch.stack([p.abs().max() for p in ps]).max()))
add("spread of weights logged", mlp, loop=_logged(lambda ps: sum(p.std() for p in ps if p.numel() > 1)))
add("weights' norms by foreach", mlp, loop=_logged(lambda ps: torch.stack(torch._foreach_norm(ps)).norm()))
add("vector's norm", mlp, loop=_logged(lambda ps: nn.utils.parameters_to_vector(ps).norm()))
add("weights in numpy", mlp, loop=_logged(lambda ps: sum(abs(p.detach().numpy()).sum() for p in ps)))
add("backward of a list", mlp, loop=loop(_backward_of_two))
add("MAML", mlp, loop=loop(_maml))
add(
    "recurrent state carried on",
    lambda: nn.GRU(6, 4, batch_first=True),
    lambda: [(rows(6, 3, 6, seed=n),) for n in range(3)],
    loop=loop(_carried),
)
