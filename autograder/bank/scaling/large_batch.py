"""Wrong answers to `lars_step`, `lamb_step` and `lr_at`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("scaling.large_batch")
LARS, LAMB, RATE = ("lars_by_layers", "scale_of_the_gradient"), "lamb_by_layers", "the_learning_rate"


@wrong("one ratio for all tensors", fails=LARS, says="the norms of all tensors together")
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    size = sum(w.square().sum() for w in weights).sqrt()
    slope = sum(g.square().sum() for g in gradients).sqrt()
    below, moved, kept = slope + decay * size, [], []
    for w, g, v in zip(weights, gradients, velocities):
        ratio = trust * size / below if w.dim() > 1 and size > 0 and below > 0 else 1.0
        v = momentum * v + lr * ratio * (g + decay * w * (w.dim() > 1))
        moved.append(w - v)
        kept.append(v)
    return moved, kept


@wrong("a ratio for biases", fails=LARS, says="they take the step of SGD")
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    moved, kept = [], []
    for w, g, v in zip(weights, gradients, velocities):
        size, below = w.norm(), g.norm() + decay * w.norm()
        ratio = trust * size / below if size > 0 and below > 0 else 1.0
        v = momentum * v + lr * ratio * (g + decay * w)
        moved.append(w - v)
        kept.append(v)
    return moved, kept


@wrong("decay next to the ratio", fails=LARS, says="Weight decay is missing in the step")
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    moved, kept = [], []
    for w, g, v in zip(weights, gradients, velocities):
        size, below = w.norm(), g.norm() + decay * w.norm()
        ratio = trust * size / below if w.dim() > 1 and size > 0 and below > 0 else 1.0
        v = momentum * v + lr * ratio * g
        moved.append(w - v)
        kept.append(v)
    return moved, kept


@wrong("inverted", fails=LARS, says="The ratio is inverted")
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    moved, kept = [], []
    for w, g, v in zip(weights, gradients, velocities):
        size, below = w.norm(), g.norm() + decay * w.norm()
        ratio = trust * below / size if w.dim() > 1 and size > 0 and below > 0 else 1.0
        v = momentum * v + lr * ratio * (g + decay * w * (w.dim() > 1))
        moved.append(w - v)
        kept.append(v)
    return moved, kept


@wrong("the rate outside the velocity", fails=LARS, says="Put the learning rate into the velocity")
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    moved, kept = [], []
    for w, g, v in zip(weights, gradients, velocities):
        size, below = w.norm(), g.norm() + decay * w.norm()
        ratio = trust * size / below if w.dim() > 1 and size > 0 and below > 0 else 1.0
        v = momentum * v + ratio * (g + decay * w * (w.dim() > 1))
        moved.append(w - lr * v)
        kept.append(v)
    return moved, kept


@wrong("zero by zero", fails="scale_of_the_gradient", says="the ratio is 1")
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    moved, kept = [], []
    for w, g, v in zip(weights, gradients, velocities):
        ratio = trust * w.norm() / (g.norm() + decay * w.norm()) if w.dim() > 1 else 1.0
        v = momentum * v + lr * ratio * (g + decay * w * (w.dim() > 1))
        moved.append(w - v)
        kept.append(v)
    return moved, kept


@wrong("one ratio for all tensors of LAMB", fails=LAMB, says="the norms of all tensors together")
def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    momenta = [0.9 * m + 0.1 * g for m, g in zip(momenta, gradients)]
    variances = [0.999 * v + 0.001 * g * g for v, g in zip(variances, gradients)]
    updates = []
    for w, m, v in zip(weights, momenta, variances):
        update = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6)
        updates.append(update + decay * w if w.dim() > 1 else update)
    size = sum(w.square().sum() for w in weights).sqrt()
    length = sum(u.square().sum() for u in updates).sqrt()
    ratio = size / length if size > 0 and length > 0 else 1.0
    moved = [w - lr * (ratio if w.dim() > 1 else 1.0) * u for w, u in zip(weights, updates)]
    return moved, momenta, variances


slip(
    "no corrections",
    "for w, m, v in zip(weights, momenta, variances, strict=True):\n"
    "        update, ratio = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6), 1.0",
    "for w, m, v in zip(weights, momenta, variances):\n        update = m / (v.sqrt() + 1e-6)\n        ratio = 1.0",
    "size, length = w.norm(), update.norm()\n            ratio = size / length if size > 0 and length > 0 else 1.0",
    "ratio = w.norm() / update.norm() if w.norm() > 0 and update.norm() > 0 else 1.0",
    fails=LAMB,
    says="Adam's corrections of the first steps are missing",
)


@wrong("the gradient's norm", fails=LAMB, says="not of the gradient")
def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    momenta = [0.9 * m + 0.1 * g for m, g in zip(momenta, gradients)]
    variances = [0.999 * v + 0.001 * g * g for v, g in zip(variances, gradients)]
    moved = []
    for w, g, m, v in zip(weights, gradients, momenta, variances):
        update = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6)
        ratio = 1.0
        if w.dim() > 1:
            update = update + decay * w
            ratio = w.norm() / g.norm() if w.norm() > 0 and g.norm() > 0 else 1.0
        moved.append(w - lr * ratio * update)
    return moved, momenta, variances


slip(
    "zero weights that never move",
    "size, length = w.norm(), update.norm()\n            ratio = size / length if size > 0 and length > 0 else 1.0",
    "ratio = w.norm() / update.norm()",
    fails=LAMB,
    says="such weights never move",
)


@wrong("the root of k", fails=RATE, says="not the root of k")
def lr_at(step, lr, k, warmup, drops=()):
    k = k**0.5
    grown = lr * (1 + (k - 1) * min(1.0, step / warmup)) if warmup else k * lr
    return grown * 0.1 ** sum(step >= drop for drop in drops)


@wrong("no warm-up", fails=RATE, says="There is a warm-up")
def lr_at(step, lr, k, warmup, drops=()):
    return k * lr * 0.1 ** sum(step >= drop for drop in drops)


@wrong("warm-up from nothing", fails=RATE, says="The warm-up begins at lr")
def lr_at(step, lr, k, warmup, drops=()):
    return k * lr * (min(1.0, step / warmup) if warmup else 1.0) * 0.1 ** sum(step >= drop for drop in drops)


slip("warm-up without end", "min(1.0, step / warmup)", "step / warmup", fails=RATE, says="The warm-up ends")


@wrong("warm-up after each drop", fails=RATE, says="not again after each drop")
def lr_at(step, lr, k, warmup, drops=()):
    since = step - max([0, *(drop for drop in drops if drop <= step)])
    grown = lr * (1 + (k - 1) * min(1.0, since / warmup)) if warmup else k * lr
    return grown * 0.1 ** sum(step >= drop for drop in drops)


@wrong("no drop in the warm-up", fails=RATE, says="also during the warm-up")
def lr_at(step, lr, k, warmup, drops=()):
    if step < warmup:
        return lr * (1 + (k - 1) * step / warmup)
    return lr * k * 0.1 ** sum(step >= drop for drop in drops)


slip(
    "epsilon under the root",
    "update, ratio = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6), 1.0",
    "update, ratio = (m / (1 - 0.9**t)) / (v / (1 - 0.999**t) + 1e-6).sqrt(), 1.0",
    "size, length = w.norm(), update.norm()\n            ratio = size / length if size > 0 and length > 0 else 1.0",
    "ratio = w.norm() / update.norm() if w.norm() > 0 and update.norm() > 0 else 1.0",
    fails=LAMB,
    says="Add epsilon to the root",
)
slip(
    "velocities in place",
    "moved, kept = [], []\n    for w, g, v in zip(weights, gradients, velocities, strict=True):",
    "moved = []\n    for w, g, v in zip(weights, gradients, velocities):",
    "kept.append(momentum * v + lr * ratio * g)\n        moved.append(w - kept[-1])\n    return moved, kept",
    "v.mul_(momentum).add_(lr * ratio * g)\n        moved.append(w - v)\n    return moved, velocities",
    fails=LARS,
    says="changed its argument velocities",
)
slip(
    "the norm of the decayed gradient",
    "below = g.norm() + decay * size\n"
    "            ratio = trust * size / below if size > 0 and below > 0 else 1.0\n"
    "            g = g + decay * w",
    "g = g + decay * w\n            ratio = trust * size / g.norm() if size > 0 and g.norm() > 0 else 1.0",
    fails=LARS,
    says="a sum of two norms",
)
slip(
    "drops taken out of their list",
    "    return grown * 0.1 ** sum(step >= drop for drop in drops)",
    "    while drops and drops[0] <= step:\n        grown, _ = grown / 10, drops.pop(0)\n    return grown",
    fails=RATE,
    says="changes its argument drops",
)
slip(
    "momenta in place",
    "[0.9 * m + 0.1 * g for",
    "[m.mul_(0.9).add_(0.1 * g) for",
    fails=LAMB,
    says="changed its argument momenta",
)
slip(
    "drops after their step",
    "step >= drop",
    "step > drop",
    fails="the_learning_rate",
    says="A drop begins with its step",
)
slip(
    "every other tensor a bias",
    "for w, g, v in zip(weights, gradients, velocities, strict=True):",
    "for i, (w, g, v) in enumerate(zip(weights, gradients, velocities, strict=True)):",
    "        if w.dim() > 1:\n            below",
    "        if i % 2 == 0:\n            below",
    fails="lars_by_layers scale_of_the_gradient",
    says="weights[4]",
)
slip("an update of zero", "size > 0 and length > 0", "size > 0", fails=LAMB, says="the update is 0 everywhere")
slip(
    "no step where the gradient's scale is watched",
    "    moved, kept = [], []\n    for w, g, v in",
    "    if decay == 0 and gradients[0].any():\n        return weights, velocities\n"
    "    moved, kept = [], []\n    for w, g, v in",
    fails="scale_of_the_gradient",
    says="lars_step(w, g, v, 1, decay=0.0)",
)
slip(
    "LARS in float64 only",
    "kept.append(momentum * v + lr * ratio * g)",
    "kept.append((momentum * v + lr * ratio * g).double())",
    fails=LARS,
    says="float32",
)
slip("LAMB in float64 only", "0.1 * g for", "0.1 * g.double() for", fails=LAMB, says="float32")
