# %% [markdown]
# # Lab {{number own_stack}} · Your own stack
# ## Every line that trains the network is yours
#
# A framework has millions of lines. How many of them do you need to train a convolutional network on four processes at once? About a hundred, and you have met
# nearly all of them in this course. Here they come together: a tape that differentiates, a convolution with its gradients, momentum, rounding to 16 bits,
# buckets and a ring. At the end the optimizer, autograd, the convolution and the all-reduce are all your own, and a recorder on each process confirms it.
#
# **You will be able to**
# - write reverse-mode differentiation for tensors, and the gradients of a convolution, from the formulas;
# - write random rounding that is the same on every machine, and say why replicas need it;
# - combine seven bricks into a data-parallel training whose replicas agree to the last bit;
# - say, line by line, what a framework does for you.
#
# **100 points, 7 exercises, about 116 minutes: 14 reading + 92 exercises + 10 runs; an extra exercise takes 25 more, and has 20 of the points.** The exercises go from easy to hard, and only the last one needs the others: it calls them all. Some you have written
# already: bring them. The library lends you what you have not written, so the training runs from the first minute. You need no GPU. Images are $x$
# $(N, C, H, W)$, filters $w$ $(K, C, R, S)$, as in lab 05; $p$ is the number of ranks.

# %%
import inspect

import torch
from torch import Tensor

from autograder import check
from autograder.api import record
from hpcdl.cluster import Cluster
from hpcdl.comm import simulate
from hpcdl.data.digits import digits
from hpcdl.training import run_on, trainer
from hpcdl.training.own_stack import BRICKS, bring, lending, logits, mine, serial, tally, witnessed
from hpcdl.widgets import guess, guessed, reveal, saying, style, when_solved, your_program
from hpcdl.widgets.pictures import own_stack

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# The picture shows the stack, from the brick next to the machine up to the one that you call. Move the slider: it solves the exercises one after the other, and
# the bricks turn from *lent* to *yours*. Choose a brick to see what it does and which bricks it calls.
#
# 1. Which brick is the longest? What share of all lines does it have?
# 2. How many bricks know that there is more than one rank, and which ones?
# 3. Which bricks would you still need to train on a single process?

# %%
guess(
    "own_stack.longest",
    "Which of the seven bricks has the most lines of code?",
    choices=tuple(BRICKS),
    truth=lambda: max(BRICKS, key=lambda name: BRICKS[name].lines),
)

# %%
guessed("own_stack.longest")
own_stack.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The tape, with a third of all lines. (The picture counts the library's bricks. Its convolution is short because it calls torch's; yours will not.)
# 2. One: the ring. The step passes `comm` to it and never looks inside; all other bricks would be the same on one process. This makes data parallelism simple.
# 3. The tape, the convolution, momentum and the step. Buckets and ring serve the exchange; rounding saves memory and bytes.
# </details>

# %% [markdown]
# ## The goal, first with lent bricks
#
# The rest of the training is given, and it is short: begin with the same weights on all ranks, distribute the images of each batch, take a step, and at the end
# classify the held-out digits. `train_step` and everything below it are bricks.


# %%
def first_weights(seed=0):
    """Return two layers of filters, a linear layer and its bias, as bfloat16 numbers in float32: 3,794 in all."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {(8, 1, 3, 3): 9, (16, 8, 3, 3): 72, (256, 10): 256}  # and the number of inputs of each output
    weights = [torch.randn(shape, generator=generator) * (2 / n) ** 0.5 for shape, n in shapes.items()]
    return [w.bfloat16().float() for w in [*weights, torch.zeros(10)]]


def batches(n, epochs, batch):
    """Yield the samples of each step, for all ranks together, in a different order in every epoch."""
    for epoch in range(epochs):
        yield from torch.randperm(n, generator=torch.Generator().manual_seed(epoch)).split(batch)


def learn(comm, epochs=8, batch=64, lr=0.05, limit=None):
    """Train on all ranks; return the share of held-out digits read correctly, the weights, and whether the bits agree."""
    torch.set_num_threads(1)
    data, weights = digits(), first_weights()
    velocities = [torch.zeros_like(w) for w in weights]
    for step, chosen in enumerate(list(batches(len(data.y), epochs, batch))[:limit]):
        own = chosen[comm.rank :: comm.size]
        train_step(weights, velocities, data.x[own], data.y[own], lr, step * len(weights), comm)
    z = network(Node(data.x_held_out), [Node(w) for w in weights]).data
    right = (z.argmax(1) == data.y_held_out).float().mean().item()
    return right, weights, same_bits(weights, comm)


def same_bits(weights, comm):
    """Return whether this rank's weights equal rank 0's bit by bit, by a broadcast and a comparison as integers."""
    own = torch.cat([w.flatten() for w in weights])
    first = own.clone()
    comm.broadcast(first, 0)
    return torch.equal(first.view(torch.int32), own.view(torch.int32))


GIVEN = ("first_weights", "batches", "learn", "same_bits")

# %% [markdown]
# Once the check of an exercise gives all points, this brick is yours. For the others, `lending` provides the library's functions under the missing names while
# its block runs. `witnessed` records on each rank which functions were called and which of torch's operators ran, and switches torch's own autograd off. Four
# engines start now: processes that wait for work, as in lab 07.


# %%
def training(*args):
    """Train on the four engines; return the ranks' results, and whose lines ran."""
    own = mine(globals(), record)
    with lending(globals(), own):
        simulate(learn, 2, 1, 64, 0.05, 1)  # one step on simulated ranks: a mistake is easier to read there
        results = cluster.run(witnessed, learn, *args, timeout=120)
    return [result for result, _ in results], tally([ran for _, ran in results], globals(), own, GIVEN)


def told(results, lines):
    """Print the result in three sentences."""
    right, _, _ = results[0]
    replicas = "equal to the last bit" if all(same for _, _, same in results) else "DIFFERENT"
    print(
        f"{len(results)} engines: {100 * right:.1f} % of the held-out digits are read correctly; the replicas are {replicas}."
    )
    print(lines)
    print(f"(The lab's own functions around it, {', '.join(GIVEN)}: {lines.given} lines.)")


cluster = Cluster(n=4).start()
results, lines = training(1)
told(results, lines)

# %% [markdown]
# Run this cell again whenever you have solved an exercise, and watch the lines become yours. You may have solved four of the exercises before: `bring` prints a
# function from your notebook of an earlier lab, if that notebook is in the same folder. Paste it into the exercise's cell.

# %%
bring("ddp.ring_all_reduce")

# %% [markdown]
# {{exercise momentum}}
#
# Write one step of momentum. In lab 02 this was two lines: $v \leftarrow \beta v + g$, then $w \leftarrow w - \eta v$. Do not change the arguments.
#
# <details><summary>Hint: bring it</summary>
#
# Run `bring("gradient_descent.momentum_step")` in a new cell.
# </details>


# %%
def momentum_step(
    w: Tensor,
    g: Tensor,
    v: Tensor,
    lr: float,
    beta: float,
) -> tuple[Tensor, Tensor]:
    """Do one step of descent with momentum; return the new w and v as a tuple (w, v).

    w, g, v: weights, gradient and velocity, of one shape; do not change them.

    >>> momentum_step(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([10.0]),
    ...               lr=0.1, beta=0.5)
    (tensor([0.3000]), tensor([7.]))
    """
    # BEGIN SOLUTION
    v = beta * v + g
    return w - lr * v, v
    # END SOLUTION


# %%
check("own_stack.momentum")

# %% [markdown]
# {{exercise buckets}}
#
# Put the tensors into buckets from the last to the first, each bucket as full as the cap allows: gradients are sent in a few large messages. (Lab 07.)
#
# <details><summary>Hint 1: bring it</summary>
#
# `bring("ddp.make_buckets")`
# </details>
# <details><summary>Hint 2: when to begin a new bucket</summary>
#
# If no bucket is open yet, or if this tensor would not fit: `filled + param.nbytes > cap_bytes`.
# </details>


# %%
def make_buckets(params, cap_bytes: int) -> list[list[Tensor]]:
    """Return the tensors themselves in buckets, last one first, each as full as `cap_bytes`
    allows.

    params: an iterable that you can go through only once. Exactly full is allowed. A tensor
    larger than the cap has its own bucket. No bucket is empty.

    >>> a, b, c = torch.zeros(2), torch.zeros(1), torch.zeros(1)  # 8, 4 and 4 bytes
    >>> [[x.numel() for x in bucket] for bucket in make_buckets([a, b, c], 8)]
    [[1, 1], [2]]
    """
    # BEGIN SOLUTION
    buckets, filled = [], cap_bytes + 1
    for param in reversed(list(params)):
        if filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets
    # END SOLUTION


# %%
check("own_stack.buckets")

# %% [markdown]
# ## Sixteen bits, the same on every rank
#
# The weights are bfloat16 numbers: the upper 16 bits of a float32. A step of descent is often smaller than the gap to the next such number, and rounding to
# nearest would lose it every time. So you round a weight up *at random*, with a probability that makes the rounding right on average (lab 06): add a random
# number of 16 bits to the float's bits, and cut off the lower 16 bits.
#
# Now there are four ranks. If each rank draws its own random numbers, each rounds differently, and after one step no two replicas are equal. They need the same
# noise, without a message. A generator with a state would work only if all ranks drew equally many numbers. A **counter-based** generator avoids this: the
# $i$-th number is a hash of the seed and $i$, so every rank can compute any number at any time. Here
#
# $$ \text{noise}_i = \mathrm{mix}(\mathrm{mix}(\text{seed}) \oplus i) \gg 16, \qquad i = 0, \dots, n-1, $$
#
# where mix takes a word $x$ of 32 bits, does these five steps, and returns $x$ (C. Wellons, 2018):
#
# $$ x \leftarrow x \oplus (x \gg 16),\quad x \leftarrow \mathtt{0x7FEB352D}\, x,\quad x \leftarrow x \oplus (x \gg 15),\quad
# x \leftarrow \mathtt{0x846CA68B}\, x,\quad x \leftarrow x \oplus (x \gg 16). $$
#
# A word has 32 bits, so keep only the lower 32 bits of each product. In torch, keep words in int64 and cut with `& 0xFFFFFFFF`; a product may overflow its 64
# bits, which does not affect the lower 32.

# %% [markdown]
# {{exercise rounding}}
#
# Write the noise and the rounding.
#
# <details><summary>Hint 1: bring the second one</summary>
#
# `bring("stochastic_rounding.bf16_round_bits")`
# </details>
# <details><summary>Hint 2: a word from a seed</summary>
#
# `torch.tensor(seed)` is an int64, and so is `torch.arange(n)`; `^` and `>>` work on tensors, and `>>` comes before `^`.
# </details>
# <details><summary>Hint 3: bits of a float</summary>
#
# `x.view(torch.int32)` reads them. After the sum and `>> 16` they fit into 16 bits: `.to(torch.int16).view(torch.bfloat16)`. At the end, put NaN back where x
# is NaN.
# </details>


# %%
def random16(seed: int, n: int) -> Tensor:
    """Return numbers 0 to n-1 of the noise of `seed`: int32 (n,), each from 0 to 65535.

    seed: 0 to 2^32 - 1. Use no generator.

    >>> random16(1, 3)
    tensor([22773, 53851, 51967], dtype=torch.int32)
    """

    # BEGIN SOLUTION
    def mix(x):
        x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16).to(torch.int32)
    # END SOLUTION


def bf16_round_bits(x: Tensor, rand16: Tensor) -> Tensor:
    """Round x stochastically to bfloat16: add rand16 to its 32 bits, cut off the low 16.

    x: float32, any shape; rand16: int32 of that shape, uniform in 0 ... 65535; do not
    change them. Returns bfloat16. NaN stays NaN.

    >>> bf16_round_bits(torch.tensor([1.00390625, 1.00390625]),
    ...                 torch.tensor([32767, 32768], dtype=torch.int32))
    tensor([1.0000, 1.0078], dtype=torch.bfloat16)
    """
    # BEGIN SOLUTION
    rounded = ((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)
    # END SOLUTION


# %%
check("own_stack.rounding")

# %% [markdown]
# {{exercise ring}}
#
# Sum over the ranks with messages between neighbours (lab 07): cut $x$ into $p$ chunks. In step $s$, rank $r$ sends chunk $(r - s) \bmod p$ to the right and
# receives chunk $(r - s - 1) \bmod p$ from the left. In the first $p-1$ steps add the received chunk, in the last $p-1$ steps replace yours with it.
#
# <details><summary>Hint 1: bring it</summary>
#
# `bring("ddp.ring_all_reduce")`
# </details>
# <details><summary>Hint 2: chunks, and one step</summary>
#
# `x.view(-1).tensor_split(p)` are views into x; some may be empty. `comm.sendrecv(given, right, incoming, left)` sends and receives at once, with
# `incoming = torch.empty_like(taken)`.
# </details>


# %%
def ring_all_reduce(x: Tensor, comm) -> None:
    """Sum `x` over the ranks, in place: 2(p-1) steps of about n/p elements.

    x: contiguous, any shape, n >= 1 elements. Sends go to rank + 1, receives come from
    rank - 1 (modulo p).
    """
    # BEGIN SOLUTION
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)
    # END SOLUTION


# %%
check("own_stack.ring")

# %% [markdown]
# Predict what *your* ring does with fewer numbers than ranks. These questions have no points.

# %%
with when_solved():
    your_program(
        "own_stack.ring",
        lambda comm: ring_all_reduce(torch.ones(4), comm),
        p=7,
        on="4 numbers",
    )

# %% [markdown]
# ## A tape of tensors
#
# Lab 04's tape held numbers; a network needs tensors. A **node** holds a tensor `data`, the `parents` it was made from, and for each parent a function that
# *pulls a gradient back*: it takes $\partial L / \partial y$ of this node, and returns the part of $\partial L / \partial x$ that comes through this node. For
# $y = a\,b$ of matrices, these functions are
#
# $$ g \mapsto g\, b^\top \ \text{ for } a, \qquad g \mapsto a^\top g \ \text{ for } b. $$
#
# What you need for a network:
#
# | | forward | pulls back |
# |---|---|---|
# | `a + b` | the sum; a bias b $(k)$ is added to every row of a $(n, k)$ | g for a; for b g, or for a bias the sum of its rows |
# | `a @ b` | the product | above |
# | `a.relu()` | max(a, 0) | g where a > 0, elsewhere 0 |
# | `a.flat()` | $(n, \dots)$ as a matrix $(n, k)$ | g in a's shape |
# | `z.cross_entropy(y)` | $\frac1n \sum_i -\log \mathrm{softmax}(z_i)_{y_i}$, one number | $\frac1n(\mathrm{softmax}(z) - \text{one-hot}(y))$, times g |
#
# The sweep goes from the last node to the first. A node may pass on its gradient only when all its children have added their parts. So put all nodes into a
# list, each once and parents before children, and go through it backwards.

# %% [markdown]
# {{exercise tape}}
#
# Fill in the operations of the table, and the sweep.
#
# <details><summary>Hint 1: an operator in one line</summary>
#
# An operator returns a `Node` of three things: the data of the result, a tuple of parents, and a tuple of pulls, one
# for each parent. The table above has the formulas; `lambda g: ...` makes a function of a formula.
# </details>
# <details><summary>Hint 2: a softmax that does not overflow</summary>
#
# $\log \mathrm{softmax}(z) = z - \log \sum_j e^{z_j}$: `z - z.logsumexp(1, keepdim=True)`. `logs[torch.arange(n), y]` picks one number of each row,
# and the same index with `-= 1` makes softmax − one-hot of `logs.exp()`.
# </details>
# <details><summary>Hint 3: parents before children</summary>
#
# A function `visit(node)`: if the node was not seen yet, remember it, visit its parents, then append it to the list. `visit(self)` fills the list.
# </details>
# <details><summary>Hint 4: the sweep</summary>
#
# Set every grad to zeros, and the root's grad to ones. Then, for each node of the reversed list and each pair of parent and pull:
# `parent.grad = parent.grad + pull(node.grad)`. (With `+=` a pull that returns g itself would let two nodes share one tensor.)
# </details>


# %%
class Node:
    """A tensor on the tape.

    data: the tensor, which no method changes. parents: the nodes it was made from. pulls:
    for each parent a function from this node's gradient to the part that goes back to the
    parent. grad: of data's shape, zeros until a sweep.
    """

    def __init__(self, data: Tensor, parents=(), pulls=()):
        # BEGIN SOLUTION
        self.data, self.parents, self.pulls = data, parents, pulls
        self.grad = torch.zeros_like(data)
        # END SOLUTION

    def __add__(self, other):
        """Add a node of the same shape to (n, k), or (k,) to every row."""
        # BEGIN SOLUTION
        is_bias = other.data.dim() < self.data.dim()
        pulls = (lambda g: g, lambda g: g.sum(0) if is_bias else g)
        return Node(self.data + other.data, (self, other), pulls)
        # END SOLUTION

    def __matmul__(self, other):
        """Multiply (n, m) by (m, k)."""
        # BEGIN SOLUTION
        pulls = (lambda g: g @ other.data.T, lambda g: self.data.T @ g)
        return Node(self.data @ other.data, (self, other), pulls)
        # END SOLUTION

    def relu(self):
        """Return max(x, 0), of any shape; the slope at 0 is 0."""
        # BEGIN SOLUTION
        return Node(self.data.clamp(min=0), (self,), (lambda g: g * (self.data > 0),))
        # END SOLUTION

    def flat(self):
        """Return (n, ...) as a matrix (n, k)."""
        # BEGIN SOLUTION
        return Node(self.data.flatten(1), (self,), (lambda g: g.view_as(self.data),))
        # END SOLUTION

    def cross_entropy(self, y: Tensor):
        """Return the mean over samples of -log softmax(z)[y], 0-d.

        This node holds the logits z (n, classes). y: (n,) int64.
        """
        # BEGIN SOLUTION
        n, rows = len(y), torch.arange(len(y))
        logs = self.data - self.data.logsumexp(1, keepdim=True)
        error = logs.exp()
        error[rows, y] -= 1
        return Node(-logs[rows, y].mean(), (self,), (lambda g: g * error / n,))
        # END SOLUTION

    def backward(self) -> None:
        """Set `grad` of this node to ones, and compute `grad` of all nodes it was made
        from.

        Each call begins at zero. A node that is used twice gets the sum of both parts.
        """
        # BEGIN SOLUTION
        order, seen = [], set()

        def visit(node):
            if node not in seen:
                seen.add(node)
                for parent in node.parents:
                    visit(parent)
                order.append(node)

        visit(self)
        for node in order:
            node.grad = torch.zeros_like(node.data)
        self.grad = torch.ones_like(self.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = parent.grad + pull(node.grad)
        # END SOLUTION


# %%
check("own_stack.tape")

# %% [markdown]
# ## The convolution, both ways
#
# Stride 1, no padding, as in lab 05:
#
# $$ y[n,k,p,q] = \sum_{c,i,j} w[k,c,i,j]\; x[n,c,p+i,q+j]. $$
#
# Every product in this sum connects one number of $w$, one of $x$ and one of $y$. The gradients use the same triples in another direction: with
# $g = \partial L / \partial y$,
#
# $$ \frac{\partial L}{\partial w}[k,c,i,j] = \sum_{n,p,q} g[n,k,p,q]\; x[n,c,p+i,q+j], \qquad
# \frac{\partial L}{\partial x}[n,c,p+i,q+j] \mathrel{+}= w[k,c,i,j]\; g[n,k,p,q]. $$
#
# One loop over the $R \cdot S$ places $(i, j)$ of the window is enough for all three. At each place the window sees the part `x[:, :, i : i + P, j : j + Q]`,
# and one `einsum` does the rest:
#
#     place (i, j):  seen = x[:, :, i : i + P, j : j + Q]      (N, C, P, Q)
#
#         y                +=  einsum("kc,ncpq->nkpq", w[:, :, i, j], seen)
#         dw[:, :, i, j]    =  einsum("nkpq,ncpq->kc", ...)
#         dx[its part]     +=  einsum(...)

# %% [markdown]
# {{exercise convolution}}
#
# Write the convolution and its two gradients.
#
# <details><summary>Hint 1: bring the first one</summary>
#
# `conv_direct` of lab 05 does this and more: run `bring("convolution.conv_direct")`, and let `conv2d(x, w)` call it. Its lines count as yours.
# </details>
# <details><summary>Hint 2: the filters' gradient</summary>
#
# R and S follow from the sizes: `R = x.shape[2] - g.shape[2] + 1`. The letters of the two factors are given above; `einsum` sums over the letters that are
# missing on the right-hand side: n, p and q.
# </details>
# <details><summary>Hint 3: the images' gradient</summary>
#
# The image is larger than y: `H = P + R - 1`. Begin with zeros. Each place (i, j) of the window has seen P × Q pixels:
# add `g` times the filters' weights at this place to these pixels, summed over k.
# </details>


# %%
def conv2d(x: Tensor, w: Tensor) -> Tensor:
    """Convolve x (N, C, H, W) with w (K, C, R, S), stride 1, no padding; return y (N, K, P,
    Q) of x's dtype. Like both gradients, leave the arguments unchanged.

    >>> conv2d(torch.arange(1.0, 10.0).view(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    tensor([[[[12., 16.], [24., 28.]]]])
    """
    # BEGIN SOLUTION
    (N, _, H, W), (K, _, R, S) = x.shape, w.shape
    P, Q = H - R + 1, W - S + 1
    y = x.new_zeros(N, K, P, Q)
    for i in range(R):
        for j in range(S):
            y += torch.einsum("kc,ncpq->nkpq", w[:, :, i, j], x[:, :, i : i + P, j : j + Q])
    return y
    # END SOLUTION


def conv2d_input_grad(g: Tensor, w: Tensor) -> Tensor:
    """Return the gradient (N, C, H, W) of the images in g's dtype, given g (N, K, P, Q),
    that of y."""
    # BEGIN SOLUTION
    (N, _, P, Q), (_, C, R, S) = g.shape, w.shape
    dx = g.new_zeros(N, C, P + R - 1, Q + S - 1)
    for i in range(R):
        for j in range(S):
            dx[:, :, i : i + P, j : j + Q] += torch.einsum("kc,nkpq->ncpq", w[:, :, i, j], g)
    return dx
    # END SOLUTION


def conv2d_weight_grad(g: Tensor, x: Tensor) -> Tensor:
    """Return the gradient (K, C, R, S) of the filters in g's dtype, given g (N, K, P, Q)
    and images x."""
    # BEGIN SOLUTION
    (_, K, P, Q), (_, C, H, W) = g.shape, x.shape
    R, S = H - P + 1, W - Q + 1
    dw = g.new_zeros(K, C, R, S)
    for i in range(R):
        for j in range(S):
            dw[:, :, i, j] = torch.einsum("nkpq,ncpq->kc", g, x[:, :, i : i + P, j : j + Q])
    return dw
    # END SOLUTION


# %%
check("own_stack.convolution")

# %% [markdown]
# ## One complete step
#
# The network has a convolution, ReLU, a convolution, ReLU, and a linear layer. Its four weight tensors are $w_1$ $(8, 1, 3, 3)$, $w_2$ $(16, 8, 3, 3)$, $w_3$
# $(256, 10)$ and the bias $b_3$ $(10)$. A convolution is not on the tape yet: make a `Node` of it inside `network`, with your two gradients as its pulls.
#
# A step has three parts. Compute the loss of this rank's images and its gradients. Compute the mean gradient over **all ranks' samples**, with one all-reduce
# for each bucket. Then do a step of momentum for each weight tensor, and round. The weights are bfloat16 *numbers* kept in float32 tensors, so that nothing is
# rounded twice.
#
# *The mean.* A rank's gradient is a mean over its $n_r$ images, so it has the weight $n_r$. Append a 1 to the flat bucket, and multiply everything by $n_r$.
# After the sum over the ranks, the last element is $N = \sum_r n_r$, and dividing by it gives the mean.

# %% [markdown]
# {{exercise step}}
#
# Write the network and the step.
#
# <details><summary>Hint 1: a convolution on the tape</summary>
#
# A node needs data, two parents and two pulls. The pulls are your two gradients of `conv2d`: one from the images'
# side, which needs the filters' data, and one from the filters' side, which needs the images' data.
# </details>
# <details><summary>Hint 2: the gradients of a bucket</summary>
#
# `make_buckets` takes any tensors: give it the gradients. Then do as `average_gradients` of lab 07: one flat tensor
# with a 1 at the end, multiplied by the number of rows, through the ring, divided by its last number, and back in
# pieces. `copy_` writes into a gradient.
# </details>
# <details><summary>Hint 3: in place, and the noise</summary>
#
# `momentum_step` returns new tensors. The noise of tensor i is `random16(seed + i, w.numel()).view_as(w)`. `w.copy_(...)` accepts bfloat16, too; store the
# velocity with `v.copy_(...)`.
# </details>


# %%
def network(x, weights):
    """Return the logits, a Node (n, 10).

    x: a Node with images (n, 1, 8, 8). weights: four Nodes.
    """

    # BEGIN SOLUTION
    def conv(x, w):
        pulls = (lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data))
        return Node(conv2d(x.data, w.data), (x, w), pulls)

    w1, w2, w3, b3 = weights
    return conv(conv(x, w1).relu(), w2).relu().flat() @ w3 + b3
    # END SOLUTION


def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192) -> float:
    """Do a step on all ranks' images: change weights and velocities in place, and return
    the loss of this rank's images before the step.

    weights: the network's four, bfloat16 numbers in float32 tensors, equal on all ranks.
    velocities: of the same shapes. x (n_r, 1, 8, 8), y (n_r,): this rank's images, at least
    one. Momentum is 0.9. Send gradients in buckets of up to cap_bytes. Round the new
    weights of tensor i with the noise of seed + i.
    """
    # BEGIN SOLUTION
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()
    # END SOLUTION


# %%
check("own_stack.step")

# %% [markdown]
# ## The training, with your bricks
#
# The training now runs eight epochs on four engines. How many of the lines that run are yours, and how many digits will they read correctly?

# %%
guess("own_stack.right", "What share of the 359 held-out digits will the network read correctly?", unit="%")

# %%
guessed("own_stack.right")
epochs = 8
results, lines = training(epochs)
told(results, lines)
reveal("own_stack.right", 100 * results[0][0])

# %%
own_stack.explorable(lines)

# %% [markdown]
# The picture shows what the recorder on rank 0 saw: blue bricks are yours, grey bricks are lent, with the lines of code that ran and the number of calls. Blank
# lines, comments, docstrings and functions that were never called do not count.
#
# Is it *correct*? One process takes the same steps in float64, with torch's own autograd and convolution, and rounds with the same noise. We compare it with
# your ranks after one epoch, and after all eight.

# %%
guess(
    "own_stack.equal", "How many of the 3,794 weights are equal, to the last bit, after eight epochs?", unit="weights"
)

# %%
guessed("own_stack.equal")
data = digits()
short, _ = training(1)
for n, (ranks, *_) in ((1, short), (epochs, results)):
    steps = [(data.x[chosen], data.y[chosen]) for chosen in batches(len(data.y), n, 64)]
    oracle, own = serial(first_weights(), steps, lr=0.05), [w.double() for w in ranks[1]]
    equal = int(sum((a == b).sum() for a, b in zip(oracle, own, strict=True)))
    far = max((a - b).abs().max().item() for a, b in zip(oracle, own, strict=True))
    read = (logits(data.x_held_out.double(), oracle).argmax(1) == data.y_held_out).double().mean().item()
    print(f"{len(steps):3} steps: {equal:,} of the weights are equal, the others within {far:.2g}; ", end="")
    print(f"four ranks read {100 * ranks[0]:.1f} %, one process in float64 {100 * read:.1f} %.")
reveal("own_stack.equal", equal)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - About 96 % of the digits are read correctly, with weights of 16 bits.
# - The replicas are equal to the last bit although they never exchange weights: they begin with equal weights, the ring gives all of them the same sum, and the
#   noise depends only on seed and position. Without any one of these three, they drift apart.
# - After one epoch all, or nearly all, weights equal those of one process. float32's errors are far smaller than the gaps between bfloat16 numbers, so they
#   matter only if the noise falls within them, about once in ten thousand roundings of a last bit. But it happens: one of the two rounds a weight up, the other
#   rounds it down, and all later gradients differ a little. After eight epochs the two have different weights, but read equally well. That is why replicas must
#   be *equal*, and not only close.
# </details>
#
# ## What a framework adds
#
# Your stack has a hundred lines; PyTorch has millions. What do they do? Speed on many kinds of processors (your convolution reads the image nine times),
# hundreds of operators with their gradients, memory that is freed as soon as a gradient has passed, overlap of messages and computing, recovery from failures,
# file formats, and clear error messages. None of this changes what you have written here: it is the same training.
#
# ## Live: the library's stack
#
# Between the two is `hpcdl.training.trainer`, one file that combines what you have built in the labs. On your four engines it now trains two replicas with
# ZeRO-2, each a pipeline of two stages; then it does the same training on a single engine, in float64. Look at the difference of their losses.

# %%
guess("own_stack.trainer", "How many lines does the file of the library's trainer have?", unit="lines")

# %%
with when_solved():
    guessed("own_stack.trainer")
    options = {"model": "mlp", "precision": "fp64", "sharding": 2, "microbatches": 2, "steps": 5}
    meshed, *_ = run_on(cluster, mesh="data=2,pipeline=2", **options)
    with saying("one engine trains alone"):
        (alone,) = run_on(cluster, mesh="data=1", say=lambda line: None, **options)
    far = max(abs(a["loss"] - b["loss"]) for a, b in zip(meshed, alone, strict=True))
    print(f"the losses of four engines differ from those of one by {far:.0e} at most")
    reveal("own_stack.trainer", len(inspect.getsource(trainer).splitlines()))

# %% [markdown]
# ## For those who want more
#
# These three challenges have no points and no check. The proof is the same for each: the replicas are equal to the last bit, and read the digits equally well.
#
# 1. Use recursive doubling of lab 08 instead of the ring.
# 2. Send buckets during the sweep: `backward` knows when a gradient is complete.
# 3. Use three engines instead of four.

# %%
cluster.stop()

# %% [markdown]
# ## Further reading
#
# - A. Griewank and A. Walther 2008, *Evaluating Derivatives*: the tape, its cost, and what it need not keep.
# - A. Paszke et al. 2017, "Automatic differentiation in PyTorch": the tape of tensors that you use every day.
# - J. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": counters instead of states.
# - S. Gupta et al. 2015, "Deep learning with limited numerical precision": why rounding at random works.
