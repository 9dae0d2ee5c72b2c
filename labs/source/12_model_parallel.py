# %% [markdown]
# # Lab {{number model_parallel}} · The network itself is cut
# ## Tensor and pipeline parallelism
#
# In lab 07 every machine held the whole model. This is no longer possible if a model does not fit: the weights, gradients and activations of a large language model take
# the memory of hundreds of machines. Then the network itself is cut. Lab {{number attention}} cut the sequence, and put experts on different ranks. Two more cuts are left: through each layer's
# matrices, and between layers. Each cut has its own messages and its own way to lose time. Today you make both, and run one of them on live engines.
#
# **You will be able to**
# - cut a layer over ranks so that two layers need one all-reduce each way, and say which layers are worth it;
# - write the schedules of GPipe, 1F1B, interleaved 1F1B and Zero Bubble, and predict their bubbles to four decimals;
# - run any of them over real messages, without a deadlock, with the gradients of one machine;
# - train a transformer in a pipeline of two engines, and explain its timeline.
#
# **100 points, 5 exercises, about 120 minutes: 20 reading + 92 exercises + 8 runs.** You need lab 07's `comm` and matrix products; lab 08's ring and lab {{number attention}}'s transformer block help. MPI came with the
# installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$, $m$, $v$ | ranks or stages of a pipeline (GPipe's $K$); microbatches ($M$); chunks of layers on a stage |
# | F, B, W | a forward pass, the gradient of the input, the gradient of the weights, of one microbatch; and their seconds. A batch is `batch` here, a weight matrix `weight` or `w` |
# | $n$, $d$ | tokens or rows; the numbers of one token |

# %%
import math

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy

from autograder import check
from hpcdl.comm import simulate
from hpcdl.nn.networks import alexnet
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import cut_the_matrix, fill_the_bubble

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# A network is cut into $p$ **stages**, one on each rank, and a batch into $m$ **microbatches** that pass through them one after another. Each lane is a stage,
# each box a microbatch that it works on: forward (F), then backward (B). White is the **bubble**, time in which a stage has nothing to do. Below: how many
# microbatches a stage holds in memory.
#
# What happens to the bubble with twice as many microbatches? With twice as many stages? Say it first, then:
# 1. Move $m$ and $p$. Was your guess right?
# 2. Change **schedule** from GPipe to 1F1B. What changes, and what does not?
# 3. Choose ZB-H1, then ZB-V, with F = B = W. Where has the white gone?
# 4. Choose one of the published **times**: they were measured on 8 and 16 GPUs. The sentence has the bubble that the authors printed.

# %%
guess(
    "model_parallel.microbatches",
    "1F1B, 4 stages: with 16 microbatches instead of 8, how large is the bubble, of what it was?",
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
    white = {
        (p, m): fill_the_bubble.played("one_f_one_b", p, m, 1, times, {}).bubble for p, m in ((4, 8), (4, 16), (8, 8))
    }
    reveal("model_parallel.microbatches", 100 * white[4, 16] / white[4, 8])
    reveal("model_parallel.stages", 100 * white[8, 8] / white[4, 8])
    display(fill_the_bubble.explorable())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The white at the ends stays as it is, whatever $m$ is; it is a smaller share of a longer time. With more stages there is more of it: filling the pipeline
#    takes $p - 1$ forward passes and emptying it $p - 1$ backward ones.
# 2. The time does not change, the memory does: GPipe holds all $m$ microbatches, 1F1B $p$ on the first stage and one on the last.
# 3. W, the gradient of the weights, waits for nobody and nobody waits for it. It fills the gaps. ZB-V has two pieces of the network on each stage, there and
#    back, and no bubble at all when F = B = W.
# 4. They agree to the last digit for 1F1B, ZB-H1 and ZB-H2. A schedule is a model that works.
# </details>

# %% [markdown]
# ## Cut a matrix
#
# A layer $y = xW^T + b$ has a weight matrix with a row for each output and a column for each input. Cut it over $p$ ranks and none of them has to hold all
# of it. There are two ways, and each of them has something that travels for free.
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
# The parts that come out of the one are what the other takes. So two layers, first by outputs, then by inputs, with a function of single elements such as
# ReLU between them, need one all-reduce for both. Backward it is the other way round: a row layer's $dx_r = dy\,W_r$ is its rank's part and needs no message,
# and in a column layer all ranks add to the gradient of $x$, which they share: one all-reduce (Shoeybi et al. 2019, "Megatron-LM").
#
# A rank's weights have their gradient from what the rank has anyway, $dW_r = dy_r^T x$ and $db_r = \sum dy_r$. Nobody ever sends a weight or its gradient.
#
# Filters of a convolution are cut in the same way: $w$ of shape $(K, C, R, S)$ along its first dimension gives each rank $K/p$ filters, and its part of the
# output's channels. In the lectures that is model parallelism by filter.

# %% [markdown]
# The picture shows who holds which part, and what each rank sends. Before you move anything: which of the first two cuts sends something forward, and which
# backward? What do two layers together send?

# %%
cut_the_matrix.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - By outputs nothing is sent forward, by inputs nothing backward. One after the other they send one all-reduce each way, and $h$, the widest of all
#   activations, is never whole anywhere.
# - The weights shrink with p, $x$ and $y$ do not: each rank keeps them whole. Cutting *the tokens* outside the two layers mends that. An all-reduce is a
#   reduce-scatter and an all-gather; put one of them behind the layers and the other before the next ones, and between them each rank has only its tokens. It
#   sends as much forward, and backward gathers $x$ once more (Korthikanti et al. 2022).
# - Many tokens and narrow layers: messages are as large as the weights. That is why tensor parallelism stays within a machine.
# </details>

# %% [markdown]
# {{exercise tensor_parallel}}
#
# `comm` is lab 07's: `comm.rank`, `comm.size`, and `comm.all_reduce(x)`, which sums a tensor over the ranks in place.
#
# <details><summary>Hint 1: a share</summary>
#
# `w.tensor_split(p, dim)` cuts along `dim` into p parts, the first of them one longer where p does not divide. What it gives are views, and a view keeps the
# whole tensor in memory, which is what you wanted to get rid of: `.clone()` it.
# </details>
# <details><summary>Hint 2: the column layer</summary>
#
# Its weights are the share along dimension 0, and so is its bias. `forward` keeps `x` for later and is an ordinary layer with those. `backward` is too:
# `self.weight_grad = dy.T @ self.x`, `self.bias_grad = dy.sum(0)`, `dx = dy @ self.weight`; then the sum of `dx` over the ranks.
# </details>
# <details><summary>Hint 3: the row layer</summary>
#
# Its weights are the share along dimension 1, its bias is the whole one (a copy). Sum `x @ self.weight.T` over the ranks *before* the bias is added.
# </details>


# %%
def share(w: Tensor, dim: int, comm) -> Tensor:
    """This rank's part of `w` along dimension `dim`, a tensor of its own: the parts'
    lengths differ by one at most.

    >>> simulate(lambda comm: share(torch.arange(5), 0, comm).tolist(), p=2).results
    [[0, 1, 2], [3, 4]]
    """
    # BEGIN SOLUTION
    return w.tensor_split(comm.size, dim)[comm.rank].clone()
    # END SOLUTION


class ColumnLinear:
    """A layer of which each rank has some outputs: `weight` (about out / p, in) and `bias`
    are its part.

    weight: (out, in), bias: (out,), the whole layer's, the same on all ranks.
    """

    def __init__(self, weight: Tensor, bias: Tensor, comm):
        # BEGIN SOLUTION
        self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """This rank's outputs (n, about out / p) of x (n, in), which is the same on all
        ranks. No message."""
        # BEGIN SOLUTION
        self.x = x
        return x @ self.weight.T + self.bias
        # END SOLUTION

    def backward(self, dy: Tensor) -> Tensor:
        """The gradient of x (n, in), the same on all ranks, from that of this rank's
        outputs: one all-reduce.

        Leaves the gradients of its own weights in `weight_grad` and `bias_grad`: those of
        this pass alone.
        """
        # BEGIN SOLUTION
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx
        # END SOLUTION


class RowLinear:
    """A layer of which each rank has some inputs: `weight` (out, about in / p) is its part;
    `bias` is a copy of the whole one.

    weight: (out, in), bias: (out,), the whole layer's, the same on all ranks.
    """

    def __init__(self, weight: Tensor, bias: Tensor, comm):
        # BEGIN SOLUTION
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """The whole output (n, out), the same on all ranks, of this rank's part of x (n,
        about in / p): one all-reduce."""
        # BEGIN SOLUTION
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias
        # END SOLUTION

    def backward(self, dy: Tensor) -> Tensor:
        """The gradient of this rank's part of x from dy (n, out), which is the same on all
        ranks. No message.

        Leaves the gradients of its own weights in `weight_grad` and `bias_grad`.
        """
        # BEGIN SOLUTION
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight
        # END SOLUTION


# %%
check("model_parallel.tensor_parallel")


# %%
def two_layers(comm):
    """A column layer, ReLU, a row layer: how far the output is from the undivided one, and what each rank holds."""
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
    """A convolution of which each rank has some filters: the shape of its part of the output."""
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
# Data or model parallelism? The lectures' answer is from 2014. Most of a convolutional network's *work* is in its convolutions, most of its *weights* are in
# its linear layers. Data parallelism sends the gradients of the weights, model parallelism the activations. So cut the convolutions by the batch and the
# linear layers by the network: "one weird trick" (Krizhevsky 2014). With it he trained AlexNet on ImageNet:
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
# Count it. A layer has `weights` weights and takes `inputs` numbers for each of the `batch` samples of the whole batch; a number has 4 bytes. Round a ring,
# each rank sends $\frac{p-1}{p}n$ bytes to gather, or to sum and scatter, a tensor of $n$ bytes; an all-reduce is one of each (lab 08).
#
# - **data**: an all-reduce of the weights' gradients.
# - **model**, by the layer's outputs: each rank has a part of the inputs, from the layer before, and needs those of the whole batch: a gather. Backward
#   all ranks have a part of the sum that is the gradient of the inputs, and each needs its own part of that: a reduce-scatter.
#
# Which layers of AlexNet should be cut how, for 128 images in all? And for 16,384?

# %% [markdown]
# {{exercise one_weird_trick}}
#
# <details><summary>Hint 1: both are alike</summary>
#
# Each way sends $2\frac{p-1}{p}n$ bytes. For data, $n$ is the bytes of the weights; for model, of the inputs of the whole batch.
# </details>
# <details><summary>Hint 2: a choice for each layer</summary>
#
# The layers' costs add up, so the cheapest plan takes the cheaper one of each: `min(("data", "model"), key=lambda how: volume(..., how))`.
# </details>


# %%
def volume(weights: int, inputs: int, batch: int, p: int, how: str) -> float:
    """Bytes that each of p ranks sends in a step for a layer that is cut by "data" or by
    "model".

    >>> volume(weights=100, inputs=1, batch=10, p=2, how="data")
    400.0
    """
    # BEGIN SOLUTION
    n = 4 * (weights if how == "data" else batch * inputs)
    return 2 * (p - 1) / p * n
    # END SOLUTION


def one_weird_trick(layers: list[tuple[int, int]], batch: int, p: int) -> list[str]:
    """For each layer (weights, inputs) "data" or "model", so that the ranks send least.

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
# For 128 images the trick sends a small part of what either way alone would: convolutions share few weights among many positions, linear layers have a weight
# for each pair of numbers. It is a matter of the batch: a linear layer $n \times k$ is cheaper by the network as long as the batch has fewer than $k$ images.
# With 16,384 images data parallelism wins everywhere, which is one reason why the trick has gone out of use. In Krizhevsky's table the linear layers have a smaller
# batch of their own. That has another reason than messages: with fewer images in a step, training converges better.
# </details>


# %% [markdown]
# ## A pipeline
#
# Cut the network across its depth: stage 0 has the first layers, stage $p-1$ the last ones and the loss. If the whole batch goes through at once, one
# stage works and the others wait. So cut the batch, too, into $m$ **microbatches**, and let them follow one another, as cars do on an assembly line.
#
#     p = 3 stages, m = 4 microbatches, one F as long as one B: GPipe
#
#     stage 0   F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
#     stage 1   .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .
#     stage 2   .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .          time →
#
# Dots are the **bubble**, time in which a stage has nothing to do. Filling the pipeline and emptying it costs each stage $p - 1$ times one F and one B,
# whatever $m$ is; of the $m + p - 1$ in all, that is
#
# $$ \text{bubble} = \frac{p-1}{m+p-1}. $$
#
# A **schedule** says for each stage what it does and in which order, nothing more. *When* it does it follows: each op starts as soon as the stage is free
# and its input has come. So a schedule is data, a list of `(op, microbatch, chunk)` for each stage.
#
# What a microbatch leaves behind in its F, its activations, stays in memory until its B. GPipe holds all $m$ microbatches. **1F1B** begins a backward pass
# as soon as it can, and then does one backward and one forward pass in turn: the same bubble, and stage $i$ never holds more than $p - i$.
#
#     stage 0   F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3         1F1B: what comes before the first B is the warm-up
#     stage 1   .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
#     stage 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
#
# Both are one pattern, which is given:


# %%
def in_turn(forwards: list, backwards: list, warmup: int) -> list:
    """`warmup` forward passes, then backward and forward in turn, then the backward passes that are left."""
    order = forwards[:warmup]
    for n, backward in enumerate(backwards, start=warmup):
        order += [backward, *forwards[n : n + 1]]
    return order


forwards, backwards = [("F", k, 0) for k in range(4)], [("B", k, 0) for k in range(4)]
print(" ".join(f"{op}{k}" for op, k, chunk in in_turn(forwards, backwards, warmup=2)))  # stage 1 above

# %% [markdown]
# {{exercise schedules}}
#
# **Interleaved.** Give each stage not one piece of the network but $v$ smaller ones, its **chunks**: of $vp$ parts, stage $i$ has parts $i$, $i + p$,
# $i + 2p$, ... A microbatch goes round the stages $v$ times. Filling the pipeline now takes $p - 1$ *chunks*, so the bubble is a $v$-th of 1F1B's (and there
# are $v$ times as many messages). The microbatches pass in groups of $p$: the first group goes through chunk 0, then through chunk 1, and so on; then the
# second group comes. Backward it is the same, but from the last chunk to the first.
#
# Before its first B, stage $i$ does $(v-1)p + 2(p - i - 1) + 1$ forward passes: the first group through all chunks but the last, what it takes to bring the
# first microbatch there and back, and the one that it would do in turn.
#
# <details><summary>Hint 1: GPipe and 1F1B</summary>
#
# All stages have the same `forwards` and `backwards`; they differ in the warm-up. GPipe's is `m`. In the picture of 1F1B count the F before the first B:
# stage 2 of 3 has one, stage 1 has two.
# </details>
# <details><summary>Hint 2: 1F1B's warm-up</summary>
#
# `p - i`. Where there are fewer microbatches than that, a slice takes what there is.
# </details>
# <details><summary>Hint 3: the order of the chunks</summary>
#
# Three loops in one list: `for first in range(0, m, p) for chunk in range(v) for k in range(first, first + p)`. For the backward passes `chunk` becomes
# `v - 1 - chunk`.
# </details>


# %%
def gpipe(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """For each of p stages its ops ("F" or "B", microbatch, chunk 0): all m forward passes,
    then all backward passes, both from microbatch 0 on.

    >>> gpipe(1, 2)
    [[('F', 0, 0), ('F', 1, 0), ('B', 0, 0), ('B', 1, 0)]]
    """
    # BEGIN SOLUTION
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, m) for _ in range(p)]
    # END SOLUTION


def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """The same ops, where stage i warms up with p - i forward passes and never holds more
    microbatches.

    >>> one_f_one_b(2, 2)[1]
    [('F', 0, 0), ('B', 0, 0), ('F', 1, 0), ('B', 1, 0)]
    """
    # BEGIN SOLUTION
    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]
    return [in_turn(forwards, backwards, p - i) for i in range(p)]
    # END SOLUTION


def interleaved(p: int, m: int, v: int) -> list[list[tuple[str, int, int]]]:
    """1F1B with v chunks on each stage; p divides m. A chunk's ops go from microbatch 0 on.

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
# Here are *your* schedules, played.

# %%
fill_the_bubble.explorable({"gpipe": gpipe, "one_f_one_b": one_f_one_b, "interleaved": interleaved})

# %% [markdown]
# ## B and W apart
#
# A backward pass does two things. **B** computes the gradient of the stage's *input*, and the stage before waits for it. **W** computes the gradient of
# the stage's *weights*, and nobody waits for that. So W may be put off, to fill time in which the stage would have nothing to do (Qi et al. 2024).
#
# Their schedule **ZB-H1** is 1F1B where the W of a microbatch waits: on stage $i$, after each B, do the oldest W that waits if more than $i$ of them do;
# what is left comes at the end. Then B runs back through the stages without waiting for any W, the last stages have W left for the end, and the bubble
# shrinks from $(p-1)(F+B+W)$ to $(p-1)(F+B-W)$. What W needs stays in memory meanwhile: at most $p$ microbatches on each stage, which stage 0 of 1F1B
# has, too.
#
#     stage 0   F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3           no W waits
#     stage 1   .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3           one W waits
#     stage 2   .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3           two W wait
#
# **What is a schedule worth?** Play it: an op starts when its stage is free and what it needs has come. If what it needs was made on another stage, it
# comes `message` seconds after it is made; both stages go on meanwhile. Qi et al. measure the **bubble** on the stage that takes longest, from the start
# of its first op to the end of its last, $t$ seconds:
#
# $$ \text{bubble} = \frac{t - m(F+B+W)}{t}. $$
#
# What an op needs is given:


# %%
def source(op: str, k: int, i: int, p: int) -> tuple[str, int, int] | None:
    """The (op, microbatch, stage) that must have been done before stage i can do `op` of microbatch k; None: the batch."""
    if op == "F":
        return ("F", k, i - 1) if i > 0 else None
    if op == "B":
        return ("B", k, i + 1) if i < p - 1 else ("F", k, i)
    return ("B", k, i)


# %% [markdown]
# {{exercise zero_bubble}}
#
# <details><summary>Hint 1: zb_h1 from 1F1B</summary>
#
# Go through the order of stage `i` in `one_f_one_b(p, m)`. Copy each op. After a B, append its W to a list `waiting`; if there are more than `i` in it, the
# first of them is done now: `waiting.pop(0)`. What is in `waiting` at the end comes last.
# </details>
# <details><summary>Hint 2: playing</summary>
#
# `ends[op, k, i]` is when that op ended, `ends[None] = 0.0` is the batch, `clock[i]` when stage `i` is free. A stage can go on if `source(...)` of its next op
# is in `ends`. Take any stage that can, and do its op, until no stage has any left. The order in which you take the stages does not matter.
# </details>
# <details><summary>Hint 3: when an op starts</summary>
#
# `start = max(clock[i], ends[needed] + message)`, without the `message` where `needed` is None or was made on stage `i` itself.
# </details>
# <details><summary>Hint 4: nobody can go on</summary>
#
# If there are ops left and no stage can go on, it will stay so: `raise ValueError(...)`.
# </details>


# %%
def zb_h1(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    """For each stage its ops ("F", "B" or "W", microbatch, chunk 0): 1F1B, where on stage i
    up to i W wait; the one that has waited longest comes first.

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
    """The share of its time that the slowest stage idles; F, B, W and a message take f, b,
    w and `message` seconds.

    One chunk on each stage. In a schedule without W a B takes b + w. Raises ValueError
    where no stage can go on.

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
# Times of F, B, W and of a message, measured on 8 and 16 GPUs by Qi et al.; the bubble that your simulation makes of them, and the one that they printed.

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
# <details><summary>A question to read by</summary>
#
# DeepSeek-V3's report prints the bubble of this schedule as $(p-1)(F + B - 2W)$. Is that another schedule? No: their $B$ is the *whole* backward pass, what is
# $B + W$ here. Ask of every table of schedules which B it means.
# </details>

# %% [markdown]
# ## Run it
#
# Now the messages are real. A `stage` holds some layers of a network; it knows its microbatches and does, when asked:
#
# | | |
# |---|---|
# | `stage.zero_grad()` | sets the gradients of its weights to 0 |
# | `stage.forward(k, x)` | F: the output for microbatch `k`, a tensor to send on; on the last stage the mean loss of the microbatch, a float. Stage 0 has the batch: its `x` is None |
# | `stage.backward(k, dy)` | B: the gradient of the input of microbatch `k`, a tensor to send back (None on stage 0). `dy` is the gradient of its output; on the last stage a number, the gradient of the batch's loss with respect to the microbatch's |
# | `stage.weights(k)` | W: *adds* microbatch `k`'s part to the gradients of the weights |
# | `stage.empty(op, k)` | memory for what the "F" or "B" of microbatch `k` receives |
#
# **The loss is a mean over all rows of the batch**, and microbatches may differ in size: microbatch $k$ with $n_k$ of $N$ rows counts $n_k/N$. That factor
# enters once, where the backward pass begins: `dy` on the last stage is $n_k / N$, and all gradients on all stages follow. Frameworks have got this wrong
# for years, as the mean of means.
#
# **Deadlock.** A `send` waits for its `recv`. In 1F1B stage 0 would send F1 while stage 1 would send B0 back, each waiting for the other to receive. So begin
# messages with `isend` and go on, and post every receive before the first op: then a message can travel as soon as it is made, while both stages compute.
# (PyTorch's own pipelines hung over gloo until 2025: of several messages that were begun together it waited for one and forgot the others, pytorch #132644.)
# Posting is given:


# %%
def post_receives(stage, order: list[tuple[str, int, int]], comm) -> dict:
    """Posts all that a stage will receive: {(op, microbatch): (tensor, request)}; wait for a request before you use its tensor."""
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
# Where an order has no W, a B is the whole backward pass: `backward(k, dy)`, send its result on, and only then `weights(k)`, which nobody waits for.
#
# <details><summary>Hint 1: the frame</summary>
#
# `posted = post_receives(stage, order, comm)`, `stage.zero_grad()`, then a loop over the order. In it, if `(op, k)` is in `posted`, wait for the request;
# its tensor is the `x` of an F or the `dy` of a B.
# </details>
# <details><summary>Hint 2: what goes out</summary>
#
# After an F on any stage but the last: `sent.append(comm.isend(y, comm.rank + 1, tag=k))`. After a B on any stage but the first: the same with the gradient
# of the input, to `comm.rank - 1`. Wait for all of `sent` at the end: a stage that returns earlier would leave its neighbours alone.
# </details>
# <details><summary>Hint 3: the last stage</summary>
#
# Nobody sends it a `dy`: it is `rows[k] / sum(rows)`. The loss to return is the sum of `rows[k] / sum(rows)` times what each `forward` returned.
# </details>


# %%
def run_stage(stage, order: list[tuple[str, int, int]], rows: list[int], comm) -> float:
    """Do the ops of `order` on this rank's stage; leaves the gradients of the batch's loss
    in the stage's weights.

    rows: the number of rows of each microbatch. Returns the batch's loss, a mean over all
    rows, on the last stage; 0.0 on the others. Microbatches are known to both sides of a
    message by their number, its tag. Every message is waited for.
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
# ## Live: a transformer in a pipeline
#
# Two engines, MPI processes beside this kernel. On each is half of a small transformer: the embedding and a block on stage 0, a block and the output layer on
# stage 1. It learns the prose of this course, character by character. The stages are run by *your* `run_stage`.

# %%
from hpcdl.cluster import Cluster, ClusterError
from hpcdl.cost.pipeline import play
from hpcdl.data.text import Characters, corpus, windows
from hpcdl.nn.stage import Stage
from hpcdl.training import run_on

LENGTH, WIDTH, ROWS, M = 64, 64, 4, 8  # characters of a piece, numbers of each, pieces in a microbatch, microbatches


class Block(nn.Module):
    """A transformer block: attention with four heads, then two layers; each is added to what came in."""

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
    """Characters and their places as vectors."""

    def __init__(self, kinds: int):
        super().__init__()
        self.kind, self.place = nn.Embedding(kinds, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.kind(tokens) + self.place(torch.arange(tokens.shape[1]))


def part(stage: int, kinds: int) -> nn.Module:
    """The layers of stage 0 or 1; the seed makes their first weights."""
    torch.manual_seed(stage)
    return nn.Sequential(Embedding(kinds), Block()) if stage == 0 else nn.Sequential(Block(), nn.Linear(WIDTH, kinds))


def character_loss(y: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(y.flatten(0, 1), target.flatten())


def train_in_a_pipeline(comm, orders, steps: int):
    """Train this rank's stage: the losses (of the last stage), the ops of the fastest step with their times, the weights."""
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
# First the timelines: eight microbatches with each schedule, a few steps, and the fastest of them. Upper half of each lane: what the stages really did, by their
# own clocks. Lower half: what the simulation foretells for the F, B and W that were measured. Which schedule is the fastest, and what limits it
# with two stages?

# %%
guess(
    "model_parallel.schedule",
    "Two stages, eight microbatches: which schedule is the fastest?",
    choices=("gpipe", "one_f_one_b", "zb_h1"),
)


# %%
def measure_and_predict(schedule, axes, end: float | None = None):
    """Run a schedule, draw it over its prediction; seconds of both."""
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
    """The median seconds of an op on a stage."""
    return torch.tensor([b - a for i, name, _, _, a, b in events if (i, name) == (stage, op)]).median().item()


with when_solved():
    guessed("model_parallel.schedule")
    simulate(lambda comm: train_in_a_pipeline(comm, zb_h1(2, M), 1)[0], 2)  # a mistake is easier to read here
    took = {}
    figure, rows = plt.subplots(3, figsize=(9.6, 6.6), layout="constrained", sharex=True)
    for schedule, axes in zip((gpipe, one_f_one_b, zb_h1), rows, strict=True):
        took[schedule.__name__], foretold = measure_and_predict(schedule, axes)
        measured = 1e3 * took[schedule.__name__]
        print(f"{schedule.__name__:12} measured {measured:6.1f} ms   predicted {1e3 * foretold:6.1f} ms")
    rows[-1].set(xlabel="seconds")
    rows[-1].autoscale(axis="x")
    plt.show()
    reveal("model_parallel.schedule", min(took, key=took.get), measured=True)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The stages do what their orders say, and mostly when the simulation says. With two stages and eight microbatches 1F1B and GPipe lose a ninth of the time,
#   ZB-H1 less. A pipeline of two stages is short; the picture above shows what happens with eight.
# - What the simulation leaves out: a message costs some work on both sides, and a core that does other things makes one op late and, through its messages, the
#   neighbour's, too. On a machine with fewer than two free cores the stages take turns, and the measured bars are longer than the predicted ones.
# </details>
#
# Now let it learn, with ZB-H1: 100 steps of 32 pieces. Both stages together have about 115,000 weights; neither has them all.

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
# What does it say? Both halves back in one place, one character after another:

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
# **When an order is wrong.** Stage 1 forgets the last backward pass; stage 0 waits for its gradient. One sentence, and the engines are there again:

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
# `run_on` is the library's trainer on your engines: it cuts a model along any mesh of data, pipeline, tensor and sequence ranks. Here it trains the same small transformer
# twice, first cut through its matrices, then between its layers, with ZB-H1. Compare the losses, and what a rank sends in a step.

# %%
guess(
    "model_parallel.cuts",
    "How many times as many bytes does a rank send if the matrices are cut?",
    unit="times",
)

# %%
with when_solved():
    guessed("model_parallel.cuts")
    sent, options = {}, {"model": "gpt", "microbatches": 4, "schedule": "zb_h1", "steps": 4}
    for mesh in ("tensor=2", "pipeline=2"):
        first, _ = run_on(cluster, mesh=mesh, say=lambda line: None, **options)
        last, sent[mesh] = first[-1], first[-1]["bytes_sent"]
        print(f"{mesh:12}loss {last['loss']:.5f}, {sent[mesh] / 1024:7,.0f} KB in {last['messages']:3} messages a step")
    reveal("model_parallel.cuts", sent["tensor=2"] / sent["pipeline=2"])

# %%
cluster.stop()  # the engines have done their work: give back their memory

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to ask of yourself.
#
# The last layer of a language model compares each token with $V$ words, and the logits are the largest tensor of all. Cut the words across ranks, and write the cross entropy so
# that no rank ever sees all logits: what must be summed, and of what must the maximum be taken first? *Proof:* value and gradients equal the whole's to 1e-12 in
# float64 for $p$ = 1 … 5, also where $V$ does not divide; and no message of the trace has more than two numbers for each token.

# %% [markdown]
# ## Further reading
#
# - A. Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks".
# - M. Shoeybi et al. 2019, "Megatron-LM: Training multi-billion parameter language models using model parallelism": column and row layers; V. Korthikanti et
#   al. 2022, "Reducing activation recomputation in large transformer models": the same with the sequence cut between them.
# - Y. Huang et al. 2019, "GPipe: Efficient training of giant neural networks using pipeline parallelism"; D. Narayanan et al. 2021, "Efficient large-scale
#   language model training on GPU clusters using Megatron-LM": 1F1B and interleaved 1F1B.
# - P. Qi et al. 2024, "Zero bubble pipeline parallelism": B and W apart.
