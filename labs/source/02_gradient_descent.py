# %% [markdown]
# # Lab 02 · Gradient descent
# ## One step at a time, then in parallel
#
# Training a network means walking downhill on its loss, millions of times. In this lab you write that walk: the plain
# step, the mini-batch step, momentum, Adam, and the step that several processors take together. At the end you train a
# model with your own functions to read handwritten digits.
#
# **You will be able to**
# - write gradient descent, and predict which learning rate is too high;
# - turn it into mini-batch SGD, and explain what a small batch gains and what it loses;
# - write momentum and Adam so that they agree with PyTorch's to the last digits;
# - split one gradient over *p* processors and get exactly the same step;
# - predict how much sooner more workers reach an error, and compare the prediction with an experiment;
# - measure how time per epoch and progress per epoch depend on the batch size.
#
# **100 points, 10 exercises, about 95 minutes: 13 reading + 76 exercises + 6 runs.** You need Python functions, matrix
# products and partial derivatives (lab 01), but no GPU and no download. Run each cell with Shift+Enter. The cell below an exercise checks it, as often as you
# like.

# %%
import math
import time
from collections.abc import Callable, Iterator

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from autograder import check
from hpcdl.data import digits
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved
from hpcdl.widgets.pictures import descent_path, learning_rates, more_workers, shards

torch.set_num_threads(1)  # these problems are small: a second thread costs more than it brings
style.use()

# %% [markdown]
# ## See it first
#
# Gradient descent fits a straight line $y = w_0 + w_1 x$ to 32 noisy points. Each pair $(w_0, w_1)$ has a loss, so the
# loss is a landscape over two weights. The rings are its contour lines, the star is the minimum, and the dots are the
# steps.
#
# Press play, then try these before you read on:
# 1. Raise the **learning rate** slowly from 0.10. What happens near 0.2? And near 0.4?
# 2. Go back to 0.05 and raise **momentum** to 0.8. How do path and loss change?
# 3. Set momentum to 0 and the learning rate to 0.10. Lower the **batch size** to 4, then to 1. Where does the path end?

# %%
descent_path.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Up to about 0.2 the path bends smoothly into the valley. Above it, each step jumps across the valley floor, and the
#    next one jumps back. At about 0.4 the jumps no longer shrink, and beyond that the path leaves the map. In exercise
#    3 you compute the second number; the first is half of it.
# 2. Along the valley the steps add up, so the path arrives sooner. It also overshoots the minimum and comes back.
# 3. With few samples a step points downhill only on average. The path gets near the minimum quickly and then jitters
#    around it. The smaller the batch, the stronger the jitter. A smaller learning rate late in training reduces it
#    (exercise 9).
# </details>

# %% [markdown]
# ## The step
#
# The training data are a set $D$ of $n$ samples. The loss $L(D, w)$ measures how badly the model with weights $w$ does
# on them. If you change the weights by a small $\Delta w$, the loss changes by about $\nabla L \cdot \Delta w$. With
# $\Delta w = -r\,\nabla L$ and a small $r > 0$ this is $-r\,\lVert\nabla L\rVert^2$, so you never go uphill. Repeat
# this step:
#
# $$ w \leftarrow w - r\,\nabla L(w). $$
#
# The lectures write $r$, $\eta$ or $\alpha$ for the **learning rate**; code says `lr`. *(Lecture on large-scale training,
# "Gradient descent".)*

# %% [markdown]
# {{exercise gradient_descent}}
#
# Write the walk for any function. You get its gradient `grad`, a start and a number of steps. Return every point, so
# that we can draw the path.
#
# <details><summary>Hint 1: the shape of the answer</summary>
#
# `steps` steps make `steps + 1` points. Collect them in a list that begins with `w0`; `torch.stack` makes a list of vectors
# into a matrix.
# </details>
# <details><summary>Hint 2: all my rows are equal</summary>
#
# `w -= ...` changes the tensor in place, so it also changes the tensor in your list and the caller's `w0`. `w = w -
# ...` makes a new one.
# </details>
# <details><summary>Hint 3: the loop</summary>
#
# The last point of the list is where the next step begins. Repeat `steps` times; stack after the loop.
# </details>


# %%
def gradient_descent(
    grad: Callable[[Tensor], Tensor],
    w0: Tensor,
    lr: float,
    steps: int,
) -> Tensor:
    """The path of gradient descent from `w0`.

    grad: takes weights of shape (d,), returns the gradient there, shape (d,); call it once
    per step.
    w0: shape (d,); not changed.
    Returns the points, shape (steps + 1, d): `w0` first, then one row per step.

    >>> gradient_descent(lambda w: 2 * w, torch.tensor([1.0]), lr=0.25, steps=3)
    tensor([[1.0000], [0.5000], [0.2500], [0.1250]])
    """
    # BEGIN SOLUTION
    path = [w0]
    for _ in range(steps):
        path.append(path[-1] - lr * grad(path[-1]))
    return torch.stack(path)
    # END SOLUTION


# %%
check("gradient_descent.gradient_descent")

# %% [markdown]
# ## A loss and its gradient
#
# A linear model predicts $\tilde y_i = x_i \cdot w$. Its loss over $n$ samples is the mean squared error, and the chain rule
# gives the gradient:
#
# $$ L(w) = \frac1n \sum_{i=1}^n (x_i \cdot w - y_i)^2, \qquad \nabla L(w) = \frac2n\, X^T (X w - y), $$
#
# where row $i$ of $X$ is the sample $x_i$. The mean matters: a sum would grow with the data, and you would need a
# smaller learning rate for more data.

# %% [markdown]
# {{exercise mse_grad}}
#
# Write two functions of one line each. Do not use autograd: write the formula.
#
# <details><summary>Hint 1: shapes</summary>
#
# `X` is (n, d) and `w` is (d,), so `X @ w` is (n,): one prediction per sample. The gradient has the shape of `w`, and
# `X.T` maps an error (n,) back to (d,).
# </details>
# <details><summary>Hint 2: the error</summary>
#
# Both functions begin with the errors, one for each sample. The loss is the mean of their squares. In the gradient
# each error counts twice its row of `X`, divided by the number of samples.
# </details>


# %%
def mse_loss(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """The mean squared error of the linear model `X @ w`.

    w: (d,), X: (n, d), y: (n,); none is changed. Returns a 0-d tensor.

    >>> # errors 1 and -2: (1 + 4) / 2
    >>> mse_loss(torch.tensor([1.0]), torch.tensor([[1.0], [2.0]]),
    ...          torch.tensor([0.0, 4.0]))
    tensor(2.5000)
    """
    # BEGIN SOLUTION
    return ((X @ w - y) ** 2).mean()
    # END SOLUTION


def mse_grad(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """The gradient of `mse_loss` with respect to `w`.

    w: (d,), X: (n, d), y: (n,); none is changed. Returns shape (d,), of w's dtype.

    >>> # 2/2 * (1 * 1 + 2 * (-2))
    >>> mse_grad(torch.tensor([1.0]), torch.tensor([[1.0], [2.0]]),
    ...          torch.tensor([0.0, 4.0]))
    tensor([-3.])
    """
    # BEGIN SOLUTION
    return 2 / len(y) * X.T @ (X @ w - y)
    # END SOLUTION


# %%
check("gradient_descent.mse_grad")

# %% [markdown]
# ## How large may a step be?
#
# Near a minimum $w^*$ a smooth loss looks like a bowl, $L(w) \approx L(w^*) + \tfrac12 (w - w^*)^T H\, (w - w^*)$ with
# the symmetric matrix $H$ of second derivatives, the **Hessian**. Its gradient there is $H(w - w^*)$, so one step gives
#
# $$ w_{k+1} - w^* = (I - r H)\,(w_k - w^*). $$
#
# Along an eigenvector of $H$ with eigenvalue $\lambda$ (the curvature in that direction) the distance to the minimum is
# multiplied by $1 - r\lambda$ at every step. It shrinks if $|1 - r\lambda| < 1$, that is, if $0 < r < 2/\lambda$. It
# must shrink in every direction. So the steepest direction sets the limit, and the flattest sets the speed.
#
# The picture gives learning rates as shares of that limit. Make the valley longer and watch how the flat direction
# slows the descent. Then add momentum.

# %%
learning_rates.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The curve on the right falls slowly as the learning rate grows, and turns up within a few per cent of the limit. So
# the best learning rate is just below the limit. In a round valley (1 : 1) half the limit is best, since $r =
# 1/\lambda$ reaches the minimum in one step. In a long valley no learning rate is fast, because a step that is safe
# across the valley is tiny along it. Momentum helps in this case, and raises the limit to $2(1+\beta)/\lambda_{\max}$.
# </details>

# %% [markdown]
# {{exercise max_stable_lr}}
#
# Compute the limit from a Hessian: the learning rate up to which every direction shrinks.
#
# <details><summary>Hint 1: which number of the matrix?</summary>
#
# The steepest direction diverges first. Its curvature is the largest eigenvalue of `hessian`. You find it on the
# diagonal only if the valley runs along an axis.
# </details>
# <details><summary>Hint 2: the function</summary>
#
# `torch.linalg.eigvalsh` gives the eigenvalues of a symmetric matrix in ascending order.
# </details>


# %%
def max_stable_lr(hessian: Tensor) -> float:
    """The largest stable learning rate: gradient descent converges below it and diverges
    above it.

    hessian: symmetric, shape (d, d), with at least one positive eigenvalue and no
    negative one.
    Returns a number.

    >>> max_stable_lr(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))      # eigenvalues 1 and 3
    0.6666666666666666
    """
    # BEGIN SOLUTION
    return 2 / float(torch.linalg.eigvalsh(hessian)[-1])
    # END SOLUTION


# %%
check("gradient_descent.max_stable_lr")

# %% [markdown]
# ## Try it: a linear model on real digits
#
# Now use three of your functions on 1,797 real handwritten digits of 8 × 8 pixels. A linear model must tell a 0 from
# all other digits: the target is $+1$ for a 0 and $-1$ otherwise. The loss is quadratic, so its Hessian $H = \frac2n
# X^T X$ is the same everywhere, and your limit should be exact. Does a learning rate 2 % above the limit do visible
# harm in 200 steps?


# %%
def rows_of(images: Tensor) -> Tensor:
    """Images (N, 1, 8, 8) as rows of inputs (N, 65): a constant 1 for the bias, then the 64 pixels."""
    return torch.cat([torch.ones(len(images), 1), images.flatten(1)], dim=1)


data = digits()
X, labels = rows_of(data.x), data.y
X_test, labels_test = rows_of(data.x_held_out), data.y_held_out
n, d = X.shape
print(f"{n} digits to learn from, {len(X_test)} held out, {d} inputs each: 64 pixels and a constant 1")

# %%
guess(
    "gradient_descent.above",
    "200 steps at 2 % above the limit: how many times as large as the first loss is the last one?",
    unit="times",
)

# %%
zero_or_not = torch.where(labels == 0, 1.0, -1.0)
with when_solved():
    guessed("gradient_descent.above")
    hessian = 2 / n * X.T @ X
    limit, eigenvalues = max_stable_lr(hessian), torch.linalg.eigvalsh(hessian)
    curves, ends = {}, {}
    for share in (0.1, 0.5, 0.98, 1.02):
        path = gradient_descent(lambda w: mse_grad(w, X, zero_or_not), torch.zeros(d), share * limit, steps=200)
        curves[share], ends[share] = [float(mse_loss(w, X, zero_or_not)) for w in path], path[-1]

    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for share, curve in curves.items():
        color = style.VERMILLION if share > 1 else style.shade(share)
        axes.semilogy(curve, label=f"{100 * share:.0f} % of the limit", color=color)
    axes.set(xlabel="step", ylabel="mean squared error", title="A zero or not? Four learning rates", ylim=(0.03, 100))
    axes.legend()
    plt.show()
    right = (X_test @ ends[0.98] > 0) == (labels_test == 0)
    print(f"limit 2/λmax = {limit:.4f}; λmax is {eigenvalues[-1] / eigenvalues[-2]:.0f} times the next eigenvalue")
    print(f"pixels that are blank in every image: {int((X == 0).all(dim=0).sum())}")
    print(f"held-out digits told right after 200 steps at 98 %: {100 * right.float().mean():.1f} %")
    reveal("gradient_descent.above", curves[1.02][-1] / curves[1.02][0])

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The loss falls at 98 % of the limit and explodes at 102 %: the limit is sharp. At 50 %, the first step reaches the
# floor of the steepest valley, since $r = 1/\lambda_{\max}$. This direction (roughly, all pixels brighter together) is
# many times as curved as any other. It alone forces a small learning rate, and progress in the other directions is
# slow. Some directions are flat: if a pixel is blank in every image, the loss does not depend on its weight.
# </details>

# %% [markdown]
# ## Mini-batches
#
# Plain gradient descent looks at all $n$ samples before each step. A **mini-batch** of $B$ samples gives an estimate of
# the same gradient for $B/n$ of the work. If the batch is drawn at random, the estimate is right on average, because
# the gradient of the mean is the mean of the gradients. So shuffle the data, cut them into $\lceil n/B \rceil$ batches,
# and take one step per batch. One pass through the data is an **epoch**. Then shuffle again.

# %% [markdown]
# {{exercise minibatches}}
#
# Write a generator that yields the batches of one epoch.
#
# <details><summary>Hint 1: where is the randomness?</summary>
#
# `torch.randperm(n, generator=generator)` is a random order of 0 … n − 1. The generator remembers its state, so the
# next call gives another order. Never seed it inside the function.
# </details>
# <details><summary>Hint 2: cutting</summary>
#
# A tensor has `.split(size)`: pieces of that size and a shorter last one.
# </details>
# <details><summary>Hint 3: yielding</summary>
#
# `yield from pieces` yields each element of `pieces`, so you need no loop.
# </details>


# %%
def minibatches(n: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """The mini-batches of one epoch, as tensors of indices, in random order.

    Yields 1-d int64 tensors of `batch_size` indices each; the last one may be
    shorter. Each index 0 .. n-1 appears exactly once. Only `generator` decides the order;
    each call draws a new one.

    >>> list(minibatches(5, 2, torch.Generator().manual_seed(0)))
    [tensor([4, 0]), tensor([1, 3]), tensor([2])]
    """
    # BEGIN SOLUTION
    yield from torch.randperm(n, generator=generator).split(batch_size)
    # END SOLUTION


# %%
check("gradient_descent.minibatches")

# %% [markdown]
# {{exercise sgd}}
#
# Write stochastic gradient descent: `gradient_descent` with the gradient of one batch at a time.
#
# <details><summary>Hint 1: two loops</summary>
#
# The outer loop counts epochs, the inner one takes the batches of your `minibatches`, called again in each epoch.
# </details>
# <details><summary>Hint 2: the path</summary>
#
# Keep the path as in `gradient_descent`: a list that begins with `w0` and gets a point for each batch, not for each
# epoch.
# </details>


# %%
def sgd(
    grad: Callable[[Tensor, Tensor], Tensor],
    n: int,
    w0: Tensor,
    lr: float,
    batch_size: int,
    epochs: int,
    generator: torch.Generator,
) -> Tensor:
    """The path of mini-batch stochastic gradient descent from `w0`.

    grad: takes weights (d,) and the indices of a batch, returns the mean gradient over the
    batch, shape (d,).
    n: the number of samples; w0: shape (d,), not changed. Use the batches of
    `minibatches`, with an order from `generator` for each epoch.
    Returns shape (1 + epochs * ceil(n / batch_size), d): `w0`, then a row after each batch.

    >>> centres = torch.tensor([[0.0], [4.0]])  # the loss of sample i is (w - centre_i)^2
    >>> # one batch: straight to the mean
    >>> sgd(lambda w, batch: 2 * (w - centres[batch]).mean(0), 2, torch.tensor([1.0]), 0.5,
    ...     2, 1, torch.Generator())
    tensor([[1.], [2.]])
    """
    # BEGIN SOLUTION
    path = [w0]
    for _ in range(epochs):
        for batch in torch.randperm(n, generator=generator).split(batch_size):  # what `minibatches` yields
            path.append(path[-1] - lr * grad(path[-1], batch))
    return torch.stack(path)
    # END SOLUTION


# %%
check("gradient_descent.sgd")

# %% [markdown]
# ## The experiment: your SGD trains a reader
#
# Ten classes need ten scores per image, $z = x^T W$ with $W$ of shape $(d, 10)$. Softmax turns the scores into
# probabilities, and the loss is $-\log$ of the probability of the right class. Its gradient is as simple as the linear
# model's: $\frac1B X^T(\text{softmax}(XW) - Y)$ with one-hot $Y$. This is **softmax regression**. (Here the gradient is
# given; you derive it in lab 04.)
#
# We train with seven batch sizes, with the same number of epochs and the same learning rate. Which batch size takes the
# shortest time per epoch, and which has the lowest loss after ten epochs?

# %%
guess(
    "gradient_descent.epoch",
    "An epoch in batches of 1: how many times as long as an epoch in batches of 256?",
    unit="times",
)

# %%
guess(
    "gradient_descent.batch",
    "Which batch size has the lowest loss after ten epochs?",
    choices=("1", "16", "256", "all of them"),
)

# %%
one_hot = torch.nn.functional.one_hot(labels, 10).float()


def softmax_grad(w: Tensor, batch: Tensor) -> Tensor:
    """The mean gradient of softmax regression over a batch; weights as one vector of d * 10 numbers."""
    x = X[batch]
    return (x.T @ (torch.softmax(x @ w.view(d, 10), dim=1) - one_hot[batch])).flatten() / len(batch)


def softmax_loss(w: Tensor) -> float:
    return float(torch.nn.functional.cross_entropy(X @ w.view(d, 10), labels))


def accuracy(w: Tensor) -> float:
    """The share of held-out digits that are read correctly."""
    return float((torch.argmax(X_test @ w.view(d, 10), dim=1) == labels_test).float().mean())


# %%
epochs, rows = 10, {}
with when_solved():
    guessed("gradient_descent.epoch")
    guessed("gradient_descent.batch")
    for batch_size in progress((1, 4, 16, 64, 256, 1024, n), "batch size"):
        generator, begin = torch.Generator().manual_seed(0), time.perf_counter()
        path = sgd(softmax_grad, n, torch.zeros(d * 10), 0.1, batch_size, epochs, generator)
        seconds = (time.perf_counter() - begin) / epochs
        ends = path[:: math.ceil(n / batch_size)]  # the weights after each epoch
        rows[batch_size] = seconds, [softmax_loss(w) for w in ends], accuracy(ends[-1])

    print("batch size   steps per epoch   ms per epoch   loss after 10 epochs   held-out accuracy")
    for batch_size, (seconds, losses, right) in rows.items():
        steps = math.ceil(n / batch_size)
        print(f"{batch_size:10d} {steps:17d} {1000 * seconds:14.1f} {losses[-1]:22.3f} {100 * right:17.1f} %")
    reveal("gradient_descent.epoch", rows[1][0] / rows[256][0], measured=True)
    lowest = min((1, 16, 256, n), key=lambda batch_size: rows[batch_size][1][-1])
    reveal("gradient_descent.batch", "all of them" if lowest == n else str(lowest))

# %%
if len(rows) > 1:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    for position, (batch_size, (_, losses, _)) in enumerate(rows.items()):
        left.semilogy(losses, color=style.shade(position / (len(rows) - 1)), label=f"B = {batch_size}")
    left.set(xlabel="epoch", ylabel="loss on the training digits", title="Progress per epoch")
    left.set_ylim(0.01, 3)
    left.legend(ncols=3, loc="lower left", columnspacing=1)
    right.loglog(list(rows), [1000 * seconds for seconds, _, _ in rows.values()], "o-")
    right.set(xlabel="batch size B", ylabel="time per epoch (ms)", title="Time per epoch")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Time per epoch falls as the batch grows, steeply at first. Every step has a fixed cost (Python, launching a few
# operations), and large batches mean fewer steps. Beyond a few hundred samples arithmetic dominates and the curve
# flattens. Progress per epoch goes the other way: a batch of 1 takes n steps while the full batch takes one. So after
# ten epochs the batch of 1 has the lowest loss.
#
# By the clock, neither extreme is best. In the time of those ten epochs our machine does about 190 epochs in batches of
# 16. Then these have a lower loss (0.065) than the batches of 1 (0.075), and batches of 256 a higher one (0.12). With
# small batches the machine idles between tiny operations. With large ones you compute on samples that hardly change the
# direction. On a parallel machine the conflict is even sharper: **p processors need p times the batch**.
# </details>

# %% [markdown]
# ## Steps with a memory
#
# **Momentum** (Polyak 1964) keeps a velocity: $v \leftarrow \beta v + g$, then $w \leftarrow w - r\,v$. If the
# gradients agree, the steps grow, up to $1/(1-\beta)$ times as long. If the gradients alternate, they cancel.
#
# **Adam** (Kingma and Ba 2015) keeps running means of the gradient and of its square. It divides by the root of the
# mean square, so that every weight moves at its own scale:
#
# $$ m \leftarrow 0.9\,m + 0.1\,g, \quad v \leftarrow 0.999\,v + 0.001\,g^2, \quad
# \hat m = \frac{m}{1 - 0.9^t}, \quad \hat v = \frac{v}{1 - 0.999^t}, \quad w \leftarrow w - r\,\frac{\hat m}{\sqrt{\hat v} + 10^{-8}} $$
#
# with $t = 1, 2, \dots$ the number of the step. Both means begin at zero and are too small at first; $\hat m$ and $\hat
# v$ correct that.

# %% [markdown]
# {{exercise adam_step}}
#
# Write one step of each as a pure function: the state is an argument, and the new state is returned. They must agree
# with `torch.optim.SGD` and `torch.optim.Adam` over a hundred steps.
#
# <details><summary>Hint 1: the order in momentum_step</summary>
#
# First compute the new velocity, then step with the *new* velocity.
# </details>
# <details><summary>Hint 2: the first step of Adam</summary>
#
# `t` counts steps from 1, so increase it before you use it: with `t = 0` the correction divides by zero. Check by hand
# that the first step moves every weight by `lr`, for any gradient that is not 0.
# </details>
# <details><summary>Hint 3: the state</summary>
#
# Return a new dict with the three new values, and leave the old one as it is. `v` averages the *squared* gradient, and
# the corrections use the increased `t`.
# </details>


# %%
def momentum_step(
    w: Tensor,
    g: Tensor,
    v: Tensor,
    lr: float,
    beta: float,
) -> tuple[Tensor, Tensor]:
    """One step of descent with momentum: `v <- beta v + g`, then `w <- w - lr v`.

    w, g, v: weights, gradient and velocity, all of one shape; none is changed. The first
    velocity is zero.
    Returns the new (w, v).

    >>> momentum_step(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([10.0]),
    ...               lr=0.1, beta=0.5)
    (tensor([0.3000]), tensor([7.]))
    """
    # BEGIN SOLUTION
    v = beta * v + g
    return w - lr * v, v
    # END SOLUTION


def adam_step(w: Tensor, g: Tensor, state: dict, lr: float) -> tuple[Tensor, dict]:
    """One step of Adam with betas 0.9 and 0.999 and epsilon 1e-8.

    w, g: weights and gradient of one shape. state: {"t": steps so far, "m": mean gradient,
    "v": mean squared gradient}; at first t = 0 and m, v are zeros. No argument is
    changed. Returns the new (w, state).

    >>> start = {"t": 0, "m": torch.zeros(2), "v": torch.zeros(2)}
    >>> adam_step(torch.tensor([1.0, 1.0]), torch.tensor([5.0, -0.01]), start, lr=0.1)[0]
    tensor([0.9000, 1.1000])
    """
    # BEGIN SOLUTION
    t = state["t"] + 1
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g**2
    m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
    return w - lr * m_hat / (v_hat.sqrt() + 1e-8), {"t": t, "m": m, "v": v}
    # END SOLUTION


# %%
check("gradient_descent.adam_step")

# %% [markdown]
# ## In parallel
#
# Now the data are spread over $p$ processors: processor $k$ holds a **shard** of $n_k$ samples and computes the
# gradient $g_k$ of *its* mean loss. The processors exchange and combine all $g_k$, and each takes the same step, so the
# weights are equal everywhere. If you do it right, this is not an approximation:
#
# $$ \nabla L = \frac1n \sum_{i=1}^n \nabla \ell_i = \sum_{k=1}^p \frac{n_k}{n}\, g_k, \qquad n = n_1 + \dots + n_p. $$
#
# The lecture adds the plain $g_1 + \dots + g_4$, which is right when each processor divides by the global $n$ itself. *(Lecture on
# high-performance deep learning, "Parallel gradient descent".)* Make the shards unequal, then change how they are combined:

# %%
shards.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Each shard has a different part of the data and pulls in its own direction. Weighted by size, the arrows always end at
# the full gradient, however you cut the data. The plain mean is right only for equal shards. Otherwise the smallest
# shard counts as much as the largest: training goes in a wrong direction, and no error tells you.
# </details>

# %% [markdown]
# {{exercise parallel_gradient}}
#
# Each call of `grad` below stands for the work of one processor. Combine the results. Do not join the data, since no
# processor could hold all of them.
#
# <details><summary>Hint 1: what does each shard contribute?</summary>
#
# A mean over $n_k$ rows, times $n_k$, is a sum over rows. The sums over the shards add up to the sum over all rows.
# </details>
# <details><summary>Hint 2: the divisor</summary>
#
# Divide by the number of all rows, which is the sum of the shards' rows, and not by the number of shards.
# </details>


# %%
def parallel_gradient(
    grad: Callable[[Tensor, Tensor, Tensor], Tensor],
    w: Tensor,
    shards: list[tuple[Tensor, Tensor]],
) -> Tensor:
    """The gradient over all shards, from one gradient per shard.

    grad: takes w (d,), X (n_k, d), y (n_k,), returns the MEAN gradient over these rows,
    shape (d,); call it once per shard.
    shards: a list of (X, y), each with at least one row; sizes may differ. No argument is
    changed. Returns the mean gradient over all rows, shape (d,).

    >>> X, y = torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([0.0, 0.0, 6.0])
    >>> # shards of 2 and 1 rows: (2 * 2 + 1 * (-10)) / 3
    >>> parallel_gradient(mse_grad, torch.tensor([1.0]), [(X[:2], y[:2]), (X[2:], y[2:])])
    tensor([-2.])
    """
    # BEGIN SOLUTION
    n = sum(len(y) for _, y in shards)
    return sum(len(y) / n * grad(w, X, y) for X, y in shards)
    # END SOLUTION


# %%
check("gradient_descent.parallel_gradient")

# %% [markdown]
# On the digits, with four shards of unequal size, the parallel step should equal the serial step up to rounding:

# %%
with when_solved():
    sizes = [700, 400, 300, n - 1400]
    four = list(zip(X.split(sizes), zero_or_not.split(sizes), strict=True))
    w = torch.randn(d, generator=torch.Generator().manual_seed(1))
    serial, together = mse_grad(w, X, zero_or_not), parallel_gradient(mse_grad, w, four)
    plain_mean = torch.stack([mse_grad(w, *shard) for shard in four]).mean(0)
    print(f"weighted sum:  off by {float((together - serial).norm() / serial.norm()):.1e} of the gradient: rounding")
    print(f"plain mean:    off by {float((plain_mean - serial).norm() / serial.norm()):.1e}: a wrong direction")

# %% [markdown]
# The shards are added in a different order from the rows of one matrix product. So the last bits differ, because
# floating-point addition is not associative. What is missing is to send the gradients. Lab 07 does it with real
# processes, and lab 08 compares ways to send them.

# %% [markdown]
# ## How much do more workers help?
#
# The lecture on distributed training gives two rates, for $N$ workers that compute on different samples:
# - **synchronous**: in each iteration all workers compute a gradient at the same weights, and their mean makes one step.
#   After $I$ iterations the error is $O\big(1/\sqrt{N I}\big)$. An iteration takes as long as the slowest worker's gradient.
# - **asynchronous**: each gradient makes a step of its own, as soon as it is ready, and no worker waits. After $I$ steps,
#   called updates, the error is $O\big(1/\sqrt{I}\big)$.
#
# Does this mean that asynchronous training gains nothing from more workers? Below, $N$ workers look for the mean of
# random numbers with SGD. A gradient takes 1 s, except for the slowest worker's. Full lines are measured in 150 seeded
# runs, and dashed lines are the rates.
# 1. Move the **workers** from 1 to 32. How do the two errors move on the left, and how on the right?
# 2. With 16 workers, make the **slowest worker** four times as slow. Which rule gains on the right?
# 3. Where does the asynchronous error differ from its rate, and why does the rate not show it?

# %%
more_workers.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. On the left only the synchronous line falls: its iterations have more gradients in them. By time both rules gain,
#    because $N$ workers make $N$ times as many updates in a second. Both rates say the same: $1/\sqrt{\text{gradients}}$.
# 2. The asynchronous rule. All synchronous workers wait for the slowest one. Without waiting, the slow worker only adds
#    fewer gradients.
# 3. At the start. The first gradients are computed at old weights, and the error even grows. An $O(\dots)$ holds for
#    many updates, and leaves out constants. Lab {{number consistency}} asks how late a gradient may be.
# </details>

# %% [markdown]
# {{exercise rates}}
#
# Write what the two rates predict: how many iterations and gradients a given error needs, and how many seconds these
# take on workers of different speeds.
#
# <details><summary>Hint 1: from an error to a number</summary>
#
# $c/\sqrt{x} \le$ error is the same as $x \ge (c/\text{error})^2$. Here $x$ is $N I$ or $I$. Round $I$ up, with
# `math.ceil`.
# </details>
# <details><summary>Hint 2: who makes how many updates in a second?</summary>
#
# Worker $k$ makes $1/\text{seconds}_k$. These numbers add up, and all workers together make the number of updates in
# that many seconds.
# </details>


# %%
def rates(error: float, c: float, seconds: list, rule: str) -> tuple[int, int, float]:
    """How much work and time the rate of `rule` predicts for a given error.

    seconds: seconds[k] is the time of one gradient on worker k; N = len(seconds).
    rule "synchronous": after I iterations the error is c / sqrt(N I); each iteration has
    one gradient of each worker, and takes as long as the slowest.
    rule "asynchronous": after I updates of one gradient each the error is c / sqrt(I).
    Worker k makes 1 / seconds[k] updates a second, also fractions of one.
    Returns (iterations, gradients, time): the least I (an int) whose error is at most
    `error`, the gradients of all workers together (an int), and the seconds that they take.

    >>> rates(0.5, 2.0, [1.0, 3.0], "synchronous")
    (8, 16, 24.0)
    >>> rates(0.5, 2.0, [1.0, 3.0], "asynchronous")
    (16, 16, 12.0)
    """
    # BEGIN SOLUTION
    gradients = (c / error) ** 2
    if rule == "synchronous":
        iterations = math.ceil(gradients / len(seconds))
        return iterations, len(seconds) * iterations, iterations * max(seconds)
    updates = math.ceil(gradients)
    return updates, updates, updates / sum(1 / each for each in seconds)
    # END SOLUTION


# %%
check("gradient_descent.rates")

# %%
guess(
    "gradient_descent.workers",
    "16 workers instead of 1, all equally fast, synchronous: how many times sooner is an error of 0.05 reached?",
    unit="times",
)


# %%
def measured(workers: int, iterations: int, runs: int = 2000) -> float:
    """The root mean square error of synchronous SGD with rate 1/i towards a mean of 0, over seeded runs."""
    generator, w = torch.Generator().manual_seed(0), torch.ones(runs)
    for i in range(1, iterations + 1):
        gradients = w[:, None] - torch.randn(runs, workers, generator=generator)  # of (w - x)² / 2, one per worker
        w = w - gradients.mean(dim=1) / i
    return float(w.square().mean().sqrt())


with when_solved():
    guessed("gradient_descent.workers")
    print("workers   iterations   gradients   seconds   measured error   if one worker is 4 times as slow")
    for workers in (1, 2, 4, 8, 16, 32):
        iterations, gradients, took = rates(0.05, 1.0, [1.0] * workers, "synchronous")
        uneven = [1.0] * (workers - 1) + [4.0]
        slow, free = (rates(0.05, 1.0, uneven, rule)[2] for rule in ("synchronous", "asynchronous"))
        line = f"{workers:7}{iterations:13}{gradients:12}{took:10.0f}{measured(workers, iterations):17.4f}"
        print(f"{line}{slow:12.0f} s or, asynchronous, {free:.0f} s")
    of_one, of_16 = (rates(0.05, 1.0, [1.0] * workers, "synchronous")[2] for workers in (1, 16))
    reveal("gradient_descent.workers", of_one / of_16)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The speed-up is **linear**: 16 workers are 16 times as fast, not 4 times. The root belongs to the error: with 16
# workers and the *same* number of iterations the error is only 4 times as small. The gradients do not become fewer, so
# the electricity bill stays. One slow worker takes away three quarters of the synchronous speed, but of the
# asynchronous speed only one worker's share.
#
# Two things end the linear gain. Workers must exchange gradients (labs 07 and 08), and when the noise of a batch is
# small already, more samples in it no longer help: then the *number* of steps decides, as in your experiment with batch
# sizes.
# </details>

# %% [markdown]
# ## A learning rate that changes
#
# Large batches need large learning rates: for $k$ times the batch take $k$ times the rate. This is the **linear scaling
# rule** (Goyal et al. 2017). Large rates are dangerous at the very start, where gradients are largest. So training
# begins with a **warm-up**, in equal increments to the peak. Here it starts from 0; Goyal et al. start from the rate of
# the small batch. Then the rate falls along half a **cosine** wave (Loshchilov and Hutter 2017), fast in the middle and
# slowly at the end, so that the jitter of small batches dies out:
#
# $$ r(s) = \begin{cases} r_{\max}\, s / S_w & s < S_w \\[4pt]
# \tfrac12\, r_{\max} \left(1 + \cos \left(\pi\, \dfrac{s - S_w}{S - S_w}\right)\right) & S_w \le s \le S \\[4pt]
# 0 & s > S \end{cases} $$

# %% [markdown]
# {{exercise lr_schedule}}
#
# Write this schedule as a function of the step.
#
# <details><summary>Hint 1: three pieces</summary>
#
# Handle `step < warmup` first; then `warmup = 0` never divides by zero. For the cosine, compute the progress from 0 to
# 1 between `warmup` and `total`.
# </details>
# <details><summary>Hint 2: after the end</summary>
#
# Limit the progress to 1: the cosine of π is −1, so the rate is 0 at `total` and after it, without a third case.
# </details>


# %%
def lr_schedule(step: int, warmup: int, total: int, peak: float) -> float:
    """The learning rate at `step`: linear warm-up, then half a cosine wave.

    0 at step 0 (if warmup > 0), `peak` at step = warmup, 0 at step = total and after it;
    0 <= warmup < total.
    Returns a float.

    >>> [lr_schedule(step, warmup=2, total=6, peak=1.0) for step in range(7)]
    [0.0, 0.5, 1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0]
    """
    # BEGIN SOLUTION
    if step < warmup:
        return peak * step / warmup
    progress = min((step - warmup) / (total - warmup), 1.0)
    return peak / 2 * (1 + math.cos(math.pi * progress))
    # END SOLUTION


# %%
check("gradient_descent.lr_schedule")

# %% [markdown]
# ## All of it together
#
# Train once more on the digits, with batches of 16, for ten epochs. Compare plain steps, momentum and Adam, each with a
# constant learning rate and with your schedule, for six peaks from very low to much too high. Every training script
# contains a loop like the one below.


# %%
guess(
    "gradient_descent.schedule",
    "With Adam, which learning rate does the schedule help?",
    choices=("the lowest", "the highest", "both", "neither"),
)


# %%
def train(method: str, peak: float, scheduled: bool, batch_size=16, epochs=10) -> tuple[list[float], float]:
    """The loss on all training digits every 20 steps and at the end, and the held-out accuracy."""
    generator, w = torch.Generator().manual_seed(0), torch.zeros(d * 10)
    velocity, state = torch.zeros_like(w), {"t": 0, "m": torch.zeros_like(w), "v": torch.zeros_like(w)}
    total, step, losses = epochs * math.ceil(n / batch_size), 0, []
    for _ in range(epochs):
        for batch in minibatches(n, batch_size, generator):
            if step % 20 == 0:
                losses.append(softmax_loss(w))
            lr = lr_schedule(step, total // 10, total, peak) if scheduled else peak
            g = softmax_grad(w, batch)
            if method == "plain":
                w = w - lr * g
            elif method == "momentum":
                w, velocity = momentum_step(w, g, velocity, lr, beta=0.9)
            else:
                w, state = adam_step(w, g, state, lr)
            step += 1
    return [*losses, softmax_loss(w)], accuracy(w)


# %%
with when_solved():
    guessed("gradient_descent.schedule")
    lowest, runs = {"plain": 0.5, "momentum": 0.05, "Adam": 0.0125}, {}
    settings = [(method, peak * 2**k) for method, peak in lowest.items() for k in range(6)]
    for method, peak in progress(settings, "setting"):
        for scheduled in (False, True):
            runs[method, peak, scheduled] = train(method, peak, scheduled)

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    for scheduled, color, label in ((False, style.ORANGE, "constant"), (True, style.BLUE, "scheduled")):
        losses, _ = runs["Adam", 0.2, scheduled]
        steps = [*range(0, 20 * (len(losses) - 1), 20), 10 * math.ceil(n / 16)]
        left.semilogy(steps, losses, color=color, label=label)
    left.set(xlabel="step", ylabel="loss on the training digits", title="Adam, learning rate 0.2")
    left.legend()
    for method, color in (("plain", style.GREEN), ("momentum", style.PURPLE), ("Adam", style.BLUE)):
        peaks = sorted({peak for name, peak, _ in runs if name == method})
        for scheduled, line, label in ((False, "o:", "constant"), (True, "o-", "scheduled")):
            ends = [runs[method, peak, scheduled][0][-1] for peak in peaks]
            right.loglog(peaks, ends, line, color=color, label=f"{method}, {label}")
    right.set(xlabel="learning rate (its peak)", ylabel="loss at the end", ylim=(0.002, 0.3))
    right.set_title("How high may the peak be?")
    right.legend(ncols=2, loc="lower center", fontsize=10, columnspacing=1)
    plt.show()
    accuracies = [100 * right for _, right in runs.values()]
    print(f"held-out accuracy of the {len(runs)} runs: {min(accuracies):.1f} to {max(accuracies):.1f} %;", end=" ")
    print(f"one of the {len(X_test)} images is {100 / len(X_test):.2f} %")
    low, high = (runs["Adam", peak, True][0][-1] < runs["Adam", peak, False][0][-1] for peak in (0.0125, 0.4))
    helped = {(True, False): "the lowest", (False, True): "the highest", (True, True): "both"}
    reveal("gradient_descent.schedule", helped.get((low, high), "neither"))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# A low learning rate should stay constant, since the schedule would halve its total path. With a high one the weights
# jitter, and there the schedule wins: it moves fast in the middle and slowly at the end. So each method reaches its
# lowest loss with a schedule and a high peak. Momentum and Adam reach a lower loss than plain steps in the same number
# of steps. But the held-out accuracies hardly differ. Below some point, a lower loss on the training digits does not
# mean that the model reads new ones better.
# </details>

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, claim to be `lr_schedule` of exercise 9. Four of them are right, each written in its
# own way. The other four are impostors, which give the right answer for most steps of most schedules. You do not see
# their code. You choose the inputs.

# %% [markdown]
# {{exercise unmask_lr_schedule}}
#
# Return a list of at most 12 inputs, each a tuple `(step, warmup, total, peak)`:
#
# | part | what it may be |
# |---|---|
# | `step` | an int from 0 to 10,000 |
# | `warmup` | an int from 0 to 1,000, less than `total` |
# | `total` | an int from 1 to 1,000 |
# | `peak` | a number from 0.001 to 10 |
#
# You unmask a program if its rate is wrong by more than rounding explains, or if it raises an error. Each impostor that
# you unmask earns two points. You get two more points if you unmask a program and all your inputs follow the rules; an
# input that breaks them does not count. The check shows which programs you have caught, and with which input. Run it
# often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 9, or nearly made. At which steps would you not have noticed them?
# </details>
# <details><summary>Hint 2: where formulas change</summary>
#
# Try the first step, the last one and the one after it, a step on either side of the end of the warm-up, and no warm-up
# at all.
# </details>


# %%
def unmask_lr_schedule() -> list[tuple[int, int, int, float]]:
    """Inputs (step, warmup, total, peak) for which the impostors give wrong answers.

    Returns a list of at most 12 tuples.

    An input that unmasks none of them:

        [(10, 0, 100, 1.0)]
    """
    # BEGIN SOLUTION
    return [
        (3, 10, 100, 1.0),  # in the warm-up
        (0, 0, 100, 1.0),  # no warm-up
        (50, 10, 100, 1.0),  # half-way
        (130, 10, 100, 1.0),  # after the end
    ]
    # END SOLUTION


# %%
check("gradient_descent.unmask_lr_schedule")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **B** continues the wave after the last step.
# - **C** begins its warm-up one step ahead.
# - **F** divides by warmup even if it is 0.
# - **G** starts the wave at step 0.
#
# Without a warm-up, and before the end, three of them are right, and the fourth is wrong only in step 0. So test the
# boundaries.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# J. Barzilai and J. Borwein (1988) choose a new learning rate in each step from the last two points: $\eta = \frac{s
# \cdot s}{s \cdot y}$, where $s$ is the last change of $w$ and $y$ is the last change of the gradient. You need no
# $\lambda_{\max}$ and tune nothing, but the loss may rise on the way. Write it around your `mse_grad`, and begin with
# one small step. *Proof:* on the digits, how many steps does it need for the loss that 200 steps at 98 % of the limit
# $2/\lambda_{\max}$ reach?

# %% [markdown]
# ## What you have, and what comes next
#
# You have a training loop, and the equation behind data parallelism: $\nabla L = \sum_k \frac{n_k}{n} g_k$. Lab 04
# computes $\nabla L$ for a deep network. Lab 07 runs this parallel step on real processes. Lab {{number consistency}}
# asks what happens if they do not wait for each other.
#
# **Further reading**
# - G. Goh, "Why Momentum Really Works", *Distill*, 2017: the explorable article on the valley, the limit and momentum.
# - L. Bottou, F. E. Curtis, J. Nocedal, "Optimization Methods for Large-Scale Machine Learning", *SIAM Review* 60(2), 2018.
# - B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964: momentum and its limit.
# - D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015: algorithm 1 is your `adam_step`.
# - P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017: section 2 on warm-up; batch 8,192 on 256 GPUs.
# - I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017: the cosine.
# - The digits: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998, as bundled with scikit-learn.
