# %% [markdown]
# # Lab {{number model_parallel}} · The network itself is cut
# ## Tensor and pipeline parallelism
#
# In lab 07 every machine held the whole model. This is no longer possible if a model does not fit: the weights, gradients and activations of a large language
# model take the memory of hundreds of machines. Then you must cut the network itself. Lab {{number attention}} cut the sequence, and put experts on different
# ranks. Two more cuts are left: through each layer's matrices, and between layers. Each cut has its own messages and its own way to lose time. In this lab you
# write both, and run one of them on live engines.
#
# **You will be able to**
# - cut layers over ranks so that two layers need one all-reduce each way, and say for which layers this pays;
# - write the schedules of GPipe, 1F1B, interleaved 1F1B and Zero Bubble, and predict their bubbles to four decimals;
# - design a schedule for a given memory, and compare it with the known ones;
# - run any of them over real messages, without a deadlock, with the gradients of one machine;
# - train a transformer in a pipeline of two engines, and explain its timeline.
#
# **100 points, 6 exercises, about 120 minutes: 20 reading + 92 exercises + 8 runs; an extra exercise takes 20 more, and has 15 of the points.** You need lab 07's `comm` and matrix products; lab 08's ring and lab {{number attention}}'s transformer block help. MPI came with the
# installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$, $m$, $v$ | ranks or stages of a pipeline (GPipe's $K$); microbatches ($M$); chunks of layers on a stage |
# | F, B, W | a forward pass, the gradient of the input, the gradient of the weights, of one microbatch; and their seconds. A batch is `batch` here, a weight matrix `weight` or `w` |
# | $n$, $d$ | tokens or rows; the numbers of one token |

# %%
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy, mse_loss

from autograder import check
from hpcdl import designs
from hpcdl.comm import simulate
from hpcdl.nn.networks import alexnet
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved, your_program
from hpcdl.widgets.pictures import cut_the_matrix, fill_the_bubble, your_design

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# A network is cut into $p$ **stages**, one on each rank, and a batch into $m$ **microbatches** that pass through them one after another. Each lane is a stage,
# each box a microbatch that it works on: forward (F), then backward (B). Gaps are the **bubble**, time in which a stage has nothing to do. Below: how many
# microbatches a stage holds in memory.
#
# What happens to the bubble with twice as many microbatches? With twice as many stages? Make your guesses, then:
# 1. Move $m$ and $p$. Was your guess right?
# 2. Change **schedule** from GPipe to 1F1B. What changes, and what does not?
# 3. Choose ZB-H1, then ZB-V, with F = B = W. Where have the gaps gone?
# 4. Choose one of the published **times**: they were measured on 8 and 16 GPUs. The sentence names the bubble that the authors printed.

# %%
guess(
    "model_parallel.microbatches",
    "1F1B, 4 stages: with 16 microbatches instead of 8, how large is the bubble, compared with before?",
    unit="%",
)

# %%
guess(
    "model_parallel.stages",
    "And with 8 stages instead of 4, for 8 microbatches?",
    unit="%",
)

# %%
with when_solved():
    guessed("model_parallel.microbatches")
    guessed("model_parallel.stages")
    times = 1.0, 1.0, 1.0, 0.0  # F, B, W and a message, where the sliders stand at first
    gaps = {
        (p, m): fill_the_bubble.played("one_f_one_b", p, m, 1, times, {}).bubble for p, m in ((4, 8), (4, 16), (8, 8))
    }
    reveal("model_parallel.microbatches", 100 * gaps[4, 16] / gaps[4, 8])
    reveal("model_parallel.stages", 100 * gaps[8, 8] / gaps[4, 8])
    display(fill_the_bubble.explorable())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The gaps at the ends do not depend on $m$, but they are a smaller share of a longer time. With more stages the gaps are larger: filling the pipeline takes
#    $p - 1$ forward passes, and emptying it takes $p - 1$ backward passes.
# 2. The time does not change, but the memory does: GPipe holds all $m$ microbatches, 1F1B holds $p$ on the first stage and one on the last.
# 3. No other stage waits for W, the gradient of the weights, so W can fill the gaps. ZB-V puts two pieces of the network on each stage, one on the way there
#    and one on the way back, and has no bubble at all when F = B = W.
# 4. They agree to the last digit for 1F1B, ZB-H1 and ZB-H2. Playing a schedule predicts real machines.
# </details>

# %% [markdown]
# ## Cut a matrix
#
# A layer $y = xW^T + b$ has a weight matrix with a row for each output and a column for each input. If you cut it over $p$ ranks, no rank holds all of it.
# There are two ways, and each of them saves a message in one direction.
#
#     by its outputs: ColumnLinear                by its inputs: RowLinear
#     (Megatron cuts the columns of W^T)
#
#         x, the same on all ranks                x_0    x_1    x_2    a part of x each
#       ┌───────┬───────┐                          │      │      │
#      W_0     W_1     W_2    rows of W           W_0    W_1    W_2   columns of W
#       │       │       │                          └─ all-reduce ─┘
#      y_0     y_1     y_2    a part of y each     y = Σ x_r W_rᵀ + b, on all ranks
#
# The output parts of a column layer are the input parts of a row layer. So two layers, first by outputs, then by inputs, need only one all-reduce for both,
# even with an elementwise function such as ReLU between them. Backward it is the other way round. In a row layer, $dx_r = dy\,W_r$ is the rank's own part and
# needs no message. In a column layer, all ranks share $x$ and contribute to its gradient: one all-reduce (Shoeybi et al. 2019, "Megatron-LM").
#
# Each rank computes its weights' gradients, $dW_r = dy_r^T x$ and $db_r = \sum dy_r$, from tensors that it already holds. No rank ever sends a weight or its
# gradient.
#
# You can cut the filters of a convolution in the same way: cutting $w$ of shape $(K, C, R, S)$ along its first dimension gives each rank $K/p$ filters, and its
# part of the output's channels. The lectures call this model parallelism by filter.

# %% [markdown]
# The picture shows which part each rank holds, and what it sends. Before you move anything, guess: which of the first two cuts sends something forward, and
# which backward? What do two layers together send?

# %%
cut_the_matrix.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The cut by outputs sends nothing forward, the cut by inputs nothing backward. Together they send one all-reduce each way, and no rank ever holds all of $h$,
#   the widest of the activations.
# - The weights shrink with p, but $x$ and $y$ do not: each rank keeps them whole. The remedy is to cut *the tokens* outside the two layers. An all-reduce is a
#   reduce-scatter and an all-gather: do the reduce-scatter after the layers and the all-gather before the next ones, and in between each rank has only its
#   tokens. This sends as much forward as before, and backward it gathers $x$ once more (Korthikanti et al. 2022).
# - With many tokens and narrow layers, the messages are as large as the weights. That is why tensor parallelism stays within a machine.
# </details>

# %% [markdown]
# {{exercise tensor_parallel}}
#
# Write both layers, forward and backward. `comm` is lab 07's: `comm.rank`, `comm.size`, and `comm.all_reduce(x)`, which sums a tensor over the ranks in place.
#
# <details><summary>Hint 1: a share</summary>
#
# `w.tensor_split(p, dim)` cuts along `dim` into p parts; if p does not divide the length, the first parts are one longer. The parts are views, and a view keeps
# the whole tensor in memory, which you wanted to avoid: `.clone()` it.
# </details>
# <details><summary>Hint 2: the column layer</summary>
#
# Its weights and its bias are the shares along dimension 0. `forward` keeps `x` for later, and is an ordinary layer
# with these. `backward` is an ordinary layer's, too: two gradients for this rank's rows. But its `dx` is only this
# rank's part of a sum over the ranks.
# </details>
# <details><summary>Hint 3: the row layer</summary>
#
# Its weights are the share along dimension 1; its bias is a copy of the whole bias. The product with `x` is only a
# part of a sum: sum over the ranks *before* you add the bias.
# </details>


# %%
def share(w: Tensor, dim: int, comm) -> Tensor:
    """Return this rank's part of `w` along dimension `dim`, as a separate tensor. The
    parts' lengths differ by at most one, and the longer ones come first.

    >>> simulate(lambda comm: share(torch.arange(5), 0, comm).tolist(), p=2).results
    [[0, 1, 2], [3, 4]]
    """
    # BEGIN SOLUTION
    return w.tensor_split(comm.size, dim)[comm.rank].clone()
    # END SOLUTION


class ColumnLinear:
    """A layer cut by its outputs: `weight` (about out / p, in) and `bias` are this rank's
    part.

    weight: (out, in), bias: (out,): the whole layer's, equal on all ranks.
    """

    def __init__(self, weight: Tensor, bias: Tensor, comm):
        # BEGIN SOLUTION
        self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """Return this rank's outputs (n, about out / p) for x (n, in), which is equal on
        all ranks. Sends no message."""
        # BEGIN SOLUTION
        self.x = x
        return x @ self.weight.T + self.bias
        # END SOLUTION

    def backward(self, dy: Tensor) -> Tensor:
        """Return the gradient of x (n, in), equal on all ranks, given dy, the gradient of
        this rank's outputs. Needs one all-reduce.

        Stores the gradients of its own weights in `weight_grad` and `bias_grad`, for this
        pass only.
        """
        # BEGIN SOLUTION
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx
        # END SOLUTION


class RowLinear:
    """A layer cut by its inputs: `weight` (out, about in / p) is this rank's part, `bias` a
    copy of the whole bias.

    weight: (out, in), bias: (out,): the whole layer's, equal on all ranks.
    """

    def __init__(self, weight: Tensor, bias: Tensor, comm):
        # BEGIN SOLUTION
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """Return the whole output (n, out), equal on all ranks, for this rank's part of x
        (n, about in / p). Needs one all-reduce."""
        # BEGIN SOLUTION
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias
        # END SOLUTION

    def backward(self, dy: Tensor) -> Tensor:
        """Return the gradient of this rank's part of x, given dy (n, out), which is equal
        on all ranks. Sends no message.

        Stores the gradients of its own weights in `weight_grad` and `bias_grad`, for this
        pass only.
        """
        # BEGIN SOLUTION
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight
        # END SOLUTION


# %%
check("model_parallel.tensor_parallel")


# %%
def two_layers(comm):
    """Run a column layer, ReLU and a row layer; report the error against one machine, and what this rank holds."""
    g = torch.Generator().manual_seed(0)
    w1, b1, w2, b2 = (torch.randn(*s, generator=g) for s in ((12, 5), (12,), (4, 12), (4,)))
    x = torch.randn(3, 5, generator=g)
    first, second = ColumnLinear(w1, b1, comm), RowLinear(w2, b2, comm)
    y = second.forward(torch.relu(first.forward(x)))
    off = (y - (torch.relu(x @ w1.T + b1) @ w2.T + b2)).abs().max().item()
    return (
        f"off by {off:.1e}; holds {first.weight.numel() + second.weight.numel()} of {w1.numel() + w2.numel()} weights"
    )


def filters(comm):
    """Return the shape of this rank's part of a convolution's output, with the filters cut over the ranks."""
    g = torch.Generator().manual_seed(0)
    w, image = torch.randn(6, 3, 3, 3, generator=g), torch.randn(1, 3, 8, 8, generator=g)
    return tuple(conv2d(image, share(w, 0, comm)).shape)


with when_solved():
    run = simulate(two_layers, p=3)
    print(*run.results, sep="\n")
    print("messages of rank 0:", [event.op for event in run.trace if event.rank == 0])
    print("maps on each rank of a convolution with 6 filters:", simulate(filters, p=4).results)


# %% [markdown]
# ## One weird trick
#
# Data or model parallelism? The lectures' answer is from 2014. Most of a convolutional network's *work* is in its convolutions, but most of its *weights* are
# in its linear layers. Data parallelism sends the gradients of the weights, model parallelism the activations. So cut the batch for the convolutions, and the
# network for the linear layers: "one weird trick" (Krizhevsky 2014). (In 2012 he had cut all of AlexNet in two, because it did not fit into the 3 GB of one
# GTX 580.) With this trick he trained AlexNet on ImageNet:
#
# | GPUs | batch (convolutions, linear layers) | top-1 error | time | speed-up |
# |---|---|---|---|---|
# | 1 | (128, 128) | 42.33 % | 98.05 h | 1× |
# | 2 | (256, 256) | 42.63 % | 50.24 h | 1.95× |
# | 2 | (256, 128) | 42.27 % | 50.90 h | 1.93× |
# | 4 | (512, 512) | 42.59 % | 26.20 h | 3.74× |
# | 4 | (512, 128) | 42.44 % | 26.78 h | 3.66× |
# | 8 | (1024, 1024) | 43.28 % | 15.68 h | 6.25× |
# | 8 | (1024, 128) | 42.86 % | 15.91 h | 6.16× |
#
# Count the messages. A layer has `weights` weights, and `inputs` inputs for each of the `batch` samples of the whole batch; a number has 4 bytes. On a ring,
# each rank sends $\frac{p-1}{p}n$ bytes for an all-gather or a reduce-scatter of a tensor of $n$ bytes; an all-reduce is one of each (lab 08).
#
# - **data**: an all-reduce of the weights' gradients.
# - **model**, cut by the layer's outputs: each rank has a part of the inputs, from the previous layer, and needs all inputs of the whole batch: an all-gather.
#   Backward, the gradient of the inputs is a sum over all ranks, and each rank needs its own part of this sum: a reduce-scatter.
#
# How should each layer of AlexNet be cut, for 128 images in total? And for 16,384?

# %% [markdown]
# {{exercise one_weird_trick}}
#
# Compute the bytes of a layer, and choose the cut of each layer.
#
# <details><summary>Hint 1: one formula for both</summary>
#
# Each way sends $2\frac{p-1}{p}n$ bytes. For data, $n$ is the bytes of the weights; for model, it is the bytes of the inputs of the whole batch.
# </details>
# <details><summary>Hint 2: a choice for each layer</summary>
#
# The layers' costs add up, so the cheapest plan takes the cheaper way for each layer. `min` has an argument `key`, and
# takes the first of two that are equal.
# </details>


# %%
def volume(weights: int, inputs: int, batch: int, p: int, how: str) -> float:
    """Return the bytes that each of p ranks sends in a step for a layer cut by "data" or by
    "model".

    >>> volume(weights=100, inputs=1, batch=10, p=2, how="data")
    400.0
    """
    # BEGIN SOLUTION
    n = 4 * (weights if how == "data" else batch * inputs)
    return 2 * (p - 1) / p * n
    # END SOLUTION


def one_weird_trick(layers: list[tuple[int, int]], batch: int, p: int) -> list[str]:
    """Return "data" or "model" for each layer (weights, inputs), so that the ranks send
    least.

    >>> one_weird_trick([(10, 100), (1000, 10)], batch=5, p=2)
    ['data', 'model']
    """
    # BEGIN SOLUTION
    return [min(("data", "model"), key=lambda how: volume(*layer, batch, p, how)) for layer in layers]
    # END SOLUTION


# %%
check("model_parallel.one_weird_trick")

# %%
guess(
    "model_parallel.trick",
    "AlexNet has 8 layers. How many of them are cut by data, for 128 images on 8 ranks?",
    unit="layers",
)

# %%
with when_solved():
    guessed("model_parallel.trick")
    layers = [(layer.weights, layer.inputs) for layer in alexnet()]
    print(f"{'AlexNet, 8 ranks':18}{'weights':>12}{'inputs':>9}   plan for 128, 2,048 and 16,384 images")
    plans = [one_weird_trick(layers, batch, 8) for batch in (128, 2048, 16384)]
    for layer, *plan in zip(alexnet(), *plans, strict=True):
        print(f"{layer.name:18}{layer.weights:12,}{layer.inputs:9,}   " + "".join(f"{how:8}" for how in plan))
    print(f"\n{'images':>8}{'all data':>12}{'all model':>12}{'the trick':>12}   MB sent by each rank")
    for batch in (128, 1024, 16384):
        trick = one_weird_trick(layers, batch, 8)
        sums = [sum(volume(*layer, batch, 8, how) for layer in layers) for how in ("data", "model")]
        sums.append(sum(volume(*layer, batch, 8, how) for layer, how in zip(layers, trick, strict=True)))
        print(f"{batch:8,}" + "".join(f"{nbytes / 1e6:12,.0f}" for nbytes in sums))
    reveal("model_parallel.trick", plans[0].count("data"))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# For 128 images the trick sends only a small part of what either way alone would send. Convolutions use few weights at many positions; linear layers have one
# weight for each pair of numbers. The choice depends on the batch: for a linear layer with $k$ outputs, cutting the network is cheaper while the batch has fewer
# than $k$ images. With 16,384 images data parallelism wins everywhere, which is one reason why the trick is no longer used. In Krizhevsky's table the linear
# layers have their own, smaller batch, for a reason other than messages: with fewer images in a step, training converges better.
# </details>


# %% [markdown]
# ## A pipeline
#
# Cut the network across its depth: stage 0 has the first layers, and stage $p-1$ has the last layers and the loss. If the whole batch goes through at once, one
# stage works while the others wait. So cut the batch, too, into $m$ **microbatches** that follow one another like cars on an assembly line.
#
#     p = 3 stages, m = 4 microbatches, F and B equally long: GPipe
#
#     stage 0   F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
#     stage 1   .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .
#     stage 2   .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .          time →
#
# Dots are the **bubble**, time in which a stage has nothing to do. Filling and emptying the pipeline costs each stage $p - 1$ times one F and one B, for any
# $m$. Out of $m + p - 1$ in total, this is
#
# $$ \text{bubble} = \frac{p-1}{m+p-1}. $$
#
# A **schedule** only says what each stage does, and in which order. The times follow from it: each op starts as soon as the stage is free and its input has
# arrived. So a schedule is data: a list of `(op, microbatch, chunk)` for each stage.
#
# The F of a microbatch leaves activations that stay in memory until its B. GPipe holds all $m$ microbatches. **1F1B** begins a backward pass as soon as it can,
# and then alternates one backward and one forward pass. The bubble is the same, but stage $i$ never holds more than $p - i$ microbatches.
#
#     stage 0   F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3         1F1B: what comes before the first B is the warm-up
#     stage 1   .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
#     stage 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
#
# Both follow one pattern, which is given:


# %%
def in_turn(forwards: list, backwards: list, warmup: int) -> list:
    """Return `warmup` forward passes, then backward and forward in turn, then the remaining backward passes."""
    order = forwards[:warmup]
    for n, backward in enumerate(backwards, start=warmup):
        order += [backward, *forwards[n : n + 1]]
    return order


forwards, backwards = [("F", k, 0) for k in range(4)], [("B", k, 0) for k in range(4)]
print(" ".join(f"{op}{k}" for op, k, chunk in in_turn(forwards, backwards, warmup=2)))  # stage 1 above

# %% [markdown]
# {{exercise schedules}}
#
# Write GPipe, 1F1B, and a third schedule.
#
# **Interleaved.** Give each stage $v$ smaller pieces of the network, its **chunks**, instead of one: of $vp$ parts, stage $i$ has parts $i$, $i + p$, $i + 2p$,
# ... A microbatch goes around the stages $v$ times. Filling the pipeline now takes $p - 1$ *chunks*, so the bubble is 1F1B's divided by $v$ (but there are $v$
# times as many messages). The microbatches pass in groups of $p$: the first group goes through chunk 0, then through chunk 1, and so on; then the second group
# follows. Backward, they go from the last chunk to the first.
#
# Before its first B, stage $i$ does $(v-1)p + 2(p - i - 1) + 1$ forward passes: the first group through all chunks except the last, enough to bring the first
# microbatch there and back, and the one that comes next in turn.
#
# <details><summary>Hint 1: GPipe and 1F1B</summary>
#
# All stages have the same `forwards` and `backwards`, but different warm-ups. GPipe's warm-up is `m`. In the picture of 1F1B, count the F before the first B:
# stage 2 of 3 has one, stage 1 has two.
# </details>
# <details><summary>Hint 2: 1F1B's warm-up</summary>
#
# `p - i`. If there are fewer microbatches, a slice takes as many as there are.
# </details>
# <details><summary>Hint 3: the order of the chunks</summary>
#
# Write three loops in one list: over the groups of p microbatches, over the chunks, and over the microbatches of the
# group. Backward, the last chunk comes first.
# </details>


# %%
def gpipe(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """Return for each of p stages its ops ("F" or "B", microbatch, chunk 0): all m forward
    passes, then all backward passes, both starting with microbatch 0.

    >>> gpipe(1, 2)
    [[('F', 0, 0), ('F', 1, 0), ('B', 0, 0), ('B', 1, 0)]]
    """
    # BEGIN SOLUTION
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, m) for _ in range(p)]
    # END SOLUTION


def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """Return the same ops in 1F1B's order: stage i warms up with p - i forward passes and
    never holds more microbatches.

    >>> one_f_one_b(2, 2)[1]
    [('F', 0, 0), ('B', 0, 0), ('F', 1, 0), ('B', 1, 0)]
    """
    # BEGIN SOLUTION
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, p - i) for i in range(p)]
    # END SOLUTION


def interleaved(p: int, m: int, v: int) -> list[list[tuple[str, int, int]]]:
    """Return 1F1B with v chunks on each stage; p divides m. Each chunk starts with
    microbatch 0.

    >>> interleaved(1, 1, 2)
    [[('F', 0, 0), ('F', 0, 1), ('B', 0, 1), ('B', 0, 0)]]
    """
    # BEGIN SOLUTION
    turns = [(k, chunk) for first in range(0, m, p) for chunk in range(v) for k in range(first, first + p)]
    forwards, backwards = [("F", k, chunk) for k, chunk in turns], [("B", k, v - 1 - chunk) for k, chunk in turns]
    return [in_turn(forwards, backwards, (v - 1) * p + 2 * (p - i - 1) + 1) for i in range(p)]
    # END SOLUTION


# %%
check("model_parallel.schedules")

# %% [markdown]
# Here are *your* schedules.

# %%
fill_the_bubble.explorable({"gpipe": gpipe, "one_f_one_b": one_f_one_b, "interleaved": interleaved})

# %% [markdown]
# ## Split B and W
#
# A backward pass does two things. **B** computes the gradient of the stage's *input*, and the previous stage waits for it. **W** computes the gradient of the
# stage's *weights*, and no stage waits for it. So you can postpone W, to fill time in which the stage would have nothing to do (Qi et al. 2024).
#
# Their schedule **ZB-H1** is 1F1B with postponed W: on stage $i$, after each B, do the oldest waiting W if more than $i$ are waiting; do the rest at the end.
# Then B runs back through the stages without waiting for any W. The last stages have some W left for the end, and the bubble shrinks from $(p-1)(F+B+W)$ to
# $(p-1)(F+B-W)$. Until then, the data that W needs stay in memory: at most $p$ microbatches on each stage, as many as on stage 0 of 1F1B.
#
#     stage 0   F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3           no W waits
#     stage 1   .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3           one W waits
#     stage 2   .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3           two W wait
#
# **How good is a schedule?** Simulate it: an op starts when its stage is free and its input has arrived. An input from another stage arrives `message` seconds
# after it is computed; both stages continue in the meantime. Qi et al. measure the **bubble** on the stage that takes longest. If it takes $t$ seconds from the
# start of its first op to the end of its last op, then
#
# $$ \text{bubble} = \frac{t - m(F+B+W)}{t}. $$
#
# This function, which is given, says what an op needs:


# %%
def source(op: str, k: int, i: int, p: int) -> tuple[str, int, int] | None:
    """Return the (op, microbatch, stage) that `op` of microbatch k on stage i needs first; None if only the batch."""
    if op == "F":
        return ("F", k, i - 1) if i > 0 else None
    if op == "B":
        return ("B", k, i + 1) if i < p - 1 else ("F", k, i)
    return ("B", k, i)


# %% [markdown]
# {{exercise zero_bubble}}
#
# Write ZB-H1, and the simulation that measures a schedule's bubble.
#
# <details><summary>Hint 1: zb_h1 from 1F1B</summary>
#
# Go through the order of stage `i` in `one_f_one_b(p, m)`. Copy each op. After a B, append its W to a list `waiting`; if it holds more than `i`, do the first
# one now: `waiting.pop(0)`. Append the rest of `waiting` at the end.
# </details>
# <details><summary>Hint 2: the simulation</summary>
#
# `ends[op, k, i]` is the time when this op ended, `ends[None] = 0.0` stands for the batch, and `clock[i]` is the time when stage `i` is free. A stage can
# continue if `source(...)` of its next op is in `ends`. Take any stage that can continue, and do its next op, until no ops are left. The order in which you
# take the stages does not matter.
# </details>
# <details><summary>Hint 3: when an op starts</summary>
#
# `start = max(clock[i], ends[needed] + message)`, without the `message` if `needed` is None or was computed on stage `i` itself.
# </details>
# <details><summary>Hint 4: no stage can continue</summary>
#
# If there are ops left but no stage can continue, none ever will: `raise ValueError(...)`.
# </details>


# %%
def zb_h1(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """Return for each stage its ops ("F", "B" or "W", microbatch, chunk 0): 1F1B, where up
    to i W wait on stage i; the longest waiting W comes first.

    >>> zb_h1(1, 2)
    [[('F', 0, 0), ('B', 0, 0), ('W', 0, 0), ('F', 1, 0), ('B', 1, 0), ('W', 1, 0)]]
    """
    # BEGIN SOLUTION
    orders = []
    for i, plain in enumerate(one_f_one_b(p, m)):
        order, waiting = [], []
        for op, k, chunk in plain:
            order.append((op, k, chunk))
            if op == "B":
                waiting.append(("W", k, chunk))
                if len(waiting) > i:
                    order.append(waiting.pop(0))
        orders.append(order + waiting)
    return orders
    # END SOLUTION


def bubble(
    orders: list[list[tuple[str, int, int]]],
    f: float,
    b: float,
    w: float,
    message: float = 0.0,
) -> float:
    """Return the share of its time that the slowest stage idles; F, B, W and a message take
    f, b, w and `message` seconds.

    Each stage has one chunk. In a schedule without W, a B takes b + w. Raises ValueError
    if no stage can continue.

    >>> bubble(gpipe(2, 1), 1.0, 0.5, 0.5)
    0.5
    """
    # BEGIN SOLUTION
    p, split = len(orders), any(op == "W" for order in orders for op, *_ in order)
    seconds = {"F": f, "B": b if split else b + w, "W": w}
    ends, clock, first, queues = {None: 0.0}, [0.0] * p, {}, [list(order) for order in orders]
    while any(queues):
        ready = [i for i in range(p) if queues[i] and source(*queues[i][0][:2], i, p) in ends]
        if not ready:
            raise ValueError("every stage that has ops left waits for another: these orders cannot be followed")
        i = ready[0]
        op, k, _ = queues[i].pop(0)
        needed = source(op, k, i, p)
        start = max(clock[i], ends[needed] + (message if needed and needed[2] != i else 0.0))
        first.setdefault(i, start)
        clock[i] = ends[op, k, i] = start + seconds[op]
    m = sum(op == "F" for op, *_ in orders[0])
    return 1 - m * (f + b + w) / max(clock[i] - first[i] for i in range(p))
    # END SOLUTION


# %%
check("model_parallel.zero_bubble")

# %% [markdown]
# Qi et al. measured the times of F, B, W and a message on 8 and 16 GPUs. Compare the bubble that your simulation computes from these times with the one that
# they printed.

# %%
published = [  # p, m, ms of F, B, W and a message, bubble of 1F1B and of ZB-H1 (tables 9 and 5)
    (8, 24, (18.522, 18.086, 9.337, 0.601), 0.2431, 0.1585),
    (8, 64, (18.546, 18.097, 9.321, 0.762), 0.1240, 0.0674),
    (16, 48, (11.347, 11.248, 8.132, 0.377), 0.2552, 0.1397),
    (16, 128, (11.325, 11.308, 8.109, 0.378), 0.1251, 0.0576),
]
with when_solved():
    print("stages  microbatches    1F1B  printed   ZB-H1  printed")
    for p, m, times, *printed in published:
        ours = bubble(one_f_one_b(p, m), *times), bubble(zb_h1(p, m), *times)
        print(f"{p:6}  {m:12}  {ours[0]:6.4f}   {printed[0]:6.4f}  {ours[1]:6.4f}   {printed[1]:6.4f}")

# %%
fill_the_bubble.explorable({"one_f_one_b": one_f_one_b, "zb_h1": zb_h1})

# %% [markdown]
# <details><summary>Spot the difference</summary>
#
# DeepSeek-V3's report prints the bubble of this schedule as $(p-1)(F + B - 2W)$. Is this another schedule? No: their $B$ is the *whole* backward pass, which is
# $B + W$ here. Whenever you read a table of schedules, check which B it means.
# </details>

# %% [markdown]
# ## Your own schedule
#
# A schedule is a trade between time and memory: ZB-H1 keeps 1F1B's memory, ZB-H2 of the same paper holds $2p - 1$ microbatches and has a smaller bubble. Now
# you get the memory, a **cap** on the microbatches that a stage may hold, and design the schedule. A microbatch is held from its F until its W.

# %%
guess(
    "model_parallel.cap",
    "4 stages, 8 microbatches, F = B = W, one chunk on each stage: from which cap on is there a schedule without a bubble?",
    unit="microbatches",
)

# %% [markdown]
# {{exercise design}}
#
# Write a function that returns a schedule for any sizes, any seconds of F, B and W, and any cap. There is no single right answer: the check plays your schedule
# and compares its bubble with the known ones.
#
# <details><summary>Hint 1: two numbers for each stage</summary>
#
# ZB-H1 has two numbers for stage $i$: it begins with $p - i$ forward passes, and lets $i$ W wait. Their sum is $p$, the most that the stage holds. With another
# cap, choose another first number, and the rest of the cap is how many W may wait.
# </details>
# <details><summary>Hint 2: with more memory</summary>
#
# A stage that has more forward passes before its first B bridges the time in which it would wait for that B. $2(p - i) - 1$ is enough for F = B, and no more
# than the cap is allowed.
# </details>
# <details><summary>Hint 3: which is best?</summary>
#
# You have a simulation, your `bubble`. Make a few schedules, such as one for each of several slopes of the first number, and return the one with the smallest
# bubble.
# </details>


# %%
def design(p: int, m: int, f: float, b: float, w: float, cap: int) -> list[list[tuple]]:
    """Return a schedule of your own: for each of p stages its ops ("F", "B" or "W",
    microbatch, chunk 0).

    Each stage does F, B and W of each of m microbatches once, in an order that all stages
    can follow together. F, B and W take f, b and w seconds, messages are free. No stage
    holds more than `cap` microbatches (1 or more) from their F to their W. If cap, m and p
    are above 1, some stage holds more than one.
    For m >= p > 1 its bubble is smaller than that of 1F1B if cap is p, and than that of
    1F1B whose stages begin with at most cap forward passes if cap is 2 to p - 1. With
    cap = 2p - 1, m >= 2p - 1 and w no longer than f and b, its bubble is smaller than that
    of ZB-H1.

    >>> design(1, 2, 1.0, 1.0, 1.0, cap=1)
    [[('F', 0, 0), ('B', 0, 0), ('W', 0, 0), ('F', 1, 0), ('B', 1, 0), ('W', 1, 0)]]
    """
    # BEGIN SOLUTION
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    slope = min(max((cap - 1) / max(p - 1, 1), 1.0), 2.0)  # 1: ZB-H1's warm-ups, 2: those of ZB-H2
    orders = []
    for i in range(p):
        warmup, order, waiting = min(cap, 1 + int(slope * (p - 1 - i))), [], []
        for op in in_turn(forwards, backwards, warmup):
            order.append(op)
            if op[0] == "B":
                waiting.append(("W", op[1], 0))
                if len(waiting) > cap - warmup:
                    order.append(waiting.pop(0))
        orders.append(order + waiting)
    return orders
    # END SOLUTION


# %%
check("model_parallel.design")

# %% [markdown]
# Here is *your* schedule, and where it is among the others: 1F1B, ZB-H1, ZB-V (which cuts the layers into a V), and the library's search within your cap. Raise
# the cap from 4 to 7. What does each further microbatch in memory gain? Then make W shorter.

# %%
with when_solved():
    guessed("model_parallel.cap")
    bubbles = {cap: bubble(design(4, 8, 1.0, 1.0, 1.0, cap), 1.0, 1.0, 1.0) for cap in range(1, 9)}
    print("your bubble by cap: ", ", ".join(f"{cap}: {100 * idle:.1f} %" for cap, idle in bubbles.items()))
    if gone := [cap for cap, idle in bubbles.items() if idle < 1e-9]:
        reveal("model_parallel.cap", gone[0])
    display(your_design.explorable(design))

# %% [markdown]
# **The class's table.** Three problems, one row for each design. The cell below keeps your schedules in the file `.design.json` next to this notebook. It stays
# on your machine, unless you hand it in with `hpcdl submit --design` or give it to others. Put the files of other students into this folder, with names like
# `ada.design.json`, and they get a row, too. Each schedule is played again, so the table believes no one's numbers.

# %%
MY_NAME = "yours"  # or any name that the others may see
with when_solved():
    designs.keep(designs.made(design, MY_NAME), Path.cwd())
    print("\n".join(designs.table(designs.kept_in(Path.cwd()))))

# %% [markdown]
# ## Run it
#
# Now the messages are real. A `stage` object holds some layers of a network and knows its microbatches. It has these methods:
#
# | | |
# |---|---|
# | `stage.zero_grad()` | sets the gradients of its weights to 0 |
# | `stage.forward(k, x)` | F: the output for microbatch `k`, a tensor to send to the next stage; on the last stage the mean loss of the microbatch, a float. Stage 0 has the batch: its `x` is None |
# | `stage.backward(k, dy)` | B: the gradient of the input of microbatch `k`, a tensor to send back (None on stage 0). `dy` is the gradient of its output; on the last stage it is a number, the gradient of the batch's loss with respect to the microbatch's loss |
# | `stage.weights(k)` | W: *adds* microbatch `k`'s part to the gradients of the weights |
# | `stage.empty(op, k)` | an empty tensor to receive the input of microbatch `k`'s "F" or "B" |
#
# **The loss is a mean over all rows of the batch**, and microbatches may differ in size: microbatch $k$ with $n_k$ of $N$ rows has the weight $n_k/N$. This
# factor enters once, where the backward pass begins: `dy` on the last stage is $n_k / N$, and all gradients on all stages follow. For years, frameworks
# computed a mean of means instead.
#
# **Deadlock.** A `send` waits for its `recv`. In 1F1B stage 0 would send F1 while stage 1 would send B0 back, each waiting for the other to receive. So begin
# messages with `isend` and continue, and post every receive before the first op. Then a message is sent as soon as it is ready, while both stages compute.
# (PyTorch's own pipelines hung with gloo until 2025: when several messages were begun together, it waited for only one of them, pytorch #132644.) Posting is
# given:


# %%
def post_receives(stage, order: list[tuple[str, int, int]], comm) -> dict:
    """Post all receives of a stage; return {(op, microbatch): (tensor, request)}. Wait for a request before using its tensor."""
    posted = {}
    for op, k, _ in order:
        neighbour = comm.rank + {"F": -1, "B": 1, "W": comm.size}[op]
        if 0 <= neighbour < comm.size:
            out = stage.empty(op, k)
            posted[op, k] = out, comm.irecv(out, neighbour, tag=k)
    return posted


# %% [markdown]
# {{exercise run_stage}}
#
# Write the loop over a stage's ops, with their messages. If an order has no W, a B is the whole backward pass: call `backward(k, dy)`, send its result, and
# only then call `weights(k)`, because no stage waits for it.
#
# <details><summary>Hint 1: the frame</summary>
#
# `posted = post_receives(stage, order, comm)`, `stage.zero_grad()`, then loop over the order. If `(op, k)` is in `posted`, wait for the request; its tensor is
# the `x` of an F or the `dy` of a B.
# </details>
# <details><summary>Hint 2: what to send</summary>
#
# After an F on any stage except the last: `sent.append(comm.isend(y, comm.rank + 1, tag=k))`. After a B on any stage except the first: send the gradient of the
# input in the same way to `comm.rank - 1`. Wait for all of `sent` at the end; if a stage returned earlier, its neighbours would wait forever.
# </details>
# <details><summary>Hint 3: the last stage</summary>
#
# The last stage receives no `dy`: use `rows[k] / sum(rows)`. Return the sum of `rows[k] / sum(rows)` times the loss that each `forward` returned.
# </details>


# %%
def run_stage(stage, order: list[tuple[str, int, int]], rows: list[int], comm) -> float:
    """Do the ops of `order` on this rank's stage, and leave the gradients of the batch's
    loss in the stage's weights.

    rows: the number of rows of each microbatch. Returns the batch's loss, a mean over all
    rows, on the last stage; 0.0 on the others. Use the number of the microbatch as the tag
    of its messages. Wait for every message.
    """
    # BEGIN SOLUTION
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        share_of_rows = rows[k] / sum(rows)
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += share_of_rows * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, share_of_rows if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss
    # END SOLUTION


# %%
check("model_parallel.run_stage")

# %% [markdown]
# Predict what *your* stages do. These questions have no points; a run of your program gives the answers.


# %%
from hpcdl.nn.stage import Stage


def four_microbatches(comm):
    batch, rows, last = [torch.ones(2, 10)] * 4, [2] * 4, comm.rank == comm.size - 1
    ends = {
        "inputs": None if comm.rank else batch,
        "targets": batch if last else None,
        "loss": mse_loss if last else None,
    }
    stage = Stage(nn.Linear(10, 10), rows, takes=(10,), gives=(10,), **ends)
    run_stage(stage, [(op, k, 0) for op in "FB" for k in range(4)], rows, comm)


with when_solved():
    your_program(
        "model_parallel.run_stage",
        four_microbatches,
        p=5,
        on="4 microbatches of 2 rows with 10 numbers",
    )

# %% [markdown]
# ## Live: a transformer in a pipeline
#
# Two engines, which are MPI processes next to this kernel, hold half of a small transformer each: the embedding and a block on stage 0, a block and the output
# layer on stage 1. The model learns the text of this course, character by character. *Your* `run_stage` runs the stages.

# %%
from hpcdl.cluster import Cluster, ClusterError
from hpcdl.cost.pipeline import play
from hpcdl.data.text import Characters, corpus, windows
from hpcdl.nn.stage import Stage
from hpcdl.training import run_on

LENGTH, WIDTH, ROWS, M = 64, 64, 4, 8  # characters of a piece, numbers of each, pieces in a microbatch, microbatches


class Block(nn.Module):
    """A transformer block: attention with four heads, then two layers; each is added to its input."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, n, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, n, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // 4)).masked_fill(
            torch.ones(n, n).triu(1).bool(), -math.inf
        )
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, n, WIDTH))
        return x + self.down(torch.relu(self.up(self.between(x))))


class Embedding(nn.Module):
    """Characters and their positions as vectors."""

    def __init__(self, kinds: int):
        super().__init__()
        self.kind, self.place = nn.Embedding(kinds, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.kind(tokens) + self.place(torch.arange(tokens.shape[1]))


def part(stage: int, kinds: int) -> nn.Module:
    """Return the layers of stage 0 or 1; the stage is the seed of their initial weights."""
    torch.manual_seed(stage)
    return nn.Sequential(Embedding(kinds), Block()) if stage == 0 else nn.Sequential(Block(), nn.Linear(WIDTH, kinds))


def character_loss(y: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(y.flatten(0, 1), target.flatten())


def train_in_a_pipeline(comm, orders, steps: int):
    """Train this rank's stage; return the last stage's losses, the fastest step's ops with times, and the weights."""
    torch.set_num_threads(1)
    characters = Characters(corpus())
    text, generator = characters.encode(corpus()), torch.Generator().manual_seed(0)
    module, last = part(comm.rank, len(characters)), comm.rank == comm.size - 1
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    losses, best = [], None
    for _ in range(steps):
        x, y = (piece.split(ROWS) for piece in windows(text, LENGTH, M * ROWS, generator))  # the same on both stages
        stage = Stage(
            module,
            [ROWS] * M,
            inputs=x if comm.rank == 0 else None,
            targets=y if last else None,
            loss=character_loss if last else None,
            takes=(LENGTH, WIDTH),
            gives=(LENGTH, WIDTH),
        )
        comm.barrier()
        losses.append(run_stage(stage, orders[comm.rank], [ROWS] * M, comm))
        optimizer.step()
        took = torch.tensor([stage.events[-1][3] - stage.events[0][2]])
        comm.all_reduce(took)
        if best is None or took < best[0]:
            best = took, stage.events
    return losses, best[1], [param.detach() for param in module.parameters()]


cluster = Cluster(n=2).start()

# %% [markdown]
# First look at the timelines of eight microbatches: for each schedule, the fastest of a few steps. The upper half of each lane shows what the stages really
# did, by their own clocks. The lower half shows what the simulation predicts from the measured F, B and W. Which schedule is the fastest, and what limits it
# with two stages?

# %%
guess(
    "model_parallel.schedule",
    "Two stages, eight microbatches: which schedule is the fastest?",
    choices=("gpipe", "one_f_one_b", "zb_h1"),
)


# %%
def measure_and_predict(schedule, axes, end: float | None = None):
    """Run a schedule and draw it over its prediction; return the seconds of both."""
    orders = schedule(2, M)
    runs = cluster.run(train_in_a_pipeline, orders, 12, timeout=60)
    zero = min(events[0][2] for _, events, _ in runs)
    measured = [(i, op, k, 0, a - zero, b - zero) for i, (_, events, _) in enumerate(runs) for op, k, a, b in events]
    seconds = [[middle(measured, stage, op) for stage in range(2)] for op in "FBW"]
    timeline = play(orders, *seconds, message=50e-6)
    took = max(event[5] for event in measured)
    fill_the_bubble.draw_beside(axes, measured, timeline.events(), schedule.__name__, max(took, timeline.makespan))
    return took, timeline.makespan


def middle(events, stage: int, op: str) -> float:
    """Return the median seconds of an op on a stage."""
    return torch.tensor([b - a for i, name, _, _, a, b in events if (i, name) == (stage, op)]).median().item()


with when_solved():
    guessed("model_parallel.schedule")
    simulate(lambda comm: train_in_a_pipeline(comm, zb_h1(2, M), 1)[0], 2)  # a mistake is easier to read here
    took = {}
    figure, rows = plt.subplots(3, figsize=(9.6, 6.6), layout="constrained", sharex=True)
    for schedule, axes in progress(zip((gpipe, one_f_one_b, zb_h1), rows, strict=True), "schedule"):
        took[schedule.__name__], predicted = measure_and_predict(schedule, axes)
        measured = 1e3 * took[schedule.__name__]
        print(f"{schedule.__name__:12} measured {measured:6.1f} ms   predicted {1e3 * predicted:6.1f} ms")
    rows[-1].set(xlabel="seconds")
    rows[-1].autoscale(axis="x")
    plt.show()
    reveal("model_parallel.schedule", min(took, key=took.get), measured=True)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The stages follow their orders, mostly at the predicted times. With two stages and eight microbatches 1F1B and GPipe lose a ninth of the time, and ZB-H1
#   loses less. A pipeline of two stages is short; the picture above shows what happens with eight.
# - The simulation leaves out two things. A message costs some work on both sides. And if a core is busy with something else, one op is late and delays the
#   neighbour's ops through its messages. With fewer than two free cores the stages take turns, and the measured bars are longer than the predicted ones.
# </details>
#
# Now let it learn, with ZB-H1: 100 steps of 32 pieces. Both stages together have about 115,000 weights; neither holds all of them.

# %%
losses, halves = [], []
with when_solved():
    simulate(lambda comm: train_in_a_pipeline(comm, zb_h1(2, M), 1)[0], 2)
    runs = cluster.run(train_in_a_pipeline, zb_h1(2, M), 100, timeout=120)
    losses, halves = runs[-1][0], [weights for *_, weights in runs]
    figure, axes = plt.subplots(figsize=(9.6, 3.2), layout="constrained")
    axes.plot(losses)
    axes.axhline(math.log(81), color=style.GREY, linestyle=":")
    axes.set(xlabel="step", ylabel="loss", title="Two blocks learn 63,172 characters (dotted: guessing among 81)")
    plt.show()
    print(f"loss {losses[0]:.2f} at first, {sum(losses[-5:]) / 5:.2f} at the end")

# %% [markdown]
# What does the model write? Put both halves together, and generate one character after another:

# %%
if halves:
    with when_solved():
        characters, said = Characters(corpus()), "The "
        model = nn.Sequential(part(0, len(characters)), part(1, len(characters)))
        for param, value in zip(model.parameters(), halves[0] + halves[1], strict=True):
            param.data.copy_(value)
        torch.manual_seed(1)
        with torch.no_grad():
            for _ in range(160):
                odds = (model(characters.encode(said)[None, -LENGTH:])[0, -1] / 0.7).softmax(0)
                said += characters.alphabet[int(odds.multinomial(1))]
        print(said)

# %% [markdown]
# **If an order is wrong.** Stage 1 forgets the last backward pass, so stage 0 waits for its gradient. You are told where each stage waits, and the engines are ready again:

# %%
with when_solved():
    broken = one_f_one_b(2, M)
    broken[1].remove(("B", M - 1, 0))
    try:
        cluster.run(train_in_a_pipeline, broken, 1, timeout=3)
    except ClusterError as error:
        print(error)
print(cluster.run(lambda comm: f"stage {comm.rank} is there"))

# %% [markdown]
# ## Live: both cuts, by the trainer
#
# `run_on` is the library's trainer on your engines: it cuts a model along any mesh of data, pipeline, tensor and sequence ranks. Here it trains the same small
# transformer twice: first cut through its matrices, then cut between its layers with ZB-H1. Compare the losses, and the bytes that a rank sends in a step.

# %%
guess(
    "model_parallel.cuts",
    "How many times as many bytes does a rank send if you cut the matrices?",
    unit="times",
)

# %%
with when_solved():
    guessed("model_parallel.cuts")
    sent, options = {}, {"model": "gpt", "microbatches": 4, "schedule": "zb_h1", "steps": 4}
    for mesh in progress(("tensor=2", "pipeline=2"), "mesh"):
        first, _ = run_on(cluster, mesh=mesh, say=lambda line: None, **options)
        last, sent[mesh] = first[-1], first[-1]["bytes_sent"]
        print(f"{mesh:12}loss {last['loss']:.5f}, {sent[mesh] / 1e3:7,.0f} KB in {last['messages']:3} messages a step")
    reveal("model_parallel.cuts", sent["tensor=2"] / sent["pipeline=2"])

# %%
cluster.stop()  # the engines are no longer needed: free their memory

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# The last layer of a language model compares each token with $V$ words, and the logits are the largest tensor of all. Cut the words across ranks, and write the
# cross entropy so that no rank ever sees all logits. Which sums do you need, and which maximum must come first? *Proof:* value and gradients equal those of one
# machine to 1e-12 in float64 for $p$ = 1 … 5, also if $p$ does not divide $V$; and no message of the trace has more than two numbers for each token.

# %% [markdown]
# ## Further reading
#
# - A whole transformer block in parallel, and a whole pipeline, in under 100 lines each: `import hpcdl.parallel.tensor.plain`, then
#   `hpcdl.parallel.tensor.plain??` in a cell of its own shows all of it; so does `hpcdl.parallel.pipeline.plain`. `hpcdl.parallel.searched`
#   searches a schedule for your own seconds of F, B and W.
# - A. Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks".
# - M. Shoeybi et al. 2019, "Megatron-LM: Training multi-billion parameter language models using model parallelism": column and row layers; V. Korthikanti et
#   al. 2022, "Reducing activation recomputation in large transformer models": the same with the sequence cut between them.
# - Y. Huang et al. 2019, "GPipe: Efficient training of giant neural networks using pipeline parallelism"; D. Narayanan et al. 2021, "Efficient large-scale
#   language model training on GPU clusters using Megatron-LM": 1F1B and interleaved 1F1B.
# - P. Qi et al. 2024, "Zero bubble pipeline parallelism": splitting B and W.
