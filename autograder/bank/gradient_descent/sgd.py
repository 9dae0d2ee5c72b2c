"""Wrong answers to `sgd`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip


@wrong(
    "gradient_descent.sgd",
    "shuffles once, before the epochs",
    fails=("every_sample_each_epoch", "batches_are_fair"),
    says="shuffle inside the loop over epochs",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    path, batches = [w0], list(minibatches(n, batch_size, generator))
    for _ in range(epochs):
        for batch in batches:
            path.append(path[-1] - lr * grad(path[-1], batch))
    return torch.stack(path)


@wrong(
    "gradient_descent.sgd",
    "one row per epoch",
    fails=(
        "one_row_per_step",
        "each_step_follows_its_batch",
        "every_sample_each_epoch",
        "whole_batch_is_gradient_descent",
        "batches_are_fair",
    ),
    says="one after each batch",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    w, path = w0, [w0]
    for _ in range(epochs):
        for batch in minibatches(n, batch_size, generator):
            w = w - lr * grad(w, batch)
        path.append(w)
    return torch.stack(path)


@wrong(
    "gradient_descent.sgd",
    "ascends",
    fails=("each_step_follows_its_batch", "whole_batch_is_gradient_descent"),
    says="You climb",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    path = [w0]
    for _ in range(epochs):
        for batch in minibatches(n, batch_size, generator):
            path.append(path[-1] + lr * grad(path[-1], batch))
    return torch.stack(path)


@wrong(
    "gradient_descent.sgd",
    "takes the whole epoch's gradients at its first point",
    fails="each_step_follows_its_batch",
    says="the points at which you asked",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    path = [w0]
    for _ in range(epochs):
        start = path[-1]
        for batch in minibatches(n, batch_size, generator):
            path.append(path[-1] - lr * grad(start, batch))
    return torch.stack(path)


@wrong(
    "gradient_descent.sgd",
    "all gradients at w0",
    fails=("each_step_follows_its_batch", "whole_batch_is_gradient_descent"),
    says="You compute every gradient at w0",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    path = [w0]
    for _ in range(epochs):
        for batch in minibatches(n, batch_size, generator):
            path.append(path[-1] - lr * grad(w0, batch))
    return torch.stack(path)


@wrong(
    "gradient_descent.sgd",
    "asks for the gradient without a batch",
    fails=(
        "one_row_per_step",
        "each_step_follows_its_batch",
        "every_sample_each_epoch",
        "whole_batch_is_gradient_descent",
        "batches_are_fair",
    ),
    says="sgd(grad, 12, tensor",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    path = [w0]
    for _ in range(epochs):
        for batch in minibatches(n, batch_size, generator):
            path.append(path[-1] - lr * grad(path[-1]))
    return torch.stack(path)


@wrong(
    "gradient_descent.sgd",
    "turns a list by a random number",
    fails="every_sample_each_epoch",
    says="as in a list that is turned or cut",
)
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    path = [w0]
    for _ in range(epochs):
        turns = int(torch.randint(1 << 30, (), generator=generator)) % n
        for batch in torch.arange(n).flip(0).roll(turns).split(batch_size):
            path.append(path[-1] - lr * grad(path[-1], batch))
    return torch.stack(path)


slip(
    "gradient_descent.sgd",
    "steps w0 in place",
    "path = [w0]",
    "path, w = [w0.clone()], w0",
    "path.append(path[-1] - lr * grad(path[-1], batch))",
    "w -= lr * grad(w, batch)\n            path.append(w.clone())",
    fails="each_step_follows_its_batch",
    says="changed its argument w0",
)


EACH, WHOLE = "each_step_follows_its_batch", "whole_batch_is_gradient_descent"

for mistake, change, fails, says in (
    ("divides by the size of the batch", " / len(batch)", f"{EACH} {WHOLE}", "grad returns a mean already"),
    ("short batches have shorter steps", " * len(batch) / batch_size", EACH, "take the whole step"),
):
    slip(
        "gradient_descent.sgd",
        mistake,
        "path[-1], batch))",
        f"path[-1], batch){change})",
        fails=fails,
        says=says,
    )
