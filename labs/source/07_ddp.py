# %% [markdown]
# # Lab 07 · Many machines, one model
# ## Data-parallel training, written and watched
#
# One machine takes a day to train a network. Sixteen machines have sixteen times the processors, so can they do it in
# an hour and a half? Nearly, and the method fits on a page. Every machine holds the whole model and computes the
# gradient of *its part* of the batch. One all-reduce computes the mean of all gradients, and all machines take the same
# step. In this lab you write all of it, from the ring that adds up the gradients to the hooks that overlap
# communication with computation. Then you train a network with it on real processes.
#
# **You will be able to**
# - distribute a data set over ranks, so that every epoch sees every sample once;
# - write a ring all-reduce that sends as few bytes as an all-reduce can, and cannot deadlock;
# - average gradients of unequal batches correctly, in buckets, with shared, frozen and unused parameters;
# - overlap the messages with the backward pass, as PyTorch's DistributedDataParallel does;
# - measure speed-up and efficiency on real processes, and explain what limits them.
#
# **100 points, 8 exercises, about 120 minutes: 17 reading + 94 exercises + 9 runs; an extra exercise takes 8 more, and has 10 of the points.** You need Python functions and tensors, but no GPU. Lab 02 explained
# the gradient over $p$ shards. MPI is already installed. In this lab $n$ is the number of elements of a tensor or of
# samples in a data set; the text says which. $n_r$ and $g_r$ are the number of samples and the gradient of rank $r$.

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
from hpcdl.widgets import guess, guessed, reveal, saying, style, when_solved, your_program
from hpcdl.widgets.pictures import bucket_timeline, ring_passing, training, training_dashboard

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Five **ranks** (processes, numbered from 0) form a ring. Each has its own vector $x$, cut into five **chunks**, and
# all of them need the sum. A disk shows one rank's $x$, chunk by chunk. The more ranks' numbers a chunk contains, the
# fuller it is; green means all. On the right are the same chunks as a table. The picture shows a real run of the
# algorithm, on a simulated machine.
#
# Press play, then try these:
# 1. Stop halfway (after $p-1$ of the $2(p-1)$ steps). How many green chunks does each rank have? What happens in the
#    second half?
# 2. Watch one rank: how many messages does it send in total, and how large are they?
# 3. Set p to 9 with n = 4 elements. What happens to the chunks?

# %%
ring_passing.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. After the first half each rank has exactly one finished chunk, a different one on each rank. In the second half the
#    finished chunks go around the ring and replace the unfinished ones. No more numbers are added.
# 2. $2(p-1)$ messages of one chunk, $n/p$ elements: $2\frac{p-1}{p}n$ elements, a little less than $2n$ for every $p$.
#    So with 1,000 ranks each rank sends hardly more than with ten.
# 3. Five of the nine chunks are empty. The algorithm still works: it also sends the empty messages.
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
# The loss of a batch is a mean over its samples. So the gradient of the global batch is the mean of the ranks'
# gradients $g_r$, each weighted by its number of samples:
#
# $$ g = \sum_{r=0}^{p-1} \frac{n_r}{N}\, g_r, \qquad N = \sum_{r=0}^{p-1} n_r. $$
#
# This is not an approximation: it is the step that one machine would take with the whole batch. All ranks begin with
# the same weights and take the same steps, so their weights are always equal, and no rank needs to send weights again.
# The lectures call this *bulk-synchronous* data parallelism: all ranks finish an iteration together, and it takes
# $t_{compute} + t_{sync} + t_{IO}$.
#
# ## Distribute the samples
#
# Each rank needs its own part of the data, its *shard*. The ranks need no messages for this. Each shuffles all $n$
# indices **with the same seed**, so it gets the same permutation, and takes the part that belongs to its rank. Each
# epoch shuffles again.

# %% [markdown]
# {{exercise shard_indices}}
#
# Write the function that returns a rank's shard in an epoch.
#
# <details><summary>Hint 1: the same permutation everywhere</summary>
#
# `torch.randperm(n, generator=g)` with a generator `g` that is seeded with numbers that all ranks know: `seed` and `epoch`, not `rank`.
# </details>
# <details><summary>Hint 2: a generator of your own</summary>
#
# `torch.Generator().manual_seed(seed + epoch)`: it does not change torch's global generator.
# </details>
# <details><summary>Hint 3: nearly equal parts without losing samples</summary>
#
# Deal the permutation like cards: a slice `start::step` takes every `step`-th index. Which start and which step belong
# to a rank?
# </details>


# %%
def shard_indices(n: int, rank: int, size: int, epoch: int, seed: int) -> Tensor:
    """The samples of rank `rank` out of `size` in this epoch: indices, shape
    (about n / size,), int64.

    All ranks' shards together hold each of 0 to n-1 once; their lengths differ by at most
    one. Each epoch and each seed gives different shards. torch's global generator is not
    changed.

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
# ## Ranks that send messages
#
# An algorithm over ranks is one function that every rank runs. Its argument is a **communicator** `comm`:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number, 0 to p-1, and p |
# | `comm.send(x, dest)` | send the tensor `x`; returns when it has been received |
# | `comm.recv(out, source)` | wait for a message and put it into `out`, a tensor with the sender's dtype and number of elements |
# | `comm.sendrecv(x, dest, out, source)` | both at the same time |
# | `comm.isend(x, dest)`, `comm.irecv(out, source)` | begin and return at once; call `.wait()` on the result before you use the tensor |
# | `comm.broadcast(x, root)`, `comm.all_reduce(x)` | the machine's own collectives, in place |
#
# `simulate(f, p)` calls `f(comm)` on p ranks in this kernel, in virtual time. Here every rank has a model that begins
# with different weights:


# %%
def linear(seed: int) -> nn.Linear:
    """A layer whose weights depend only on the seed."""
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(1, 2, generator=torch.Generator().manual_seed(seed)))
    return layer


simulate(lambda comm: linear(seed=comm.rank).weight.tolist(), p=3).results

# %% [markdown]
# {{exercise broadcast_parameters}}
#
# Make the weights equal: every rank gets the root's. You may use `comm.broadcast`, one parameter after the other. (Lab
# 08 shows how a broadcast works.)
#
# <details><summary>Hint 1: in place</summary>
#
# The model must see the new values, so write them into the parameter's own memory. `comm.broadcast(x, root)` overwrites
# `x`.
# </details>
# <details><summary>Hint 2: without autograd</summary>
#
# Autograd watches a parameter and forbids in-place changes. `param.detach()` is the same memory, but autograd does not
# watch it.
# </details>


# %%
def broadcast_parameters(params: Iterable[Tensor], comm, root: int = 0) -> None:
    """Overwrite the parameters on every rank with rank `root`'s, in place.

    params: tensors of the same shapes on all ranks, such as model.parameters(), which can
    be read only once.
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
# Questions on *your* program, without points: predict what it does. Its run on the simulated machine gives the answers.

# %%
with when_solved():
    your_program(
        "ddp.broadcast_parameters",
        lambda comm: broadcast_parameters([torch.ones(40, 25), torch.ones(25)], comm, root=2),
        p=7,
        on="1,025 numbers from rank 2",
    )

# %% [markdown]
# ## The ring
#
# The simplest all-reduce sends everything to rank 0, which adds up and sends the sum back. Then rank 0 moves $2(p-1)n$
# elements while all others wait. The ring spreads this work evenly. Cut $x$ into $p$ chunks, and let all ranks send at
# the same time, always to the right:
#
#     p = 3, chunks 0 1 2; a, b, c are the ranks' numbers       what each rank sends to its right
#
#                rank 0       rank 1       rank 2
#     start      a0 a1 a2     b0 b1 b2     c0 c1 c2              chunk 0     chunk 1     chunk 2
#     step 0     a0 a1 ac2    ab0 b1 b2    c0 bc1 c2             chunk 2     chunk 0     chunk 1
#     step 1     a0 ABC1 ac2  ab0 b1 ABC2  ABC0 bc1 c2           ... and every rank has one finished chunk
#     step 2, 3  the finished chunks go around twice: each received chunk replaces the old one
#
# In step $s$ rank $r$ sends chunk $(r - s) \bmod p$ and receives chunk $(r - s - 1) \bmod p$. In the first $p-1$ steps
# (the *reduce-scatter*) it **adds** the received chunk. In the last $p-1$ steps (the *all-gather*) it **overwrites**
# its chunk. That is the whole algorithm.
#
# **Deadlock.** If every rank first calls `send`, all ranks wait: `send` returns only when the other side receives, but
# the other side is sending, too. On a real machine this may work for small messages, which the network buffers, and
# hang for large ones. The simulated machine never buffers messages, so it detects the deadlock at once:


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
# Write the whole ring: both halves, for any number of ranks and elements.
#
# <details><summary>Hint 1: chunks</summary>
#
# `chunks = x.view(-1).tensor_split(p)` are p views of x with nearly equal lengths; some are empty if n < p. If you
# write into a chunk, you write into x.
# </details>
# <details><summary>Hint 2: one step</summary>
#
# `comm.sendrecv(given, right, incoming, left)` sends and receives at once, so there is no deadlock. `incoming` needs
# its own memory: `torch.empty_like(taken)`, of the size of the chunk that *arrives*.
# </details>
# <details><summary>Hint 3: which chunk in which step?</summary>
#
# In step 0, rank r gives away chunk r and takes in chunk r − 1. In each later step it gives away what it has just
# taken in, so both numbers fall by one, modulo p. The second half continues in the same way; it only copies instead of
# adding.
# </details>


# %%
def ring_all_reduce(x: Tensor, comm) -> None:
    """Sum `x` over the ranks, in place, by messages between neighbours: 2(p-1) steps of
    about n/p elements.

    x: contiguous, any shape, n >= 1 elements. Sends go to rank + 1, receives come from
    rank - 1 (modulo p). All ranks end with the same bits.
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
# Predict what *your* ring does, on more ranks (again without points):

# %%
with when_solved():
    your_program(
        "ddp.ring_all_reduce",
        lambda comm: ring_all_reduce(torch.ones(1000), comm),
        p=7,
        on="1,000 numbers",
    )

# %% [markdown]
# ## The mean gradient
#
# These are the two most common mistakes in data parallelism. Neither raises an error.
#
# *The mean of means.* 1,438 images in batches of 64 leave a last batch of 30. Over 4 ranks this makes 8, 8, 7 and 7. A
# rank's gradient is a mean over *its* images, so it must count $n_r$ times. Without this weight the result is wrong.
#
# *Too many messages.* LeNet has ten parameter tensors, ResNet-50 has 161. Each message costs its latency, however small
# it is. So put all gradients into **one** flat tensor, with $n_r$ at its end. Then the same all-reduce also gives the
# sum of all $n_r$, which is $N$.

# %% [markdown]
# {{exercise average_gradients}}
#
# Write the weighted mean with one flat tensor and one all-reduce.
#
# <details><summary>Hint 1: one flat tensor</summary>
#
# `torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)])` holds all gradients and a 1. Multiplied by
# `local_n`, it holds $n_r g_r$, with $n_r$ at the end.
# </details>
# <details><summary>Hint 2: back again</summary>
#
# After the all-reduce the last number is the number of all samples: divide by it. `.split(lengths)` cuts the rest into
# pieces of the gradients' lengths, and `.view_as(grad)` gives a piece its shape. Write it back with `copy_`.
# </details>
# <details><summary>Hint 3: a rank without samples</summary>
#
# It needs no `if`: it multiplies by 0 and takes part like the others. If it did not take part, they would wait for it.
# </details>


# %%
def average_gradients(grads: list[Tensor], local_n: int, comm) -> None:
    """Replace gradients, which are means over this rank's `local_n` samples, by the means
    over
    all ranks' samples, in place.

    grads: float32 tensors, of the same shapes on all ranks; local_n may be 0 on some. Use
    one all-reduce in total.

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
# Predict what *your* average does:

# %%
with when_solved():
    your_program(
        "ddp.average_gradients",
        lambda comm: average_gradients([torch.ones(20, 50), torch.ones(50)], comm.rank, comm),
        p=6,
        on="1,050 gradients",
    )

# %% [markdown]
# ## Buckets
#
# A single message has a drawback: you cannot send it before the *last* gradient is ready. The backward pass computes
# the gradients one by one, from the last layer to the first. So real systems put a few tensors into a **bucket**. They
# send it as soon as its gradients are ready, while the backward pass continues with the earlier layers.
#
# Below is one iteration of ResNet-50 on a cluster, predicted by the course's cost model. For each rank, the upper bar
# shows computation (forward, then backward), and the lower bar shows messages.
#
# 1. Set the bucket size to its minimum and to its maximum. Is either of them good?
# 2. Switch off overlap. How much time did it hide?
# 3. Make the network ten times slower (1 Gb/s). What helps now, and what does not?
# 4. Make one rank slow. Look at the other ranks' messages.

# %%
bucket_timeline.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. No. With 0.1 MB nearly each of the 54 layers has its own bucket, and each bucket takes fourteen messages of 100 µs
#    latency: 277 ms. A single bucket waits for the first layer's gradient, so nothing overlaps: 324 ms. With 25 MB it
#    takes 217 ms, and between 5 and 50 MB the size hardly matters. PyTorch's default is 25 MB.
# 2. Without overlap it takes 330 ms. The messages take 150 ms, and overlap hid three quarters of this time. It cannot
#    hide the messages after the end of the backward pass.
# 3. Now the messages take 1.4 s, twelve times as long as the backward pass, and overlap can hide at most the time of
#    the backward pass. Faster links help, and so do fewer bytes (16 bits) and larger batches, which make the
#    computation longer. Bucket sizes and overlap hardly help.
# 4. A bucket's all-reduce needs *every* rank's bucket. The fast ranks' buckets wait (grey) for the slow rank, and so
#    does everything after them. So all ranks run at the speed of the slowest.
# </details>

# %% [markdown]
# {{exercise make_buckets}}
#
# Go through the parameters from the last to the first and fill the buckets up to the cap. This is line 4 of DDP's
# algorithm in the lecture.
#
# <details><summary>Hint 1: bytes of a tensor</summary>
#
# `param.nbytes`, which knows the dtype.
# </details>
# <details><summary>Hint 2: when to begin a new bucket</summary>
#
# If there is no bucket yet, or if this parameter would not fit: `filled + param.nbytes > cap_bytes`. Then a parameter larger
# than the cap gets its own bucket without an extra `if`, since the next parameter does not fit either.
# </details>


# %%
def make_buckets(params: Iterable[Tensor], cap_bytes: int) -> list[list[Tensor]]:
    """The parameters themselves in buckets, last parameter first, each as full as
    `cap_bytes`
    allows.

    params: can be read only once, like model.parameters(). A bucket may be exactly full. A
    parameter larger than the cap has its own bucket. No bucket is empty.

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
# Now put it together: forward, backward, a message per bucket, and the step. Three kinds of parameters need care:
#
# - **tied**: one parameter used in two places. Autograd adds up both uses, and `model.parameters()` lists it once. You
#   need not do anything, unless you go layer by layer;
# - **frozen**: `requires_grad` is False. It has no gradient and must not move;
# - **unused**: this batch did not use it, so its `.grad` is `None`, perhaps only on this rank! If you leave it out,
#   this rank's message is shorter than its neighbours'. Send zeros, since the gradient of a parameter without influence
#   is zero.

# %% [markdown]
# {{exercise train_step}}
#
# Write the step of one rank; all ranks call it together.
#
# <details><summary>Hint 1: the order</summary>
#
# `model.zero_grad()`, the loss by `cross_entropy(model(x), y)`, `loss.backward()`. Then for every bucket: gradients (zeros for None),
# `average_gradients`, and `param -= lr * grad`.
# </details>
# <details><summary>Hint 2: changing parameters</summary>
#
# Autograd must not record the step: put it under `with torch.no_grad():`.
# </details>
# <details><summary>Hint 3: which parameters</summary>
#
# `[param for param in model.parameters() if param.requires_grad]`. Not `if param.grad is not None`: this may differ
# between ranks, and then their buckets would differ.
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
    """One step of gradient descent on the global batch; `batch` is this rank's part.
    Returns
    the loss of this part.

    batch: x (n_r, ...), y (n_r,) labels for cross_entropy; n_r may differ from rank to
    rank, and may be 0. One all-reduce per bucket.
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
# Your step sends after the backward pass. To send *during* it you must know when a gradient is ready. Autograd can tell
# you. If you register a function with `param.register_post_accumulate_grad_hook(f)`, autograd calls `f(param)` right
# after it has written `param.grad`, in the middle of `loss.backward()`. This is the lecture's Algorithm 1 (Li et al.
# 2020):
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
# The *order* matters. If each rank launched its buckets as they become ready, one rank's bucket 1 could be added to its
# neighbour's bucket 2.
#
# You cannot use `ring_all_reduce` here. It returns only when the sum is ready, so a hook that calls it would stop the
# backward pass until then. You need a ring that can pause: your ring with `isend` and `irecv`, and a `yield` where it
# would wait. The library has one, `InFlight`, for the all-reduce of a bucket:
#
# - `InFlight(bucket, local_n, comm)` puts the bucket's gradients, means over this rank's `local_n` samples, into one
#   vector. A parameter without a gradient counts as zeros.
# - `advance()` takes the ring one step further. Afterwards a message is under way, or the answer is False: nothing is
#   left to do.
# - `finish()` takes all remaining steps. Then every `param.grad` of the bucket is the mean over all ranks' samples.
#
# On a real machine the network, or a GPU's copy engine, transfers the message while Python does other work.

# %%
from hpcdl.ddp.in_flight import InFlight

# %% [markdown]
# {{exercise OverlappedDDP}}
#
# Fill in the four methods. Every rank uses it like this:
#
#     ddp = OverlappedDDP(model, comm)
#     loss = cross_entropy(ddp(x), y)
#     model.zero_grad(); loss.backward()          # the hooks are called in here
#     ddp.synchronize()                           # now every param.grad is the mean; take the step
#
# <details><summary>Hint 1: what to remember</summary>
#
# Keep the buckets from `make_buckets`. For each forward pass, keep the number of samples, the set of ready parameters
# and the list of flights. Reset these three in `__call__`.
# </details>
# <details><summary>Hint 2: which bucket is next?</summary>
#
# Bucket number `len(self.flights)`, because you launch them in order. It is complete when
# `self.ready.issuperset(self.buckets[len(self.flights)])`. After one launch the next bucket may already be complete:
# use `while`, not `if`.
# </details>
# <details><summary>Hint 3: advance the running rings</summary>
#
# `any(flight.advance() for flight in self.flights)` advances the first unfinished flight by one step, and stops there.
# So the rings run one after the other, on every rank in the same order.
# </details>
# <details><summary>Hint 4: synchronize</summary>
#
# Some buckets were never complete, since an unused parameter gets no gradient. Launch them now (`InFlight` sends zeros
# for it), then `finish()` all flights in order.
# </details>


# %%
class OverlappedDDP:
    """A model whose gradients are averaged over the ranks of `comm` during the backward
    pass.

    Only parameters with requires_grad take part; all parameters begin with rank 0's
    values. Buckets of
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
        """Begin a new iteration; return the model's output for this rank's samples x
        (n_r, ...)."""
        # BEGIN SOLUTION
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)
        # END SOLUTION

    def hook(self, param: Tensor) -> None:
        """Called by autograd when `param.grad` is ready: launch the complete buckets, and
        advance the running all-reduces."""
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
# This is *your* class on the simulated machine, with twelve layers whose backward pass takes a second each. Your hooks
# sent the messages. Move the bucket size: where is the step shortest?

# %%
bucket_timeline.explorable(OverlappedDDP)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# With two ranks and one layer per bucket, twelve all-reduces of two messages each pay their latency, and there are more
# messages than hook calls that can send them (15.8 s). With a single bucket the messages begin only after the backward
# pass (15.3 s). Two layers per bucket hide nearly everything: 12.8 s. With four ranks a ring has six steps. Each hook
# advances it by only one, so most steps are left for `synchronize`, and six layers per bucket are best. A real system
# gives the ring its own thread or GPU stream, as `hpcdl.ddp` does.
# </details>

# %% [markdown]
# ## Real processes: four engines
#
# Now use a real machine. An *engine* is a Python process that waits for work. The engines here are MPI processes that
# `mpiexec` starts together, each with its rank. They run next to this notebook's kernel and end with it. *(The command
# behind it: `mpiexec -n 4 python -m hpcdl.cluster.engine`.)*

# %%
from hpcdl.cluster import Cluster, ClusterError, publish

cluster = Cluster(n=4).start()

# %% [markdown]
# `cluster.run(f, ...)` calls `f(comm, ...)` on every rank, with your functions in it, and returns the results in the
# order of the ranks. `cluster.stream` does the same, and also yields what the ranks `publish` while they run. First
# comes the whole training, made of your functions. It trains on 1,438 real handwritten digits and holds out 359.


# %%
def learn(comm, epochs=15, batch=64, lr=0.1, limit=None, report=publish):
    """Train LeNet-5 on the digits, `batch` images per step on all ranks together:
    held-out accuracy and the weights."""
    torch.set_num_threads(1)
    data, share = load("digits"), -(-batch // comm.size)
    torch.manual_seed(comm.rank)  # different weights on every rank ...
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
    "15 epochs on four engines: how many of the held-out digits will it read correctly?",
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
# **What did you see?** Why do the ranks' loss curves differ although all have the same weights? Why do the speed curves
# move together?
#
# <details><summary>What we expect</summary>
#
# - Each rank measures the loss on its own images, a quarter of the batch, so the curves jitter around each other. But
#   the weights are the same.
# - An all-reduce ends only after the last rank has joined it. If one rank is late, all are late, so the speeds move
#   together.
# </details>
#
# Did it learn, and are the ranks' models equal? Every rank returned its weights, 61,706 numbers. The next cell would
# detect a single different bit.

# %%
if trained:
    engines, (accuracy, first) = len(trained), trained[0]
    replicas_identical = all(torch.equal(a, b) for _, weights in trained for a, b in zip(first, weights, strict=True))
    print(f"{engines} engines: {100 * accuracy:.1f} % of the held-out digits are read correctly.")
    print("The replicas are", "identical to the last bit." if replicas_identical else "DIFFERENT.")
    reveal("ddp.accuracy", 100 * accuracy)

# %% [markdown]
# ## How fast, and why not faster?
#
# Let $T_p$ be the time of a step on $p$ ranks. Then the **speed-up** is $T_1 / T_p$ and the **efficiency** is $T_1 /
# (p\,T_p)$. The ranks share a fixed batch of 256 images: this is *strong scaling*. The fourth column is the time that
# one rank needs for its part *alone*, while no other rank runs. The rest of the step is messages and waiting.
#
# How many cores does this machine have? What do you expect for 2 ranks, and for 4?

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
    """Seconds of each step with `images` on each of the first `ranks` engines; the others
    are idle."""
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
    """The fastest step: other work on the machine can only make a step slower."""
    return 1e3 * min(cluster.run(step_times, ranks, images)[0])


with when_solved():
    guessed("ddp.speed_up")
    guessed("ddp.speed_up_of_4")
    rehearse()
    print(f"{cores()} cores here\n")
    print("ranks  images  ms a step  alone, ms  speed-up  efficiency  messages, waiting")
    one, speed_ups = fastest_ms(1, 256), {}
    for ranks in (1, 2, 4):
        images = 256 // ranks
        alone = fastest_ms(1, images) if ranks > 1 else one
        step = fastest_ms(ranks, images) if ranks > 1 else one
        print(
            f"{ranks:5}  {images:6}  {step:9.1f}  {alone:9.1f}  {one / step:8.2f}  {100 * one / step / ranks:8.0f} %  "
            f"{100 * max(0.0, 1 - alone / step):15.0f} %"
        )
        speed_ups[ranks] = one / step
    reveal("ddp.speed_up", speed_ups[2], measured=True)
    reveal("ddp.speed_up_of_4", speed_ups[4], measured=True)

# %% [markdown]
# <details><summary>What limits it?</summary>
#
# - **Cores.** If there are at least as many cores as ranks, the speed-up comes near the number of ranks. With fewer
#   cores the ranks take turns. Four ranks on two cores compute no faster than two, since they must now share the cores
#   for the work that the table measures "alone". The last column includes this time, although the cause is not the
#   messages.
# - **Small parts.** Each layer's call has a fixed cost, so a small part of the batch takes more than its share of the
#   time. On the other hand, its tensors may fit into the processor's cache, and then it takes less. (This explains an
#   efficiency above 100 %.) At some size the fixed cost dominates, and a further split gains nothing. So in practice
#   you use *more* images with more ranks. With 256 images per rank (*weak scaling*) only the messages cost efficiency.
# - **Messages.** 61,706 gradients are 247 kB. Over shared memory, with a core for each rank, that takes well under a
#   millisecond; with four ranks over 1 Gb/s Ethernet it takes about 3 ms. For LeNet on this machine the messages matter
#   least. For ResNet-50 with its 102 MB the timeline above shows their cost.
# - **The slowest.** An iteration takes as long as its slowest rank, and on a machine with other work some rank is
#   always slow.
# </details>

# %% [markdown]
# ## The dashboard
#
# Here you can experiment with training on the same engines. It uses the course's own `hpcdl.ddp`, a complete version of
# your class. Press **start**. While it trains, slow down a rank, pause the training, or kill a rank. **Strong** and
# **weak** measure 1, 2, ... ranks and show the cost model's prediction next to them.
#
# 1. Choose a rank and make it 4 times slower. Which ranks' images/s drop? Which ranks wait? (Grey bars.)
# 2. Try a small and a large batch. Which processes more images per second? Which learns more per epoch?
# 3. Stop, set the bucket to 0.01 MB, and start again. How many messages does a step send now, and how long does it
#    take?
# 4. Kill a rank. What do the others do? Start again.

# %%
training_dashboard.Dashboard(cluster)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. All ranks' speeds drop to the slow rank's: the others spend the difference waiting in their all-reduce. Synchronous
#    training runs at the speed of its slowest rank.
# 2. With a large batch it processes more images per second, since more images share a step's fixed costs, and there are
#    fewer all-reduces per epoch. But with fewer steps it learns less per epoch, unless the learning rate grows with the
#    batch.
# 3. Several instead of one. On one machine a message is mostly latency, and with more ranks than cores each message
#    must wait for a core, so the step takes several times as long. Small buckets pay only if the network is slower than
#    memory.
# 4. They wait in an all-reduce that would never end. So the run stops with an error that names the rank, and the
#    engines are started again. With MPI one dead rank ends the whole program; only a checkpoint saves the work.
# </details>
#
# ## When a rank fails
#
# A classic mistake: both ranks wait to receive, but neither sends, so the program hangs. Here you get an error within
# the time limit, and the engines are ready again:


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
# On a cluster you do not use a notebook. You put the same functions into a file, `mpiexec` starts it, and every rank
# runs it from top to bottom. This cell writes the file from your functions; only the last lines are new.

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
print(f"rank {{comm.rank}} of {{comm.size}}: {{100 * accuracy:.1f}} % after one epoch")
"""
with when_solved(), tempfile.TemporaryDirectory() as folder:
    rehearse()
    file = Path(folder) / "my_training.py"
    file.write_text(program)
    print(f"{len(program.splitlines())} lines; mpiexec -n 2 python my_training.py\n")
    with saying("two processes import torch, and train"):
        done = subprocess.run(
            [find_launcher().path, "-n", "2", sys.executable, str(file)], capture_output=True, text=True, timeout=100
        )
    print(done.stdout or done.stderr)

# %% [markdown]
# The library's own training is a program, too (*File → New → Terminal*). Only the launcher and the *backend*, which
# transfers the messages, depend on the machine:
#
# | backend | carries | started by |
# |---|---|---|
# | MPI | tensors in a processor's memory; with some builds also in a GPU's | `mpiexec -n 4 hpcdl train` |
# | gloo | tensors in a processor's memory, over TCP; collectives of tensors in a GPU by copying them there | `torchrun --nproc-per-node 4 -m hpcdl.training` without GPUs |
# | NCCL | tensors in GPUs, directly between GPUs | the same command, with a GPU for each rank |
#
# The lectures' table of torch.distributed's backends (✓ yes, ✗ no, ? if MPI was built for it):
#
# | | gloo, CPU | gloo, GPU | MPI, CPU | MPI, GPU | NCCL, GPU |
# |---|---|---|---|---|---|
# | send, recv | ✓ | ✗ | ✓ | ? | ✓ |
# | broadcast, all_reduce, reduce, all_gather, gather, scatter, all_to_all | ✓ | ✓ | ✓ | ? | ✓ |
# | reduce_scatter | ✓ | ✓ | ✗ | ✗ | ✓ |
# | barrier | ✓ | ✗ | ✓ | ? | ✓ |

# %%
cluster.stop()  # the engines would end with the kernel anyway, but this frees their memory now

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, sum `x` over the ranks, in place. Some are rings, some are not. Four are right, each
# written in its own way. The other four are impostors, which give the right answer for many p and n. You do not see
# their code. You choose the number of ranks and the number of elements.

# %% [markdown]
# {{exercise unmask_ring}}
#
# Return a list of at most 12 inputs, each a tuple `(p, n)`: `p` ranks, 1 to 9, and `n` numbers on each, 1 to 32.
#
# You unmask a program if `x` is not the sum on some rank, or if it raises an error. Each impostor that you unmask earns
# two points. You get two more points if you unmask a program and all your inputs follow the rules; an input that breaks
# them does not count. The check shows which programs you have caught, and with which input. Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 3, or nearly made. For which p and n would you not have noticed them?
# </details>
# <details><summary>Hint 2: extreme and uneven sizes</summary>
#
# Try the smallest p, more ranks than numbers, a remainder, a p that is a power of two, and one that is not.
# </details>


# %%
def unmask_ring() -> list[tuple[int, int]]:
    """Inputs (p, n) for which the impostors among the eight programs give wrong answers.

    Returns at most 12 tuples.

    An input that unmasks none of them:

        [(4, 12)]
    """
    # BEGIN SOLUTION
    return [
        (1, 3),  # no other rank to send to
        (2, 7),  # a remainder
        (4, 2),  # more ranks than numbers
        (3, 6),  # not a power of two
    ]
    # END SOLUTION


# %%
check("ddp.unmask_ring")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **A** cuts p chunks of ⌊n / p⌋ and forgets the rest.
# - **C** takes a first step even with one rank.
# - **E** cuts with x.chunk(p), which may give fewer than p chunks.
# - **G** pairs each rank with rank XOR distance, which may not exist.
#
# With four ranks and twelve numbers, an obvious first try, all eight are right.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# Send a hundredth: each rank sends only the largest 1 % of its gradient's entries, as values and positions, and *keeps*
# the rest, which it adds to its next gradient (Y. Lin et al. 2018). Write it with an all-gather instead of your ring.
# *Proof:* compare the bytes of a step, from `comm`'s trace, with the ring's. Compare the accuracy after the same number
# of epochs, and once more without keeping the rest.

# %% [markdown]
# ## Further reading
#
# - A whole data-parallel wrapper, with buckets and overlap, in under 100 lines: `import hpcdl.ddp.plain`, then `hpcdl.ddp.plain??` in a cell of its
#   own shows all of it.
# - S. Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training": Algorithm 1, buckets
#   and overlap, and how much they gain.
# - P. Patarasuk and X. Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations": the ring, and why no all-reduce sends less.
# - H. Zhang et al. 2017, "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning on GPU
#   Clusters": wait-free backpropagation, another name for overlap.
# - P. Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour": what 256 GPUs and batches of
#   8,192 images need in addition to speed.
