"""Wrong but plausible answers to lab 02: each must lose exactly the checks it names, with a message that names it.

Functions of one name stand one after the other: each is a wrong answer of its own, not code that runs here.
"""

import math

import torch

from autograder.authoring import wrong

# 1 gradient_descent

PATH = ("path_starts_at_w0", "follows_the_closed_form", "one_gradient_per_step", "leaves_w0_alone")


@wrong("gradient_descent.gradient_descent", "ascends", fails="follows_the_closed_form", says="You climb")
def gradient_descent(grad, w0, lr, steps):
    path = [w0]
    for _ in range(steps):
        path.append(path[-1] + lr * grad(path[-1]))
    return torch.stack(path)


@wrong("gradient_descent.gradient_descent", "changes w0 in place", fails=PATH, says="the same tensor many times")
def gradient_descent(grad, w0, lr, steps):
    w, path = w0, [w0]
    for _ in range(steps):
        w -= lr * grad(w)
        path.append(w)
    return torch.stack(path)


@wrong("gradient_descent.gradient_descent", "returns the last point alone", fails=PATH, says="expected (4, 1)")
def gradient_descent(grad, w0, lr, steps):
    w = w0
    for _ in range(steps):
        w = w - lr * grad(w)
    return w


@wrong(
    "gradient_descent.gradient_descent",
    "copies the path but steps w0 in place",
    fails="leaves_w0_alone",
    says="argument w0",
)
def gradient_descent(grad, w0, lr, steps):
    w, path = w0, [w0.clone()]
    for _ in range(steps):
        w -= lr * grad(w)
        path.append(w.clone())
    return torch.stack(path)


@wrong(
    "gradient_descent.gradient_descent",
    "computes each gradient twice",
    fails="one_gradient_per_step",
    says="calls of grad",
)
def gradient_descent(grad, w0, lr, steps):
    path = [w0]
    for _ in range(steps):
        if grad(path[-1]).norm() >= 0:
            path.append(path[-1] - lr * grad(path[-1]))
    return torch.stack(path)


# 2 mse_grad


@wrong(
    "gradient_descent.mse_grad",
    "the loss is a sum",
    fails=("loss_is_the_mean", "data_stay_as_they_were"),
    says="sum over",
)
def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).sum()


GRADIENT = ("gradient_equals_autograd", "one_sample_one_weight", "data_stay_as_they_were")


@wrong("gradient_descent.mse_grad", "the gradient of a sum", fails=GRADIENT, says="gradient of the sum")
def mse_grad(w, X, y):
    return 2 * X.T @ (X @ w - y)


@wrong("gradient_descent.mse_grad", "forgets the 2", fails=GRADIENT, says="factor 2 is missing")
def mse_grad(w, X, y):
    return X.T @ (X @ w - y) / len(y)


@wrong("gradient_descent.mse_grad", "error with the wrong sign", fails=GRADIENT, says="sign is wrong")
def mse_grad(w, X, y):
    return 2 / len(y) * X.T @ (y - X @ w)


@wrong("gradient_descent.mse_grad", "a column in place of a vector", fails=GRADIENT, says="shape (2, 1)")
def mse_grad(w, X, y):
    return (2 / len(y) * X.T @ (X @ w - y))[:, None]


# 3 max_stable_lr

LIMIT = ("diagonal_valley", "turned_valley", "descent_obeys_it", "flat_directions_and_float32")


@wrong("gradient_descent.max_stable_lr", "1 for 2", fails=LIMIT, says="This is 1/λmax")
def max_stable_lr(hessian):
    return 1 / float(torch.linalg.eigvalsh(hessian)[-1])


@wrong("gradient_descent.max_stable_lr", "smallest eigenvalue", fails=LIMIT, says="This is 2/λmin")
def max_stable_lr(hessian):
    return 2 / float(torch.linalg.eigvalsh(hessian)[0])


@wrong("gradient_descent.max_stable_lr", "reads the diagonal", fails=LIMIT[1:], says="largest entry on the diagonal")
def max_stable_lr(hessian):
    return 2 / float(hessian.diagonal().max())


# 4 minibatches


@wrong(
    "gradient_descent.minibatches",
    "drops the last batch",
    fails=("every_index_once", "sizes_of_batches", "new_order_each_epoch", "the_generator_decides"),
    says="short last batch is dropped",
)
def minibatches(n, batch_size, generator):
    order = torch.randperm(n, generator=generator)
    for start in range(0, n - batch_size + 1, batch_size):
        yield order[start : start + batch_size]


@wrong(
    "gradient_descent.minibatches",
    "does not shuffle",
    fails=("new_order_each_epoch", "the_generator_decides"),
    says="shuffle them",
)
def minibatches(n, batch_size, generator):
    yield from torch.arange(n).split(batch_size)


@wrong(
    "gradient_descent.minibatches",
    "seeds the generator itself: one order for ever",
    fails=("new_order_each_epoch", "the_generator_decides"),
    says="do not seed the generator",
)
def minibatches(n, batch_size, generator):
    generator.manual_seed(0)
    yield from torch.randperm(n, generator=generator).split(batch_size)


@wrong(
    "gradient_descent.minibatches",
    "ignores the generator",
    fails="the_generator_decides",
    says="same seed gave different batches",
)
def minibatches(n, batch_size, generator):
    yield from torch.randperm(n).split(batch_size)


@wrong(
    "gradient_descent.minibatches",
    "draws with replacement",
    fails=("every_index_once", "new_order_each_epoch", "the_generator_decides"),
    says="more than once",
)
def minibatches(n, batch_size, generator):
    yield from torch.randint(n, (n,), generator=generator).split(batch_size)


@wrong(
    "gradient_descent.minibatches",
    "takes batch_size for the number of batches",
    fails="sizes_of_batches",
    says="not the number of batches",
)
def minibatches(n, batch_size, generator):
    yield from torch.randperm(n, generator=generator).tensor_split(batch_size)


# 5 sgd


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


# 6 momentum and Adam


@wrong(
    "gradient_descent.adam_step",
    "momentum in the wrong order",
    fails=("momentum_equals_torch", "steps_change_nothing_else"),
    says="old velocity",
)
def momentum_step(w, g, v, lr, beta):
    return w - lr * v, beta * v + g


@wrong(
    "gradient_descent.adam_step",
    "momentum as a running mean",
    fails=("momentum_equals_torch", "steps_change_nothing_else"),
    says="damp the gradient",
)
def momentum_step(w, g, v, lr, beta):
    v = beta * v + (1 - beta) * g
    return w - lr * v, v


ADAM = ("adam_first_step", "adam_equals_torch", "steps_change_nothing_else")


@wrong("gradient_descent.adam_step", "no bias correction", fails=ADAM, says="bias correction is missing")
def adam_step(w, g, state, lr):
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g**2
    return w - lr * m / (v.sqrt() + 1e-8), {"t": state["t"] + 1, "m": m, "v": v}


@wrong("gradient_descent.adam_step", "counts steps from 0", fails=ADAM, says="expected a finite number")
def adam_step(w, g, state, lr):
    t = state["t"]
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g**2
    return w - lr * m / (1 - 0.9**t + 0 * m) / ((v / (1 - 0.999**t + 0 * v)).sqrt() + 1e-8), {
        "t": t + 1,
        "m": m,
        "v": v,
    }


@wrong(
    "gradient_descent.adam_step",
    "epsilon inside the root",
    fails=ADAM,
    says="outside the root",
)
def adam_step(w, g, state, lr):
    t = state["t"] + 1
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g**2
    return w - lr * m / (1 - 0.9**t) / (v / (1 - 0.999**t) + 1e-8).sqrt(), {"t": t, "m": m, "v": v}


@wrong(
    "gradient_descent.adam_step", "changes the state in place", fails="steps_change_nothing_else", says="argument state"
)
def adam_step(w, g, state, lr):
    state["t"] += 1
    state["m"] = 0.9 * state["m"] + 0.1 * g
    state["v"] = 0.999 * state["v"] + 0.001 * g**2
    m_hat, v_hat = state["m"] / (1 - 0.9 ** state["t"]), state["v"] / (1 - 0.999 ** state["t"])
    return w - lr * m_hat / (v_hat.sqrt() + 1e-8), state


# 7 parallel_gradient


@wrong("gradient_descent.parallel_gradient", "mean of the shards' means", fails="unequal_shards", says="n_k / n")
def parallel_gradient(grad, w, shards):
    return sum(grad(w, X, y) for X, y in shards) / len(shards)


@wrong(
    "gradient_descent.parallel_gradient",
    "sum of the shards' means",
    fails=("equal_shards", "unequal_shards", "one_shard", "each_shard_on_its_own"),
    says="You added the shards' gradients",
)
def parallel_gradient(grad, w, shards):
    return sum(grad(w, X, y) for X, y in shards)


@wrong(
    "gradient_descent.parallel_gradient",
    "collects all data first",
    fails="each_shard_on_its_own",
    says="put the shards together",
)
def parallel_gradient(grad, w, shards):
    return grad(w, torch.cat([X for X, _ in shards]), torch.cat([y for _, y in shards]))


# 8 lr_schedule


@wrong(
    "gradient_descent.lr_schedule",
    "warm-up one step ahead",
    fails=("warmup_is_linear", "ends_and_stays_at_zero", "up_then_down"),
    says="one step ahead",
)
def lr_schedule(step, warmup, total, peak):
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min((step - warmup) / (total - warmup), 1.0)
    return peak / 2 * (1 + math.cos(math.pi * progress))


@wrong(
    "gradient_descent.lr_schedule",
    "cosine from step 0",
    fails=("cosine_after_it", "ends_and_stays_at_zero", "up_then_down"),
    says="You measure from step 0",
)
def lr_schedule(step, warmup, total, peak):
    if step < warmup:
        return peak * step / warmup
    return peak / 2 * (1 + math.cos(math.pi * min(step / total, 1.0)))


@wrong(
    "gradient_descent.lr_schedule",
    "rises again after the end",
    fails="ends_and_stays_at_zero",
    says="step total, total + 1",
)
def lr_schedule(step, warmup, total, peak):
    if step < warmup:
        return peak * step / warmup
    return peak / 2 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


@wrong("gradient_descent.lr_schedule", "divides by warmup = 0", fails="no_warmup", says="ZeroDivisionError")
def lr_schedule(step, warmup, total, peak):
    rising = peak * step / warmup
    progress = min((step - warmup) / (total - warmup), 1.0)
    return rising if step < warmup else peak / 2 * (1 + math.cos(math.pi * progress))
