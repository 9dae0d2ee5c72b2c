# %% [markdown]
# # Lab 04 · Backpropagation
# ## Errors flow backwards
#
# A network has many weights and one cost. Backpropagation finds how fast the cost changes with each weight. It takes a
# single pass from the last layer to the first, and about twice the work of running the network forward. All of deep
# learning depends on it. In this lab you write it, and then train a network with your own code to read handwritten
# digits.
#
# **You will be able to**
# - run a network forward, and explain the four equations of backpropagation;
# - write backpropagation for whole batches, without a loop over samples, and check it against PyTorch;
# - differentiate *any* program: record its operations, and walk through the record backwards;
# - write a softmax and its cross-entropy that give finite numbers for every input;
# - explain what takes memory in training, and why deep networks of sigmoids learn so slowly;
# - choose a network and stop its training with a validation set, and use the test set only once.
#
# **100 points, 10 exercises, about 118 minutes: 18 reading + 95 exercises + 5 runs; an extra exercise takes 8 more, and has 10 of the points.** You
# need matrix products, the chain rule (lab 01) and mini-batch gradient descent (lab 02), but no GPU and no download. In
# this lab $N$ is the number of samples in a batch.

# %%
import itertools
import time

import matplotlib.pyplot as plt
import torch
from IPython.display import display

from autograder import check
from hpcdl.data import digits
from hpcdl.nn.mlp import cost, initial, sigma, sigma_prime
from hpcdl.nn.value import Value
from hpcdl.widgets import LiveFigure, guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import backprop as backprop_picture
from hpcdl.widgets.pictures import gradient_norms, three_sets, value_graph

torch.set_num_threads(1)  # these networks are small: a second thread costs more than it brings
style.use()

# %% [markdown]
# ## See it first
#
# This network has four layers: two inputs, two hidden layers and one output. Each edge has a weight, and each circle an
# activation. Press **Next** and follow one training step: forward through the layers, then the error back along the
# same edges, then the gradients, then the step. On the right, the current equation is highlighted and written out in
# numbers.
#
# Go through it once. Then try these:
# 1. At stage 3, move the **target y** until the error at stage 4 is almost 0. What happens to all gradients?
# 2. Set both inputs to 10 and look at stage 6. Why do some errors in layer 2 almost vanish?
# 3. Set the inputs back to 1 and 0.5 and the target to 0.50, go to stage 9, and raise the **learning rate η**. At what
#    rate does the cost begin to rise?

# %%
backprop_picture.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The error of the output is $a - y$ times a slope. If it is 0, everything that is computed from it is 0, too. If the
#    network is right, it learns nothing from this sample.
# 2. Large inputs push $z$ of layer 2 far from 0, where the curve of $\sigma$ is flat. Its slope multiplies every error
#    on the way back, so almost no error reaches these neurons. They are called *saturated*.
# 3. Between 12 and 16 the step becomes too long. Gradient descent guarantees progress only for *small* steps. Lab 02
#    gave the limit; here the curvature changes with the weights, and so does the limit.
# </details>

# %% [markdown]
# ## Notation
#
# Layer 1 is the input, layer $L$ the output. $w^l_{jk}$ leads from neuron $k$ of layer $l-1$ to neuron $j$ of layer
# $l$, so the matrix $W^l$ has a row for each neuron that it leads **to**. A neuron adds up its inputs and applies
# $\sigma$:
#
# $$z^l = W^l a^{l-1} + b^l, \qquad a^l = \sigma(z^l), \qquad \sigma(z) = \frac{1}{1 + e^{-z}}.$$
#
# The input is $a^1 = x$. In code, `weights` is the list $[W^2, \dots, W^L]$ and `biases` is $[b^2, \dots, b^L]$: Python
# counts from 0, so `weights[0]` leads from layer 1 to layer 2. The functions `sigma(z)` and `sigma_prime(z)` $=
# \sigma'(z)$ are given; both work elementwise on tensors of any shape.
#
# The input is one sample, a vector $(n,)$, or a batch $(N, n)$ with one sample per **row**. For rows, the equation
# becomes $a\,W^T + b$. For a single vector, `a @ W.T` equals `W @ a`, so one expression works for both.
#
# {{exercise feedforward}}
#
# Run the network forward, and keep every $z$ and every $a$.
#
# <details><summary>Hint 1: what to remember</summary>
#
# The backward pass will need every $z$ and every $a$, so keep them all. Begin with `zs = []` and `activations = [x]`.
# The last entry, `activations[-1]`, is always the input of the next layer.
#
# </details>
# <details><summary>Hint 2: one line for sample and batch</summary>
#
# `z = activations[-1] @ W.T + b`. For a batch, `(N, n) @ (n, m)` is `(N, m)`, and `b` is added to every row.
#
# </details>
# <details><summary>Hint 3: the loop</summary>
#
# Loop over `zip(weights, biases)`. Each turn appends one tensor to `zs` and one to `activations`, which is the next
# layer's input.
# </details>


# %%
def feedforward(weights, biases, x):
    """Run the network forward, and keep the results of every layer.

    weights: list of (m, n), biases: list of (m,), one of each per layer after the input.
    x: a sample (n,) or a batch (N, n), one sample per row. No argument is changed.
    Returns (zs, activations): zs = [z^2, ..., z^L], activations = [x, a^2, ..., a^L].

    >>> feedforward([torch.tensor([[2.0, -1.0]])], [torch.tensor([0.5])],
    ...             torch.tensor([1.0, 2.5]))
    ([tensor([0.])], [tensor([1.0000, 2.5000]), tensor([0.5000])])
    """
    # BEGIN SOLUTION
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(activations[-1] @ W.T + b)
        activations.append(sigma(zs[-1]))
    return zs, activations
    # END SOLUTION


# %%
check("backprop.feedforward")

# %% [markdown]
# ## The error of a neuron
#
# For one sample with target $y$ the cost is
#
# $$C = \tfrac12\,|y - a^L|^2 = \tfrac12 \sum_j (y_j - a^L_j)^2.$$
#
# The trick of backpropagation is to look first at $z$, not at the weights. How fast does the cost change if you change
# the input $z$ of a neuron a little? This is called the neuron's **error**,
#
# $$\delta^l_j = \frac{\partial C}{\partial z^l_j}.$$
#
# In the last layer the chain rule gives two factors. The cost changes with $a$ at the rate $\nabla_a C = a^L - y$, and
# $a$ changes with $z$ at the rate $\sigma'(z)$. We write $\odot$ for the elementwise
# (Hadamard) product, $(1, 2) \odot (3, 4) = (3, 8)$:
#
# $$\delta^L = \nabla_a C \odot \sigma'(z^L). \tag{1}$$
#
# {{exercise output_error}}
#
# Write equation (1).
#
# <details><summary>Hint 1: the sign</summary>
#
# If the output is too high ($a > y$), a larger $z$ makes it worse, so the error is positive. It is $a - y$.
#
# </details>
# <details><summary>Hint 2: the product</summary>
#
# `*` multiplies tensors elementwise, and `sigma_prime(z)` has the shape of `z`.
#
# </details>


# %%
def output_error(a, y, z):
    """The error of the last layer, equation (1), for C = 1/2 |y - a|^2.

    a, y, z: tensors of the same shape, (m,) or (N, m): activation, target and input of the
    last layer; none is changed. z may be as large as ±1000.
    Returns delta, of that shape.

    >>> # (0.5 - 1) * 0.25
    >>> output_error(torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor([0.0]))
    tensor([-0.1250])
    """
    # BEGIN SOLUTION
    return (a - y) * sigma_prime(z)
    # END SOLUTION


# %%
check("backprop.output_error")

# %% [markdown]
# ## One layer back
#
# A hidden neuron has no target. It affects the cost only through the neurons of the next layer. A small change of
# $z^l_k$ changes $a^l_k$ at the rate $\sigma'(z^l_k)$, and $a^l_k$ reaches every neuron $j$ of the next layer through
# $w^{l+1}_{jk}$. There we already know the error. The sum over all these paths is
#
# $$\delta^l_k = \Big(\sum_j w^{l+1}_{jk}\,\delta^{l+1}_j\Big)\,\sigma'(z^l_k), \qquad\text{or}\qquad
# \delta^l = \big((W^{l+1})^T \delta^{l+1}\big) \odot \sigma'(z^l). \tag{2}$$
#
# Forward, $W$ maps a layer to the next. Backward, $W^T$ maps the errors of the next layer to this layer. The weights
# are the same, but we read columns instead of rows.
#
# {{exercise backpropagate_error}}
#
# Write equation (2).
#
# <details><summary>Hint 1: look at the shapes</summary>
#
# If layer $l$ has $n$ neurons and layer $l+1$ has $m$, then `w_next` is (m, n), `delta` is (m,), and the result must be (n,). Only
# one product fits.
#
# </details>
# <details><summary>Hint 2: sample and batch in one line</summary>
#
# For rows, $W^T \delta$ becomes $\delta\,W$: `delta @ w_next` maps (m,) to (n,), and (N, m) to (N, n). Then multiply by
# the slope.
#
# </details>


# %%
def backpropagate_error(delta, w_next, z):
    """The error of a layer from the error of the next one, equation (2).

    delta: (m,) or (N, m), the error of layer l + 1; w_next: (m, n), the weights W^(l+1)
    between them;
    z: (n,) or (N, n), the z of layer l. None is changed.
    Returns the error of layer l, of the shape of z.

    >>> backpropagate_error(torch.tensor([1.0, 2.0]),
    ...     torch.tensor([[3.0, 0.0], [1.0, -1.0]]), torch.tensor([0.0, 0.0]))
    tensor([ 1.2500, -0.5000])
    """
    # BEGIN SOLUTION
    return (delta @ w_next) * sigma_prime(z)
    # END SOLUTION


# %%
check("backprop.backpropagate_error")

# %% [markdown]
# ## From errors to gradients
#
# The weight $w^l_{jk}$ changes $z^l_j$ at the rate $a^{l-1}_k$, which is the input that it multiplies. The bias changes
# $z^l_j$ at the rate 1. So
#
# $$\frac{\partial C}{\partial w^l_{jk}} = a^{l-1}_k\,\delta^l_j, \qquad\text{as a matrix}\qquad
# \frac{\partial C}{\partial W^l} = \delta^l (a^{l-1})^T, \tag{3}$$
#
# $$\frac{\partial C}{\partial b^l} = \delta^l. \tag{4}$$
#
# A column times a row is a matrix, the *outer product*. Look at stage 7 of the picture: if a weight's input is 0, or
# its neuron's error is 0, its gradient is 0.
#
# {{exercise gradients}}
#
# Write equations (3) and (4), for all layers and one sample.
#
# <details><summary>Hint 1: which activation belongs to which error?</summary>
#
# `deltas[0]` is the error of layer 2, and the weights into layer 2 start at layer 1, the input: `activations[0]`. So
# take the two lists in pairs; you do not need the last activation.
#
# </details>
# <details><summary>Hint 2: the outer product</summary>
#
# `torch.outer(delta, a)` has `len(delta)` rows and `len(a)` columns, which is the shape of $W$.
#
# </details>


# %%
def gradients(deltas, activations):
    """The gradients of one sample's cost, equations (3) and (4).

    deltas: [delta^2, ..., delta^L], vectors; activations: [a^1, ..., a^L], one vector more.
    Returns (weight_grads, bias_grads): two lists over the layers 2 to L, of the shapes of W
    and b.

    >>> gradients([torch.tensor([1.0, 2.0])],
    ...           [torch.tensor([3.0, 4.0, 5.0]), torch.tensor([0.5, 0.5])])
    ([tensor([[ 3.,  4.,  5.], [ 6.,  8., 10.]])], [tensor([1., 2.])])
    """
    # BEGIN SOLUTION
    weight_grads = [torch.outer(delta, a) for delta, a in zip(deltas, activations[:-1], strict=True)]
    return weight_grads, [delta.clone() for delta in deltas]
    # END SOLUTION


# %%
check("backprop.gradients")

# %% [markdown]
# ## All of it, for a whole batch
#
# The cost of a batch of $N$ samples is the mean, $C = \frac1N \sum_x C_x$, so its gradient is the mean of the samples' gradients:
#
# $$\frac{\partial C}{\partial W^l} = \frac1N \sum_x \delta^{x,l} (a^{x,l-1})^T, \qquad \frac{\partial C}{\partial b^l} = \frac1N \sum_x \delta^{x,l}.$$
#
# A loop over samples would be right, but slow. With errors $\delta$ (N, m) and activations $a$ (N, n) as rows, the sum
# of all $N$ outer products is **one** matrix product, `delta.T @ a`. This is why training consists of matrix products,
# why GPUs are good at it, and why we use batches.
#
# {{exercise backprop}}
#
# Combine your functions into backpropagation for a whole batch.
#
# <details><summary>Hint 1: the plan</summary>
#
# Run `feedforward`. Compute the last layer's error with `output_error`. Then, for each layer from the last to the
# first, compute its two gradients, and after that the error of the layer before, with `backpropagate_error`. Your
# functions already take batches.
#
# </details>
# <details><summary>Hint 2: indices</summary>
#
# With `i` counting down over `range(len(weights) - 1, -1, -1)`, the layer's weights are `weights[i]`, its input is
# `activations[i]`, and the layer before has `zs[i - 1]`. At `i = 0` there is no layer before: the input has no error.
#
# </details>
# <details><summary>Hint 3: the order in the loop</summary>
#
# The error begins with the last layer's. In each turn first make the layer's two gradients from it; then, if there is
# a layer before, replace it by that layer's error. The list's front is the place for each new gradient: `.insert(0,
# ...)`. A mean over the samples is a sum divided by `len(X)`.
# </details>


# %%
def backprop(weights, biases, X, Y):
    """The gradients of the mean cost of a batch, without a loop over samples.

    X: (N, n) inputs, Y: (N, m) targets, one sample per row; the cost is the mean over rows
    of 1/2 |y - a|^2. No argument is changed.
    Returns (weight_grads, bias_grads): two lists of the shapes of weights and biases.

    >>> W, b = [torch.tensor([[2.0, -1.0]])], [torch.tensor([0.0])]
    >>> # deltas -0.125, 0.125
    >>> backprop(W, b, torch.tensor([[1.0, 2.0], [2.0, 4.0]]), torch.tensor([[1.0], [0.0]]))
    ([tensor([[0.0625, 0.1250]])], [tensor([0.])])
    """
    # BEGIN SOLUTION
    zs, activations = feedforward(weights, biases, X)
    delta = output_error(activations[-1], Y, zs[-1])
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i] / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        if i > 0:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads
    # END SOLUTION


# %%
check("backprop.backprop")

# %% [markdown]
# ### What it saves
#
# The obvious way to get a gradient is to change each weight a little, one after the other, and run the network again.
# Backpropagation gets all derivatives from one pass forward and one back. Compare both on one network, with your
# functions. They give the same numbers, but take different times.

# %%
guess(
    "backprop.nudging",
    "Change 600 weights one by one, or run one pass back for all 900: how many times as long does the first way take?",
    unit="times",
)

# %%
with when_solved():
    guessed("backprop.nudging")
    weights, biases = initial((20, 30, 10), torch.Generator().manual_seed(0), dtype=torch.float64)
    X, Y = torch.rand(8, 20, dtype=torch.float64), torch.rand(8, 10, dtype=torch.float64)
    start = time.perf_counter()
    weight_grads, _ = backprop(weights, biases, X, Y)
    one_pass = time.perf_counter() - start

    start, nudged, h = time.perf_counter(), torch.zeros_like(weights[0]), 1e-5
    for j in range(30):
        for k in range(20):
            costs = []
            for sign in (+1, -1):
                W = weights[0].clone()
                W[j, k] += sign * h
                costs.append(cost(feedforward([W, *weights[1:]], biases, X)[1][-1], Y))
            nudged[j, k] = (costs[0] - costs[1]) / (2 * h)
    all_nudges = time.perf_counter() - start

    print(f"largest difference between the two: {(nudged - weight_grads[0]).abs().max():.1e}")
    print(f"one pass back: all the {sum(W.numel() for W in weights)} weights in {one_pass * 1e3:.1f} ms")
    print(f"one by one: only the {nudged.numel()} weights of the first layer in {all_nudges * 1e3:.0f} ms")
    reveal("backprop.nudging", all_nudges / one_pass, measured=True)

# %% [markdown]
# ### Where the memory goes
#
# Running a network forward needs the weights and one layer of data at a time. Training needs more. The backward pass
# uses every $a$ and every $z$, so they stay in memory until then, and there is a gradient for each weight and for each
# number of the data. In short, it needs $D + W + \nabla D + \nabla W$, where $D$ is the data that flows through the
# layers. This is an upper bound: your `backprop` frees each layer's $\nabla D$ once it has computed the $\nabla D$ of
# the layer before, and $\sigma' = a(1 - a)$ needs no $z$. $W$ does not depend on the batch size, but $D$ grows with it.

# %%
guess(
    "backprop.memory",
    "A network of widths 784, 512, 512, 10: from which batch size on does D take more memory than W?",
    unit="samples",
)


# %%
def training_memory(widths, N, bytes_per_number=4):
    """Megabytes of W and of D for a batch of N samples; their gradients take the same
    amount again."""
    numbers_w = sum(n * m + m for n, m in itertools.pairwise(widths))
    numbers_d = N * (widths[0] + 2 * sum(widths[1:]))  # z and a of each layer, and the input
    return numbers_w * bytes_per_number / 1e6, numbers_d * bytes_per_number / 1e6


with when_solved():
    guessed("backprop.memory")
    for N in (1, 64, 4096):
        W, D = training_memory((784, 512, 512, 10), N)
        print(f"batch of {N:5}: W {W:6.2f} MB, D {D:6.2f} MB; training D + W + ∇D + ∇W {2 * (W + D):7.2f} MB")
    more = (N for N in itertools.count(1) if training_memory((784, 512, 512, 10), N)[1] > W)
    reveal("backprop.memory", next(more))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# $W$ is 669,706 numbers, $D$ is 2,852 for each sample: from 235 samples on the data takes more memory than the weights.
# </details>

# %% [markdown]
# ## Why deep sigmoids learn slowly
#
# Each step back multiplies the error by $W^T$ and by $\sigma'(z)$. The slope of the sigmoid is never more than ¼. What
# happens after twenty such steps?
#
# Below are two networks with the same weights. One uses $\sigma$, the other $\mathrm{ReLU}(z) = \max(0, z)$, whose
# slope is 1 or 0. Change the number of layers and the size of the initial weights. (A weight of a neuron with $n$
# inputs is drawn with standard deviation *size* · $\sqrt{1/n}$.)
# 1. How much smaller is the first layer's gradient than the last one's, at 10, 20 and 40 layers?
# 2. Do larger weights help the sigmoid?
# 3. Which size keeps the gradient of ReLU at about 1 through 40 layers? What happens a little above and below it?

# %%
gradient_norms.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. On the logarithmic axis the sigmoid's line is straight, so each layer costs the same factor. With a learning rate
#    that suits the last layer, the first layers hardly move.
# 2. Only in part. At first larger weights make up for the small slope, but they also push $z$ to where $\sigma$ is
#    flat. So the mean slope on the right falls as you raise them.
# 3. About $1.4 = \sqrt2$: half the neurons are off, so the weights must be larger by this factor to preserve the mean
#    square of the signal. This is the initialisation of He et al. (2015). A small deviation is multiplied 40 times: the
#    gradient explodes or vanishes in *every* layer.
# </details>

# %% [markdown]
# ## Any program, not only layers
#
# The chain rule does not need layers. Take any computation on numbers, and record each operation as it happens: its
# inputs, and **the slope** of the result with respect to each input. The record is a graph. Walk through it backwards,
# and you get every gradient. PyTorch does this when you call `.backward()`.
#
# Here is the graph of $y = \sigma(w x + w)$. It is small, but $w$ is used twice. Press **Next**.

# %%
value_graph.explorable()

# %% [markdown]
# `Value` is a number that records itself. Every node has
#
# | attribute | meaning |
# |---|---|
# | `data` | its number |
# | `parents` | the nodes that it was computed from (none for an input or a constant) |
# | `slopes` | its derivative with respect to each parent, in the same order |
# | `index` | its place in the record: always larger than its parents' |
# | `grad` | 0.0, until a backward pass sets it |

# %%
a, b = Value(2.0, "a"), Value(3.0, "b")
product = a * b
print("data", product.data, " parents", product.parents, " slopes", product.slopes)
print("index", a.index, b.index, "->", product.index)

# %% [markdown]
# {{exercise backward}}
#
# Write this walk: set the gradient of every node from which a value was computed.
#
# <details><summary>Hint 1: in which order?</summary>
#
# A node may pass on its gradient only after all nodes that depend on it have passed on theirs. A node's `index` is
# always larger than its parents', so visit the nodes from the largest index to the smallest.
#
# </details>
# <details><summary>Hint 2: finding all nodes, each once, without recursion</summary>
#
# Keep a `set` of the nodes found, and a list of the nodes whose parents you have not looked at yet. Take a node from
# the list. Add each of its parents that is not in the set to both. When the list is empty, the set holds all nodes.
#
# </details>
# <details><summary>Hint 3: the backward pass</summary>
#
# Set every `grad` to 0.0 and the root's to 1.0. Then visit the nodes in that order. For each parent and its slope:
# `parent.grad += slope * node.grad`.
#
# </details>


# %%
def backward(value):
    """Set `grad` of `value` and of every node that it was computed from to the derivative
    of
    `value` with respect to that node.

    value: a `Value`. Its graph may be thousands of nodes deep, and have far more paths than
    nodes. Every call starts from zero, so a second call gives the same result.
    Returns nothing.

    >>> x = Value(3.0)
    >>> backward(x * x + x)
    >>> x.grad
    7.0
    """
    # BEGIN SOLUTION
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    for node in nodes:
        node.grad = 0.0
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: node.index, reverse=True):
        for parent, slope in zip(node.parents, node.slopes, strict=True):
            parent.grad += slope * node.grad
    # END SOLUTION


# %%
check("backprop.backward")

# %% [markdown]
# Try it on a program of your own. `Value` knows `+ - * / **`, `exp`, `log`, `tanh`, `sigmoid` and `relu`. Below is
# Newton's method for a square root, a loop that your backward pass differentiates. What must $\partial \sqrt s /
# \partial s$ be at $s = 2$?

# %%
with when_solved():
    s = Value(2.0, "s")
    root = Value(1.0)
    for _ in range(6):
        root = (root + s / root) / 2
    backward(root)
    print(f"root {root.data:.12f}, its derivative {s.grad:.12f}; exact {0.5 / 2**0.5:.12f}")

    u, v = Value(0.5, "u"), Value(2.0, "v")
    y = (u * v + u).tanh()
    y.name = "y"
    backward(y)
    display(value_graph.picture(y))

# %% [markdown]
# ## A better cost for classes
#
# A network for ten digits has ten outputs. Its last layer now gives plain numbers $z$ without $\sigma$, called
# **logits**. The *softmax* turns them into probabilities. The cost of a sample with label $c$ is the *cross-entropy*,
# which is large if the network gave the right class a small probability:
#
# $$p_k = \frac{e^{z_k}}{\sum_j e^{z_j}}, \qquad C = -\log p_c, \qquad \delta_k = \frac{\partial C}{\partial z_k} = p_k - [k = c].$$
#
# ($[k = c]$ is 1 if $k = c$, else 0.) So the error is the probability minus the truth. It has no factor $\sigma'$ that
# could make it small. If a network is sure but wrong, its error is large, while with the squared cost and a sigmoid it
# would be tiny. For a batch, loss and gradient are means over the $N$ samples.
#
# Take care: in floating point $e^{1000}$ is infinite. But $p$ does not change if you subtract the same number from all
# $z$ of a sample.
#
# {{exercise softmax_cross_entropy}}
#
# Write it with `max`, `exp`, `sum` and `log`: torch's own softmax and cross-entropy are not allowed here.
#
# <details><summary>Hint 1: what to subtract</summary>
#
# Subtract the largest logit of each row: `logits - logits.max(dim=1, keepdim=True).values`. Then every exponent is at
# most 0, and one of them is 0, so the sum is at least 1.
#
# </details>
# <details><summary>Hint 2: the logarithm</summary>
#
# Don't take the log of a probability that may have become 0. With $z$ shifted as in hint 1, $\log p = z - \log \sum_j e^{z_j}$.
#
# </details>
# <details><summary>Hint 3: picking the right class of each row</summary>
#
# `rows = torch.arange(len(labels))`; then `log_p[rows, labels]` is one number for each sample, and `p[rows, labels] -= 1` subtracts the truth.
#
# </details>


# %%
def softmax_cross_entropy(logits, labels):
    """The mean cross-entropy of a batch, and its gradient with respect to the logits.

    logits: (N, K) of any size, even +-10,000; labels: (N,) int64, the right class of each
    row. Neither is changed.
    Returns (loss, dlogits): a number (or 0-d tensor), and (N, K).

    >>> softmax_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    (tensor(0.6931), tensor([[ 0.5000, -0.5000]]))
    """
    # BEGIN SOLUTION
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits / len(labels)
    # END SOLUTION


# %%
check("backprop.softmax_cross_entropy")

# %% [markdown]
# ## Training
#
# Now write the whole algorithm, mini-batch gradient descent with backpropagation. In each epoch, shuffle the samples
# and cut them into batches. For each batch run forward, take the error of the last layer from `softmax_cross_entropy`,
# send it back, and move every weight against its gradient.
#
# Note two things. The hidden layers use $\sigma$, but the last one does not: its logits are `zs[-1]`. And **all
# gradients belong to the old weights**: send the error back through $W$ *before* you change that $W$.
#
# {{exercise train}}
#
# Write this training.
#
# <details><summary>Hint 1: batches</summary>
#
# `torch.randperm(len(X), generator=generator)` is a new order; `.split(batch_size)` cuts it, and the last piece may be
# shorter.
#
# </details>
# <details><summary>Hint 2: no second division</summary>
#
# `softmax_cross_entropy` has already divided by the batch size. So the gradients are `delta.T @ activations[i]` and
# `delta.sum(dim=0)`.
#
# </details>
# <details><summary>Hint 3: which weights?</summary>
#
# Copy the two lists first: a new tensor replaces an element, and the caller's lists do not change. Within a batch,
# the error of the layer before needs this layer's weights *before* the step. Three loops are enough: epochs, batches,
# and layers from the last to the first.
# </details>


# %%
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    """Mini-batch gradient descent on the cross-entropy of a network whose last layer
    gives logits.

    X: (N, n), labels: (N,) int64; weights, biases: the start, which is not changed.
    Each epoch draws a new order of the samples from `generator`, and cuts it into batches
    of `batch_size`; the last one may be shorter.
    Returns (weights, biases), the trained network.

    >>> start = [torch.zeros(2, 1)], [torch.zeros(2)]
    >>> W, b = train(torch.tensor([[1.0]]), torch.tensor([0]), *start, 1.0, 1, 1,
    ...              torch.Generator())
    >>> W[0], b[0]
    (tensor([[ 0.5000], [-0.5000]]), tensor([ 0.5000, -0.5000]))
    """
    # BEGIN SOLUTION
    weights, biases = list(weights), list(biases)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(batch_size):
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
                weights[i] = weights[i] - lr * weight_grad
                biases[i] = biases[i] - lr * bias_grad
    return weights, biases
    # END SOLUTION


# %%
check("backprop.train")

# %% [markdown]
# ## Read 1,797 handwritten digits
#
# These are real images of 8 by 8 pixels, written by many people. Four fifths are for training; the rest is held out, so
# the network never sees it in training. The code below runs your own functions.

# %%
split = digits()
X, X_held_out = split.x.flatten(1), split.x_held_out.flatten(1)
_, places = plt.subplots(2, 12, figsize=(9, 1.9))
for place, image, label in zip(places.flat, split.x, split.y):
    place.imshow(image[0], cmap="gray_r")
    place.set_title(int(label), fontsize=10, pad=2, loc="center")
    place.axis("off")
plt.show()


# %%
def draw_curves(state, axes):
    epochs = range(len(state["train"]))
    axes.plot(epochs, state["train"], "o-", color=style.BLUE, markersize=3, label="digits it learns from")
    axes.plot(epochs, state["held_out"], "s-", color=style.ORANGE, markersize=3, label="held-out digits")
    axes.set(xlim=(-0.5, EPOCHS + 0.5), ylim=(0, 1.03), xlabel="epoch", ylabel="fraction read correctly")
    axes.legend(loc="lower right")
    return f"After {len(epochs) - 1} epochs: {100 * state['held_out'][-1]:.1f} % of the held-out digits are read correctly."


def read(weights, biases, X):
    """The digit that the network reads in each row of X."""
    zs, _ = feedforward(weights, biases, X)
    return zs[-1].argmax(dim=1)


def accuracy(weights, biases, X, labels):
    return (read(weights, biases, X) == labels).float().mean().item()


EPOCHS = 30
with when_solved():
    generator = torch.Generator().manual_seed(0)
    weights, biases = initial((64, 32, 10), generator)
    history = {"train": [], "held_out": []}
    with LiveFigure(draw_curves) as live:
        for epoch in range(EPOCHS + 1):
            if epoch > 0:
                weights, biases = train(X, split.y, weights, biases, 2.0, 32, 1, generator)
            history["train"].append(accuracy(weights, biases, X, split.y))
            history["held_out"].append(accuracy(weights, biases, X_held_out, split.y_held_out))
            live.update(history)

# %% [markdown]
# Look at the mistakes, too. Would you have read these correctly?

# %%
with when_solved():
    answers = read(weights, biases, X_held_out)
    wrong = (answers != split.y_held_out).nonzero().flatten()
    print(f"{len(wrong)} of {len(answers)} held-out digits are read wrongly.")
    _, places = plt.subplots(1, 8, figsize=(9, 1.8))
    for place in places:
        place.axis("off")
    for place, i in zip(places, wrong):
        place.imshow(split.x_held_out[i, 0], cmap="gray_r")
        place.set_title(f"read {answers[i]}\nis {split.y_held_out[i]}", fontsize=10, pad=3, loc="center")
    plt.show()

# %% [markdown]
# Try three experiments. Each changes one line above:
# 1. Replace the widths `(64, 32, 10)` by `(64, 10)`, without a hidden layer, and then by `(64, 32, 32, 32, 32, 10)`.
#    What do you expect of each?
# 2. Multiply all initial weights by 0 (`initial((64, 32, 10), generator, scale=0.0)`). Why does it learn at all, and why so badly?
# 3. Use batches of 1,438, the whole set, with the same number of epochs. How many steps does it take now?
#
# <details><summary>What did you see?</summary>
#
# 1. Without a hidden layer it is a linear machine, and good at this task: about 96 %. With four hidden layers of
#    sigmoids the accuracy stays at chance, 10 %, for more than fifteen epochs. With one hidden layer it reads most
#    digits after three. The cause is the vanishing gradient of the picture above.
# 2. With zero weights all hidden neurons compute the same and get the same error, so they are always equal. The layer
#    is effectively one neuron wide, and the accuracy stays below 45 %. Random initial weights break that symmetry.
# 3. It takes one step per epoch, 30 instead of 1,350. It ends at about 85 %, which batches of 32 reach after two or
#    three epochs. Each step has a better direction, but there are too few steps.
# </details>

# %% [markdown]
# ## Three sets, and when to stop
#
# The held-out digits have just told you which widths are better. If you use a set to choose, you have learned from it.
# So you need three sets. The network learns its weights from the **training set**. With the **validation set** you
# choose the *hyperparameters*, which it does not learn: the widths, the learning rate, the epoch to stop at. You use
# the **test set** only once, when there is nothing left to choose.
#
# Below, a network with one hidden layer learns from 150 digits, but a fifth of them have the label of another digit. An
# epoch is one step on all of them, with momentum. Guess first: which loss rises in the end, the training loss or the
# validation loss? Three methods limit what a network learns:
# - **early stopping**: keep the weights of the epoch with the lowest validation loss;
# - **weight decay**: add $\frac\lambda2 \sum w^2$ to the cost, summed over all weights but not the biases. This adds
#   $\lambda w$ to each gradient, and a plain step of gradient descent becomes $w \leftarrow (1 - \eta\lambda)\,w -
#   \eta\,\partial C/\partial w$. So every weight shrinks, unless its gradient prevents it;
# - **dropout**: in each training step, leave out every hidden neuron with probability $p$. Multiply the activations of
#   the others by $\frac{1}{1-p}$, so that the next layer gets the same input on average. Use the trained network with
#   all its neurons.
#
# 1. Compare the strong bars with the faint ones. What did the network learn after its best epoch?
# 2. Make all labels right. Then go back and take 400 digits. When does early stopping not help?
# 3. Raise $\lambda$ to its maximum, set it back to 0, and raise $p$. Which values limit the network enough, and which
#    too much?
#
# Here the picture shows the result on the test set each time, so that you see what you normally could not see.

# %%
three_sets.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. It memorised the wrong labels. At its best epoch, 26, it predicts the given label for 76 % of the training digits,
#    and the right digit for 85 % of the test digits. After 100 epochs it predicts 99 % of the given labels, but only 69
#    % of the test digits. It *overfits*.
# 2. When all labels are right: the validation loss falls to the end, and there the network reads 94 % correctly. With
#    400 digits, more right labels contradict a wrong one, so the loss of accuracy is smaller: 88 % at the best epoch,
#    84 % at the end.
# 3. With $\lambda = 0.01$ the last epoch is as good as the best, 86 %; with 0.03 the weights cannot grow, and it
#    reaches only 32 %. With $p = 0.5$ it ends at 80 %. With 0.8 a step uses only about six of the 32 neurons, and 100
#    epochs are too few: 50 %. To choose good values, use the validation set.
# </details>

# %% [markdown]
# ### Why a third set
#
# A thousand networks give random answers, so each reads one digit in ten correctly. You keep the network that is best
# on 100 digits of a validation set.

# %%
guess(
    "backprop.lottery",
    "1,000 networks give random answers: of 100 digits, how many does the best one read correctly?",
    unit="digits",
)

# %%
with when_solved():
    guessed("backprop.lottery")
    drawn = torch.randint(10, (1000, 100 + len(X_held_out)), generator=torch.Generator().manual_seed(0))
    right = drawn == torch.cat((split.y[-100:], split.y_held_out))
    scores = right[:, :100].sum(dim=1)
    chosen = scores.argmax()
    print(f"The best of 1,000 reads {scores[chosen]} of the 100 digits that it was chosen by,")
    print(
        f"and {100 * right[chosen, 100:].float().mean():.1f} % of {len(X_held_out)} digits that were not used to choose."
    )
    reveal("backprop.lottery", scores[chosen].item())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 19, nearly twice the 10 that chance gives; and 7 % of the other digits. The best of many is lucky, and its luck does
# not carry over to other digits. Real networks differ in more than luck, but if you choose a network with a set, some
# of its result on that set is luck. So that result is too good. Only a set that you have never used shows how good the
# network is, and only once.
# </details>

# %% [markdown]
# ### Stop your own training
#
# You recognise the best epoch only later. So you wait. If the validation loss has not improved for a number of epochs
# in a row, called the *patience*, training stops, and the result is the best network so far. Do this for each network
# that you want to try, and choose the one with the lowest validation loss. Only then open the test set.

# %% [markdown]
# {{exercise stop_at}}
#
# Write the loop that trains each candidate, stops it by its validation loss, chooses the best network of all, and tests
# that one once. The check counts what your loop trains, validates and tests.
#
# <details><summary>Hint 1: what to remember</summary>
#
# For each candidate: the lowest loss so far, its epoch, and its network. For all candidates together: the lowest loss of
# all, with its epoch and network. `train_once` makes a new network, so to keep one, keep its variable.
# </details>
# <details><summary>Hint 2: when to stop</summary>
#
# At each epoch there are two cases. If the loss is lower than the lowest so far, remember it. Otherwise
# `epoch - best_epoch` epochs in a row have brought nothing: compare this number with the patience.
# </details>
# <details><summary>Hint 3: the next candidate</summary>
#
# A new candidate begins with an infinite lowest loss of its own. If you keep the loss of the candidate before, a network
# that learns slowly is stopped too early.
# </details>


# %%
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    """Train each candidate until patience runs out, choose the best network, test it once.

    candidates: a list of networks, at least one, before their first epoch.
    train_once(network): trains one epoch; returns a new network, does not change the old.
    validate(network): the loss on the validation set, a finite number. Call it once after
    each epoch.
    test(network): the result on the test set. Call it once in all, after everything else.
    Stop training a candidate after `patience` epochs in a row without a loss below its own
    lowest so far, or after `most_epochs` epochs. The first epoch is epoch 1, and its loss
    always counts as the lowest so far. Of equal losses the earlier epoch counts, and of
    equal candidates the earlier one.
    Returns (network, epoch, result): the network with the lowest validation loss of all,
    the epoch after which it had that loss, and what `test` returned for it.

    >>> # a network is a number here; its loss is lowest at 3
    >>> stop_at([0], lambda n: n + 1, lambda n: abs(n - 3), lambda n: 10 * n, 2, 100)
    (3, 3, 30)
    """
    # BEGIN SOLUTION
    lowest = float("inf")
    for network in candidates:
        own = float("inf")
        for epoch in range(1, most_epochs + 1):
            network = train_once(network)
            now = validate(network)
            if now < own:
                own, best_epoch, best = now, epoch, network
            elif epoch - best_epoch == patience:
                break
        if own < lowest:
            lowest, chosen_epoch, chosen = own, best_epoch, best
    return chosen, chosen_epoch, test(chosen)
    # END SOLUTION


# %%
check("backprop.stop_at")

# %% [markdown]
# Now stop your own `train`. Here are 1,079 digits for training, again a fifth of them with wrong labels, and 359 for
# validation. The weights can decay once after each epoch, $W \leftarrow (1 - \eta\lambda)\,W$, with `DECAY` for
# $\lambda$. `HIDDEN` has the width of each candidate's hidden layer.

# %%
guess(
    "backprop.stop",
    "At most 100 epochs, patience 5, a fifth of the labels wrong: after how many epochs does training stop?",
    unit="epochs",
)


# %%
def loss(weights, biases, X, labels):
    zs, _ = feedforward(weights, biases, X)
    return float(softmax_cross_entropy(zs[-1], labels)[0])


def draw_stops(candidates):
    """The validation loss of each candidate by epoch, with a dot where it was lowest."""
    _, axes = plt.subplots(figsize=(9.6, 3.4), layout="constrained")
    for (weights, _, losses), color in zip(candidates, style.CYCLE):
        lowest = min(losses)
        axes.plot(range(1, len(losses) + 1), losses, color=color, label=f"{len(weights[0])} hidden neurons")
        axes.plot(losses.index(lowest) + 1, lowest, "o", color=color)
    axes.set(xlabel="epoch", ylabel="validation loss", title="Each curve ends where you stopped (dot: its lowest)")
    axes.legend(loc="upper right")
    plt.show()


LR, DECAY, PATIENCE, MOST_EPOCHS, WRONG = 2.0, 0.0, 5, 100, 0.2
HIDDEN = (32,)
with when_solved():
    guessed("backprop.stop")
    generator = torch.Generator().manual_seed(0)
    (X_train, X_validation), (taught, y_validation) = X.split((1079, 359)), split.y.split((1079, 359))
    changed = torch.rand(len(taught), generator=generator) < WRONG
    others = (taught + torch.randint(1, 10, taught.shape, generator=generator)) % 10
    taught = torch.where(changed, others, taught)
    generator = torch.Generator().manual_seed(0)

    def train_once(network):
        global last
        weights, biases, losses = network
        weights, biases = train(X_train, taught, weights, biases, LR, 32, 1, generator)
        last = [(1 - LR * DECAY) * W for W in weights], biases, losses
        return last

    def validate(network):
        weights, biases, losses = network
        losses.append(loss(weights, biases, X_validation, y_validation))
        return losses[-1]

    def test(network):
        return accuracy(*network[:2], X_held_out, split.y_held_out)

    candidates = [(*initial((64, width, 10), generator), []) for width in HIDDEN]  # and a list for its losses
    best, best_epoch, right = stop_at(candidates, train_once, validate, test, PATIENCE, MOST_EPOCHS)
    draw_stops(candidates)
    print(f"chosen: {len(best[0][0])} hidden neurons after epoch {best_epoch}, validation loss {min(best[2]):.3f}")
    print(f"and now, once: {100 * right:.1f} % of the test digits are read correctly")
    reveal("backprop.stop", len(candidates[0][2]))

# %% [markdown]
# Try three experiments. Each changes one line above (and uses the test set once more):
# 1. `WRONG = 0.0`, then `PATIENCE = 10` as well. What does too little patience cost?
# 2. `PATIENCE = 100`, which never stops; then look at the last network instead of the best, `test(last)`. Then try it
#    with `DECAY = 0.02`.
# 3. `HIDDEN = (4, 32, 128)`. Which width does the validation set choose?
#
# <details><summary>What did you see?</summary>
#
# Training stopped after epoch 25, because none of the five epochs after epoch 20 had a lower loss. That network reads
# 95 % of the test digits.
# 1. With right labels stopping gains little. Patience 5 stops after epoch 23 with 97 %, patience 10 after epoch 68 with
#    97.5 %. After 100 epochs it would be 98 %. Impatient stopping mistakes a loss that fluctuates for one that rises.
# 2. The network of epoch 100 reads 84 % of the test digits, but with stopping it was 95 %. With the decay the network
#    learns few of the wrong labels, and after epoch 100 it reads 96 %.
# 3. Four hidden neurons are too few: their loss stays at 0.72. Between 32 and 128 the losses hardly differ, 0.43 and
#    0.42. With the widths in the opposite order 32 wins, so this choice is mostly luck.
# </details>

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, claim to be `softmax_cross_entropy`. Four of them are right, each written in its own
# way. The other four are impostors, which give the right answer for small logits and simple batches. You do not see
# their code. You choose the batches.

# %% [markdown]
# {{exercise unmask_softmax}}
#
# Return a list of at most 12 inputs, each a tuple `(logits, labels)`: the logits are a list of 1 to 6 rows, each a list
# of 2 to 6 numbers from -10,000 to 10,000, all of the same length. The labels are a list with one class for each row,
# counted from 0.
#
# You unmask a program if its loss or its gradient is wrong by more than rounding (a millionth) explains. Each impostor
# that you unmask earns two points. You get two more points if you unmask a program and all your inputs follow the
# rules; an input that breaks them does not count. The check shows which programs you have caught, and with which input.
# Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in that exercise, or nearly made. Which batches would have hidden them?
# </details>
# <details><summary>Hint 2: large in three ways</summary>
#
# One logit can be large. One row can be far above another. And a network can be sure but wrong.
# </details>


# %%
def unmask_softmax() -> list[tuple[list[list[float]], list[int]]]:
    """Inputs (logits, labels) for which the impostors give wrong answers.

    Returns a list of at most 12 tuples.

    An input that unmasks none of them:

        [([[0.0, 1.0]], [1])]
    """
    # BEGIN SOLUTION
    return [
        ([[1.0, 2.0], [3.0, 4.0]], [0, 1]),  # two rows, two labels
        ([[1000.0, 0.0]], [0]),  # exp(1000) is infinite
        ([[500.0, 500.0], [-500.0, -500.0]], [0, 0]),  # a row far below another
        ([[40.0, 0.0]], [1]),  # sure but wrong
    ]
    # END SOLUTION


# %%
check("backprop.unmask_softmax")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **B** takes the logarithm of p + 1e-12, not of p.
# - **D** subtracts 1 for every row's label in every row.
# - **E** takes the exponential of the logits themselves.
# - **H** shifts all rows by the largest logit of the whole batch.
#
# Many programs contain B's small 1e-12. It hides the error exactly where the network is most wrong.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# K. He et al. (2016) let a layer *add* to its input: $a^l = a^{l-1} + \sigma(W^l a^{l-1} + b^l)$, where all layers have
# the same width. Which of the four equations change, and how? Write this backprop. *Proof:* its gradients equal
# autograd's to 1e-12 in float64; and with forty layers of sigmoids, draw the norm of each layer's gradient with and
# without the sum.

# %% [markdown]
# ## What you take with you
#
# - The error $\delta = \partial C/\partial z$ flows back through $W^T$ and $\sigma'$; each gradient is the error times
#   the layer's input.
# - One pass back takes about as long as two passes forward, for any number of weights, but needs memory for every $z$
#   and $a$.
# - In a batch everything is a matrix product. In lab 07 you average the gradients of several machines, layer by layer,
#   *while* the backward pass still runs: the last layer's gradient is ready first.
# - You can differentiate any program backwards: record its operations, then walk through the record in reverse and
#   accumulate.
# - Learn from one set, choose with a second, and use the third only once.
#
# ### Further reading
#
# - D. E. Rumelhart, G. E. Hinton, R. J. Williams, "Learning representations by back-propagating errors", *Nature* 323 (1986): the paper that made
#   it known.
# - M. Nielsen, *Neural Networks and Deep Learning* (2015), chapter 2: the four equations, in the notation of our lectures, with proofs.
# - S. Linnainmaa, "Taylor expansion of the accumulated rounding error", *BIT* 16 (1976): reverse accumulation on a computation graph.
# - X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural networks", *AISTATS* (2010), and K. He, X. Zhang, S. Ren, J. Sun,
#   "Delving deep into rectifiers", *ICCV* (2015): initial weights for deep networks.
# - A. Krogh, J. A. Hertz, "A simple weight decay can improve generalization", *NIPS* 4 (1992); L. Prechelt, "Early stopping – but when?", in *Neural
#   Networks: Tricks of the Trade* (1998); N. Srivastava, G. Hinton, A. Krizhevsky, I. Sutskever, R. Salakhutdinov, "Dropout: a simple way to prevent
#   neural networks from overfitting", *JMLR* 15 (2014).
# - A. G. Baydin, B. A. Pearlmutter, A. A. Radul, J. M. Siskind, "Automatic differentiation in machine learning: a survey", *JMLR* 18 (2018).
# - A. Karpathy, *micrograd* (2020): a tape like `Value`, with a small network on top.
