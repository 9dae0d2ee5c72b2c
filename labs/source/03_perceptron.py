# %% [markdown]
# # Lab 03 · The perceptron
# ## A machine that learns, and its limits
#
# In this lab you build a neuron that adds up its inputs and answers yes or no. It learns from its mistakes by a rule of
# one line, and a theorem limits the number of these mistakes. But there are four points that it can never learn. That
# is why networks have layers.
#
# **You will be able to**
# - write Rosenblatt's learning rule and explain how it moves the line that separates two classes;
# - compute the margin of a data set, and use it to bound the number of mistakes before you train;
# - say which problems a single neuron cannot solve, and solve one of them in two ways: with a new coordinate, and with
#   a second layer;
# - tell handwritten digits apart with a machine of 65 weights, and find its limits.
#
# **100 points, 8 exercises, about 85 minutes: 13 reading + 64 exercises + 8 runs.** You need only tensors: no gradients, no GPU and no download. In this
# lab $n$ is the number of inputs and $m$ the number of samples.

# %%
import matplotlib.pyplot as plt
import torch

from autograder import check
from hpcdl.data import digits
from hpcdl.nn.perceptron import separable, with_bias
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved
from hpcdl.widgets.pictures import any_function, perceptron_lift, perceptron_mlp, perceptron_plane

style.use()

# %% [markdown]
# ## See it learn
#
# Below are two classes of points, +1 (blue discs) and −1 (orange squares), and a line. On its blue side the machine
# answers +1, on the other side −1. For a hollow point the answer is wrong. Press ▶, or move the slider **update** with
# the arrow keys, and watch the line turn. One point causes each update; it has a ring.
#
# Then change the points. **Click into the plane** to add a point, hold Shift for the other class, and click a point to
# remove it. (Without a mouse: Tab to the picture, move the crosshair with the arrow keys, press Enter or Shift-Enter.)

# %%
perceptron_plane.explorable()

# %% [markdown]
# Three things to try:
#
# 1. *far from the origin* takes many updates although the two clouds are well apart. Which of the three weights is
#    slow?
# 2. With **start w at** *zero*, change **r**. What happens to the line, and to the number of updates? Try it again with
#    *somewhere*.
# 3. Choose *XOR* and step to the end. Then start from *nothing yet* and find the smallest set of points that it cannot
#    learn.
#
# <details><summary>What you should see</summary>
#
# 1. The bias w₀. Each update changes it by only 2r, but the line has to move far from the origin. That takes many
#    updates.
# 2. From w = 0 the rate r changes only the length of w. Every weight is a multiple of 2r, so the sign of z does not
#    depend on r, and neither do the updates. From another start, r decides how much the start matters: with a small r
#    it takes many updates to forget it.
# 3. Every epoch makes about as many updates as the one before. Four points are enough, if the two of each class are at
#    opposite corners of a square. Three points in a line, +1 −1 +1, are also enough.
#
# </details>

# %% [markdown]
# ## One neuron
#
# A sample is a vector $x = (1, x_1, \dots, x_n)$. Its first entry is always $x_0 = 1$. So the bias needs no rule of its
# own: it is the weight $w_0$ of that input. The neuron computes
#
# $$z = w^T x = w_0 + w_1 x_1 + \dots + w_n x_n, \qquad \hat y = \mathrm{sgn}(z) = \begin{cases} +1 & z \ge 0 \\ -1 & z < 0 \end{cases}$$
#
# and the labels $y$ are $+1$ and $-1$ too. In code, `X` holds one sample per row, with the ones in column 0: four points in the
# plane are a tensor of shape (4, 3).
#
# {{exercise predict}}
#
# Write the neuron: its answer for every row of `X`, or for a single sample.
#
# <details><summary>Hint 1: all rows at once</summary>
#
# `X @ w` is $w^T x$ for every row of `X`, and for a single sample `x @ w` is one number. No loop is needed.
#
# </details>
# <details><summary>Hint 2: the sign</summary>
#
# `torch.sign` returns 0 at 0. Use `torch.where(condition, 1.0, -1.0)` with the condition of the formula above.
#
# </details>


# %%
def predict(w, X):
    """The labels that the perceptron `w` gives.

    w: (n+1,), X: (m, n+1) with X[:, 0] = 1, or a single sample (n+1,).
    Returns (m,) of +1.0 and -1.0, or a single one, with sgn(0) = +1.

    >>> predict(torch.tensor([-1.0, 2.0]),
    ...         torch.tensor([[1.0, 3.0], [1.0, 0.25], [1.0, 0.5]]))
    tensor([ 1., -1.,  1.])
    """
    # BEGIN SOLUTION
    return torch.where(X @ w >= 0, 1.0, -1.0)
    # END SOLUTION


# %%
check("perceptron.predict")

# %% [markdown]
# ## Learning from mistakes
#
# Rosenblatt's rule (1957) looks at one sample. If the answer is right, nothing changes. If it is wrong, every weight
# moves, including the bias:
#
# $$w_j \leftarrow w_j + r\,(y - \hat y)\,x_j, \qquad j = 0, \dots, n.$$
#
# After a mistake $y - \hat y$ is $+2$ or $-2$. So $w$ moves towards a sample with the label $+1$, and away from one
# with the label $-1$. For this sample, $z$ moves in the right direction by $2 r\,|x|^2$.
#
# This is *supervised* learning: every sample has a label. *Unsupervised* learning has samples without labels, and
# *reinforcement* learning has rewards for what the program did. This course trains with labels.
#
# {{exercise update}}
#
# Write this rule for one sample.
#
# <details><summary>Hint 1: is an if needed?</summary>
#
# No. If the answer is right, $y - \hat y = 0$, and the formula changes nothing.
#
# </details>
# <details><summary>Hint 2: a new tensor</summary>
#
# `w += ...` writes into the caller's tensor; `w + ...` makes a new one. The prediction $\hat y$ comes from your
# `predict`, which also takes a single sample.
# </details>


# %%
def update(w, x, y, lr):
    """The weights after looking at one sample: w + lr (y - yhat) x, a new tensor. `w`
    itself is
    not changed.

    w: (n+1,), x: (n+1,) with x[0] = 1, y: +1.0 or -1.0, lr: the rate r > 0.

    >>> # z = 3, so yhat = +1: wrong
    >>> update(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 3.0]), -1.0, lr=0.5)
    tensor([-1., -2.])
    """
    # BEGIN SOLUTION
    yhat = 1.0 if w @ x >= 0 else -1.0
    return w + lr * (y - yhat) * x
    # END SOLUTION


# %%
check("perceptron.update")

# %% [markdown]
# ## Repeat until there are no mistakes
#
# One **epoch** goes through all samples in their order, and judges each sample with the newest `w`. Stop after the
# first epoch without an update, or after `max_epochs`.
#
# {{exercise fit}}
#
# Write this training, and count the updates of each epoch.
#
# <details><summary>Hint 1: the loops</summary>
#
# Two loops: one over epochs, one over `zip(X, y)`. Each epoch appends its count to `mistakes`, even if it is 0. A count
# of 0 ends the outer loop.
#
# </details>
# <details><summary>Hint 2: a sample</summary>
#
# Begin with weights of zeros, one for each column of X. For each sample compare the prediction with the label. Where
# they differ, take the weights of your `update` and count one mistake; the next sample already sees the new weights.
# </details>


# %%
def fit(X, y, lr, max_epochs):
    """Train a perceptron from w = 0. Take the samples in the given order, until an epoch
    has
    no mistake or max_epochs are over.

    X: (m, n+1) with X[:, 0] = 1, y: (m,) of +1.0 and -1.0.
    Returns (w, mistakes): w (n+1,), and a list with the number of updates in each epoch.

    >>> X = torch.tensor([[1.0, 2.0], [1.0, -1.0], [1.0, 1.0]])
    >>> fit(X, torch.tensor([1.0, -1.0, 1.0]), lr=0.5, max_epochs=10)
    (tensor([-1.,  1.]), [1, 0])
    """
    # BEGIN SOLUTION
    w, mistakes = torch.zeros(X.shape[1]), []
    for _ in range(max_epochs):
        mistakes.append(0)
        for x, label in zip(X, y):
            yhat = 1.0 if w @ x >= 0 else -1.0
            if yhat != label:
                w = w + lr * (label - yhat) * x
                mistakes[-1] += 1
        if mistakes[-1] == 0:
            break
    return w, mistakes
    # END SOLUTION


# %%
check("perceptron.fit")

# %% [markdown]
# Try it on two bands of points to the left and right of the line $x_1 = 2$, with a gap that you choose. The narrower
# the gap, the longer it takes. If the bands overlap, it never ends.


# %%
def two_bands(gap, n=120, seed=1):
    """n points, +1 right of the line x1 = 2 and -1 left of it, `gap` apart: X (n, 3), y
    (n,)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.where(torch.rand(n, generator=generator) < 0.5, 1.0, -1.0)
    x1 = 2 + y * (gap / 2 + torch.rand(n, generator=generator))
    x2 = 2 * torch.rand(n, generator=generator) - 1
    return with_bias(torch.stack([x1, x2], dim=1)), y


with when_solved():
    counts = {gap: fit(*two_bands(gap), lr=0.5, max_epochs=12)[1] for gap in (1.0, 0.3, 0.1, -0.2)}
    _, axes = plt.subplots(figsize=(8, 3.2))
    for shade, (gap, mistakes) in enumerate(counts.items()):
        axes.plot(range(1, len(mistakes) + 1), mistakes, "o-", color=style.shade(shade / 3), label=f"gap {gap}")
    axes.set(xlabel="epoch", ylabel="updates", title="updates in each epoch")
    axes.legend()
    plt.show()

# %% [markdown]
# ## Why it must stop
#
# Suppose some $w^*$ separates the classes. The **cut** is where $w^{*T} x = 0$. The **margin** is the distance of the
# nearest sample from the cut, and is negative if a sample is on the wrong side:
#
# $$\gamma = \min_i \frac{y^i\, w^{*T} x^i}{|w^*|}.$$
#
# (We measure distances in the space of $x = (1, x_1, \dots, x_n)$, where the cut goes through the origin. $|w^*|$ is
# the length of the whole $w^*$.)
#
# {{exercise margin}}
#
# Compute the margin $\gamma$ of given weights.
#
# <details><summary>Hint 1: the sign of y z</summary>
#
# The answer for a sample with label −1 is right if z is negative, so y z is positive for each right answer. `y * (X @
# w)` computes them all.
#
# </details>
# <details><summary>Hint 2: the distance</summary>
#
# The nearest sample has the smallest of them. A distance does not change if you double `w`: divide by its length,
# which `.norm()` computes. `.item()` turns a tensor of one number into a number.
# </details>


# %%
def margin(w, X, y):
    """The distance of the nearest sample from the cut of w, a number; negative if w gets a
    sample wrong.

    w: (n+1,), not zero; X: (m, n+1) with X[:, 0] = 1; y: (m,) of +1.0 and -1.0.

    >>> margin(torch.tensor([0.0, 3.0, 4.0]),
    ...     torch.tensor([[1.0, 1.0, 3.0], [1.0, -2.0, -1.0]]), torch.tensor([1.0, -1.0]))
    2.0
    """
    # BEGIN SOLUTION
    return ((y * (X @ w)).min() / w.norm()).item()
    # END SOLUTION


# %%
check("perceptron.margin")

# %% [markdown]
# Now follow the length of $w$ from $w = 0$ through its updates. Each update adds $2 r\, y\, x$:
#
# - **It must grow.** Each update increases $w^{*T} w / |w^*|$ by at least $2 r \gamma$, and $|w|$ is at least this
#   large. After $M$ updates, $|w| \ge 2 r \gamma M$.
# - **It cannot grow fast.** An update happens only if $y\, w^T x \le 0$, so it is at a right angle to $w$ or points
#   backwards. Then $|w|^2$ grows by at most $(2 r)^2 |x|^2 \le (2 r R)^2$, where $R$ is the length of the longest
#   sample. After $M$ updates, $|w| \le 2 r R \sqrt M$.
#
# The lower bound grows like $M$, the upper bound like $\sqrt M$. They meet, and the updates must end at that point or
# before it.


# %%
def lengths(X, y, lr, epochs):
    """|w| after each of your updates, from w = 0."""
    w, found = torch.zeros(X.shape[1]), [0.0]
    for _ in range(epochs):
        for x, label in zip(X, y):
            new = update(w, x, label, lr)
            if not torch.equal(new, w):
                w = new
                found.append(w.norm().item())
    return found


with when_solved():
    X, y = two_bands(gap=0.1)
    lr, w_star = 0.5, torch.tensor([-2.0, 1.0, 0.0])  # the line x1 = 2
    found = lengths(X, y, lr, epochs=10)
    R, gamma = X.norm(dim=1).max().item(), margin(w_star, X, y)
    end = (R / gamma) ** 2
    M = torch.logspace(0, 4.3, 100)
    _, axes = plt.subplots(figsize=(8, 3.6))
    axes.loglog(M, 2 * lr * R * M.sqrt(), "--", color=style.GREY, label=r"at most $2rR\sqrt{M}$")
    axes.loglog(M, 2 * lr * gamma * M, ":", color=style.GREY, label=r"at least $2r\gamma M$")
    axes.loglog(range(1, len(found)), found[1:], color=style.BLUE, label="your updates")
    axes.set(xlabel="updates M", ylabel="|w|", title=f"{len(found) - 1} updates; the bounds meet at {end:,.0f}")
    axes.legend()
    plt.show()

# %% [markdown]
# Where the bounds meet, $2 r \gamma M = 2 r R \sqrt M$. The rate $r$ cancels, and you get **Novikoff's theorem**
# (1962):
#
# $$M \le \left( \frac{R}{\gamma} \right)^2.$$
#
# It contains neither the number of samples nor the dimension, but only the length of the longest sample and the margin.
# It holds for every $w^*$ that separates the samples. The $w^*$ with the widest margin gives the best bound.
#
# {{exercise novikoff_bound}}
#
# Compute this bound for given samples and a given $w^*$.
#
# <details><summary>Hint 1: the pieces</summary>
#
# `X.norm(dim=1)` has the length of every sample. You already have the margin: write it out again, or call your
# function.
#
# </details>
# <details><summary>Hint 2: when there is no margin</summary>
#
# If `w_star` gets a sample wrong, the margin is negative, but its square would look like a good bound. Return
# `math.inf` (or `float("inf")`) if the margin is not positive.
#
# </details>


# %%
def novikoff_bound(X, y, w_star):
    """(R / margin)^2, a number: a perceptron that starts at 0 makes at most this many
    mistakes
    on these samples.

    X: (m, n+1) with X[:, 0] = 1, y: (m,) of +1.0 and -1.0, w_star: (n+1,).
    Infinite (float("inf")) if w_star does not separate the samples.

    >>> novikoff_bound(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([1.0, -1.0]),
    ...                torch.tensor([0.0, 8.0]))
    2.0
    """
    # BEGIN SOLUTION
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    R2 = (X**2).sum(dim=1).max().item()
    return R2 / gamma**2 if gamma > 0 else float("inf")
    # END SOLUTION


# %%
check("perceptron.novikoff_bound")

# %% [markdown]
# How good is the bound? Here are 200 random problems, some with a wide gap and some with a narrow one. The plot
# compares the mistakes of your `fit` with your bound, for the $w^*$ that was used to make the problem. No point may lie
# above the dashed line.

# %%
guess(
    "perceptron.bound",
    "In the problem that comes closest to the bound: what share of the allowed mistakes does your fit make?",
    unit="%",
)


# %%
def random_problem(seed, m=30):
    """m points in the plane, cut by a random line with a random gap around it: X (m, 3), y (m,), w_star (3,)."""
    generator = torch.Generator().manual_seed(seed)
    X = with_bias(4 * torch.rand(4000, 2, generator=generator) - 2)
    w_star = torch.randn(3, generator=generator)
    gap = 10 ** (-1.7 * torch.rand(1, generator=generator)) * w_star.norm()  # from 1 down to 1/50
    X = X[(X @ w_star).abs() > gap][:m]
    return X, torch.where(X @ w_star >= 0, 1.0, -1.0), w_star


with when_solved():
    guessed("perceptron.bound")
    made, allowed = [], []
    for seed in progress(range(200), "problem"):
        X, y, w_star = random_problem(seed)
        w, mistakes = fit(X, y, lr=0.5, max_epochs=500)
        if any(mistakes):
            made.append(sum(mistakes))
            allowed.append(novikoff_bound(X, y, w_star))
    _, axes = plt.subplots(figsize=(8, 3.8))
    axes.loglog(allowed, made, "o", color=style.BLUE, alpha=0.5, markersize=5)
    axes.loglog([1, 1e4], [1, 1e4], "--", color=style.GREY)
    closest = max(m / a for m, a in zip(made, allowed))
    axes.set(xlabel="mistakes allowed by the bound", ylabel="mistakes made")
    axes.set(title=f"{len(made)} problems: at most {100 * closest:.0f} % of what the bound allows")
    plt.show()
    reveal("perceptron.bound", 100 * closest)

# %% [markdown]
# <details><summary>What do you see?</summary>
#
# The bound always holds, but it is generous, because it must cover the worst order of the worst samples. It does
# predict the trend: problems with a narrow margin lie to the right, and these have the most mistakes.
#
# </details>
#
# ## What no line can do
#
# **XOR** is $+1$ where the signs of $x_1$ and $x_2$ differ, and $-1$ where they agree. No line separates the four
# corners $(\pm 1, \pm 1)$, and it is easy to see why. If both corners of $+1$ are on one side, so is the point halfway
# between them, $(0, 0)$. But this point is also halfway between the two corners of $-1$. There is no $w^*$, so there is
# no margin and no bound, and training never ends. Minsky and Papert wrote a book on such limits (1969).
#
# One solution does not change the perceptron: give it one more input, $x_3 = x_1 x_2$. Seen from above nothing has
# moved, but two of the clouds have risen and two have sunk, so a plane fits between them. Move the lift $t$ (the height
# is $t\, x_1 x_2$), then step through the epochs.

# %%
perceptron_lift.explorable()

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Without a lift, the updates never end. With the smallest lift they do, but the margin is narrow, so it takes many
# mistakes. The higher the lift, the fewer mistakes it takes. In the plane of $x_1$ and $x_2$ the cut is not a line but
# a hyperbola, close to the two axes.
#
# </details>
#
# {{exercise lift}}
#
# Add this coordinate to every sample.
#
# <details><summary>Hint</summary>
#
# `X[:, 1:2]` is column 1 with its second dimension kept, shape (m, 1). `torch.cat([..., ...], dim=1)` puts columns next
# to each other.
#
# </details>


# %%
def lift(X):
    """Every sample with one more coordinate: (1, x1, x2) becomes (1, x1, x2, x1 x2).
    X: (m, 3), not changed; returns (m, 4).

    >>> lift(torch.tensor([[1.0, 2.0, 3.0], [1.0, -1.0, 0.5]]))
    tensor([[ 1.0000,  2.0000,  3.0000,  6.0000],
            [ 1.0000, -1.0000,  0.5000, -0.5000]])
    """
    # BEGIN SOLUTION
    return torch.cat([X, X[:, 1:2] * X[:, 2:3]], dim=1)
    # END SOLUTION


# %%
check("perceptron.lift")

# %%
XOR = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
LABELS = torch.tensor([-1.0, 1.0, 1.0, -1.0])

with when_solved():
    print("flat:  ", fit(XOR, LABELS, lr=0.5, max_epochs=10))
    print("lifted:", fit(lift(XOR), LABELS, lr=0.5, max_epochs=10))

# %% [markdown]
# ## A second layer
#
# We knew which coordinate to add. The other solution is a machine that makes its own coordinates. **Two neurons** look
# at the inputs, and each draws a line. A **third** looks only at their outputs, $(1, h_1, h_2)$. Set the three biases
# so that all four corners are right:
#
# $$h_1 = \mathrm{sgn}(b_1 + x_1 + x_2), \qquad h_2 = \mathrm{sgn}(b_2 - x_1 - x_2), \qquad \hat y = \mathrm{sgn}(b_3 + h_1 + h_2).$$

# %%
perceptron_mlp.explorable()

# %% [markdown]
# <details><summary>What makes it work?</summary>
#
# The green line must separate the corner (−1, −1) from the others, and the pink line the corner (+1, +1). Then the four
# corners become only three points, and both corners of +1 become the same point, (h₁, h₂) = (1, 1). The third neuron's
# line can separate this point from the other two. The first layer has moved the points so that a line is enough.
#
# </details>
#
# {{exercise mlp_xor}}
#
# Choose the weights of the three neurons, and compute the answers of both layers.
#
# <details><summary>Hint 1: which neurons?</summary>
#
# One hidden neuron can compute "x₁ or x₂ is +1" (OR), the other "not both" (NAND). The output neuron computes "h₁ and
# h₂" (AND).
#
# </details>
# <details><summary>Hint 2: weights for a logical OR</summary>
#
# `w = (1, 1, 1)`: z = 1 + x₁ + x₂ is −1 at (−1, −1) and at least 1 at the other three corners. For NAND change the
# signs of the weights of x₁ and x₂. For AND find a bias such that only h₁ = h₂ = +1 gives a positive z.
#
# </details>
# <details><summary>Hint 3: from layer to layer</summary>
#
# With one row of `W` per hidden neuron, `H = predict(W.T, X)` computes all of (m, 2) at once. The output neuron also
# needs an input of 1: `with_bias(H)` adds a column of ones in front.
#
# </details>


# %%
def mlp_xor(X):
    """XOR by two layers of step neurons, with weights that you choose: no if, no product of
    inputs.

    X: (m, 3) with rows (1, x1, x2), the corners x1, x2 = +1 or -1 in any order.
    Returns (H, yhat): H (m, 2), the outputs of the two hidden neurons; yhat (m,), the
    answers of the output neuron. All entries are +1.0 or -1.0, also for points between the
    corners: a neuron draws a line through the whole plane.

    >>> H, yhat = mlp_xor(torch.tensor([[1.0, 1.0, -1.0], [1.0, 1.0, 1.0]]))
    >>> yhat
    tensor([ 1., -1.])
    """
    # BEGIN SOLUTION
    W = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]])  # OR, NAND
    v = torch.tensor([-1.0, 1.0, 1.0])  # AND
    H = torch.where(X @ W.T >= 0, 1.0, -1.0)
    return H, torch.where(with_bias(H) @ v >= 0, 1.0, -1.0)
    # END SOLUTION


# %%
check("perceptron.mlp_xor")

# %% [markdown]
# You found the weights by hand. To *learn* the weights of a hidden layer, you have to know how much each hidden neuron
# contributes to a mistake. A step function cannot tell you, because its slope is 0 wherever it has one. Lab 04 solves
# this problem.
#
# ## Any function
#
# XOR took two hidden neurons. What can a hundred do? Each hidden neuron below looks at one number $x$ and switches on
# at its own threshold. The output is the weighted sum of the neurons' outputs. The weights are not learned but computed
# from the curve.
#
# 1. Find the number of steps at which you can no longer tell the network from the wave.
# 2. Double the number of neurons. How much closer does the network with steps get, and the network with ramps?
# 3. For which curve are ramps no better than steps?

# %%
any_function.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. With about forty the difference is hard to see. There is a theorem: one hidden layer with enough neurons comes as
#    close to any continuous function as you like (Cybenko 1989). It does not tell you how many neurons you need, or how
#    to find the weights.
# 2. With steps the error halves. With ramps (ReLUs) it falls to a quarter, because sloping pieces follow a smooth curve
#    better than level ones. Steps have another drawback: they have no slope that tells you how to move them.
# 3. For the jump: one piece has to cross it, and only a narrower piece makes the error smaller. A single step at the
#    right place would be enough, but the network has equally spaced thresholds and does not know the place. Training
#    can find it.
# </details>

# %% [markdown]
# ## Reading digits with 65 weights
#
# The data are 1,797 real digits of 8 × 8 pixels. A sample has 64 pixels and $x_0 = 1$. To tell one digit from another
# is a problem with two classes, and there are 45 such pairs. Here is your `fit` on the pair that needs the most
# updates.


# %%
data = digits()
PIXELS, HELD_OUT = (with_bias(images.flatten(1)) for images in (data.x, data.x_held_out))


def pair(X, labels, a, b):
    """Only the samples of the digits a and b, with the labels +1 for a and -1 for b."""
    chosen = (labels == a) | (labels == b)
    return X[chosen], torch.where(labels[chosen] == a, 1.0, -1.0)


with when_solved():
    w, mistakes = fit(*pair(PIXELS, data.y, 8, 1), lr=0.5, max_epochs=100)
    X, y = pair(HELD_OUT, data.y_held_out, 8, 1)
    right = (predict(w, X) == y).float().mean().item()
    _, axes = plt.subplots(1, 4, figsize=(9.6, 2.7), width_ratios=[1, 1, 1.25, 1.6], layout="constrained")
    for ax, digit in zip(axes, (8, 1)):
        ax.imshow(data.x[data.y == digit].mean(dim=0)[0], cmap="Greys")
        ax.set(title=f"the mean {digit}")
        ax.set_axis_off()
    reach = w[1:].abs().max().item()
    votes = axes[2].imshow(w[1:].reshape(8, 8), cmap="PuOr_r", vmin=-reach, vmax=reach)
    axes[2].set(title="ink on orange: 8")
    axes[2].set_axis_off()
    plt.colorbar(votes, ax=axes[2], shrink=0.8)
    axes[3].plot(range(1, len(mistakes) + 1), mistakes, "o-", markersize=4)
    axes[3].set(xlabel="epoch", ylabel="updates", title=f"{sum(mistakes)} updates, {100 * right:.1f} % right")
    plt.show()

# %% [markdown]
# Now train on all 45 pairs. If the updates of a pair end (the pair *settles*), the pair is separable, and your `w` is
# the proof.

# %%
guess(
    "perceptron.pairs",
    "How many of the 45 pairs settle within 100 epochs?",
    unit="pairs",
)

# %%
guess(
    "perceptron.wrong",
    "Each pair's perceptron reads the pair's held-out images: 3,231 answers in total. How many are wrong?",
    unit="answers",
)

# %%
with when_solved():
    guessed("perceptron.pairs")
    guessed("perceptron.wrong")
    updates, wrong = torch.full((10, 10), torch.nan), torch.full((10, 10), torch.nan)
    settled = 0
    for a in progress(range(10), "digit"):
        for b in range(a):
            w, mistakes = fit(*pair(PIXELS, data.y, a, b), lr=0.5, max_epochs=100)
            X, y = pair(HELD_OUT, data.y_held_out, a, b)
            updates[a, b], wrong[a, b] = sum(mistakes), (predict(w, X) != y).sum()
            settled += mistakes[-1] == 0
    _, both = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained")
    for axes, table, title in (
        (both[0], updates, "updates until it settles"),
        (both[1], wrong, "wrong among the held-out"),
    ):
        axes.imshow(table.sqrt(), cmap="Blues", vmax=1.3 * table.nan_to_num().sqrt().max())
        for a in range(10):
            for b in range(a):
                axes.text(b, a, int(table[a, b]), ha="center", va="center", fontsize=10)
        axes.set(xticks=range(10), yticks=range(10), xlabel="digit", ylabel="digit", title=title)
        axes.grid(False)
    plt.show()
    print(f"{settled} of 45 pairs settled within 100 epochs; {int(wrong.nansum())} held-out images are read wrongly.")
    reveal("perceptron.pairs", settled)
    reveal("perceptron.wrong", wrong.nansum())

# %% [markdown]
# ## Its limits on digits
#
# It is harder to tell one digit from *all nine others*. To read digits with ten such machines, each must recognise its
# own digit. Below you see the run for every digit. `separable` checks the result independently: it solves a linear
# program to find out whether *any* $w$ gets every sample right, without trying updates.


# %%
def one_against_all(labels, digit):
    """+1 for the digit, -1 for the other nine."""
    return torch.where(labels == digit, 1.0, -1.0)


with when_solved():
    digit_by_digit = progress(range(10), "digit")
    runs = [fit(PIXELS, one_against_all(data.y, digit), lr=0.5, max_epochs=20) for digit in digit_by_digit]
    _, axes = plt.subplots(figsize=(9, 4))
    rows, ends = ["digit   last epoch   separable?   held out, right   always saying no"], {}
    for digit, (w, mistakes) in enumerate(runs):
        possible = separable(PIXELS, one_against_all(data.y, digit))
        y = one_against_all(data.y_held_out, digit)
        right, never = (predict(w, HELD_OUT) == y).float().mean(), (y < 0).float().mean()
        rows.append(
            f"{digit:5d} {mistakes[-1]:12d} {'yes' if possible else 'no':>12s} {100 * right:15.1f} % {100 * never:16.1f} %"
        )
        look = {"color": style.GREY, "linewidth": 1.4} if possible else {"color": style.VERMILLION, "linewidth": 2.5}
        axes.plot(range(1, len(mistakes) + 1), mistakes, **look)
        ends.setdefault((len(mistakes), round(mistakes[-1] / 8)), []).append(str(digit))  # curves that end together
    for (epoch, eighth), names in ends.items():
        axes.text(epoch + 0.2, 8 * eighth, " ".join(names), va="center")
    axes.set(xlabel="epoch", ylabel="updates", xlim=(1, 21.5), xticks=range(2, 21, 2))
    axes.set(title="one digit against the other nine; thick: no w can do it")
    plt.show()
    print("\n".join(rows))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - Every *pair* of digits is separable. Most pairs take only a few epochs, and hardly any held-out image is read
#   wrongly. With 64 pixels there is nearly always a direction that separates two digits.
# - **8 against the rest is impossible**, and the linear program proves it. An 8 shares its strokes with 3, 5 and 9, and
#   a weighted sum of pixels cannot express "all of these strokes together". Its updates never end, and after 20 epochs
#   it reads hardly more images correctly than a machine that always answers no.
# - If the updates have not ended yet, the digit may still be separable: 1 and 9 are separable from the rest, but the
#   margin is so narrow that the perceptron needs more than 1,000 epochs. Novikoff's bound is finite, but with a narrow
#   margin it is large.
#
# </details>
#
# <details><summary>If you want to try more</summary>
#
# - Average all the w's of a run and predict with the mean (Freund and Schapire, 1999). How well does 8 against the rest
#   work now?
# - Shuffle the samples of 8 against 1 before `fit`. How much does the number of updates depend on the order? The bound
#   does not depend on it.
# - `from hpcdl.data import mnist` fetches the 70,000 images of MNIST once (12 MB). Which of its 45 pairs settle?
#
# </details>

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, claim to be `fit` of exercise 3. Four of them are right, each written in its own way.
# The other four are impostors, but their perceptrons often learn, too. You do not see their code. You choose the
# samples.

# %% [markdown]
# {{exercise unmask_fit}}
#
# Return a list of at most 12 inputs, each a tuple `(points, labels, lr, max_epochs)`:
#
# | part | what it may be |
# |---|---|
# | `points` | a list of 1 to 8 pairs `(x1, x2)` |
# | `labels` | a list of as many labels, each +1 or -1 |
# | `lr` | from 0.25 to 8 |
# | `max_epochs` | an int from 1 to 20 |
#
# Coordinates, from -8 to 8, and `lr` are multiples of 0.25. With these numbers all sums are exact, and right programs
# agree to the last bit. You unmask a program if its weights or its counts of mistakes differ from exercise 3's. Each
# impostor that you unmask earns two points. You get two more points if you unmask a program and all your inputs follow
# the rules; an input that breaks them does not count. The check shows which programs you have caught, and with which
# input. Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 3, or nearly made. Which samples would have hidden them?
# </details>
# <details><summary>Hint 2: samples that take time</summary>
#
# Almost any program learns a single sample in two epochs. Which samples take many epochs, or never end?
# </details>


# %%
def unmask_fit():
    """Inputs (points, labels, lr, max_epochs) for which the impostors give wrong answers.

    Returns a list of at most 12 tuples.

    An input that is not yet enough:

        [([(1, 2)], [1], 0.5, 10)]
    """
    # BEGIN SOLUTION
    return [
        # one line separates them, and it takes a while
        ([(2, 0), (1, 0)], [1, -1], 0.5, 20),
        # XOR: no line does
        ([(1, 1), (1, -1), (-1, 1), (-1, -1)], [-1, 1, 1, -1], 0.5, 6),
    ]
    # END SOLUTION


# %%
check("perceptron.unmask_fit")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **A** takes sgn(0) = -1.
# - **D** updates once per epoch, for all mistakes together.
# - **E** stops if an epoch has as many mistakes as the one before.
# - **G** stops one epoch early.
#
# XOR is also the best test here: training on it never ends by itself, so it shows when and how a program stops.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# Your `fit` uses the weights only in products $w \cdot x$, and $w$ is a sum of samples that were read wrongly. So do
# without $w$: count how often each sample was added, and compute every product from the $x_i \cdot x$. Then replace
# $x_i \cdot x$ by $(1 + x_i \cdot x)^2$ (M. Aizerman, E. Braverman and L. Rozonoer 1964, the first *kernel*). *Proof:*
# with plain products it makes the same mistakes as your `fit`, epoch by epoch. With the square it learns XOR, which
# `fit` alone cannot.

# %% [markdown]
# ## Further reading
#
# - F. Rosenblatt, *The perceptron: a probabilistic model for information storage and organization in the brain*, Psychological Review 65 (1958).
# - A. B. J. Novikoff, *On convergence proofs on perceptrons*, Symposium on the Mathematical Theory of Automata (1962).
# - T. M. Cover, *Geometrical and statistical properties of systems of linear inequalities with applications in pattern recognition*, IEEE Transactions on
#   Electronic Computers (1965): why lifting points into more dimensions makes them separable.
# - M. Minsky and S. Papert, *Perceptrons* (MIT Press, 1969).
# - Y. Freund and R. E. Schapire, *Large margin classification using the perceptron algorithm*, Machine Learning 37 (1999).
