# %% [markdown]
# # Lab 07 · Many machines, one model
# ## Data-parallel training, written and watched
#
# One machine takes a day to train a network. Sixteen machines have sixteen times the processors: can they do it in an hour and a half? They can,
# nearly, and the way to do it fits on a page. Every machine holds the whole model and computes the gradient of *its part* of the batch; one
# all-reduce makes the mean of all gradients; all take the same step. You will write that today, from the ring that adds up the gradients to the hooks
# that hide the adding behind the computing, and then train a network with it on live processes.
#
# **You will be able to**
# - deal a data set to ranks, so that every epoch sees every sample once;
# - write a ring all-reduce that sends as little as an all-reduce can, and cannot deadlock;
# - average gradients of unequal batches rightly, in buckets, with shared, frozen and unused parameters;
# - overlap the messages with the backward pass, as PyTorch's DistributedDataParallel does;
# - measure speed-up and efficiency on live engines, and say what limits them.
#
# **100 points, 8 exercises, about 130 minutes.** You need Python functions and tensors; lab 02 had the same gradient on $p$ shards, on paper. MPI came
# with the installation. No GPU. In this lab $n$ counts the elements of a tensor or the samples of a data set, as is said each time; $n_r$ and $g_r$ are
# the samples and the gradient of rank $r$.

# %%
import inspect
import time
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from autograder import check
from hpcdl.comm import simulate
from hpcdl.machine import cores
from hpcdl.nn.lenet import lenet5
from hpcdl.training.train import load
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import bucket_timeline, ring_passing, training, training_dashboard

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Five **ranks** sit on a ring. Each has a vector $x$ of its own, cut into five **chunks**, and all of them need the sum. A disk shows one rank's $x$,
# chunk by chunk: the more ranks' numbers a chunk contains, the fuller it is, and green means all. On the right are the same chunks as a table.
# Nothing is drawn from a formula: the algorithm runs on a simulated machine, and the picture is what it left.
#
# Press play, then try these:
# 1. Stop half-way (after $p-1$ of the $2(p-1)$ steps). How many green chunks has each rank? What happens in the second half?
# 2. Watch one rank: how many messages does it send in all, and how large are they?
# 3. Set p to 9 with n = 4 elements. What happens to the chunks?

# %%
ring_passing.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. After the first half each rank has exactly one finished chunk, everyone another one. In the second half the finished chunks go round and replace
#    the unfinished ones; nothing is added any more.
# 2. $2(p-1)$ messages of one chunk, $n/p$ elements: $2\frac{p-1}{p}n$ elements, a little less than $2n$, whatever $p$ is. That is why a ring over 1,000
#    ranks sends hardly more than one over ten.
# 3. Five of the nine chunks are empty. The algorithm does not care: an empty message goes round too.
# </details>

# %% [markdown]
# ## The idea
#
#                         global batch of N samples
#             ┌────────────┬────────────┬────────────┐
#          n_0 samples  n_1 samples  n_2 samples  n_3 samples
#             │            │            │            │
#          rank 0       rank 1       rank 2       rank 3        each: forward, backward
#             │ g_0        │ g_1        │ g_2        │ g_3
#             └────────────┴─ all-reduce ┴────────────┘         g = Σ_r (n_r / N) g_r
#             │ g          │ g          │ g          │ g
#          w ← w − lr g on every rank: the same weights again
#
# The loss of a batch is a mean over its samples. So the gradient of the global batch is the mean of the ranks' gradients $g_r$, each weighted by the
# number of its samples:
#
# $$ g = \sum_{r=0}^{p-1} \frac{n_r}{N}\, g_r, \qquad N = \sum_{r=0}^{p-1} n_r. $$
#
# This is no approximation: it is the step that one machine would take with the whole batch. All ranks begin with the same weights and take the same
# steps, so they hold the same weights for ever, and nobody sends weights again. The lectures call this *bulk-synchronous* data parallelism: an
# iteration ends for nobody before it ends for all, and takes $t_{compute} + t_{sync} + t_{IO}$.
#
# ## Deal the samples
#
# Each rank needs its own part of the data, its *shard*. The ranks do not talk about it: everyone shuffles all $n$ indices **with the same seed**,
# gets the same permutation, and takes the part that belongs to its rank. Each epoch shuffles anew.

# %% [markdown]
# {{exercise shard_indices}}
#
# <details><summary>Hint 1: the same permutation everywhere</summary>
#
# `torch.randperm(n, generator=g)` with a generator `g` that is seeded with numbers that all ranks know: `seed` and `epoch`, not `rank`.
# </details>
# <details><summary>Hint 2: a generator of your own</summary>
#
# `torch.Generator().manual_seed(seed + epoch)`: it leaves torch's global generator alone.
# </details>
# <details><summary>Hint 3: nearly equal parts, nothing lost</summary>
#
# A slice with a step: `order[rank::size]` begins at `rank` and takes every `size`-th.
# </details>


# %%
def shard_indices(n: int, rank: int, size: int, epoch: int, seed: int) -> Tensor:
    """The samples of rank `rank` out of `size` in this epoch: indices, shape
    (about n / size,), int64.

    All ranks' shards together hold each of 0 to n-1 once; their lengths differ by one at
    most. Another epoch deals anew. torch's global generator is left alone.

    >>> shards = [shard_indices(5, rank, 2, epoch=0, seed=0) for rank in range(2)]
    >>> sorted(torch.cat(shards).tolist())
    [0, 1, 2, 3, 4]
    """
    # BEGIN SOLUTION
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    return order[rank::size]
    # END SOLUTION


# %%
check("ddp.shard_indices")

# %% [markdown]
# ## Ranks that talk
#
# An algorithm over ranks is one function that every rank runs. It gets a **communicator** `comm`:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | my number, 0 to p-1, and p |
# | `comm.send(x, dest)` | send the tensor `x`; returns when it has been received |
# | `comm.recv(out, source)` | wait for a message and put it into `out`, a tensor of the right size |
# | `comm.sendrecv(x, dest, out, source)` | both at the same time |
# | `comm.isend(x, dest)`, `comm.irecv(out, source)` | begin, and go on at once; `.wait()` on the result before you touch the tensor |
# | `comm.broadcast(x, root)`, `comm.all_reduce(x)` | the machine's own collectives, in place |
#
# `simulate(f, p)` calls `f(comm)` on p ranks in this kernel, in virtual time. Every rank has a model here that begins with other weights:


# %%
def linear(seed: int) -> nn.Linear:
    """A layer whose weights depend on the seed alone."""
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(1, 2, generator=torch.Generator().manual_seed(seed)))
    return layer


simulate(lambda comm: linear(seed=comm.rank).weight.tolist(), p=3).results

# %% [markdown]
# {{exercise broadcast_parameters}}
#
# Make them equal: every rank gets the root's. You may use `comm.broadcast`, one parameter after the other. (How a broadcast works inside is lab
# 08's.)
#
# <details><summary>Hint 1: in place</summary>
#
# The model must see the new values, so they have to get into the parameter's own memory. `comm.broadcast(x, root)` overwrites `x`.
# </details>
# <details><summary>Hint 2: not autograd's business</summary>
#
# A parameter is watched by autograd, which forbids changes in place. `param.detach()` is the same memory, unwatched.
# </details>


# %%
def broadcast_parameters(params: Iterable[Tensor], comm, root: int = 0) -> None:
    """Overwrite the parameters on every rank with rank `root`'s, in place.

    params: tensors of the same shapes on all ranks, e.g. model.parameters(): may be gone
    through once only.
    """
    # BEGIN SOLUTION
    for param in params:
        comm.broadcast(param.detach(), root)
    # END SOLUTION


# %%
check("ddp.broadcast_parameters")


# %%
def the_same(comm):
    layer = linear(seed=comm.rank)
    broadcast_parameters(layer.parameters(), comm, root=2)
    return layer.weight.tolist()


with when_solved():
    print(simulate(the_same, p=3).results)

# %% [markdown]
# ## The ring
#
# The simplest all-reduce sends everything to rank 0, which adds up and sends the sum back. Rank 0 then moves $2(p-1)n$ elements while everyone else
# waits. The ring spreads this work evenly. Cut $x$ into $p$ chunks, and let all ranks send at the same time, always to the right:
#
#     p = 3, chunks 0 1 2; a, b, c are the ranks' numbers       what each rank sends to its right
#
#                rank 0       rank 1       rank 2
#     start      a0 a1 a2     b0 b1 b2     c0 c1 c2              chunk 0     chunk 1     chunk 2
#     step 0     a0 a1 ac2    ab0 b1 b2    c0 bc1 c2             chunk 2     chunk 0     chunk 1
#     step 1     a0 ABC1 ac2  ab0 b1 ABC2  ABC0 bc1 c2           ... and every rank has one finished chunk
#     step 2, 3  the finished chunks go round twice: what comes in replaces what was there
#
# In step $s$ rank $r$ sends chunk $(r - s) \bmod p$ and receives chunk $(r - s - 1) \bmod p$. In the first $p-1$ steps (the *reduce-scatter*) it
# **adds** what comes in, in the last $p-1$ (the *all-gather*) it **overwrites**. That is all.
#
# **Deadlock.** If every rank first calls `send`, all wait: `send` returns when the other side receives, and the other side is sending. On a real
# machine this may work for small messages, which the network keeps somewhere for a while, and hang for large ones. The simulated machine never keeps
# anything, so it finds out at once:


# %%
def everyone_sends_first(comm):
    x, incoming = torch.ones(3), torch.empty(3)
    comm.send(x, (comm.rank + 1) % comm.size)
    comm.recv(incoming, (comm.rank - 1) % comm.size)


try:
    simulate(everyone_sends_first, p=3)
except RuntimeError as error:
    print(error)

# %% [markdown]
# {{exercise ring_all_reduce}}
#
# <details><summary>Hint 1: chunks</summary>
#
# `chunks = x.view(-1).tensor_split(p)` are p views into x of nearly equal length; some are empty where n < p. What you write into a chunk is in x.
# </details>
# <details><summary>Hint 2: one step</summary>
#
# `comm.sendrecv(given, right, incoming, left)` sends and receives at once, so nobody waits in vain. `incoming` needs memory of its own:
# `torch.empty_like(taken)`, of the size of the chunk that *comes in*.
# </details>
# <details><summary>Hint 3: both halves in one loop</summary>
#
# `for step in range(2 * (p - 1))`. In every step `given` is chunk `(rank - step) % p` and `taken` is chunk `(rank - step - 1) % p`. Add while `step
# < p - 1`, copy from then on.
# </details>


# %%
def ring_all_reduce(x: Tensor, comm) -> None:
    """Sum `x` over the ranks, in place, by messages between neighbours: 2(p-1) steps of
    about n/p elements.

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
check("ddp.ring_all_reduce")

# %% [markdown]
# Here is *your* ring.

# %%
ring_passing.explorable(ring_all_reduce)

# %% [markdown]
# ## The mean gradient
#
# Two things go wrong here more often than anything else in data parallelism, and both train on quietly with wrong results.
#
# *The mean of means.* 1,438 images in batches of 64 leave a last batch of 30; over 4 ranks that is 8, 8, 7 and 7. A rank's gradient is a mean over
# *its* images, so it has to count $n_r$ times.
#
# *Too many messages.* LeNet has ten tensors of parameters, ResNet-50 has 161. Each message costs its latency, however small it is. So put all
# gradients into **one** flat tensor, and $n_r$ at its end: then the sum of $n_r$, which is $N$, comes for free.

# %% [markdown]
# {{exercise average_gradients}}
#
# <details><summary>Hint 1: one flat tensor</summary>
#
# `torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)])` is all gradients and a 1. Times `local_n` it is $n_r g_r$, and $n_r$ at the end.
# </details>
# <details><summary>Hint 2: back again</summary>
#
# After the all-reduce, `flat[:-1] / flat[-1]` are the means. `.split([grad.numel() for grad in grads])` cuts them into the gradients' lengths;
# `grad.copy_(part.view_as(grad))` writes one back.
# </details>
# <details><summary>Hint 3: a rank without samples</summary>
#
# needs no `if`: it multiplies by 0 and takes part like the others. If it stayed away, they would wait for it.
# </details>


# %%
def average_gradients(grads: list[Tensor], local_n: int, comm) -> None:
    """Replace gradients, means over this rank's `local_n` samples, by the means over all
    ranks' samples, in place.

    grads: float32 tensors, of the same shapes on all ranks; local_n may be 0 on some. One
    all-reduce in all.

    >>> grads = lambda comm: [torch.tensor([1.0 - comm.rank])]  # 1 on rank 0, 0 on rank 1
    >>> def f(comm):
    ...     g = grads(comm)
    ...     average_gradients(g, [3, 1][comm.rank], comm)
    ...     return g
    >>> simulate(f, p=2).results[1]
    [tensor([0.7500])]
    """
    # BEGIN SOLUTION
    flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)])
    flat *= local_n
    ring_all_reduce(flat, comm)
    means = flat[:-1] / flat[-1]
    for grad, mean in zip(grads, means.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(mean.view_as(grad))
    # END SOLUTION


# %%
check("ddp.average_gradients")

# %% [markdown]
# ## Buckets
#
# One message for everything has a drawback: it cannot leave before the *last* gradient is there. The backward pass makes gradients one by one, from
# the last layer to the first. So real systems put a few tensors together, a **bucket**, and send it as soon as its gradients are ready, while the
# backward pass goes on with the layers before.
#
# Below is ResNet-50 on a cluster, one iteration by the course's cost model. For each rank, the upper bar is computing (forward, then backward), the
# lower one is messages.
#
# 1. Move the bucket size to both ends. Is either end good?
# 2. Switch overlap off. What share of the iteration was hidden?
# 3. Make the network ten times slower (1 Gb/s). What helps now, and what doesn't?
# 4. Make one rank slow. Look at the other ranks' messages.

# %%
bucket_timeline.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. No. With 0.1 MB nearly each of the 54 layers has a bucket of its own, fourteen messages of 100 µs latency each: 277 ms. One bucket for all waits
#    for the first layer's gradient, and nothing overlaps: 324 ms. With 25 MB it is 217 ms, and between 5 and 50 MB it hardly matters. PyTorch's
#    default is 25 MB.
# 2. Without overlap it is 330 ms. The messages take 150 ms, and three quarters of them were hidden; what remains is what comes after the backward
#    pass has ended, with nothing left to hide behind.
# 3. The messages take 1.4 s now, twelve times the backward pass: overlap hides one backward pass's worth, and no more. Faster links help, fewer bytes
#    (16 bits) help, larger batches help: they make the computing longer. Bucket sizes and overlap hardly do.
# 4. A bucket leaves when *every* rank has it. The fast ranks' buckets wait (grey) for the slow one, and so does everything after: all iterate at the
#    pace of the slowest.
# </details>

# %% [markdown]
# {{exercise make_buckets}}
#
# Go through the parameters from the last to the first and fill the buckets up to the cap. Line 4 of DDP's algorithm in the lecture is just this.
#
# <details><summary>Hint 1: bytes of a tensor</summary>
#
# `param.nbytes`, which knows the dtype.
# </details>
# <details><summary>Hint 2: when to begin a new bucket</summary>
#
# When there is none yet, or when this parameter would not fit: `filled + param.nbytes > cap_bytes`. A parameter larger than the cap then gets a
# bucket of its own without any `if` for it, as the next one does not fit either.
# </details>


# %%
def make_buckets(params: Iterable[Tensor], cap_bytes: int) -> list[list[Tensor]]:
    """The parameters themselves in buckets, last parameter first, each as full as
    `cap_bytes` allows.

    params: may be gone through once only, as model.parameters(). Exactly full is allowed. A
    parameter larger than the cap has a bucket of its own. No bucket is empty.

    >>> a, b, c = torch.zeros(2), torch.zeros(1), torch.zeros(1)  # 8, 4 and 4 bytes
    >>> [len(bucket) for bucket in make_buckets([a, b, c], cap_bytes=8)]  # [[c, b], [a]]
    [2, 1]
    """
    # BEGIN SOLUTION
    buckets, filled = [], 0
    for param in reversed(list(params)):
        if not buckets or filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets
    # END SOLUTION


# %%
check("ddp.make_buckets")

# %% [markdown]
# ## The step
#
# Now put it together: forward, backward, a message per bucket, and the step. Three kinds of parameters make trouble:
#
# - **tied**: one parameter used in two places. Autograd adds both uses up, and `model.parameters()` lists it once: nothing to do, unless you go layer
#   by layer;
# - **frozen**: `requires_grad` is False. It has no gradient and must not move;
# - **unused**: nothing of this batch went through it, so its `.grad` is `None`. Perhaps on this rank only! Leave it out, and this rank's message is
#   shorter than its neighbours'. Send zeros: that is the gradient of something without influence.

# %% [markdown]
# {{exercise train_step}}
#
# <details><summary>Hint 1: the order</summary>
#
# `model.zero_grad()`, the loss by `cross_entropy(model(x), y)`, `loss.backward()`. Then for every bucket: gradients (zeros for None),
# `average_gradients`, and `param -= lr * grad`.
# </details>
# <details><summary>Hint 2: changing parameters</summary>
#
# Autograd must not watch the step: put it under `with torch.no_grad():`.
# </details>
# <details><summary>Hint 3: which parameters</summary>
#
# `[param for param in model.parameters() if param.requires_grad]`. Not `if param.grad is not None`: that may differ from rank to rank, and then the
# buckets do.
# </details>

# %%
CAP = 25 * 2**20  # bytes in a bucket; PyTorch's default


def train_step(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    lr: float,
    comm,
    cap_bytes: int = CAP,
) -> float:
    """One step of gradient descent on the global batch, of which `batch` is this rank's
    part; its own loss.

    batch: x (n_r, ...), y (n_r,) labels for cross_entropy; n_r may differ from rank to
    rank. One all-reduce per bucket.
    """
    # BEGIN SOLUTION
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads, strict=True):
                param -= lr * grad
    return loss.item()
    # END SOLUTION


# %%
check("ddp.train_step")

# %% [markdown]
# ## Overlap
#
# Your step sends after the backward pass. To send *during* it you have to know when a gradient is ready. Autograd tells you: a function that is
# registered with `param.register_post_accumulate_grad_hook(f)` is called as `f(param)` right after `param.grad` has been written, in the middle of
# `loss.backward()`. This is the lecture's Algorithm 1 (Li et al. 2020):
#
# | lines | | your class |
# |---|---|---|
# | 2–3 | broadcast the model of rank 0 | `__init__` |
# | 4 | parameters into buckets, in reverse order | `__init__` |
# | 5–7 | a hook on every parameter | `__init__` |
# | 8–11 | forward; mark unused parameters ready | `__call__`; unused ones in `synchronize` |
# | 12–18 | a gradient is there; is its bucket complete? | `hook` |
# | 19 | launch the all-reduce of ready buckets, **in order** | `hook` |
# | 20–21 | wait for all | `synchronize` |
#
# *In order* matters: if ranks launched their buckets as they come, one rank's bucket 1 could meet its neighbour's bucket 2.
#
# And `ring_all_reduce` will not do here. It returns when the sum is there, so a hook that calls it would stop the backward pass until then. What you
# need is a ring that can be put aside. Here it is: your ring with `isend` and `irecv`, and a `yield` where it would wait. Each `next()` brings it one
# step further. On a real machine the network, or a GPU's copy engine, carries the message while Python is elsewhere.


# %%
def ring_steps(x: Tensor, comm):
    """A ring all-reduce that pauses: after each `yield` a message is under way."""
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        sent, received = comm.isend(given, (rank + 1) % p), comm.irecv(incoming, (rank - 1) % p)
        yield True
        sent.wait()
        received.wait()
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


class InFlight:
    """A bucket on its way: `advance()` it now and then, `finish()` it in the end."""

    def __init__(self, bucket: list[Tensor], local_n: int, comm):
        grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
        self.bucket = bucket
        self.flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)]) * local_n
        self.steps = ring_steps(self.flat, comm)

    def advance(self) -> bool:
        """One step further; False once there is nothing left to do."""
        return next(self.steps, False)

    def finish(self) -> None:
        """All remaining steps; then every `param.grad` is the mean over all ranks' samples."""
        while self.advance():
            pass
        means = (self.flat[:-1] / self.flat[-1]).split([param.numel() for param in self.bucket])
        for param, mean in zip(self.bucket, means, strict=True):
            param.grad = mean.view_as(param)


# %% [markdown]
# {{exercise OverlappedDDP}}
#
# It is used like this, on every rank:
#
#     ddp = OverlappedDDP(model, comm)
#     loss = cross_entropy(ddp(x), y)
#     model.zero_grad(); loss.backward()          # the hooks are called in here
#     ddp.synchronize()                           # now every param.grad is the mean; take the step
#
# <details><summary>Hint 1: what to remember</summary>
#
# The buckets, from `make_buckets`. For each forward pass: the number of samples, the set of parameters that are ready, the list of flights. Begin the
# last three anew in `__call__`.
# </details>
# <details><summary>Hint 2: which bucket is next?</summary>
#
# The one with the number `len(self.flights)`: they are launched in order. It is complete when
# `self.ready.issuperset(self.buckets[len(self.flights)])`. After one launch the next bucket may be complete already: `while`, not `if`.
# </details>
# <details><summary>Hint 3: going on with what is under way</summary>
#
# `any(flight.advance() for flight in self.flights)` brings the first flight that is not done one step further, and stops there: one ring after the
# other, on every rank in the same order.
# </details>
# <details><summary>Hint 4: synchronize</summary>
#
# Some buckets were never complete, since no gradient came for an unused parameter. Launch them now (`InFlight` sends zeros for them), then `finish()`
# all flights in order.
# </details>


# %%
class OverlappedDDP:
    """A model whose gradients are averaged over the ranks of `comm` while the backward pass
    goes on.

    Only parameters with requires_grad take part; all begin with rank 0's values. Buckets of
    up to `cap_bytes`.
    """

    def __init__(self, model: nn.Module, comm, cap_bytes: int = CAP):
        # BEGIN SOLUTION
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)
        # END SOLUTION

    def __call__(self, x: Tensor) -> Tensor:
        """The model's output for this rank's samples x (n_r, ...); a new iteration
        begins."""
        # BEGIN SOLUTION
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)
        # END SOLUTION

    def hook(self, param: Tensor) -> None:
        """Called by autograd when `param.grad` is there: launch what is complete, go on
        with what is under way."""
        # BEGIN SOLUTION
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)
        # END SOLUTION

    def synchronize(self) -> None:
        """Wait until every gradient is the mean over the samples of all ranks."""
        # BEGIN SOLUTION
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()
        # END SOLUTION


# %%
check("ddp.OverlappedDDP")

# %% [markdown]
# Here is *your* class at work, on the simulated machine: twelve layers whose backward pass takes a second each. The messages are those that your
# hooks sent. Move the bucket size: where is the step shortest?

# %%
bucket_timeline.explorable(OverlappedDDP)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Two ranks: with one layer per bucket, twelve all-reduces of two messages each pay their latency, and there are more messages than moments to send
# them (15.8 s). With one bucket for all the messages begin when the backward pass has ended (15.3 s). Two layers per bucket hide nearly everything:
# 12.8 s. Four ranks: a ring has six steps now, each hook brings it one step further, and most of them are left for `synchronize`; six layers per
# bucket are the best. A real system gives the ring a thread, or a GPU's stream, of its own: `hpcdl.ddp` does.
# </details>

# %% [markdown]
# ## Live: four engines
#
# Time for a real machine. An *engine* is a Python process that waits for work. These are MPI processes, started together by `mpiexec`, each with its
# rank; they live beside this notebook's kernel and end with it.
# *(The command behind it: `mpiexec -n 4 python -m hpcdl.cluster.engine`.)*

# %%
from hpcdl.cluster import Cluster, ClusterError, publish

cluster = Cluster(n=4).start()

# %% [markdown]
# `cluster.run(f, ...)` calls `f(comm, ...)` on every rank, with your functions in it, and returns the results in the order of the ranks.
# `cluster.stream` does the same, and hands over what the ranks `publish` while they are at it. First the whole training, made of what you wrote. It
# reads 1,438 real handwritten digits, and keeps 359 aside that it never trains on.


# %%
def learn(comm, epochs=15, batch=64, lr=0.1, limit=None, report=publish):
    """Train LeNet-5 on the digits, `batch` images a step on all ranks together: held-out accuracy and the weights."""
    torch.set_num_threads(1)
    data, share = load("digits"), -(-batch // comm.size)
    torch.manual_seed(comm.rank)  # other weights on every rank ...
    model = lenet5()
    broadcast_parameters(model.parameters(), comm)  # ... are made equal
    steps = -(-len(data.y) // (share * comm.size))
    for epoch in range(epochs):
        mine = shard_indices(len(data.y), comm.rank, comm.size, epoch, seed=0)
        for step in range(steps)[:limit]:
            chosen, start = mine[step * share : (step + 1) * share], time.perf_counter()
            loss = train_step(model, (data.x[chosen], data.y[chosen]), lr, comm)
            speed = len(chosen) / (time.perf_counter() - start)
            report({"epoch": epoch + (step + 1) / steps, "loss": loss, "images_per_second": speed})
    with torch.no_grad():
        accuracy = (model(data.x_held_out).argmax(1) == data.y_held_out).float().mean().item()
    return accuracy, [param.detach() for param in model.parameters()]


def rehearse() -> None:
    """One step of `learn` on two simulated ranks: a mistake is easier to read there."""
    simulate(learn, 2, 1, 64, 0.1, 1, lambda record: None)


# %%
guess(
    "ddp.accuracy",
    "15 epochs on four engines: how many of the held-out digits will be read right?",
    unit="%",
)

# %%
epochs, trained = 15, []
with when_solved():
    guessed("ddp.accuracy")
    rehearse()
    run = cluster.stream(learn, epochs, timeout=120)
    with training.TrainingFigure(epochs) as picture:
        for record in run:
            picture.add(record)
    trained = run.results

# %% [markdown]
# **What did you see?** Why do the ranks' loss curves differ although all have the same weights? Why do the curves of speed move together?
#
# <details><summary>What we expect</summary>
#
# - Each rank measures the loss on its own images, a quarter of the batch, so the curves jitter around one another. The weights behind them are the
#   same.
# - An all-reduce ends for nobody before the last one has come: when one rank is late, all are. The speeds move together.
# </details>
#
# Did it learn, and are the replicas equal? Every rank returned its weights, 61,706 numbers. One different bit in one of them would show.

# %%
if trained:
    engines, (accuracy, first) = len(trained), trained[0]
    replicas_identical = all(torch.equal(a, b) for _, weights in trained for a, b in zip(first, weights, strict=True))
    print(f"{engines} engines: {accuracy:.1%} of the held-out digits are read right.")
    print("The replicas are", "identical to the last bit." if replicas_identical else "DIFFERENT.")
    reveal("ddp.accuracy", 100 * accuracy)

# %% [markdown]
# ## How fast, and why not faster?
#
# With $T_p$ the time of a step on $p$ ranks, the **speed-up** is $T_1 / T_p$ and the **efficiency** is $T_1 / (p\,T_p)$. The batch of 256 images
# stays the same and is split among the ranks: *strong scaling*. The fourth column is what one rank needs for its part *alone*, without any other
# rank: what is left of the step is messages and waiting.
#
# How many cores has this machine? What do you expect for 2 ranks, and for 4?

# %%
guess(
    "ddp.speed_up",
    "The same 256 images on 2 ranks: how many times as fast as on one?",
    unit="times",
)

# %%
guess(
    "ddp.speed_up_of_4",
    "And on 4 ranks?",
    unit="times",
)


# %%
def step_times(comm, ranks, images, steps=12):
    """Seconds of each step with `images` on each of the first `ranks` engines; the others stand by."""
    from hpcdl.comm import Group

    torch.set_num_threads(1)
    if comm.rank >= ranks:
        return None
    group, model, seconds = Group(comm, range(ranks)), lenet5(), []
    x, y = torch.randn(images, 1, 28, 28), torch.randint(10, (images,))
    for _ in range(steps + 2):
        start = time.perf_counter()
        train_step(model, (x, y), 0.0, group)
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def fastest_ms(ranks: int, images: int) -> float:
    """The fastest step: a machine that does other things too only ever makes one slower."""
    return 1e3 * min(cluster.run(step_times, ranks, images)[0])


with when_solved():
    guessed("ddp.speed_up")
    guessed("ddp.speed_up_of_4")
    rehearse()
    print(f"{cores()} cores here\n")
    print("ranks  images each  ms a step  alone, ms  speed-up  efficiency  messages and waiting")
    one, speed_ups = fastest_ms(1, 256), {}
    for ranks in (1, 2, 4):
        images = 256 // ranks
        alone = fastest_ms(1, images) if ranks > 1 else one
        step = fastest_ms(ranks, images) if ranks > 1 else one
        print(
            f"{ranks:5}  {images:11}  {step:9.1f}  {alone:9.1f}  {one / step:8.2f}  {one / step / ranks:10.0%}  "
            f"{max(0.0, 1 - alone / step):20.0%}"
        )
        speed_ups[ranks] = one / step
    reveal("ddp.speed_up", speed_ups[2], measured=True)
    reveal("ddp.speed_up_of_4", speed_ups[4], measured=True)

# %% [markdown]
# <details><summary>What limits it?</summary>
#
# - **Cores.** With as many cores as ranks or more, the speed-up comes near the number of ranks. With fewer, ranks take turns: four ranks on two cores
#   compute no faster than two, and what they compute "alone" in the table they must now do side by side. That shows in the last column although it is
#   neither message nor network.
# - **Small parts.** Each layer's call has a fixed cost, so a small part of the batch takes more than its share of the time; but its tensors stay in
#   the processor's cache, and then it takes less. (An efficiency above 100 % comes from there.) At some size the fixed cost wins, and splitting
#   further brings nothing. This is why one scales with *more* images instead: with 256 per rank, *weak scaling*, there is nothing to lose but the
#   messages.
# - **Messages.** 61,706 gradients are 247 kB. Over shared memory, with a core for each rank, that takes well under a millisecond; over 1 Gb/s
#   Ethernet and four ranks some 3 ms. For LeNet on this machine they are the least of your worries; for ResNet-50 with its 102 MB they are what the
#   timeline above shows.
# - **The slowest.** An iteration lasts as long as its slowest rank, and on a machine that does other things some rank is always slow.
# </details>

# %% [markdown]
# ## The dashboard
#
# Training to play with, on the same engines: the course's own `hpcdl.ddp`, which is your class with its corners filled in. Press **start**. While it
# trains, slow a rank down, pause it, kill a rank. **Strong** and **weak** measure 1, 2, ... ranks and put the cost model's prediction beside them.
#
# 1. Choose a rank and make it 4 times slower. Whose images/s drop? Who waits? (Grey bars.)
# 2. Small batch, large batch: which reads more images per second? Which learns more per epoch?
# 3. Stop, set the bucket to 0.01 MB, start again. How many messages has a step now, and how long does it take?
# 4. Kill a rank. What do the others do? Start again.

# %%
training_dashboard.Dashboard(cluster)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Everybody's, to the slow one's level: the others spend the difference waiting in their all-reduce. Synchronous training has the speed of its
#    slowest rank.
# 2. Large batches read more images per second: a step's fixed costs are shared by more images, and there are fewer all-reduces per epoch. But fewer
#    steps per epoch learn less, unless the learning rate grows with the batch.
# 3. Several instead of one. On one machine a message is little but latency, and with more ranks than cores each costs a turn at a processor: the
#    step takes several times as long. It takes a network that is slower than memory to make buckets pay.
# 4. They wait in an all-reduce that will never end, so the run ends with an error that names the rank, and the engines are started anew. With MPI one
#    dead rank ends the program; what saves the work is a checkpoint.
# </details>
#
# ## When a rank fails
#
# A classic mistake freezes everything: both ranks wait to receive, nobody sends. Here it is one error, within the time limit, and the engines are
# ready again:


# %%
def both_wait(comm):
    x = torch.zeros(3)
    if comm.rank < 2:
        comm.recv(x, source=1 - comm.rank)


try:
    cluster.run(both_wait, timeout=2)
except ClusterError as error:
    print(error)

# %%
cluster.run(lambda comm: f"rank {comm.rank} of {comm.size} is there")  # and on we go

# %% [markdown]
# ## The same code as a program
#
# On a cluster nobody sits at a notebook. The same functions, in a file that every rank runs from top to bottom, started with `mpiexec`. This cell
# writes the file from your functions; only the last lines are new.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

from hpcdl.cluster import find_launcher

functions = (shard_indices, broadcast_parameters, ring_all_reduce, average_gradients, make_buckets, train_step, learn)
program = f"""import time
import torch
from collections.abc import Iterable
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from hpcdl.comm import MPIComm
from hpcdl.training.train import load
from hpcdl.nn.lenet import lenet5

CAP, publish = {CAP}, None
{"".join(inspect.getsource(function) for function in functions)}

comm = MPIComm()
accuracy, _ = learn(comm, epochs=1, report=lambda record: None)
print(f"rank {{comm.rank}} of {{comm.size}}: {{accuracy:.1%}} after one epoch")
"""
with when_solved(), tempfile.TemporaryDirectory() as folder:
    rehearse()
    file = Path(folder) / "my_training.py"
    file.write_text(program)
    print(f"{len(program.splitlines())} lines; mpiexec -n 2 python my_training.py\n")
    done = subprocess.run(
        [find_launcher().path, "-n", "2", sys.executable, str(file)], capture_output=True, text=True, timeout=100
    )
    print(done.stdout or done.stderr)

# %% [markdown]
# The library's own training is a program as well (*File → New → Terminal*), and only the launcher and the *backend* that carries the messages change
# with the machine:
#
# | backend | carries | started by |
# |---|---|---|
# | MPI | tensors in a processor's memory; some builds a GPU's, too | `mpiexec -n 4 hpcdl train` |
# | gloo | tensors in a processor's memory, over TCP; collectives of those in a GPU, by way of it | `torchrun --nproc-per-node 4 -m hpcdl.training` without GPUs |
# | NCCL | tensors in GPUs, directly from one to the other | the same command, with a GPU for each rank |
#
# What torch.distributed's backends can do, as the lectures have it (✓ yes, ✗ no, ? if MPI was built for it):
#
# | | gloo, CPU | gloo, GPU | MPI, CPU | MPI, GPU | NCCL, GPU |
# |---|---|---|---|---|---|
# | send, recv | ✓ | ✗ | ✓ | ? | ✓ |
# | broadcast, all_reduce, reduce, all_gather, gather, scatter, all_to_all | ✓ | ✓ | ✓ | ? | ✓ |
# | reduce_scatter | ✓ | ✓ | ✗ | ✗ | ✓ |
# | barrier | ✓ | ✗ | ✓ | ? | ✓ |

# %%
cluster.stop()  # the engines would also end with the kernel; their memory is better given back now

# %% [markdown]
# ## Catch the impostors
#
# A test is a question that a wrong program answers wrongly. The checks of this lab put many questions to your ring; now you put them.
#
# Eight programs, **A** to **H**, sum `x` over the ranks, in place. Some are rings, some are not. Four are right, each written in its own way. Four are
# impostors: for many p and n they answer as the others do. You do not see their code. You choose on how many ranks they run, and on how many numbers.

# %% [markdown]
# {{exercise unmask_ring}}
#
# Return a list of at most 12 inputs, each a tuple `(p, n)`: `p` ranks, 1 to 9, and `n` numbers on each, 1 to 32.
#
# A program is unmasked where `x` is not the sum on some rank, or where it raises an error. Each impostor that you unmask earns two points. Two more are
# for inputs that keep the rules: one that breaks them unmasks nobody. The check tells whom you have caught, and by what; press it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 3, or nearly made. For which p and n would nobody have noticed?
# </details>
# <details><summary>Hint 2: the ends and the unlucky middle</summary>
#
# The smallest p there is; more ranks than numbers; a remainder; a p that is a power of two, and one that is not.
# </details>


# %%
def unmask_ring() -> list[tuple[int, int]]:
    """Inputs (p, n) for which the impostors among the eight programs answer wrongly.

    Returns at most 12 tuples.

    An input that unmasks nobody:

        [(4, 12)]
    """
    # BEGIN SOLUTION
    return [
        (1, 3),  # nobody to send to
        (2, 7),  # a remainder
        (4, 2),  # more ranks than numbers
        (3, 6),  # no power of two
    ]
    # END SOLUTION


# %%
check("ddp.unmask_ring")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **A** cuts p chunks of ⌊n / p⌋ and forgets the rest.
# - **C** takes a first step even where there is none to take.
# - **E** cuts with x.chunk(p), which may give fewer than p chunks.
# - **G** pairs each rank with rank XOR distance, which may not exist.
#
# With four ranks and twelve numbers, which everybody tries first, all eight are right.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to ask of yourself.
#
# Send a hundredth: each rank sends only the largest 1 % of its gradient's entries, values and places, and *keeps* the rest, which it adds to its next gradient (Y. Lin et
# al. 2018). Write it with an all-gather instead of your ring. *Proof:* the bytes of a step, from `comm`'s trace, beside the ring's; the digits read right after as many
# epochs; and once more without keeping the rest.

# %% [markdown]
# ## Further reading
#
# - S. Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training": Algorithm 1, buckets and overlap, and what they
#   bring.
# - P. Patarasuk and X. Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations": the ring, and why no all-reduce sends less.
# - H. Zhang et al. 2017, "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning on GPU Clusters": wait-free
#   backpropagation, overlap by another name.
# - P. Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour": what 256 GPUs and batches of 8,192 images need besides speed.
