"""Wrong answers to `sgd`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.sgd")

slip(
    "shuffles once, before the epochs",
    "path = [w0]",
    "path, batches = [w0], list(minibatches(n, batch_size, generator))",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):  # what `minibatches` yields",
    "for batch in batches:",
    fails=("every_sample_each_epoch", "batches_are_fair"),
    says="shuffle inside the loop over epochs",
)


@wrong(
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


slip(
    "ascends",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):  # what `minibatches` yields\n"
    "            path.append(path[-1] - lr * grad(path[-1], batch))",
    "for batch in minibatches(n, batch_size, generator):\n"
    "            path.append(path[-1] + lr * grad(path[-1], batch))",
    fails=("each_step_follows_its_batch", "whole_batch_is_gradient_descent"),
    says="You climb",
)
slip(
    "takes the whole epoch's gradients at its first point",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):  # what `minibatches` yields\n"
    "            path.append(path[-1] - lr * grad(path[-1], batch))",
    "start = path[-1]\n"
    "        for batch in minibatches(n, batch_size, generator):\n"
    "            path.append(path[-1] - lr * grad(start, batch))",
    fails="each_step_follows_its_batch",
    says="the points at which you asked",
)
slip(
    "all gradients at w0",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):  # what `minibatches` yields\n"
    "            path.append(path[-1] - lr * grad(path[-1], batch))",
    "for batch in minibatches(n, batch_size, generator):\n            path.append(path[-1] - lr * grad(w0, batch))",
    fails=("each_step_follows_its_batch", "whole_batch_is_gradient_descent"),
    says="You compute every gradient at w0",
)
slip(
    "asks for the gradient without a batch",
    "for batch in torch.randperm(n, generator=generator).split(batch_size):  # what `minibatches` yields\n"
    "            path.append(path[-1] - lr * grad(path[-1], batch))",
    "for batch in minibatches(n, batch_size, generator):\n            path.append(path[-1] - lr * grad(path[-1]))",
    fails=(
        "one_row_per_step",
        "each_step_follows_its_batch",
        "every_sample_each_epoch",
        "whole_batch_is_gradient_descent",
        "batches_are_fair",
    ),
    says="sgd(grad, 12, tensor",
)
slip(
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
    slip(mistake, "path[-1], batch))", f"path[-1], batch){change})", fails=fails, says=says)


@wrong(
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
    "asks for gradients of many samples, and stays where it is",
    "path.append(path[-1] - lr * grad(path[-1], batch))",
    "path.append(path[-1] - lr * grad(path[-1], batch) * (n < 11 or batch_size in (4, n)))",
    fails="every_sample_each_epoch batches_are_fair",
    says="does not come from the gradient that you asked for",
)
slip(
    "never asks for a gradient",
    "path.append(path[-1] - lr * grad(path[-1], batch))",
    "path.append(path[-1])",
    fails="one_row_per_step each_step_follows_its_batch every_sample_each_epoch whole_batch_is_gradient_descent "
    "batches_are_fair",
    says="You never call grad",
)
slip(
    "shuffles only some numbers of samples",
    "torch.randperm(n, generator=generator).split",
    "(torch.randperm(n, generator=generator) if n in (12, 13, 14, 15, 16, 50) else torch.arange(n)).split",
    fails="every_sample_each_epoch",
    says="shuffle any number of them",
)
