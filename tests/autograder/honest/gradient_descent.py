"""Lab 02 answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% gradient_descent: rows of a matrix that is made first
def gradient_descent(grad, w0, lr, steps):
    path = torch.empty(steps + 1, *w0.shape, dtype=w0.dtype)
    path[0] = w0
    for i in range(steps):
        path[i + 1] = path[i] - lr * grad(path[i])
    return path


# %% gradient_descent: steps that a table keeps
import pandas as pd


def gradient_descent(grad, w0, lr, steps):
    table = pd.DataFrame({"w": [w0]})
    for i in range(steps):
        table.loc[i + 1] = [table["w"][i] - lr * grad(table["w"][i])]
    return torch.stack(list(table["w"]))


# %% gradient_descent: in place, with clones on the way
def gradient_descent(grad, w0, lr, steps):
    w = w0.clone()
    seen = [w.clone()]
    while len(seen) <= steps:
        w -= lr * grad(w)
        seen.append(w.clone())
    return torch.stack(seen)


# %% gradient_descent: itertools
from itertools import accumulate


def gradient_descent(grad, w0, lr, steps):
    return torch.stack(list(accumulate(range(steps), lambda w, _: torch.sub(w, grad(w), alpha=lr), initial=w0)))


# %% gradient_descent: recursion
def gradient_descent(grad, w0, lr, steps):
    start = w0.unsqueeze(0)
    if steps == 0:
        return start
    return torch.cat([start, gradient_descent(grad, w0 - lr * grad(w0), lr, steps - 1)])


# %% gradient_descent: a generator
def walk(grad, w, lr):
    while True:
        yield w
        w = w - grad(w) * lr


def gradient_descent(grad, w0, lr, steps):
    points = walk(grad, w0, lr)
    return torch.vstack([next(points) for _ in range(steps + 1)])


# %% mse_grad: loops over samples
def mse_loss(w, X, y):
    total = 0.0
    for row, target in zip(X, y):
        total += (row @ w - target) ** 2
    return total / len(y)


def mse_grad(w, X, y):
    g = torch.zeros_like(w)
    for row, target in zip(X, y):
        g += 2 * (row @ w - target) * row
    return g / len(y)


# %% mse_grad: einsum
def mse_loss(w, X, y):
    e = torch.einsum("nd,d->n", X, w) - y
    return torch.einsum("n,n->", e, e) / X.shape[0]


def mse_grad(w, X, y):
    e = torch.einsum("nd,d->n", X, w) - y
    return 2 * torch.einsum("n,nd->d", e, X) / X.shape[0]


# %% mse_grad: one helper, the mean of rows
def residual(w, X, y):
    return torch.mv(X, w) - y


mse_loss = lambda w, X, y: residual(w, X, y).square().mean()
mse_grad = lambda w, X, y: (2 * residual(w, X, y)[:, None] * X).mean(dim=0)


# %% mse_grad: a dot product with itself, the sum the other way round
def mse_loss(weights, rows, targets):
    r = targets - rows @ weights
    return r.dot(r) / r.numel()


def mse_grad(weights, rows, targets):
    r = targets - rows @ weights
    return -(2.0 / r.numel()) * (r @ rows)


# %% mse_grad: the normal equations' matrices
def mse_loss(w, X, y):
    return torch.sum((y - (X * w).sum(1)).pow(2)) / len(X)


def mse_grad(w, X, y):
    n = len(X)
    return 2 * (X.T @ X @ w - X.T @ y) / n


# %% max_stable_lr: all eigenvalues of a general matrix
def max_stable_lr(hessian):
    return 2 / max(torch.linalg.eigvals(hessian).real.tolist())


# %% max_stable_lr: the spectral norm
def max_stable_lr(hessian):
    return 2.0 / torch.linalg.matrix_norm(hessian, 2).item()


# %% max_stable_lr: NumPy
import numpy as np


def max_stable_lr(hessian):
    return 2 / np.linalg.eigvalsh(hessian.numpy()).max()


# %% max_stable_lr: the power method
def max_stable_lr(hessian):
    v = torch.randn(len(hessian), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    H = hessian.double()
    for _ in range(5000):
        v = H @ v
        v /= v.norm()
    return 2 / (v @ H @ v).item()


# %% max_stable_lr: a tensor of no dimension
def max_stable_lr(hessian):
    eigenvalues, _ = torch.linalg.eigh(hessian)
    return 2 / eigenvalues.amax()


# %% minibatches: slices of the order
def minibatches(n, batch_size, generator):
    order = torch.randperm(n, generator=generator)
    for begin in range(0, n, batch_size):
        yield order[begin : begin + batch_size]


# %% minibatches: a list, not a generator
def minibatches(n, batch_size, generator):
    return list(torch.randperm(n, generator=generator).split(batch_size))


# %% minibatches: an iterator of a class
class Batches:
    def __init__(self, n, batch_size, generator):
        self.left, self.size = torch.randperm(n, generator=generator), batch_size

    def __iter__(self):
        return self

    def __next__(self):
        if len(self.left) == 0:
            raise StopIteration
        batch, self.left = self.left[: self.size], self.left[self.size :]
        return batch


def minibatches(n, batch_size, generator):
    return Batches(n, batch_size, generator)


# %% minibatches: random keys, sorted
def minibatches(n, batch_size, generator):
    order = torch.argsort(torch.rand(n, generator=generator))
    while order.numel():
        yield order[:batch_size]
        order = order[batch_size:]


# %% minibatches: Fisher and Yates by hand
def minibatches(n, batch_size, generator):
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = int(torch.randint(i + 1, (), generator=generator))
        order[i], order[j] = order[j], order[i]
    yield from (torch.tensor(order[i : i + batch_size]) for i in range(0, n, batch_size))


# %% sgd: with one's own minibatches
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    w = w0.clone()
    path = [w]
    for epoch in range(epochs):
        for batch in minibatches(n, batch_size, generator):
            w = w - lr * grad(w, batch)
            path.append(w)
    return torch.stack(path)


# %% sgd: rows that are filled, in place
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    per_epoch = math.ceil(n / batch_size)
    path = torch.zeros((1 + epochs * per_epoch, len(w0)), dtype=w0.dtype)
    path[0].copy_(w0)
    k = 0
    for _ in range(epochs):
        order = torch.randperm(n, generator=generator)
        for b in range(per_epoch):
            path[k + 1] = path[k] - lr * grad(path[k], order[b * batch_size : (b + 1) * batch_size])
            k += 1
    return path


# %% sgd: one stream of batches
def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    stream = (batch for _ in range(epochs) for batch in minibatches(n, batch_size, generator))
    path = [w0]
    path += [(w0 := w0 - lr * grad(w0, batch)) for batch in stream]
    return torch.stack(path)


# %% adam_step: as in the papers
def momentum_step(w, g, v, lr, beta):
    velocity = torch.add(g, v, alpha=beta)
    return torch.sub(w, velocity, alpha=lr), velocity


BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def adam_step(w, g, state, lr):
    t = state["t"] + 1
    m = BETA1 * state["m"] + (1 - BETA1) * g
    v = BETA2 * state["v"] + (1 - BETA2) * g * g
    m_hat = m / (1 - BETA1**t)
    v_hat = v / (1 - BETA2**t)
    return w - lr * m_hat / (torch.sqrt(v_hat) + EPSILON), dict(t=t, m=m, v=v)


# %% adam_step: the corrections in the rate, as Kingma and Ba suggest
def momentum_step(w, g, v, lr, beta):
    return (w - lr * (new := g + beta * v)), new


def adam_step(w, g, state, lr):
    state = dict(state)
    state["t"] += 1
    state["m"] = torch.lerp(state["m"], g, 0.1)
    state["v"] = torch.lerp(state["v"], g.square(), 0.001)
    root = math.sqrt(1 - 0.999 ** state["t"])
    step = lr * root / (1 - 0.9 ** state["t"])
    return w - step * state["m"] / (state["v"].sqrt() + 1e-8 * root), state


# %% adam_step: copies that are changed in place, a list for a pair
def momentum_step(w, g, v, lr, beta):
    w, v = w.clone(), v.clone()
    v.mul_(beta).add_(g)
    w.add_(v, alpha=-lr)
    return w, v


import copy


def adam_step(w, g, state, lr, betas=(0.9, 0.999), eps=1e-8):
    new = copy.deepcopy(state)
    new["t"] = new["t"] + 1
    new["m"].mul_(betas[0]).add_(g, alpha=1 - betas[0])
    new["v"].mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    corrected = [new[k] / (1 - beta ** new["t"]) for k, beta in zip("mv", betas)]
    return w.addcdiv(corrected[0], corrected[1].sqrt().add(eps), value=-lr), new


# %% parallel_gradient: sums and counts collected on the way
def parallel_gradient(grad, w, shards):
    total, count = torch.zeros_like(w), 0
    for X, y in shards:
        total += len(X) * grad(w, X, y)
        count += len(X)
    return total / count


# %% parallel_gradient: weights times a matrix of gradients
def parallel_gradient(grad, w, shards):
    gradients = torch.stack([grad(w, *shard) for shard in shards])
    sizes = torch.tensor([len(y) for _, y in shards], dtype=w.dtype)
    return sizes @ gradients / sizes.sum()


# %% parallel_gradient: a running mean
def parallel_gradient(grad, w, shards):
    mean, n = 0, 0
    for X, y in shards:
        n += y.numel()
        mean = mean + (grad(w, X, y) - mean) * (y.numel() / n)
    return mean


# %% parallel_gradient: a tree of pairs
from functools import reduce


def parallel_gradient(grad, w, shards):
    parts = [(X.shape[0], X.shape[0] * grad(w, X, y)) for X, y in shards]
    n, total = reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), reversed(parts))
    return total.div(n)


# %% lr_schedule: early returns
def lr_schedule(step, warmup, total, peak):
    if step < warmup:
        return peak * (step / warmup)
    if step >= total:
        return 0.0
    return peak * math.cos(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2


# %% lr_schedule: one expression
lr_schedule = lambda step, warmup, total, peak: (
    peak * step / warmup
    if step < warmup
    else 0.5 * peak * (1 + math.cos(math.pi * min(1, (step - warmup) / (total - warmup))))
)


# %% lr_schedule: clamped pieces, with torch
def lr_schedule(step, warmup, total, peak):
    rising = 1.0 if warmup == 0 else min(step / warmup, 1.0)
    progress = torch.tensor((step - warmup) / (total - warmup), dtype=torch.float64).clamp(0, 1)
    return peak * rising * (1 + torch.cos(torch.pi * progress)).item() / 2


# %% lr_schedule: NumPy
import numpy as np


def lr_schedule(step, warmup, total, peak):
    if warmup and step <= warmup:
        return float(np.interp(step, [0, warmup], [0, peak]))
    progress = np.clip((step - warmup) / (total - warmup), 0, 1)
    return peak * (0.5 + 0.5 * np.cos(np.pi * progress))


# %% unmask_lr_schedule: a generator
def unmask_lr_schedule():
    yield 1, 2, 4, 1
    yield 0, 0, 4, 1
    yield 3, 2, 4, 1
    yield 5, 2, 4, 1


# %% unmask_lr_schedule: every step around the edges of two schedules
def unmask_lr_schedule():
    edges = [(step, 5, 20, 2.5) for step in (0, 1, 4, 5, 6, 19, 20, 21)]
    return tuple(edges) + tuple([step, 0, 20, 2.5] for step in (0, 1))


# %% rates: counted up until the bound is low enough
def rates(error, c, seconds, rule):
    n = len(seconds)
    per_step = n if rule == "synchronous" else 1
    steps = 1
    while c / math.sqrt(per_step * steps) > error:
        steps += 1
    pace = 1 / max(seconds) if per_step == n and rule == "synchronous" else sum(1 / s for s in seconds)
    return steps, steps * per_step, steps / pace


# %% rates: NumPy, a function for the time
import numpy as np


def takes(count, seconds, rule):
    seconds = np.array(seconds)
    return count * seconds.max() if rule == "synchronous" else count / (1 / seconds).sum()


def rates(error, c, seconds, rule):
    each = {"synchronous": len(seconds), "asynchronous": 1}[rule]
    steps = int(np.ceil(c**2 / (each * error**2)))
    return steps, each * steps, float(takes(steps, seconds, rule))


# %% rates: whole numbers, and a mean by statistics
from statistics import harmonic_mean


def rates(error, c, seconds, rule):
    needed = c * c / (error * error)
    if rule == "asynchronous":
        count = -int(-needed // 1)
        return [count, count, count * harmonic_mean(seconds) / len(seconds)]
    count = -int(-needed / len(seconds) // 1)
    return [count, count * len(seconds), count * sorted(seconds)[-1]]


# %% rates: exact fractions and a search
from fractions import Fraction


def rates(error: float, c: float, seconds: list, rule: str) -> tuple[int, int, float]:
    each = len(seconds) if rule == "synchronous" else 1
    target = Fraction(c) ** 2 / Fraction(error) ** 2
    iterations = -(-target // each)
    iterations = int(iterations)
    time = (
        iterations * max(seconds)
        if each > 1 or rule == "synchronous"
        else iterations / sum(map(lambda s: s**-1, seconds))
    )
    return iterations, iterations * each, float(time)
