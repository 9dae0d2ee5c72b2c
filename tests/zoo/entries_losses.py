"""Losses that are no plain means over samples: weights of classes, masks, ignored tokens, functions of means."""

import torch
from torch import nn
from torch.nn import functional
from zoo.entries import L, Model, mlp
from zoo.entries_loops import loop, step
from zoo.registry import add, rows, vectors, words


def labelled(counts=(7, 6, 8)):
    """Vectors and a class for each."""
    return lambda: [(rows(n, 6, seed=n), words(n, below=3)) for n in counts]


def with_loss(f):
    return lambda model, x, y: f(model(x), y)


def classifier():
    return nn.Sequential(L(6, 8), nn.Tanh(), L(8, 3))


WEIGHTS = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)


def half_ignored(y):
    return torch.where(torch.arange(len(y)) < len(y) // 2, y, -100)


def masked(y, t):
    mask = (t > 0).double()
    return (functional.cross_entropy(y, t, reduction="none") * mask).sum() / mask.sum()


for name, f in {
    "cross-entropy with weights": lambda y, t: functional.cross_entropy(y, t, weight=WEIGHTS),
    "weights and smoothed labels": lambda y, t: functional.cross_entropy(y, t, weight=WEIGHTS, label_smoothing=0.1),
    "cross-entropy with weights, halved": lambda y, t: 0.5 * functional.cross_entropy(y, t, weight=WEIGHTS),
    "ignore_index, unequal counts": lambda y, t: functional.cross_entropy(y, half_ignored(t)),
    "masked mean": masked,
    "root of the mean square": lambda y, t: functional.mse_loss(y[:, 0], t.double()).sqrt(),
    "norm of the residual": lambda y, t: (y[:, 0] - t).norm(),
    "logarithm of the mean": lambda y, t: functional.cross_entropy(y, t).log(),
    "ratio of two means": lambda y, t: functional.cross_entropy(y, t) / y.square().mean(),
    "sum, unequal parts": lambda y, t: functional.cross_entropy(y, t, reduction="sum"),
    "weights without a mean over them": lambda y, t: (
        functional.cross_entropy(y, t, weight=WEIGHTS, reduction="sum") / len(t)
    ),
    "smoothed labels": lambda y, t: functional.cross_entropy(y, t, label_smoothing=0.1),
    "mean of sums": lambda y, t: y.square().sum(1).mean() + 0.1 * y.abs().sum() / len(y),
    "soft labels": lambda y, t: functional.cross_entropy(y, functional.one_hot(t, 3).double(), weight=WEIGHTS),
    "binary cross-entropy": lambda y, t: functional.binary_cross_entropy_with_logits(
        y[:, 0], (t > 0).double(), pos_weight=torch.tensor(3.0)
    ),
    "Kullback-Leibler, batchmean": lambda y, t: functional.kl_div(
        y.log_softmax(-1), functional.one_hot(t, 3).double(), reduction="batchmean"
    ),
    "losses stacked": lambda y, t: torch.stack([functional.cross_entropy(y, t), y.square().mean()]).mean(),
}.items():
    add(name, classifier, labelled(), loss=with_loss(f))
add(
    "cross-entropy with weights, equal on ranks",
    classifier,
    lambda: [(rows(6, 6, seed=n), torch.zeros(6, dtype=torch.long)) for n in range(3)],
    loss=with_loss(lambda y, t: functional.cross_entropy(y, t, weight=WEIGHTS)),
)
add(
    "masked mean, counted",
    lambda: Model(lambda m, x, t: masked(m.net(x), t), net=classifier()),
    labelled((9, 12, 10)),
    loss=lambda model, x, t: model(x, t),
    options={"samples": lambda x, t: int((t > 0).sum())},
)


# -- parts of a batch
def _in_proportion(entry, kit, model, optimizer, batch, i):
    """Microbatches of unequal lengths, each loss scaled by its part of the samples."""
    (x,) = kit.share(batch)
    with kit.no_sync(model):
        (entry.loss(model, x[:1]) * (1 / len(x))).backward()
    step(entry, kit, model, optimizer, entry.loss(model, x[1:]) * ((len(x) - 1) / len(x)))


add("accumulation, microbatches in proportion", mlp, vectors(6, (7, 9, 11)), loop=loop(_in_proportion))


# -- penalties on weights, outside the model
def penalized(penalty):
    def run(entry, kit, model, optimizer, batch, i):
        loss = entry.loss(model, *kit.share(batch)) + penalty(list(model.parameters()))
        step(entry, kit, model, optimizer, loss)

    return loop(run)


for name, penalty in {
    "sum of squares in the loss": lambda ps: 0.01 * sum(p.square().sum() for p in ps),
    "sum of magnitudes in the loss": lambda ps: 0.01 * torch.stack([p.abs().sum() for p in ps]).sum(),
    "squares less a constant in the loss": lambda ps: sum(((p - 1) ** 2).sum() for p in ps) / 100,
    "mean square of weights in the loss": lambda ps: sum(p.square().mean() for p in ps),
    "root of the sum of squares in the loss": lambda ps: sum(p.square().sum() for p in ps).sqrt(),
}.items():
    add(name, mlp, loop=penalized(penalty))


def _times(entry, kit, model, optimizer, batch, i):
    loss = entry.loss(model, *kit.share(batch))
    step(entry, kit, model, optimizer, loss * sum(p.square().sum() for p in model.parameters()))


def _accumulated_penalty(entry, kit, model, optimizer, batch, i):
    def loss(x):
        return (entry.loss(model, x) + 0.01 * sum(p.square().sum() for p in model.parameters())) / 2

    (x,) = batch
    with kit.no_sync(model):
        loss(*kit.share((x[:6],))).backward()
    step(entry, kit, model, optimizer, loss(*kit.share((x[:6].flip(1),))))


add("loss times sum of squares", mlp, loop=loop(_times))
add("sum of squares, accumulation", mlp, loop=loop(_accumulated_penalty))
add("orthogonality penalty in the loss", mlp, loop=penalized(lambda ps: (ps[0].t() @ ps[0]).square().sum()))
