# %% [markdown]
# # Lab {{number sharding}} · Nothing twice
# ## ZeRO, FSDP, recomputation and checkpoints of shards
#
# In lab 07 every machine held the whole model: the same weights, the same gradients, the same optimizer states, on four machines four times. Lab {{number model_parallel}} cut the
# network. There is another way, and most large models are trained with it: the batch is cut, as in lab 07, and *of everything else each rank keeps its share
# alone*. What it needs of the others' shares it asks for, uses, and forgets.
#
# It is easy to get wrong in a way that nobody sees. A sharded optimizer that shards nothing trains as well as any; so does an FSDP that never frees a weight.
# So here the checks count: the bytes that a rank holds, the bytes that it sends, the seconds that it waits.
#
# **You will be able to**
# - say whether a training fits into its machines, and what each gigabyte that you save costs;
# - write ZeRO: an optimizer of which each rank does its share, with the messages of data parallelism and not one more;
# - write what FSDP does: weights that are gathered before a layer's use, the next one's while one is at work, and freed after it;
# - trade memory for a second forward pass, to the bit;
# - save a training so that it can be killed at any moment, and go on with another number of machines.
#
# **100 points, 7 exercises, about two hours.** You need lab 07's ring and a little autograd; lab {{number model_parallel}} helps. MPI came with the installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$, $r$ | ranks, one of them |
# | $\Psi$ | the number of parameters, and of bytes where it is said so (ZeRO's letter) |
# | $n$ | elements of a vector; rank $r$'s share of it is `x.tensor_split(p)[r]` |
# | $s, b, h, a, t$ | a transformer's sequence length, microbatch, hidden size, heads; ranks that share its layers (lab {{number model_parallel}}'s tensor parallelism) |
#
# (In `adamw` `t` counts steps.)

# %%
import itertools
import os
import signal
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from autograder import check
from hpcdl.collectives import all_gather, reduce_scatter
from hpcdl.comm import simulate
from hpcdl.memory import saved
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import does_it_fit

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# A model of 7.5 billion parameters is to be trained on GPUs of 80 GB. Each bar is what one rank holds: the strong one at the stage of ZeRO that is chosen, the
# pale ones at the others. The red line is where its memory ends. At the right: what is paid for it, in bytes sent and in work done twice.
#
# Of 16 bytes for each parameter, which part is the largest? How many ranks does it take until it fits? Say it first, then:
# 1. Move the **stage** from 0 to 3. What goes, what stays, and from which stage on does it cost something?
# 2. At stage 3, move the number of **ranks** and then the **microbatch**. What limits you now?
# 3. Choose 175 B, as Korthikanti and others trained it, and make it fit. Which of your moves cost what?

# %%
guess(
    "sharding.largest",
    "Of 16 bytes for each parameter, which part is the largest?",
    choices=("weights", "gradients", "optimizer states"),
)

# %%
guess(
    "sharding.ranks",
    "7.5 billion parameters at stage 3, whose ranks share everything: how many ranks until 80 GB suffice?",
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
# 1. The optimizer's states are three quarters of it, and the first to go. Stages 1 and 2 send what plain data parallelism sends: they are free. Stage 3 sends
#    half as much again.
# 2. With many ranks the model all but vanishes, and what is left are the activations, which no stage divides. They grow with the microbatch; computing them
#    again makes them small, for a third more work, or the scores alone for almost nothing.
# 3. There are several ways. Stage 3 alone fits on 38 ranks or more if activations are computed again; tensor parallelism divides the activations too, and
#    sends a lot within each layer, so it stays where links are fast.
# </details>

# %% [markdown]
# ## What a rank holds
#
# Mixed-precision training with Adam keeps 16 bytes for each parameter: the weight and its gradient in 16 bits, 2 bytes each, and the optimizer's 12: the weight
# again in float32, the momentum and the variance. **ZeRO** (Rajbhandari et al. 2020) divides them among the $p$ ranks of data parallelism, the largest first:
#
# | stage | each rank keeps a $p$-th of |
# |---|---|
# | 0 | nothing: plain data parallelism |
# | 1 | the optimizer's states |
# | 2 | and the gradients |
# | 3 | and the weights |
#
# The **activations** come on top: what the forward pass leaves for the backward pass. No stage of ZeRO divides them. One layer of a transformer keeps of a
# microbatch, in 16 bits (Korthikanti et al. 2022):
#
# | | bytes | $t$ ranks of tensor parallelism have each |
# |---|---|---|
# | around the normalizations and dropouts | $10\,sbh$ | all of it; a $t$-th if the sequence is cut there, too |
# | in the matrix products | $24\,sbh$ | a $t$-th |
# | the scores of attention | $5\,abs^2$ | a $t$-th |
#
# What is not kept is computed once more in the backward pass. **Selective** recomputation drops the scores, **full** recomputation all but the layer's input:
# $2\,sbh$, which is whole on every rank unless the sequence is cut.

# %% [markdown]
# {{exercise memory}}
#
# <details><summary>Hint 1: the stages</summary>
#
# In the order in which ZeRO divides them the three are `(12, 2, 2)`. The first `stage` of them are divided by p: slices do it, `(12, 2, 2)[:stage]` and
# `(12, 2, 2)[stage:]`.
# </details>
# <details><summary>Hint 2: the largest model</summary>
#
# Memory is proportional to the parameters. How much does one take?
# </details>
# <details><summary>Hint 3: activations</summary>
#
# Two factors: the scores are `5 * heads * batch * sequence**2`, or 0; what is around the normalizations is divided by `t if cut else 1`.
# </details>


# %%
def memory(parameters: float, p: int, stage: int) -> float:
    """Bytes of weights, gradients and states on each of p ranks, at ZeRO stage 0 to 3.

    >>> memory(1000, p=4, stage=1)
    7000.0
    """
    # BEGIN SOLUTION
    divided, whole = (12, 2, 2)[:stage], (12, 2, 2)[stage:]
    return parameters * (sum(whole) + sum(divided) / p)
    # END SOLUTION


def largest(nbytes: float, p: int, stage: int) -> float:
    """How many parameters fit into `nbytes` bytes on each of p ranks, not rounded;
    activations left out.

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
    """Bytes that one layer keeps of a microbatch on each of t ranks.

    recompute: "nothing", "selective" or "full". cut: their sequence is cut, too.

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
    print("\nbillions of parameters that fit into 80 GB beside nothing else")
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
# Data parallelism sums the gradients over the ranks by an all-reduce, and then each rank does the same update with the same numbers. Lab 07 had the ring
# all-reduce in two halves. Put the update *between* them:
#
#     g_0  g_1  g_2          reduce-scatter        each rank: the sum of its chunk, nothing else
#      │    │    │                                      │
#      └────┴────┘                                    update of this chunk of the weights: a p-th of the states
#                                                       │
#                              all-gather           all chunks of the new weights, on every rank
#
# The messages are the same ones, $2\frac{p-1}{p}\Psi$ bytes from each rank, and the work of the update is divided by $p$, too. That is ZeRO-1; if the gradients
# are let go as soon as they are summed, it is ZeRO-2.
#
# Parameters have shapes and shares have not: so all of them are put into one flat vector, which is cut without regard to where one ends. That suits every
# optimizer that works element by element. These are given:


# %%
def flat(tensors: list[Tensor]) -> Tensor:
    """All tensors in one new vector."""
    return torch.cat([x.detach().reshape(-1) for x in tensors])


def fill(tensors: list[Tensor], vector: Tensor) -> None:
    """Copy the parts of the vector back into the tensors."""
    for x, part in zip(tensors, vector.split([x.numel() for x in tensors]), strict=True):
        x.detach().copy_(part.view_as(x))


def share(vector: Tensor, comm) -> Tensor:
    """This rank's part of the vector, a view."""
    return vector.tensor_split(comm.size)[comm.rank]


def adamw(w: Tensor, g: Tensor, m: Tensor, v: Tensor, t: int, lr: float) -> None:
    """Step t = 1, 2, ... of AdamW, in place: w, its momentum m and variance v, from the gradient g."""
    m.lerp_(g, 1 - 0.9)
    v.lerp_(g * g, 1 - 0.999)
    w.mul_(1 - lr * 0.01)  # weight decay
    w.sub_(lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8))


# %% [markdown]
# {{exercise sharded_adam}}
#
# `reduce_scatter(x, comm, weight)` is the library's, the first half of lab 07's ring: it sums `weight * x` over the ranks and returns this rank's chunk of the
# sum, `share(x, comm)`, *a view of x*. `all_gather(x, comm)` is the second half: in place, it fills in all chunks from the ranks that own them.
#
# <details><summary>Hint 1: what to keep</summary>
#
# The momentum and the variance of this rank's share, `torch.zeros_like(share(flat(params), comm))`, and the number of steps. Beware of views: a view of a
# vector keeps the whole vector in memory.
# </details>
# <details><summary>Hint 2: the first half</summary>
#
# All gradients into one vector, then `param.grad = None` for each. All ranks' batches are equally large, so the mean over them is a sum with weight
# `1 / comm.size`.
# </details>
# <details><summary>Hint 3: the second half</summary>
#
# `w = flat(self.params)`; `share(w, comm)` is a view of it, so `adamw(share(w, comm), ...)` changes `w`. Then `all_gather(w, comm)`, and `fill` the parameters.
# </details>


# %%
class ShardedAdam:
    """AdamW on the mean of all ranks' gradients, of which each rank does its share.

    params: the same weights on all ranks, of one dtype. m, v: momentum and variance of this
    rank's share of `flat(params)`. t: the steps so far.
    """

    def __init__(self, params: list[Tensor], comm, lr: float = 1e-3):
        # BEGIN SOLUTION
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights from the ranks' `param.grad`; leaves no gradient behind."""
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


# %%
def regression(comm, steps: int):
    """Fit a line on all ranks' samples; the mean loss of each step, and the bytes that this rank sends in one."""
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
# The last step: no rank has all of the weights, either. A layer's weights are **gathered** just before its forward pass and **freed** after it; gathered again
# before its backward pass and freed; and its gradients leave by a reduce-scatter, after which each rank has its share of their mean. That is ZeRO-3, and what
# PyTorch calls FSDP (fully sharded data parallelism, Zhao et al. 2023).
#
#     rank r      gather 0   F0   free 0, gather 1   F1   free 1, ...
#     with the next one on its way:
#                 gather 0   F0            F1            F2   ...              compute
#                            gather 1      gather 2      gather 3              messages
#
# Three times $\frac{p-1}{p}\Psi$ bytes leave each rank in a step, half as much again as in data parallelism; and if the next layer's weights travel while this
# one computes, nobody waits for them. At most two layers are whole at a time.
#
# A layer here knows no weights: it is told them, as one flat vector, in each pass. A class of such layers, with everything that your code needs to know:


# %%
class Layer:
    """y = tanh(x W^T) with weights (outputs x inputs) that come as a flat vector; it remembers what backward needs."""

    def __init__(self, inputs: int, outputs: int):
        self.shape, self.kept = (outputs, inputs), []

    def forward(self, w: Tensor, x: Tensor) -> Tensor:
        """y (n, outputs) of x (n, inputs)."""
        y = torch.tanh(x @ w.view(self.shape).T)
        self.kept.append((x, y))
        return y

    def backward(self, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of x, and of w as a flat vector, for this rank's samples. The last forward pass comes first."""
        x, y = self.kept.pop()
        ds = dy * (1 - y * y)
        return ds @ w.view(self.shape), (ds.T @ x).flatten()


# %% [markdown]
# {{exercise sharded}}
#
# `order` says which layers a pass goes through. A number may stand in it twice: then one layer is used in two places (its weights are **tied**), and its
# gradient is the sum of both. Gather it for each use.
#
# <details><summary>Hint 1: begin to gather</summary>
#
# `whole = self.shares[i].new_empty(self.sizes[i])`; `parts = whole.tensor_split(comm.size)` are views of it, one for each rank. Copy your share into your part;
# to each other rank `comm.isend` your share, and `comm.irecv` its part from it. Return the vector and the requests. Nobody waits yet.
# </details>
# <details><summary>Hint 2: a pass</summary>
#
# `coming = self.begin(order[0])` before the loop. In it: wait for the requests of `coming`, begin the next one if there is one, and only then compute. Use the
# same names in each turn: a vector is freed when no name stands for it any more.
# </details>
# <details><summary>Hint 3: backward</summary>
#
# The same over `order[::-1]`: the next layer is the one *before*. The layer's `dw` goes into `reduce_scatter(dw, comm, 1 / comm.size)`; *add* what comes to
# `self.grads[i]`, which is 0 when the pass begins.
# </details>


# %%
class Sharded:
    """Layers of whose weights each rank keeps its share alone: shares[i] of weights[i].

    weights[i]: those of layers[i], flat and the same on all ranks. Between the passes no
    layer is whole. Every message is waited for.
    """

    def __init__(self, layers: list, weights: list[Tensor], comm):
        # BEGIN SOLUTION
        self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]
        self.shares = [share(w, comm).clone() for w in weights]
        # END SOLUTION

    def begin(self, i: int) -> tuple[Tensor, list]:
        """Begin to gather the weights of layer i: where they will be, what to wait for."""
        # BEGIN SOLUTION
        p, rank = self.comm.size, self.comm.rank
        whole = self.shares[i].new_empty(self.sizes[i])
        parts, others = whole.tensor_split(p), [r for r in range(p) if r != rank]
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others]
        # END SOLUTION

    def forward(self, x: Tensor, order: list[int]) -> Tensor:
        """The output of this rank's samples x through the layers in that order."""
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
        """The gradient of x; leaves in grads[i] its share of all ranks' mean gradient, that
        of this pass alone."""
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


# %%
def a_step(comm, seconds: float):
    """Forward and backward through eight layers on a machine where messages take a while; when each was done."""

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
    print("A gather takes 1 s. Seconds of the two passes of 8 layers, and what their work alone would take:")
    for seconds in (0.5, 1.0, 2.0, 4.0):
        forward, backward = simulate(a_step, 4, seconds, alpha=1 / 3).results[0]
        print(f"F takes {seconds:3} s:  {forward:5.1f} ({8 * seconds:4.1f})   {backward:5.1f} ({16 * seconds:4.1f})")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# As soon as a layer's work takes longer than the next one's gather, only the first gather is seen. Large microbatches hide messages; small ones do not. In the
# backward pass the reduce-scatter is not hidden here: `hpcdl.sharding` starts it in the background, too.
# </details>

# %% [markdown]
# ## One norm
#
# Large models are trained with their gradient **clipped**: if its norm, over all parameters, is above a limit, all of it is scaled down to that. When each rank
# has a share of the gradient, no rank knows the norm. Each knows the sum of its squares.

# %% [markdown]
# {{exercise clip}}
#
# All ranks have to return the same number: where it is infinite or no number at all, every rank leaves out the step, or none does. A rank may own nothing.
#
# <details><summary>Hint</summary>
#
# One number travels: `squares = torch.zeros(1, dtype=torch.float64)`, the sum of this rank's squares in it, `comm.all_reduce(squares)`. Then every rank scales
# what it has, in place: `mine.mul_(...)`.
# </details>


# %%
def clip(shares: list[Tensor], comm, max_norm: float) -> float:
    """Scale all ranks' shares, in place, by max_norm / norm if their norm is larger.

    shares: this rank's flat pieces of the gradient, of any floating dtype; there may be
    none. Returns the norm before, the same on all ranks; its squares are added in float64.
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
# ## Once more, instead of keeping it
#
# No stage of ZeRO divides the activations. They can be *forgotten*: keep a layer's input, drop all that its forward pass left behind, and when its backward pass
# comes do the forward pass once more. That costs a third more work, and the memory of one layer instead of all (Chen et al. 2016).
#
# The second time has to be the first time again. **Dropout** draws random numbers: with other ones the gradient is that of another function. So the generator is
# set back, and afterwards forward again, as if nothing had been.
#
# `torch.autograd.Function` is where one tells autograd what to keep: `forward` runs without recording, `ctx.save_for_backward(*tensors)` keeps tensors,
# anything else is an attribute of `ctx`, and `backward` returns a gradient for each argument of `forward`, None for what is no tensor.

# %% [markdown]
# {{exercise checkpointed}}
#
# **Which layers?** Not all layers are alike: attention's scores take much memory and little time. `plan` finds the cheapest choice; with a dozen layers you can
# try all of them.
#
# <details><summary>Hint 1: forward</summary>
#
# `ctx.f = f`, `ctx.state = torch.get_rng_state()`, `ctx.save_for_backward(*inputs)`, and return `f(*inputs)`.
# </details>
# <details><summary>Hint 2: backward</summary>
#
# The inputs once more as leaves: `x.detach().requires_grad_(x.requires_grad)` for each of `ctx.saved_tensors`. Then `with torch.enable_grad():` the second
# forward pass, with the generator set back, and `torch.autograd.backward(y, dy)`: it adds to the gradients of the weights that `f` uses, and each input then has
# its own in `x.grad`.
# </details>
# <details><summary>Hint 3: the generator</summary>
#
# Three lines: keep its state of now, `torch.set_rng_state(ctx.state)` before the second pass, and set it to what it was after.
# </details>
# <details><summary>Hint 4: the plan</summary>
#
# `itertools.combinations(range(n), k)` for all k gives all sets. Of those that fit, `min(..., key=...)`.
# </details>


# %%
class Checkpointed(torch.autograd.Function):
    """f(*inputs), of which only the inputs are kept; backward calls f once more."""

    @staticmethod
    def forward(ctx, f, *inputs: Tensor) -> Tensor:
        """The tensor that f returns; saves the inputs so that backward notices if one has
        been changed in between."""
        # BEGIN SOLUTION
        ctx.f, ctx.state = f, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return f(*inputs)
        # END SOLUTION

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple:
        """None, and the gradients of the inputs; adds to those of f's weights."""
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
    """The layers to recompute, in the fewest seconds; the others keep at most budget bytes.

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
def kept_and_calls(segment: int, length: int = 16):
    """A chain of `length` layers, checkpointed by segments (0: not at all): bytes kept for backward, and layers run."""
    weights = [nn.Parameter(torch.randn(64, 64) / 8) for _ in range(length)]
    runs = [0]

    def layers(x: Tensor, some: list) -> Tensor:
        for w in some:
            runs[0] += 1
            x = torch.tanh(x @ w)
        return x

    x = torch.randn(256, 64, requires_grad=True)
    with saved(x, *weights) as kept:
        if not segment:
            y = layers(x, weights)
        else:
            y = x
            for first in range(0, length, segment):
                y = Checkpointed.apply(lambda x, some=weights[first : first + segment]: layers(x, some), y)
    y.sum().backward()
    return kept.bytes, runs[0]


with when_solved():
    print("16 layers    KB kept between the passes   layers run")
    for segment in (0, 1, 2, 4, 8, 16):
        kept, runs = kept_and_calls(segment)
        print(f"{f'segments of {segment}' if segment else 'all kept':14}{kept / 1024:14.0f}{runs:25}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Each segment keeps its input alone, and each layer runs twice. Long segments keep less, but while a segment's backward pass is under way, all that is inside it
# is there again: segments of $\sqrt L$ layers keep about $2\sqrt L$ layers' bytes at the worst moment, and that is the least (Chen et al. 2016).
# </details>

# %% [markdown]
# ## What survives
#
# With a thousand machines one of them fails every few hours. Training goes on from the last **checkpoint**, and perhaps with one machine less. Nobody has the
# whole state, so every rank writes its own share; and whoever reads has another share.
#
# **A checkpoint is whole or it is none.** A rank may be killed at any moment, in the middle of a file, too. So nothing that is good may be overwritten. Write
# the new state beside the old one, and let a small file, the **manifest**, say which one is the state. A file can be written for some time, but it is *renamed*
# at once: on every moment before, the old manifest is there, on every moment after, the new one.
#
# A disk here can do three things. (In the checks, others write down what you do, and kill you at each moment.)


# %%
class Disk:
    """Files in a folder that all ranks reach. A file holds a dict of tensors and numbers."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def write(self, name: str, content: dict) -> None:
        """Takes its time: who is killed meanwhile leaves half a file."""
        torch.save(content, self.folder / name)

    def rename(self, old: str, new: str) -> None:
        """At once; a file that had the new name is gone."""
        os.replace(self.folder / old, self.folder / new)

    def read(self, name: str) -> dict:
        """What was written; FileNotFoundError where there is no such file, an error where it is half a file."""
        return torch.load(self.folder / name)


def bounds(n: int, p: int, rank: int) -> tuple[int, int]:
    """The elements start to stop of n that are this rank's, as `tensor_split` has it.

    >>> [bounds(5, 2, rank) for rank in range(2)]
    [(0, 3), (3, 5)]
    """
    return rank * (n // p) + min(rank, n % p), (rank + 1) * (n // p) + min(rank + 1, n % p)


# %% [markdown]
# {{exercise save_load}}
#
# `state` is a dict of flat tensors, this rank's shares of vectors that are all n elements long: weights, momentum, variance. The step is part of the state: Adam's
# correction of its first steps depends on it.
#
# No rank ever holds the whole: a rank that loads opens only the files in which some of its elements are, one after another.
#
# <details><summary>Hint 1: save</summary>
#
# Each rank writes its own file, whose name has the step in it. `comm.barrier()`: now all of them are written. Rank 0 writes `{"step": step, "p": comm.size, "n":
# n}` under another name and renames it to `"manifest"`. Another barrier, so that nobody goes on before.
# </details>
# <details><summary>Hint 2: load</summary>
#
# Read the manifest. `start, stop = bounds(n, comm.size, comm.rank)` is what this rank needs. For each old rank: `first, last = bounds(n, old_p, old_rank)`; both
# have the elements from `max(start, first)` to `min(stop, last)`, if that is any.
# </details>
# <details><summary>Hint 3: a piece</summary>
#
# Elements a to b of the vector are `x[a - first : b - first]` of an old share. In the order of the old ranks the pieces follow one another: collect them in a
# list for each name, and `torch.cat` them at the end.
# </details>


# %%
def save(disk, step: int, state: dict[str, Tensor], n: int, comm) -> None:
    """Make all ranks' shares the state of `step`; until all is written, it is what it was.
    No rank returns before, and no file has two writers.

    state: by name this rank's share, as `bounds` has it, of a vector of n elements.
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
    """The step of the last whole state, and by name this rank's shares; on up to n ranks.

    Raises FileNotFoundError where the manifest or a file that it needs is missing.
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
# ## What does not fit at all
#
# Where nothing is left to divide, weights can wait elsewhere: in the memory of the host, or on a disk (Rajbhandari et al. 2021, "ZeRO-Infinity"). They come over a
# **link** that is much slower than the device's own memory, layer after layer, while earlier layers compute. The device has room for some layers' weights at a
# time.
#
#     room for 2      link      00001111  2222  3333
#                     compute       000000111111222222333333          layer 2 comes when layer 0 has gone
#
# The link brings one layer at a time, in order. A layer computes when it is there and the one before is done. A layer can begin to come when there is room: with
# room for $k$ layers, layer $i$ when layer $i - k$ is done.

# %% [markdown]
# {{exercise offload}}
#
# <details><summary>Hint</summary>
#
# Two lists, `there` and `done`, of when each layer is there and done. `there[i]` is `nbytes[i] / link` after the later of `there[i-1]` and `done[i-room]`;
# `done[i]` is `compute[i]` after the later of `there[i]` and `done[i-1]`.
# </details>


# %%
def offload(compute: list[float], nbytes: list[int], link: float, room: int) -> float:
    """Seconds until the last layer is done; link: bytes per second; room: in layers.

    Layer i computes for compute[i] seconds and has nbytes[i] bytes.

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
# Room for two is all it takes: while one layer computes the next one comes. If the link keeps up, at 20 GB/s here, waiting is over; if it does not, no room in
# the world helps layers of equal size, because it is the link that sets the pace.
# </details>

# %% [markdown]
# ## Live: four ways to keep one network
#
# Four engines, MPI processes beside this kernel. The same network, the same data, Adam; trained as in lab 07, and with each stage of ZeRO by `hpcdl.sharding`,
# which does what you wrote, and in the background. The meter counts each rank's bytes, the trace its messages. Beside them the formulas, with 4 bytes for each
# weight and gradient and 8 for Adam's two numbers: not nearly the same, *the same*.
#
# Which of the four has the shortest step on this machine?

# %%
guess(
    "sharding.step",
    "Which of the four has the shortest step on this machine?",
    choices=("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3"),
)

# %%
import time

from hpcdl.cluster import Cluster, ClusterError
from hpcdl.comm import TracingComm
from hpcdl.cost.memory import zero
from hpcdl.ddp import DistributedDataParallel
from hpcdl.memory import meter
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer
from hpcdl.training import run_on

WIDE, DEEP, ROWS = 512, 4, 16
WAYS = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def network() -> nn.Module:
    """The same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(DEEP) for layer in (nn.Linear(WIDE, WIDE, bias=False), nn.Tanh())])


def train_one_way(comm, way: str, steps: int = 4):
    """This rank's bytes by kind, those that it sends in a step (beside numbers to agree on), and the step's seconds."""
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
    guessed("sharding.step")
    psi, found = DEEP * WIDE * WIDE, {way: cluster.run(train_one_way, way, timeout=60) for way in WAYS}
    print(f"{psi:,} weights on 4 ranks; KB on rank 0, and summed over the ranks beside the formula")
    print(
        f"{'':14}{'weights':>9}{'gradients':>11}{'states':>8}{'all ranks':>12}{'formula':>9}{'sent':>8}{'formula':>9}{'step':>9}"
    )
    for stage, (way, ranks) in enumerate(found.items()):
        held = sum(sum(held) for held, *_ in ranks)
        sent = sum(sent for _, sent, *_ in ranks)
        right = 4 * zero(psi, 4, stage, optimizer=8, gradient=4, weight=4), (3 if stage == 3 else 2) * 3 * 4 * psi
        kinds = "".join(f"{nbytes / 1024:{width}.0f}" for nbytes, width in zip(ranks[0][0], (9, 11, 8), strict=True))
        totals = f"{held / 1024:12.0f}{right[0] / 1024:9.0f}{sent / 1024:8.0f}{right[1] / 1024:9.0f}"
        print(f"{way:14}{kinds}{totals}{1e3 * max(took for *_, took, _ in ranks):6.1f} ms")
        print(f"{'':14}{'equal' if (held, sent) == right else 'not equal'}; loss {ranks[0][-1]:.6f}")
    took = {way: max(seconds for _, _, seconds, _ in ranks) for way, ranks in found.items()}
    reveal("sharding.step", min(took, key=took.get), measured=True)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - Bytes are the formulas', to the last one, and the loss is the same in all four ways: where a number is kept does not change it.
# - With so small a network on one machine nobody saves time: each stage cuts the work of the update, which is short, and adds messages or waits. ZeRO is what one
#   does *because of memory*.
# - What is held is counted between backward and update. At its highest, ZeRO-3 has two layers whole beside this, and the others a bucket of gradients.
# </details>
#
# ## Live: one rank is killed
#
# Now *your* `ShardedAdam`, your `save` and your `load`. Four engines train and save every five steps; in the middle of the second checkpoint, with half a file
# written, rank 2's process is killed. Three engines go on. Every step has the same 12 samples in all, four ranks with 3 each or three with 4, so that the losses
# must be those of a training that nobody disturbed.


# %%
class DeadlyDisk(Disk):
    """A disk whose writer is killed, in the middle of its second file."""

    files = 0

    def write(self, name, content):
        self.files += 1
        if self.files == 2:
            (self.folder / name).write_bytes(b"half a file")
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(name, content)


def train_with_checkpoints(comm, folder: str, steps: int, killed: int = -1) -> dict[int, float]:
    """Train to step `steps` from the checkpoint in `folder`, if there is one; the loss before each step. Saves every 5."""
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
undisturbed, before, resumed = {}, {}, {}
with when_solved():
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = simulate(train_with_checkpoints, 4, folder, 20).results[0]
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster.run(train_with_checkpoints, folder, 20, 2, timeout=60)
        except ClusterError as error:
            print(error)
        print("\nin the folder:", ", ".join(sorted(os.listdir(folder))), "\n")
        cluster.stop()
        cluster = Cluster(n=3).start()
        resumed = cluster.run(train_with_checkpoints, folder, 20, timeout=60)[0]
    print(
        f"goes on at step {min(resumed)} on three engines; the largest difference of a loss from the undisturbed run is"
    )
    print(f"{max(abs(resumed[step] - undisturbed[step]) for step in resumed):.1e}")

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
    axes.set(xlabel="step", xticks=range(0, 20, 5), ylabel="loss", title="Killed while it saved, and on with three")
    axes.legend(loc="lower left")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The checkpoint of step 10 was never finished: files of it are there, one of them is half a file, and the manifest does not know of them. So training goes on from
# step 5, and does steps 5 to 9 once more, with the same losses to the last digits. The momentum and the variance of what were four shares are three now; and the
# number of steps came along, so that Adam's correction goes on where it was.
# </details>
#
# ## Live: every stage, by the trainer
#
# `run_on` is the library's trainer on your engines. It trains a network of nine layers on three ranks, with each stage of ZeRO. Compare what a rank holds at its peak,
# what it sends in a step, and the losses.

# %%
guess(
    "sharding.peak",
    "Three ranks: how many times less does a rank hold at its peak with ZeRO-3 than without ZeRO?",
    unit="times",
)

# %%
with when_solved():
    guessed("sharding.peak")
    peaks = []
    for stage in range(4):
        options = {"model": "mlp", "size": "small", "mesh": "data=3", "sharding": stage, "steps": 4}
        last = run_on(cluster, say=lambda line: None, **options)[0][-1]
        peaks.append(last["peak_bytes"])
        held, sent = last["peak_bytes"] / 1024, last["bytes_sent"] / 1024
        print(f"ZeRO-{stage}: holds {held:6,.0f} KB at its peak, sends {sent:6,.0f} KB a step, loss {last['loss']:.5f}")
    reveal("sharding.peak", peaks[0] / peaks[3])

# %%
cluster.stop()  # the engines have done their work: give back their memory

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to ask of yourself.
#
# T. Dettmers et al. (2022) keep Adam's $m$ and $v$ in one byte per number: blocks of 2,048, each with a scale of its own. Write an Adam of that kind, rounding to the nearest of
# 256 values that lie closer together near zero. *Proof:* the meter says $2\Psi$ bytes and the scales, instead of $8\Psi$; the loss of this lab's network stays with
# Adam's; and it shards by your `ShardedAdam` as it stands.

# %% [markdown]
# ## Further reading
#
# - S. Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter models"; 2021, "ZeRO-Infinity: Breaking the GPU memory wall for
#   extreme scale deep learning".
# - Y. Zhao et al. 2023, "PyTorch FSDP: Experiences on scaling fully sharded data parallel".
# - T. Chen et al. 2016, "Training deep nets with sublinear memory cost"; V. Korthikanti et al. 2022, "Reducing activation recomputation in large transformer
#   models".
# - T. Pillai et al. 2014, "All file systems are not created equal: On the complexity of crafting crash-consistent applications": why a rename, and what else
#   it takes on a real disk.
