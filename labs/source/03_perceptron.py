# %% [markdown]
# # Lab 03 · The perceptron
# ## A machine that learns, and what it cannot
#
# A neuron that adds up its inputs and answers yes or no; a rule of one line by which it learns from its mistakes; a
# theorem that says how many mistakes it can make at most. And four points on which it fails for ever, which is why
# networks have layers.
#
# **You will be able to**
# - write Rosenblatt's learning rule and say what it does to the line that separates two classes,
# - compute the margin of a data set and from it, before any training, a bound on the mistakes of training,
# - say which problems a single neuron cannot solve, and solve one of them in two ways: with a new coordinate, and with
#   a second layer,
# - tell handwritten digits apart with a machine of 65 weights, and see where it stops.
#
# **100 points, 8 exercises, about 85 minutes.** You need nothing but tensors: no gradient appears in this lab. No GPU, no
# download. In this lab $n$ counts inputs and $m$ samples.

# %%
import matplotlib.pyplot as plt
import torch

from autograder import check
from hpcdl.data import digits
from hpcdl.nn.perceptron import separable, with_bias
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import any_function, perceptron_lift, perceptron_mlp, perceptron_plane

style.use()

# %% [markdown]
# ## See it learn
#
# Below are two classes of points, +1 (blue discs) and −1 (orange squares), and a line. On its blue side the machine
# answers +1, on the other side −1; a hollow point is answered wrongly. Press ▶, or move the slider **update** with the
# arrow keys, and watch the line turn: each update is caused by one point, the ringed one.
#
# Then change the world. **Click into the plane** to add a point, hold Shift for the other class, click a point to remove
# it. (Without a mouse: Tab to the picture, move the crosshair with the arrow keys, press Enter or Shift-Enter.)

# %%
perceptron_plane.explorable()

# %% [markdown]
# Three things to try:
#
# 1. *far from the origin* takes many updates although the two clouds are well apart. Which of the three weights is the
#    slow one?
# 2. With **start w at** *zero*, change **r**. What happens to the line, and to the number of updates? Try it again with
#    *somewhere*.
# 3. Choose *XOR* and step to the end. Then start from *nothing yet* and find the smallest number of points that it
#    cannot learn.
#
# <details><summary>What you should see</summary>
#
# 1. The bias w₀. Each update changes it by 2r, and the line has to move far from the origin, so it needs many.
# 2. From w = 0 the rate r changes nothing but the length of w: every weight is a multiple of 2r, the sign of z stays the
#    same, and so do all updates. From another start r says how much the start still counts: a small r needs many updates
#    to forget it.
# 3. Every epoch makes about as many updates as the one before. Four points are enough when the two of each class face
#    each other across a square; three points in a line, +1 −1 +1, do it too.
#
# </details>

# %% [markdown]
# ## One neuron
#
# A sample is a vector $x = (1, x_1, \dots, x_n)$. Its first entry is always $x_0 = 1$, so that the bias needs no rule of its
# own: it is the weight $w_0$ of that input. The neuron computes
#
# $$z = w^T x = w_0 + w_1 x_1 + \dots + w_n x_n, \qquad \hat y = \mathrm{sgn}(z) = \begin{cases} +1 & z \ge 0 \\ -1 & z < 0 \end{cases}$$
#
# and the labels $y$ are $+1$ and $-1$ too. In code, `X` holds one sample per row, with the ones in column 0: four points in the
# plane are a tensor of shape (4, 3).
#
# {{exercise predict}}
#
# <details><summary>Hint 1: all rows at once</summary>
#
# `X @ w` is $w^T x$ for every row of `X`, and for a single sample `x @ w` is one number. No loop is needed.
#
# </details>
# <details><summary>Hint 2: the sign</summary>
#
# `torch.sign` answers 0 at 0. Use `torch.where(condition, 1.0, -1.0)` with the condition of the formula above.
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
# Rosenblatt's rule (1957) looks at one sample and changes nothing if the answer was right. If it was wrong, every weight
# moves, the bias included:
#
# $$w_j \leftarrow w_j + r\,(y - \hat y)\,x_j, \qquad j = 0, \dots, n.$$
#
# After a mistake $y - \hat y$ is $+2$ or $-2$. So $w$ moves towards a sample that should have been called $+1$, and away from one
# that should have been called $-1$, and $z$ of that very sample moves in the right direction by $2 r\,|x|^2$.
#
# {{exercise update}}
#
# <details><summary>Hint 1: is an if needed?</summary>
#
# No. When the answer is right, $y - \hat y = 0$, and the formula itself changes nothing.
#
# </details>
# <details><summary>Hint 2: a new tensor</summary>
#
# `w += ...` writes into the tensor that was passed in; `w + ...` makes a new one. And `yhat` is `predict(w, x)`, or
# `1.0 if w @ x >= 0 else -1.0`.
#
# </details>


# %%
def update(w, x, y, lr):
    """The weights after looking at one sample: w + lr (y - yhat) x, a new tensor; `w`
    itself stays as it is.

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
# ## Until no mistake is left
#
# One **epoch** goes through all samples in their order, and each sample is judged by the newest `w`. Epoch follows epoch until one passes
# without an update, or until there have been `max_epochs`.
#
# {{exercise fit}}
#
# <details><summary>Hint 1: the frame</summary>
#
# Two loops: one over epochs, one over `zip(X, y)`. Each epoch appends a count to `mistakes`, also when it is 0, and a count of 0 ends
# the outer loop.
#
# </details>
# <details><summary>Hint 2: nearly the answer</summary>
#
# ```python
# w, mistakes = torch.zeros(X.shape[1]), []
# for epoch in range(max_epochs):
#     count = 0
#     for x, label in zip(X, y):
#         ...            # where predict(w, x) != label: a new w, and count += 1
#     mistakes.append(count)
#     if ...: break
# return w, mistakes
# ```
#
# </details>


# %%
def fit(X, y, lr, max_epochs):
    """Train a perceptron from w = 0: samples in the order given, until an epoch has no
    mistake or max_epochs are over.

    X: (m, n+1) with X[:, 0] = 1, y: (m,) of +1.0 and -1.0.
    Returns (w, mistakes): w (n+1,), and a list with the number of updates in each epoch
    that was run.

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
# Try it on two bands of points left and right of the line $x_1 = 2$, with a gap that you choose. The narrower the gap, the longer it takes; where
# they overlap, it never ends.


# %%
def two_bands(gap, n=120, seed=1):
    """n points, those of +1 right of the line x1 = 2, those of -1 left of it, `gap` apart: X (n, 3), y (n,)."""
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
# Suppose some $w^*$ separates the classes. Its **margin** is the distance of the nearest sample from the cut, counted as negative
# where the sample is on the wrong side:
#
# $$\gamma = \min_i \frac{y^i\, w^{*T} x^i}{|w^*|}.$$
#
# (Distances are measured in the space of $x = (1, x_1, \dots, x_n)$, and $|w^*|$ is the length of the whole $w^*$: there the cut
# goes through the origin.)
#
# {{exercise margin}}
#
# <details><summary>Hint 1: the sign of y z</summary>
#
# A sample of label −1 is right when z is negative, so y z is positive for each right answer. `y * (X @ w)` has all of them.
#
# </details>
# <details><summary>Hint 2: nearly the answer</summary>
#
# The smallest of them, `.min()`, divided by `w.norm()`. `float(...)` or `.item()` makes a number of it.
#
# </details>


# %%
def margin(w, X, y):
    """The distance of the nearest sample from the cut of w, negative where w gets a sample
    wrong; a number.

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
# Now follow the length of $w$ from $w = 0$ through its updates, each of which adds $2 r\, y\, x$:
#
# - **It must grow.** Each update brings $w^{*T} w / |w^*|$ forward by at least $2 r \gamma$, and $|w|$ is at least as long as that. After $M$
#   updates, $|w| \ge 2 r \gamma M$.
# - **It cannot grow fast.** An update is made only where $y\, w^T x \le 0$, so it is at a right angle to $w$ or points backwards, and $|w|^2$ grows by at most
#   $(2 r)^2 |x|^2 \le (2 r R)^2$, with $R$ the length of the longest sample. After $M$ updates, $|w| \le 2 r R \sqrt M$.
#
# A bound from below that grows like $M$, one from above that grows like $\sqrt M$: they meet, and there the updates must have ended.


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
# Where the bounds meet, $2 r \gamma M = 2 r R \sqrt M$, the rate $r$ cancels, and what is left is **Novikoff's theorem** (1962):
#
# $$M \le \left( \frac{R}{\gamma} \right)^2.$$
#
# No count of samples stands in it, and no dimension: only how long the longest sample is, and how wide the gap. It holds for every $w^*$ that
# separates the samples; the one with the widest margin gives the best promise.
#
# {{exercise novikoff_bound}}
#
# <details><summary>Hint 1: the pieces</summary>
#
# `X.norm(dim=1)` has the length of every sample. The margin you have already; write it out again or call yours.
#
# </details>
# <details><summary>Hint 2: when there is no margin</summary>
#
# Where `w_star` gets a sample wrong, the margin is negative, and its square would look like a fine promise. Return `math.inf` (or
# `float("inf")`) where the margin is not positive.
#
# </details>


# %%
def novikoff_bound(X, y, w_star):
    """(R / margin)^2: no perceptron that starts at 0 makes more mistakes on these samples;
    a number.

    X: (m, n+1) with X[:, 0] = 1, y: (m,) of +1.0 and -1.0, w_star: (n+1,).
    Infinite (float("inf")) where w_star does not separate the samples.

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
# How good is the promise? Here are 200 random problems, some with a wide gap and some with a narrow one: the mistakes that your `fit` made, against
# what your bound allows, for the $w^*$ that the problem was cut with. No point may lie above the dashed line.

# %%
guess(
    "perceptron.bound",
    "Of the mistakes that the bound allows, how many are made in the problem that comes closest to it?",
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
    for seed in range(200):
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
    axes.set(title=f"{len(made)} problems: at most {closest:.0%} of what the bound allows")
    plt.show()
    reveal("perceptron.bound", 100 * closest)

# %% [markdown]
# <details><summary>What do you see?</summary>
#
# The bound always holds, and it is generous: it must cover the worst order of the worst samples. What it gets right is the direction: problems
# with a narrow margin lie to the right, and there the most mistakes are made.
#
# </details>
#
# ## What no line can do
#
# $+1$ where the signs of $x_1$ and $x_2$ differ, $-1$ where they agree: **XOR**. No line separates the four corners $(\pm 1, \pm 1)$, and it is easy to
# see why: with the two corners of $+1$ on one side, the middle between them, $(0, 0)$, is on that side as well; but it is also the
# middle between the two corners of $-1$. There is no $w^*$, so there is no margin, no bound, and no end. Minsky and Papert wrote a book on such
# limits (1969).
#
# There is a way out that leaves the perceptron as it is: give it one more input, $x_3 = x_1 x_2$. Seen from above nothing has moved, but
# two of the clouds have risen and two have sunk, and a plane fits between them. Move the lift $t$ (the height is $t\, x_1 x_2$), then let the epochs pass.

# %%
perceptron_lift.explorable()

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Without a lift, updates go on for ever. The smallest lift is enough for it to settle, but then the margin is narrow, and it takes many
# mistakes; the higher the lift, the fewer. In the plane, the flat cut casts a shadow that is not a line: it is a hyperbola, nearly the two axes.
#
# </details>
#
# {{exercise lift}}
#
# <details><summary>Hint</summary>
#
# `X[:, 1:2]` is column 1 with its second dimension kept, shape (m, 1). `torch.cat([..., ...], dim=1)` puts columns side by side.
#
# </details>


# %%
def lift(X):
    """Every sample with one more coordinate: (1, x1, x2) becomes (1, x1, x2, x1 x2).
    X: (m, 3); returns (m, 4).

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
# We knew which coordinate to add. The other way out is a machine that makes its own coordinates: **two neurons** look at the inputs, each draws a line,
# and a **third** looks only at what they say, $(1, h_1, h_2)$. Set the three biases until all four corners are right:
#
# $$h_1 = \mathrm{sgn}(b_1 + x_1 + x_2), \qquad h_2 = \mathrm{sgn}(b_2 - x_1 - x_2), \qquad \hat y = \mathrm{sgn}(b_3 + h_1 + h_2).$$

# %%
perceptron_mlp.explorable()

# %% [markdown]
# <details><summary>What makes it work?</summary>
#
# The green line must leave the corner (−1, −1) on its own, the pink one the corner (+1, +1). Then the four corners land on only three places, both
# corners of +1 on the same one, (h₁, h₂) = (1, 1), and there the third neuron's line can cut it off from the rest. The first layer has
# moved the points until a line was enough.
#
# </details>
#
# {{exercise mlp_xor}}
#
# <details><summary>Hint 1: which neurons?</summary>
#
# One hidden neuron can say "x₁ or x₂ is +1" (OR), the other "not both" (NAND). The output neuron says "both of you" (AND).
#
# </details>
# <details><summary>Hint 2: weights for a logical OR</summary>
#
# `w = (1, 1, 1)`: z = 1 + x₁ + x₂ is −1 at (−1, −1) and at least 1 at the other three corners. For NAND turn the signs of x₁ and x₂ round; for AND
# look for a bias such that only h₁ = h₂ = +1 gives a positive z.
#
# </details>
# <details><summary>Hint 3: from layer to layer</summary>
#
# With a row of `W` per hidden neuron, `H = predict(W.T, X)` is (m, 2) in one go. The output neuron needs its own input of 1: `with_bias(H)` puts a
# column of ones in front.
#
# </details>


# %%
def mlp_xor(X):
    """XOR by two layers of step neurons, with weights chosen by hand: no if, no product of
    inputs.

    X: (m, 3) with rows (1, x1, x2), the corners x1, x2 = +1 or -1 in any order.
    Returns (H, yhat): H (m, 2), what the two hidden neurons say; yhat (m,), what the output
    neuron makes of them. All entries are +1.0 or -1.0, also for points between the corners:
    a neuron draws a line through the whole plane.

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
# You found the weights by hand. To *learn* the weights of a hidden layer, one has to know how much each hidden neuron is to blame for a mistake,
# and a step function does not tell: its slope is 0 wherever it has one. That is the subject of lab 04.
#
# ## Any function
#
# XOR took two hidden neurons. What can a hundred do? Each hidden neuron below looks at one number $x$ and switches on at a threshold of its own; the
# output adds up what they say, each with a weight. No weight is learned: they are read off the curve.
#
# 1. Find the number of steps at which you can no longer tell the network from the wave.
# 2. Twice as many neurons: how much closer is the network with steps, and how much with ramps?
# 3. On which curve are ramps no better than steps?

# %%
any_function.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. With some forty it is hard to see, and that is the theorem: one hidden layer comes as close to any continuous function as you like, if it may have
#    enough neurons (Cybenko 1989). It says nothing about how many, nor how to find the weights.
# 2. With steps the error halves. With ramps, which are called ReLU, it is a quarter: straight pieces follow a smooth curve better than level ones.
#    Steps have another fault, that no slope tells how to move them.
# 3. On the jump: one piece has to cross it, level or straight, and only a narrower piece helps. A single step at the right place would do; the
#    network has its thresholds at equal distances, and does not know where the place is. Training finds out.
# </details>

# %% [markdown]
# ## Reading digits with 65 weights
#
# The digits are real: 1,797 images of 8 × 8 pixels. A sample has 64 pixels and $x_0 = 1$. One digit against another is a problem with two
# classes; there are 45 such pairs. Here is your `fit` on the pair that needs the most updates.


# %%
data = digits()
PIXELS, HELD_OUT = (with_bias(images.flatten(1)) for images in (data.x, data.x_held_out))


def pair(X, labels, a, b):
    """The samples of the digits a and b alone, with the labels +1 for a and -1 for b."""
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
    axes[3].set(xlabel="epoch", ylabel="updates", title=f"{sum(mistakes)} updates, {right:.1%} right")
    plt.show()

# %% [markdown]
# All 45 pairs. A pair that settles is separable, and your updates are the proof.

# %%
guess(
    "perceptron.pairs",
    "How many of the 45 pairs settle within 100 epochs?",
    unit="pairs",
)

# %%
guess(
    "perceptron.wrong",
    "Each pair is asked about its held-out images, 3,231 answers in all. How many are wrong?",
    unit="answers",
)

# %%
with when_solved():
    guessed("perceptron.pairs")
    guessed("perceptron.wrong")
    updates, wrong = torch.full((10, 10), torch.nan), torch.full((10, 10), torch.nan)
    settled = 0
    for a in range(10):
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
# ## Where it stops
#
# Harder: one digit against *all nine others*. To read a digit with ten such machines, each has to single out its own. Below is every digit's run, and an
# independent judge: `separable` asks a linear program whether *any* $w$ gets every sample right, without trying updates.


# %%
def one_against_all(labels, digit):
    """+1 for the digit, -1 for the other nine."""
    return torch.where(labels == digit, 1.0, -1.0)


with when_solved():
    runs = [fit(PIXELS, one_against_all(data.y, digit), lr=0.5, max_epochs=20) for digit in range(10)]
    _, axes = plt.subplots(figsize=(9, 4))
    rows, ends = ["digit   last epoch   separable?   held out, right   always saying no"], {}
    for digit, (w, mistakes) in enumerate(runs):
        possible = separable(PIXELS, one_against_all(data.y, digit))
        y = one_against_all(data.y_held_out, digit)
        right, never = (predict(w, HELD_OUT) == y).float().mean(), (y < 0).float().mean()
        rows.append(f"{digit:5d} {mistakes[-1]:12d} {'yes' if possible else 'no':>12s} {right:17.1%} {never:18.1%}")
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
# - Every *pair* of digits is separable, most within a handful of epochs, and hardly any held-out image is read wrongly. Among 64 pixels there is nearly always a
#   direction that parts two digits.
# - **8 against the rest is impossible**, and the linear program proves it: an 8 shares its strokes with 3, 5 and 9, and a weighted sum of pixels cannot say "all
#   of these strokes together". Its updates never calm down, and after 20 epochs it reads hardly
#   more images right than a machine that always says no.
# - Not settled does not mean not separable: 1 and 9 can be parted from the rest, by a margin so narrow that the perceptron needs more than
#   1,000 epochs. Novikoff's bound says *at most*, and with a narrow margin that can be long.
#
# </details>
#
# <details><summary>If you want to go on</summary>
#
# - Average all the w's that a run passes through and predict with the mean (Freund and Schapire, 1999). How does 8 against the rest do now?
# - Shuffle the samples of 8 against 1 before `fit`. How much do the updates depend on the order? The bound does not.
# - `from hpcdl.data import mnist` fetches the 70,000 images of MNIST once (12 MB). Which of its 45 pairs settle?
#
# </details>

# %% [markdown]
# ## Catch the impostors
#
# A test is a question that a wrong program answers wrongly. The checks of this lab put many questions to you; now you put them.
#
# Eight programs, **A** to **H**, claim to be `fit` of exercise 3. Four of them are, each written in its own way. Four are impostors, whose perceptrons
# often learn all the same. You do not see their code. You choose the samples.

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
# Coordinates, from -8 to 8, and `lr` are multiples of 0.25: on these numbers all sums are exact, and right programs agree to the last bit. A program is
# unmasked where its weights or its counts of mistakes are not those of exercise 3. Each impostor that you unmask earns two points. Two more are for inputs that keep the rules: one that breaks
# them unmasks nobody. The check tells whom you have caught, and by what; press it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 3, or nearly made. Which samples would have hidden them?
# </details>
# <details><summary>Hint 2: samples that take time</summary>
#
# A single sample is learned in two epochs by almost anything. Which samples take many epochs, or never end?
# </details>


# %%
def unmask_fit():
    """Inputs (points, labels, lr, max_epochs) for which the impostors answer wrongly.

    Returns a list of at most 12 tuples.

    An input that is not yet enough:

        [([(1, 2)], [1], 0.5, 10)]
    """
    # BEGIN SOLUTION
    return [
        # one line parts them, and it takes a while
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
# - **A** takes sgn(0) for -1.
# - **D** updates once in an epoch, for all mistakes together.
# - **E** stops where an epoch has as many mistakes as the one before.
# - **G** stops one epoch early.
#
# XOR, which taught you what a perceptron cannot do, is also the best test of a program that learns: what never ends shows how a program ends.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to ask of yourself.
#
# Your `fit` asks of the weights only products $w \cdot x$, and $w$ is a sum of samples that were read wrongly. So do without $w$: keep how often each sample was added, and
# write $x_i \cdot x$ wherever a product is needed. Then put $(1 + x_i \cdot x)^2$ in its place (M. Aizerman, E. Braverman and L. Rozonoer 1964, the first *kernel*).
# *Proof:* with plain products it makes the mistakes of your `fit`, epoch by epoch; with the square it learns XOR, which `fit` alone cannot.

# %% [markdown]
# ## Further reading
#
# - F. Rosenblatt, *The perceptron: a probabilistic model for information storage and organization in the brain*, Psychological Review 65 (1958).
# - A. B. J. Novikoff, *On convergence proofs on perceptrons*, Symposium on the Mathematical Theory of Automata (1962).
# - T. M. Cover, *Geometrical and statistical properties of systems of linear inequalities with applications in pattern recognition*, IEEE Transactions on
#   Electronic Computers (1965): why lifting points into more dimensions makes them separable.
# - M. Minsky and S. Papert, *Perceptrons* (MIT Press, 1969).
# - Y. Freund and R. E. Schapire, *Large margin classification using the perceptron algorithm*, Machine Learning 37 (1999).
