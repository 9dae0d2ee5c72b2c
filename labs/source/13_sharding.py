# %% [markdown]
# # Lab {{number sharding}} · Nothing twice
# ## ZeRO, FSDP, recomputation and checkpoints of shards
#
# In lab 07 every machine held the whole model: four machines kept the same weights, the same gradients and the same optimizer states four times. Lab
# {{number model_parallel}} cut the network. Most large models are trained in another way: the batch is cut, as in lab 07, and each rank keeps only its **share** of the
# weights, gradients and optimizer states. When it needs another rank's share, it fetches it, uses it and frees it.
#
# Mistakes here are easy to overlook. A sharded optimizer that shards nothing trains perfectly well, and so does an FSDP that never frees a weight. So the
# checks in this lab count the bytes that a rank holds, the bytes that it sends, and the seconds that it waits.
#
# **You will be able to**
# - say whether a training fits into its machines, and what each gigabyte that you save costs;
# - write ZeRO: an optimizer in which each rank updates its share, with no more messages than data parallelism;
# - write what FSDP does: gather a layer's weights before its use, while the previous layer computes, and free them afterwards;
# - trade memory for a second forward pass, with identical bits;
# - save a training so that it can be killed at any moment, and continue on a different number of machines.
#
# **100 points, 7 exercises, about 116 minutes: 16 reading + 92 exercises + 8 runs; three extra exercises take 38 more, and have 30 of the points.** You need lab 07's ring and a little autograd; lab {{number model_parallel}} helps. MPI came with the installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$, $r$ | number of ranks, one of the ranks |
# | $\Psi$ | the number of parameters, or of bytes where the text says so (ZeRO's letter) |
# | $n$ | elements of a vector; rank $r$'s share of it is `x.tensor_split(p)[r]` |
# | $s, b, h, a, t$ | a transformer's sequence length, microbatch, hidden size, heads; ranks of tensor parallelism (lab {{number model_parallel}}) |
#
# (In `adamw` `t` counts steps.)

# %%
import itertools
import os
import signal
import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from autograder import check
from hpcdl.collectives import all_gather, reduce_scatter
from hpcdl.comm import simulate
from hpcdl.memory import meter, saved
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved, your_program
from hpcdl.widgets.pictures import does_it_fit

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# You want to train a model of 7.5 billion parameters on GPUs of 80 GB. Each bar shows what one rank holds: the strong bar at the chosen stage of ZeRO, the faint
# bars at the other stages. The red line is the limit of its memory. On the right you see the price, in bytes sent and in work done twice.
#
# Of 16 bytes for each parameter, which part is the largest? How many ranks does it take until the model fits? Make your guesses, then:
# 1. Move the **stage** from 0 to 3. What shrinks, what stays, and from which stage on does it cost something?
# 2. At stage 3, move the number of **ranks** and then the **microbatch**. What limits you now?
# 3. Choose 175 B, as Korthikanti and others trained it, and make it fit. What does each of your changes cost?

# %%
guess(
    "sharding.largest",
    "Of 16 bytes for each parameter, which part is the largest?",
    choices=("weights", "gradients", "optimizer states"),
)

# %%
guess(
    "sharding.ranks",
    "7.5 billion parameters at stage 3; no stage divides the 34 GB of activations: how many ranks until 80 GB are enough?",
    unit="ranks",
)

# %%
with when_solved():
    guessed("sharding.largest")
    guessed("sharding.ranks")
    picture = does_it_fit.explorable()
    alone = does_it_fit.held(picture.state, stage=0)
    reveal("sharding.largest", max(("weights", "gradients", "optimizer states"), key=alone.get))
    held = (sum(does_it_fit.held(picture.state | {"p": p}, stage=3).values()) for p in itertools.count(1))
    reveal("sharding.ranks", next(p for p, nbytes in enumerate(held, start=1) if nbytes <= does_it_fit.LIMIT))
    display(picture)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The optimizer's states are three quarters of all bytes, and stage 1 divides them first. Stages 1 and 2 send as much as plain data parallelism, so they are
#    free. Stage 3 sends half as much again.
# 2. With many ranks, each rank's share of the model becomes tiny, and the activations remain, because no stage divides them. They grow with the microbatch.
#    Recomputing them makes them small, for a third more work; recomputing only the scores costs almost nothing.
# 3. There are several ways. Stage 3 alone fits on 38 ranks or more if you recompute the activations. Tensor parallelism divides the activations, too, but sends
#    a lot within each layer, so use it only where links are fast.
# </details>

# %% [markdown]
# ## What a rank holds
#
# Mixed-precision training with Adam keeps 16 bytes for each parameter: the weight and its gradient in 16 bits, 2 bytes each, and the optimizer's 12: the weight
# again in float32, the momentum and the variance. **ZeRO** (Rajbhandari et al. 2020) divides them among the $p$ ranks of data parallelism, the largest first:
#
# | stage | each rank keeps only a $p$-th of |
# |---|---|
# | 0 | nothing: plain data parallelism |
# | 1 | the optimizer's states |
# | 2 | also the gradients |
# | 3 | also the weights |
#
# The **activations** come on top: they are what the forward pass keeps for the backward pass. No stage of ZeRO divides them. For a microbatch, one layer of a
# transformer keeps, in 16 bits (Korthikanti et al. 2022):
#
# | | bytes | on each of $t$ ranks of tensor parallelism |
# |---|---|---|
# | around the normalizations and dropouts | $10\,sbh$ | all of it; a $t$-th if the sequence is cut there, too |
# | in the matrix products | $24\,sbh$ | a $t$-th |
# | the scores of attention | $5\,abs^2$ | a $t$-th |
#
# The backward pass recomputes what was not kept. **Selective** recomputation drops the scores. **Full** recomputation keeps only the layer's input: $2\,sbh$,
# which is whole on every rank unless the sequence is cut.

# %% [markdown]
# {{exercise memory}}
#
# Write both tables as functions, and compute the largest model that fits.
#
# <details><summary>Hint 1: the stages</summary>
#
# In the order in which ZeRO divides them, the three parts are `(12, 2, 2)`. Divide the first `stage` of them by p. Use slices: `(12, 2, 2)[:stage]` and
# `(12, 2, 2)[stage:]`.
# </details>
# <details><summary>Hint 2: the largest model</summary>
#
# Memory is proportional to the number of parameters. How much does one parameter take?
# </details>
# <details><summary>Hint 3: activations</summary>
#
# The scores are `5 * heads * batch * sequence**2`, or 0. Divide the part around the normalizations by `t if cut else 1`.
# </details>


# %%
def memory(parameters: float, p: int, stage: int) -> float:
    """Return the bytes of weights, gradients and states on each of p ranks, at ZeRO stage
    0 to 3.

    >>> memory(1000, p=4, stage=1)
    7000.0
    """
    # BEGIN SOLUTION
    divided, whole = (12, 2, 2)[:stage], (12, 2, 2)[stage:]
    return parameters * (sum(whole) + sum(divided) / p)
    # END SOLUTION


def largest(nbytes: float, p: int, stage: int) -> float:
    """Return how many parameters fit into `nbytes` bytes on each of p ranks, not rounded,
    without activations.

    >>> largest(16e9, p=1, stage=3)
    1000000000.0
    """
    # BEGIN SOLUTION
    return nbytes / memory(1, p, stage)
    # END SOLUTION


def activations(
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    recompute: str = "nothing",
    t: int = 1,
    cut: bool = False,
) -> float:
    """Return the bytes that one layer keeps for a microbatch on each of t ranks.

    recompute: "nothing", "selective" or "full". cut: whether the sequence is cut, too.

    >>> activations(sequence=10, batch=1, hidden=8, heads=2)
    3720.0
    """
    # BEGIN SOLUTION
    tokens, parts = sequence * batch * hidden, t if cut else 1
    if recompute == "full":
        return 2 * tokens / parts
    scores = 5 * heads * batch * sequence**2 if recompute == "nothing" else 0
    return 10 * tokens / parts + (24 * tokens + scores) / t
    # END SOLUTION


# %%
check("sharding.memory")

# %%
with when_solved():
    print("GB per rank of 7.5 billion parameters on 64 ranks, by stage (printed: 120, 31.4, 16.6, 1.9)")
    print("  ".join(f"{memory(7.5e9, 64, stage) / 1e9:.1f}" for stage in range(4)))
    print("\nbillions of parameters that fit into 80 GB with nothing else")
    print(f"{'ranks':>8}" + "".join(f"   stage {stage}" for stage in range(4)))
    for p in (1, 8, 64, 1024):
        print(f"{p:8}" + "".join(f"{largest(80e9, p, stage) / 1e9:10.1f}" for stage in range(4)))
    print("\nGB of activations of one microbatch of a 175 B model (96 layers, 8 ranks of tensor parallelism)")
    for cut in (False, True):
        for how in ("nothing", "selective", "full"):
            kept = 96 * activations(2048, 1, 12288, 96, how, t=8, cut=cut)
            print(f"   {'sequence cut' if cut else 'sequence whole':16}recomputing {how:10}{kept / 1e9:8.1f}")

# %% [markdown]
# ## The optimizer's share
#
# Data parallelism sums the gradients over the ranks by an all-reduce, and then each rank does the same update with the same numbers. In lab 07 the ring
# all-reduce had two halves. Put the update *between* them:
#
#     g_0  g_1  g_2          reduce-scatter        each rank: the sum of its chunk, nothing else
#      │    │    │                                      │
#      └────┴────┘                                    update of this chunk of the weights: a p-th of the states
#                                                       │
#                              all-gather           all chunks of the new weights, on every rank
#
# The messages are the same, $2\frac{p-1}{p}\Psi$ bytes from each rank, and the work of the update is divided by $p$, too. This is ZeRO-1. If you free the
# gradients as soon as they are summed, it is ZeRO-2.
#
# Parameters have shapes, but shares do not. So put all parameters into one flat vector, and cut it regardless of where a parameter ends. This works for every
# elementwise optimizer. These functions are given:


# %%
def flat(tensors: list[Tensor]) -> Tensor:
    """Return all tensors in one new vector."""
    return torch.cat([x.detach().reshape(-1) for x in tensors])


def fill(tensors: list[Tensor], vector: Tensor) -> None:
    """Copy the parts of the vector back into the tensors."""
    for x, part in zip(tensors, vector.split([x.numel() for x in tensors]), strict=True):
        x.detach().copy_(part.view_as(x))


def share(vector: Tensor, comm) -> Tensor:
    """Return this rank's part of the vector, a view."""
    return vector.tensor_split(comm.size)[comm.rank]


def adamw(w: Tensor, g: Tensor, m: Tensor, v: Tensor, t: int, lr: float) -> None:
    """Do step t = 1, 2, ... of AdamW in place: update w, momentum m and variance v from the gradient g."""
    m.lerp_(g, 1 - 0.9)
    v.lerp_(g * g, 1 - 0.999)
    w.mul_(1 - lr * 0.01)  # weight decay
    w.sub_(lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8))


# %% [markdown]
# {{exercise sharded_adam}}
#
# Write an AdamW in which each rank updates its share. The library's `reduce_scatter(x, comm, weight)` is the first half of lab 07's ring: it sums `weight * x`
# over the ranks and returns this rank's chunk of the sum, `share(x, comm)`, *a view of x*. `all_gather(x, comm)` is the second half: it fills in all chunks, in
# place, from the ranks that own them.
#
# <details><summary>Hint 1: what to keep</summary>
#
# Keep the momentum and the variance of this rank's share, `torch.zeros_like(share(flat(params), comm))`, and the number of steps. Beware of views: a view of a
# vector keeps the whole vector in memory.
# </details>
# <details><summary>Hint 2: the first half</summary>
#
# Put all gradients into one vector, then set `param.grad = None` for each parameter. All ranks' batches are equally large, so the mean over them is a sum with
# weight `1 / comm.size`.
# </details>
# <details><summary>Hint 3: the second half</summary>
#
# Make one vector of the parameters. Its `share` is a view of it, so an update of the share, in place, changes the
# vector. Gather the vector from all ranks, and `fill` the parameters with it.
# </details>


# %%
class ShardedAdam:
    """AdamW on the mean of all ranks' gradients, where each rank updates only its share.

    params: the weights, equal on all ranks, of one dtype. m, v: momentum and variance of
    this rank's share of `flat(params)`. t: the number of steps so far.
    """

    def __init__(self, params: list[Tensor], comm, lr: float = 1e-3):
        # BEGIN SOLUTION
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights from the ranks' `param.grad`; set every `param.grad` to
        None."""
        # BEGIN SOLUTION
        self.t += 1
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)
        # END SOLUTION


# %%
check("sharding.sharded_adam")

# %% [markdown]
# Predict what a step of *your* optimizer does. These questions have no points; a run of your program gives the answers.


# %%
def one_step(comm):
    w = nn.Parameter(torch.ones(1000))
    w.grad = torch.ones(1000)
    ShardedAdam([w], comm).step()


with when_solved():
    your_program(
        "sharding.sharded_adam",
        one_step,
        p=6,
        on="a step with 1,000 weights",
    )


# %%
def regression(comm, steps: int):
    """Fit a line on all ranks' samples; return this rank's loss in each step."""
    g = torch.Generator().manual_seed(comm.rank)
    w = nn.Parameter(torch.zeros(8))
    optimizer, losses = ShardedAdam([w], comm, lr=0.1), []
    for _ in range(steps):
        x = torch.randn(16, 8, generator=g)
        loss = ((x @ w - x.sum(1)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


with when_solved():
    run = simulate(regression, 4, 60)
    print("loss on rank 0:", ", ".join(f"{run.results[0][step]:.3f}" for step in (0, 20, 40, 59)))
    print(f"bytes sent by rank 0 in a step: {run.bytes_sent[0] // 60}, and 2 · 3/4 · 32 = {2 * 3 * 32 // 4}")

# %% [markdown]
# ## The weights' share
#
# In the last step, no rank holds all of the weights, either. A layer's weights are **gathered** just before its forward pass and **freed** after it. They are
# gathered and freed again for its backward pass. Then a reduce-scatter leaves each rank its share of the mean gradient. This is ZeRO-3; PyTorch calls it FSDP
# (fully sharded data parallelism, Zhao et al. 2023).
#
#     rank r      gather 0   F0   free 0, gather 1   F1   free 1, ...
#     with the next gather in flight:
#                 gather 0   F0            F1            F2   ...              compute
#                            gather 1      gather 2      gather 3              messages
#
# In a step each rank sends three times $\frac{p-1}{p}\Psi$ bytes, half as much again as in data parallelism. But if the next layer's weights arrive while this
# layer computes, no rank waits for them. At most two layers are whole at a time.
#
# A layer here holds no weights: it receives them as one flat vector in each pass. This class is all that your code needs to know:


# %%
class Layer:
    """y = tanh(x W^T) with weights (outputs x inputs) given as a flat vector; it keeps what backward needs."""

    def __init__(self, inputs: int, outputs: int):
        self.shape, self.kept = (outputs, inputs), []

    def forward(self, w: Tensor, x: Tensor) -> Tensor:
        """Return y (n, outputs) for x (n, inputs)."""
        y = torch.tanh(x @ w.view(self.shape).T)
        self.kept.append((x, y))
        return y

    def backward(self, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of x and of the flat w for this rank's samples. The last forward pass comes first."""
        x, y = self.kept.pop()
        ds = dy * (1 - y * y)
        return ds @ w.view(self.shape), (ds.T @ x).flatten()


# %% [markdown]
# {{exercise sharded}}
#
# Write both passes, and the gather that they use. `order` lists the layers that a pass goes through. A number may appear twice: then the layer is used in two
# places (its weights are **tied**), and its gradient is the sum of both uses. Gather it for each use.
#
# <details><summary>Hint 1: begin to gather</summary>
#
# `whole = self.shares[i].new_empty(self.sizes[i])`; `parts = whole.tensor_split(comm.size)` are views of it, one for each rank. Copy your share into your part.
# For each other rank, `comm.isend` your share to it, and `comm.irecv` its part from it. Return the vector and the requests, without waiting.
# </details>
# <details><summary>Hint 2: a pass</summary>
#
# Call `coming = self.begin(order[0])` before the loop. In the loop, wait for the requests of `coming`, begin the next gather if there is one, and only then
# compute. Use the same names in each iteration: a vector is freed when no name refers to it.
# </details>
# <details><summary>Hint 3: backward</summary>
#
# Do the same over `order[::-1]`: the next layer is the *previous* one. Pass the layer's `dw` to `reduce_scatter(dw, comm, 1 / comm.size)`, and *add* the result
# to `self.grads[i]`, which is 0 when the pass begins.
# </details>


# %%
class Sharded:
    """Layers whose weights are sharded: each rank keeps only shares[i], its share of
    weights[i].

    weights[i]: the weights of layers[i], flat and equal on all ranks. Between the passes no
    layer is whole, and an optimizer may change shares[i] in place. Wait for every message.
    """

    def __init__(self, layers: list, weights: list[Tensor], comm):
        # BEGIN SOLUTION
        self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]
        self.shares = [share(w, comm).clone() for w in weights]
        # END SOLUTION

    def begin(self, i: int) -> tuple[Tensor, list]:
        """Begin to gather the weights of layer i; return the vector and the requests."""
        # BEGIN SOLUTION
        p, rank = self.comm.size, self.comm.rank
        whole = self.shares[i].new_empty(self.sizes[i])
        parts, others = whole.tensor_split(p), [r for r in range(p) if r != rank]
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others]
        # END SOLUTION

    def forward(self, x: Tensor, order: list[int]) -> Tensor:
        """Return the output for this rank's samples x, through the layers in this order."""
        # BEGIN SOLUTION
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x
        # END SOLUTION

    def backward(self, dy: Tensor, order: list[int]) -> Tensor:
        """Return the gradient of x; set grads[i] to this rank's share of the mean gradient
        over all ranks, for this pass only."""
        # BEGIN SOLUTION
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy
        # END SOLUTION


# %%
check("sharding.sharded")

# %% [markdown]
# Predict what *your* gathers do:


# %%
def there_and_back(comm):
    model = Sharded([Layer(10, 10) for _ in range(3)], [torch.ones(100) / 10] * 3, comm)
    y = model.forward(torch.ones(2, 10), [0, 1, 2])
    model.backward(torch.ones_like(y), [0, 1, 2])


with when_solved():
    your_program(
        "sharding.sharded",
        there_and_back,
        p=5,
        on="three layers of 100 weights, forward and backward",
    )


# %% [markdown]
# Next, eight layers on a machine where a gather takes 1 s. From which batch on do the gathers hide behind the work?

# %%
guess(
    "sharding.hides",
    "A gather takes 1 s, and a layer's forward pass 0.5 s: how long is the forward pass of 8 layers?",
    unit="s",
)


# %%
def a_step(comm, seconds: float):
    """Do a step of eight layers on a machine with slow messages; return the seconds of forward and of backward."""

    class Slow(Layer):
        def forward(self, w, x):
            comm.compute(seconds)
            return super().forward(w, x)

        def backward(self, w, dy):
            comm.compute(2 * seconds)
            return super().backward(w, dy)

    layers, order = [Slow(16, 16) for _ in range(8)], list(range(8))
    model = Sharded(layers, [torch.ones(256) / 16 for _ in layers], comm)
    y = model.forward(torch.ones(2, 16), order)
    middle = comm.clock()
    model.backward(torch.ones_like(y), order)
    return middle, comm.clock() - middle


with when_solved():
    guessed("sharding.hides")
    print("A gather takes 1 s. Seconds of the two passes of 8 layers (and without messages):")
    for seconds in (4.0, 2.0, 1.0, 0.5):
        forward, backward = simulate(a_step, 4, seconds, alpha=1 / 3).results[0]
        print(f"F takes {seconds:3} s:  {forward:5.1f} ({8 * seconds:4.1f})   {backward:5.1f} ({16 * seconds:4.1f})")
    reveal("sharding.hides", forward)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# As soon as a layer's work takes longer than the next layer's gather, only the first gather costs time. Large microbatches hide messages; small ones do not. In
# the backward pass, our code does not hide the reduce-scatter; `hpcdl.sharding` runs it in the background, too.
# </details>

# %% [markdown]
# ## One norm
#
# Large models are trained with **clipped** gradients: if the gradient's norm over all parameters is above a limit, the whole gradient is scaled down to this
# limit. If each rank has only a share of the gradient, no rank knows the norm, but each rank knows the sum of its squares.

# %% [markdown]
# {{exercise clip}}
#
# Compute the norm over all ranks, and scale the shares. All ranks must return the same number: if it is infinite or NaN, every rank must skip the step, or none
# may. A rank may own nothing.
#
# <details><summary>Hint</summary>
#
# Each rank knows the sum of its own squares. Send this one number, in float64: `comm.all_reduce(squares)` adds it up,
# in place. Then every rank compares the same norm, and scales its shares in place.
# </details>


# %%
def clip(shares: list[Tensor], comm, max_norm: float) -> float:
    """Scale all ranks' shares, in place, by max_norm / norm if their norm is larger.

    shares: this rank's flat pieces of the gradient, of any floating dtype; may be empty.
    Returns the norm before scaling, equal on all ranks; squares are added in float64. Each
    rank sends one number.
    """
    # BEGIN SOLUTION
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm
    # END SOLUTION


# %%
check("sharding.clip")

# %% [markdown]
# ## Recompute instead of keeping
#
# No stage of ZeRO divides the activations. But you can *recompute* them: keep only a layer's input, drop everything else that its forward pass keeps, and
# repeat the forward pass when its backward pass comes. That costs a third more work, and needs the memory of one layer instead of all (Chen et al. 2016).
#
# The second pass must repeat the first exactly. **Dropout** draws random numbers: with other numbers you get the gradient of another function. So set the
# generator back before the second pass, and restore it afterwards.
#
# With `torch.autograd.Function` you tell autograd what to keep: `forward` runs without recording, `ctx.save_for_backward(*tensors)` keeps tensors, and anything
# else can be an attribute of `ctx`. `backward` returns a gradient for each argument of `forward`, or None if the argument is not a tensor.

# %% [markdown]
# {{exercise checkpointed}}
#
# Write both passes of a function that is computed twice, and the plan for a whole network.
#
# **Which layers?** Layers differ: attention's scores take much memory and little time. `plan` finds the cheapest choice; with a dozen layers you can try all of
# them.
#
# <details><summary>Hint 1: forward</summary>
#
# `ctx.f = f`, `ctx.state = torch.get_rng_state()`, `ctx.save_for_backward(*inputs)`, and return `f(*inputs)`.
# </details>
# <details><summary>Hint 2: backward</summary>
#
# Make the inputs leaves again: `x.detach().requires_grad_(x.requires_grad)` for each of `ctx.saved_tensors`. Do the second forward pass inside
# `with torch.enable_grad():`, with the generator set back. Then call `torch.autograd.backward(y, dy)`: it adds to the gradients of the weights that `f` uses,
# and stores each input's gradient in `x.grad`.
# </details>
# <details><summary>Hint 3: the generator</summary>
#
# Three lines: keep the generator's current state, call `torch.set_rng_state(ctx.state)` before the second pass, and restore the current state afterwards.
# </details>
# <details><summary>Hint 4: the plan</summary>
#
# `itertools.combinations(range(n), k)` for all k gives all sets. Take the `min(..., key=...)` of the sets that fit.
# </details>


# %%
class Checkpointed(torch.autograd.Function):
    """Compute f(*inputs) and keep only the inputs; backward calls f once more."""

    @staticmethod
    def forward(ctx, f, *inputs: Tensor) -> Tensor:
        """Return f(*inputs); save the inputs so that backward notices if one has been
        changed in between."""
        # BEGIN SOLUTION
        ctx.f, ctx.state = f, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return f(*inputs)
        # END SOLUTION

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple:
        """Return None and the gradients of the inputs; add to the gradients of f's
        weights."""
        # BEGIN SOLUTION
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            y = ctx.f(*inputs)
        torch.set_rng_state(now)
        torch.autograd.backward(y, dy)
        return None, *(x.grad for x in inputs)
        # END SOLUTION


def plan(nbytes: list[int], seconds: list[float], budget: int) -> set[int]:
    """Return the layers to recompute in the fewest seconds, so that the others keep at most
    budget bytes.

    Layer i keeps nbytes[i], or takes seconds[i] more. At most 12 layers.

    >>> plan([10, 10, 30], [1.0, 2.0, 2.5], budget=25)
    {2}
    """
    # BEGIN SOLUTION
    n = len(nbytes)
    sets = [set(some) for k in range(n + 1) for some in itertools.combinations(range(n), k)]
    fit = [again for again in sets if sum(nbytes) - sum(nbytes[i] for i in again) <= budget]
    return min(fit, key=lambda again: sum(seconds[i] for i in again))
    # END SOLUTION


# %%
check("sharding.checkpointed")


# %%
guess(
    "sharding.segments",
    "16 equal layers: with segments of how many layers is the memory of the worst moment smallest?",
    unit="layers",
)


# %%
def kept_and_calls(segment: int, length: int = 16):
    """Run `length` layers, checkpointed by segments (0: none); return bytes kept for backward, bytes at the worst
    moment, and layers run."""
    weights = [nn.Parameter(torch.randn(64, 64) / 8) for _ in range(length)]
    runs = [0]

    def layers(x: Tensor, some: list) -> Tensor:
        for w in some:
            runs[0] += 1
            x = torch.tanh(x @ w)
        return x

    x = torch.randn(256, 64, requires_grad=True)
    with meter(x, *weights) as memory:
        before = memory.live.total
        with saved(x, *weights) as kept:
            if not segment:
                y = layers(x, weights)
            else:
                y = x
                for first in range(0, length, segment):
                    y = Checkpointed.apply(lambda x, some=weights[first : first + segment]: layers(x, some), y)
        y.sum().backward()
    return kept.bytes, memory.peak.total - before, runs[0]


with when_solved():
    guessed("sharding.segments")
    print("16 layers    KB kept between the passes   KB at the worst moment   layers run")
    worst = {}
    for segment in (0, 1, 2, 4, 8, 16):
        kept, worst[segment], runs = kept_and_calls(segment)
        row = f"{kept / 1e3:14.0f}{worst[segment] / 1e3:27.0f}{runs:18}"
        print(f"{f'segments of {segment}' if segment else 'all kept':14}{row}")
    reveal("sharding.segments", min(worst, key=worst.get))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Each segment keeps only its input, and each layer runs twice. Long segments keep less, but during a segment's backward pass all activations inside it are in
# memory again. Segments of $\sqrt L$ layers keep about $2\sqrt L$ layers' bytes at the worst moment, which is the minimum (Chen et al. 2016). The table also
# counts the gradients that are there at that moment.
# </details>

# %% [markdown]
# ## Checkpoints
#
# With a thousand machines, one of them fails every few hours. Training then continues from the last **checkpoint**, perhaps with one machine less. No rank has
# the whole state, so every rank writes its own share, and the ranks that read may have different shares.
#
# **A checkpoint must be complete.** A rank may be killed at any moment, even in the middle of writing a file. So never overwrite a good file. Write the new
# state next to the old one, and let a small file, the **manifest**, say which one counts. Writing a file takes time, but *renaming* it is atomic: at every
# moment, either the old manifest is there or the new one.
#
# A disk here can do three things. (The checks use a disk that records your calls, and kills your ranks at each moment.)


# %%
class Disk:
    """Files in a folder that all ranks reach. A file holds a dict of tensors and numbers."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def write(self, name: str, content: dict) -> None:
        """Write a file, which takes time: a rank killed in the meantime leaves half a file."""
        torch.save(content, self.folder / name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, and replace a file that had the new name."""
        os.replace(self.folder / old, self.folder / new)

    def read(self, name: str) -> dict:
        """Return the content. Raises FileNotFoundError if there is no such file, another error for half a file."""
        return torch.load(self.folder / name)


def bounds(n: int, p: int, rank: int) -> tuple[int, int]:
    """Return start and stop of this rank's share of n elements, as `tensor_split` cuts them.

    >>> [bounds(5, 2, rank) for rank in range(2)]
    [(0, 3), (3, 5)]
    """
    return rank * (n // p) + min(rank, n % p), (rank + 1) * (n // p) + min(rank + 1, n % p)


# %% [markdown]
# {{exercise save_load}}
#
# Write `save` and `load`. `state` is a dict of flat tensors: this rank's shares of weights, momentum and variance, which are vectors of n elements. The step is
# part of the state, because Adam's correction in its first steps depends on it.
#
# No rank ever holds the whole state: a rank that loads opens only the files with some of its elements. In memory it keeps only
# its own elements: a part of a tensor is a view, which keeps the whole file.
#
# <details><summary>Hint 1: save</summary>
#
# Each rank writes its own file, with the step in its name. After `comm.barrier()` all of these files are written. Rank 0 writes
# `{"step": step, "p": comm.size, "n": n}` under another name and renames it to `"manifest"`. A second barrier ensures that no rank continues before that.
# </details>
# <details><summary>Hint 2: load</summary>
#
# Read the manifest. `start, stop = bounds(n, comm.size, comm.rank)` is what this rank needs. For each old rank: `first, last = bounds(n, old_p, old_rank)`; the
# two shares have the elements from `max(start, first)` to `min(stop, last)` in common, if there are any.
# </details>
# <details><summary>Hint 3: a piece</summary>
#
# Elements a to b of the vector are `x[a - first : b - first]` of an old share. In the order of the old ranks, the pieces are already in sequence: collect them
# in a list for each name, and `torch.cat` them at the end.
# </details>


# %%
def save(disk, step: int, state: dict[str, Tensor], n: int, comm) -> None:
    """Save all ranks' shares as the state of `step`; the old state counts until all is
    written. No rank returns before that, and no file has two writers.

    state: by name this rank's share of a vector of n elements, cut as by `bounds`.
    """
    # BEGIN SOLUTION
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()
    # END SOLUTION


def load(disk, comm) -> tuple[int, dict[str, Tensor]]:
    """Return the step of the last complete state, and by name this rank's shares, on up to
    n ranks.

    Raises FileNotFoundError if the manifest or a file that it needs is missing.
    """
    # BEGIN SOLUTION
    manifest, pieces = disk.read("manifest"), {}
    start, stop = bounds(manifest["n"], comm.size, comm.rank)
    for rank in range(manifest["p"]):
        first, last = bounds(manifest["n"], manifest["p"], rank)
        a, b = max(start, first), min(stop, last)
        if a < b:
            for name, x in disk.read(f"step-{manifest['step']}-rank-{rank}").items():
                pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return manifest["step"], {name: torch.cat(parts) for name, parts in pieces.items()}
    # END SOLUTION


# %%
check("sharding.save_load")

# %% [markdown]
# ## If nothing fits
#
# If nothing is left to divide, weights can wait elsewhere: in the memory of the host, or on a disk (Rajbhandari et al. 2021, "ZeRO-Infinity"). They arrive over
# a **link** that is much slower than the device's own memory, layer after layer, while earlier layers compute. The device has room for the weights of a few
# layers at a time.
#
#     room for 2      link      00001111  2222  3333
#                     compute       000000111111222222333333          layer 2 starts to load when layer 0 is done
#
# The link loads one layer at a time, in order. A layer computes when it is loaded and the previous layer is done. A layer can begin to load when there is room:
# with room for $k$ layers, layer $i$ begins when layer $i - k$ is done.

# %% [markdown]
# {{exercise offload}}
#
# Compute by these rules when the last layer is done.
#
# <details><summary>Hint</summary>
#
# Keep two lists, `there` and `done`, of the times when each layer is loaded and done. A load begins after the later of
# two events: the previous load, and the end of the layer that frees its place. A layer begins after the later of two
# events, too: its own load, and the end of the previous layer.
# </details>


# %%
def offload(compute: list[float], nbytes: list[int], link: float, room: int) -> float:
    """Return the seconds until the last layer is done.

    Layer i computes for compute[i] seconds and has nbytes[i] bytes. link: bytes per second.
    room: in layers.

    >>> offload([1.0, 1.0], [10, 10], link=10.0, room=2)
    3.0
    """
    # BEGIN SOLUTION
    there, done = [], []
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = max(there[-1] if there else 0.0, done[i - room] if i >= room else 0.0)
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]
    # END SOLUTION


# %%
check("sharding.offload")

# %%
with when_solved():
    print("24 layers of 10 ms and 200 MB each; seconds with room for 1, 2, 3 layers, by GB/s of the link")
    for link in (5, 10, 20, 40):
        took = [offload([0.01] * 24, [200_000_000] * 24, link * 1e9, room) for room in (1, 2, 3)]
        print(f"{link:4} GB/s" + "".join(f"{seconds:9.3f}" for seconds in took))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Room for two layers is enough: while one layer computes, the next one loads. If the link keeps up, here at 20 GB/s, there is almost no waiting. If it does
# not, more room does not help layers of equal size, because the link sets the pace.
# </details>

# %% [markdown]
# ## Live: four ways to keep one network
#
# Four engines, which are MPI processes next to this kernel, train the same network on the same data with Adam: first as in lab 07, then with each stage of ZeRO
# by `hpcdl.sharding`, which does what you wrote, but in the background. The meter counts each rank's bytes, and the trace counts its messages. Next to them you
# see the formulas, with 4 bytes for each weight and gradient and 8 for Adam's two numbers. They are *exactly equal*.
#
# Which is the first stage with which the four ranks hold less than half of what they hold with plain data parallelism?

# %%
guess(
    "sharding.half",
    "Four ranks, 16 bytes for each weight: which is the first stage with which they hold less than half?",
    choices=("ZeRO-1", "ZeRO-2", "ZeRO-3"),
)

# %%
import time

from hpcdl.cluster import Cluster, ClusterError
from hpcdl.comm import TracingComm
from hpcdl.cost.memory import zero
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer
from hpcdl.training import run_on

WIDE, DEEP, ROWS = 512, 4, 16
WAYS = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def network() -> nn.Module:
    """Return a network that is equal on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(DEEP) for layer in (nn.Linear(WIDE, WIDE, bias=False), nn.Tanh())])


def train_one_way(comm, way: str, steps: int = 4):
    """Return this rank's bytes by kind, the bytes it sends in a step (of large messages), the step's seconds, the loss."""
    torch.set_num_threads(1)
    comm, model = TracingComm(comm), network()
    wrapped, adam, synchronize = model, None, lambda: None
    if way in ("ZeRO-1", "ZeRO-2"):
        sharded = ShardedOptimizer(model.parameters(), comm, torch.optim.Adam, stage=int(way[-1]))
        adam, synchronize, update = sharded.optimizer, sharded.reduce, sharded.step
    else:
        kind = FullyShardedDataParallel if way == "ZeRO-3" else DistributedDataParallel
        wrapped = kind(model, comm)
        adam = torch.optim.Adam(wrapped.parameters())
        synchronize, update = wrapped.synchronize, adam.step
    pieces = [piece for group in adam.param_groups for piece in group["params"]]
    g, took, x = torch.Generator().manual_seed(comm.rank), [], None
    with meter(model, adam, *pieces) as memory:
        for _ in range(steps):
            x = torch.randn(ROWS, WIDE, generator=g)
            comm.barrier()
            begin, since = time.perf_counter(), len(comm.trace)
            loss = mse_loss(wrapped(x), x.flip(1))
            loss.backward()
            synchronize()
            gradients = memory.live["gradients"]
            update()
            took.append(time.perf_counter() - begin)
            adam.zero_grad()
    counters = 4 * len(adam.state)  # Adam counts its steps, a number for each piece
    held = memory.live["parameters"], gradients, memory.live["optimizer states"] - counters
    sent = sum(e.nbytes for e in comm.trace[since:] if e.op == "send" and e.nbytes > 1000)
    return held, sent, min(took), loss.item()


cluster = Cluster(n=4).start()

# %%
with when_solved():
    guessed("sharding.half")
    psi, found = DEEP * WIDE * WIDE, {}
    print(f"{psi:,} weights on 4 ranks; KB on rank 0, and summed over the ranks next to the formula")
    print(
        f"{'':14}{'weights':>9}{'gradients':>11}{'states':>8}{'all ranks':>12}{'formula':>9}{'sent':>8}{'formula':>9}{'step':>9}"
    )
    for stage, way in enumerate(WAYS):
        ranks = found[way] = cluster.run(train_one_way, way, timeout=60)
        held = sum(sum(held) for held, *_ in ranks)
        sent = sum(sent for _, sent, *_ in ranks)
        right = 4 * zero(psi, 4, stage, optimizer=8, gradient=4, weight=4), (3 if stage == 3 else 2) * 3 * 4 * psi
        kinds = "".join(f"{nbytes / 1e3:{width}.0f}" for nbytes, width in zip(ranks[0][0], (9, 11, 8), strict=True))
        totals = f"{held / 1e3:12.0f}{right[0] / 1e3:9.0f}{sent / 1e3:8.0f}{right[1] / 1e3:9.0f}"
        print(f"{way:14}{kinds}{totals}{1e3 * max(took for *_, took, _ in ranks):6.1f} ms")
        print(f"{'':14}{'equal' if (held, sent) == right else 'not equal'}; loss {ranks[0][-1]:.6f}")
    total = {way: sum(sum(held) for held, *_ in ranks) for way, ranks in found.items()}
    reveal("sharding.half", next(way for way in WAYS if total[way] < total["data parallel"] / 2))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The bytes match the formulas exactly, and the loss is the same in all four ways: it does not depend on where the numbers are kept.
# - On four ranks ZeRO-1 leaves 4 + 4 + 8/4 = 10 of 16 bytes, ZeRO-2 4 + 4/4 + 8/4 = 7, and ZeRO-3 16/4 = 4.
# - The last column says little: a step takes milliseconds, and the engines share this machine's cores. Run the cell again, and another way is the fastest. You
#   use ZeRO *to save memory*.
# - The table counts memory between backward and update. At the peak, ZeRO-3 holds two whole layers in addition, and the others hold a bucket of gradients.
# </details>
#
# ## Live: one rank is killed
#
# Now use *your* `ShardedAdam`, `save` and `load`. Four engines train and save every five steps. In the middle of the second checkpoint, with half a file
# written, rank 2's process is killed. Three engines continue. Every step has the same 12 samples in total, four ranks with 3 each or three with 4, so the
# losses must equal those of an undisturbed training.

# %%
guess(
    "sharding.again",
    "The rank is killed while it saves the state after step 10: how many steps does the training do again?",
    unit="steps",
)


# %%
class DeadlyDisk(Disk):
    """A disk that kills its writer in the middle of the second file."""

    files = 0

    def write(self, name, content):
        self.files += 1
        if self.files == 2:
            (self.folder / name).write_bytes(b"half a file")
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(name, content)


def train_with_checkpoints(comm, folder: str, steps: int, killed: int = -1) -> dict[int, float]:
    """Train to step `steps`, from the checkpoint in `folder` if any; save every 5; return the loss before each step."""
    torch.set_num_threads(1)
    disk = DeadlyDisk(folder) if comm.rank == killed else Disk(folder)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)).double()
    params = list(model.parameters())
    optimizer, n = ShardedAdam(params, comm, lr=0.02), len(flat(params))
    if (disk.folder / "manifest").exists():
        optimizer.t, state = load(disk, comm)
        optimizer.m, optimizer.v = state["momentum"], state["variance"]
        w = flat(params)
        share(w, comm).copy_(state["weights"])
        all_gather(w, comm)
        fill(params, w)
    mine = torch.randn(12, 6, generator=torch.Generator().manual_seed(1)).double().tensor_split(comm.size)[comm.rank]
    losses = {}
    for step in range(optimizer.t, steps):
        loss = mse_loss(model(mine), mine[:, :2] * mine[:, 2:4])
        loss.backward()
        optimizer.step()
        mean = loss.detach() / comm.size
        comm.all_reduce(mean)
        losses[step] = mean.item()
        if (step + 1) % 5 == 0:
            state = {"weights": share(flat(params), comm).clone(), "momentum": optimizer.m, "variance": optimizer.v}
            save(disk, step + 1, state, n, comm)
    return losses


# %%
undisturbed, resumed = {}, {}
with when_solved():
    guessed("sharding.again")
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = simulate(train_with_checkpoints, 4, folder, 20).results[0]
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster.run(train_with_checkpoints, folder, 20, 2, timeout=60)
        except ClusterError as error:
            print("That was the kill, in the middle of a write. What the cluster knows of it:\n")
            for line in str(error).splitlines():
                print(textwrap.fill(line, 56))
        print("\nin the folder:")
        print(textwrap.fill(", ".join(sorted(os.listdir(folder))), 56, break_on_hyphens=False), "\n")
        cluster.stop()
        cluster = Cluster(n=3).start()
        resumed = cluster.run(train_with_checkpoints, folder, 20, timeout=60)[0]
    print(
        f"continues at step {min(resumed)} on three engines; the largest difference of a loss from the undisturbed run is"
    )
    print(f"{max(abs(resumed[step] - undisturbed[step]) for step in resumed):.1e}")
    reveal("sharding.again", 10 - min(resumed))

# %%
if resumed:
    figure, axes = plt.subplots(figsize=(9.6, 3.2), layout="constrained")
    axes.plot(
        undisturbed.keys(),
        undisturbed.values(),
        color=style.GREY,
        linewidth=6,
        alpha=0.4,
        label="four ranks, undisturbed",
    )
    axes.plot(resumed.keys(), resumed.values(), "o-", color=style.BLUE, label="three ranks, from the checkpoint")
    axes.axvline(10, color=style.VERMILLION, linestyle=":")
    axes.annotate("rank 2 is killed", (10, max(undisturbed.values())), xytext=(6, -8), textcoords="offset points")
    axes.set(xlabel="step", xticks=range(0, 20, 5), ylabel="loss", title="Killed while saving, resumed on three ranks")
    axes.legend(loc="lower left")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The checkpoint of step 10 was never finished: some of its files are there, one of them is half a file, and the manifest does not name them. So training
# continues from step 5, and repeats steps 5 to 9 with the same losses to the last digits. Momentum and variance were four shares and are now three. The number
# of steps was saved, too, so Adam's correction continues correctly.
# </details>
#
# ## Live: every stage, by the trainer
#
# `run_on` is the library's trainer on your engines. It trains a network of nine layers on three ranks, with each stage of ZeRO. Compare the peak memory of a
# rank, the bytes that it sends in a step, and the losses.

# %%
guess(
    "sharding.peak",
    "Three ranks: how many times less peak memory does a rank need with ZeRO-3 than without ZeRO?",
    unit="times",
)

# %%
with when_solved():
    guessed("sharding.peak")
    peaks = []
    for stage in progress(range(4), "run"):
        options = {"model": "mlp", "size": "small", "mesh": "data=3", "sharding": stage, "steps": 4}
        last = run_on(cluster, say=lambda line: None, **options)[0][-1]
        peaks.append(last["peak_bytes"])
        held, sent = last["peak_bytes"] / 1e3, last["bytes_sent"] / 1e3
        print(f"ZeRO-{stage}: holds {held:6,.0f} KB at its peak, sends {sent:6,.0f} KB a step, loss {last['loss']:.5f}")
    reveal("sharding.peak", peaks[0] / peaks[3])

# %%
cluster.stop()  # the engines are no longer needed: free their memory

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# T. Dettmers et al. (2022) keep Adam's $m$ and $v$ in one byte per number: blocks of 2,048, each with its own scale. Write such an Adam, rounding to the
# nearest of 256 values that are closer together near zero. *Proof:* the meter shows $2\Psi$ bytes and the scales, instead of $8\Psi$; the loss of this lab's
# network follows Adam's; and your `ShardedAdam` shards it without changes.

# %% [markdown]
# ## Further reading
#
# - ZeRO-3 in under 100 lines: `import hpcdl.sharding.plain`, then `hpcdl.sharding.plain??` in a cell of its own shows all of it.
# - S. Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter models"; 2021, "ZeRO-Infinity: Breaking the GPU memory wall for
#   extreme scale deep learning".
# - Y. Zhao et al. 2023, "PyTorch FSDP: Experiences on scaling fully sharded data parallel".
# - T. Chen et al. 2016, "Training deep nets with sublinear memory cost"; V. Korthikanti et al. 2022, "Reducing activation recomputation in large transformer
#   models".
# - T. Pillai et al. 2014, "All file systems are not created equal: On the complexity of crafting crash-consistent applications": why to rename, and what else
#   you need on a real disk.
