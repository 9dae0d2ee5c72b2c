# %% [markdown]
# # Lab 09 · How late may a gradient be?
# ## BSP, ASP and SSP, parameter servers, HOGWILD!, Downpour, Sandblaster and Project Adam
#
# In lab 07 every machine waited for every other one in every step. One slow machine, and all are slow. What if nobody waited? Then a gradient is computed from
# weights that others have changed meanwhile: it comes *late*. This lab is about how late it may come, and what is won.
#
# **You will be able to**
# - say when each worker computes and when it waits, for any staleness between BSP and ASP, before a machine runs it;
# - write a parameter server that answers whoever comes first, and holds back only those who are too far ahead;
# - say at which learning rate a delay makes training explode;
# - say when threads may write to one vector without locks, and see an update get lost;
# - write Downpour SGD over several servers, and L-BFGS of which only numbers travel;
# - choose between sending a gradient and sending what it is made of.
#
# **100 points, 7 exercises, about two hours.** You need gradient descent (lab 02); labs 07 and 08 help. MPI came with the installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$ | ranks: servers and workers |
# | $w$, $\eta$ | weights, learning rate (`lr`) |
# | $s$ | staleness: by how many iterations a worker may be ahead of the slowest |
# | $\tau$ | delay of a gradient, in steps |
# | $e, E, n$ | a hyperedge (the components that one sample touches), all of them, the number of components |
#
# (In the exercise on L-BFGS $s_k$ and $y_k$ are differences of weights and of gradients, as everywhere.)

# %%
import heapq
import itertools
import math
import time

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from autograder import check
from hpcdl.comm import simulate
from hpcdl.widgets import style, when_solved

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## Three ways to wait
#
# Workers compute gradients, a server has the weights. The lecture names three rules, and they are one rule with a number in it, the **staleness** $s$: a worker
# may begin iteration $k = 0, 1, 2, \dots$ when *every* worker has finished $k - s$ iterations.
#
# | | $s$ | |
# |---|---|---|
# | BSP, bulk-synchronous | 0 | nobody begins before all are done |
# | SSP, stale-synchronous | 1, 2, ... | nobody is more than $s$ iterations ahead of the slowest |
# | ASP, asynchronous | $\infty$ | nobody waits |

# %% [markdown]
# {{exercise clocks}}
#
# <details><summary>Hint 1: whom a worker waits for</summary>
#
# Iteration k starts at the later of two moments: when the worker's own iteration k - 1 has ended, and when the last of all workers has ended *its* iteration
# k - s - 1 (they are counted from 0, so then it has finished k - s of them). Where there is no such iteration, nobody waits for it.
# </details>
# <details><summary>Hint 2: in which order</summary>
#
# Iteration by iteration, not worker by worker: all that k waits for comes from smaller k.
# </details>
# <details><summary>Hint 3: infinity</summary>
#
# `k - math.inf` is `-math.inf`, and no index: ask whether `k > staleness` first, and then `int(k - staleness - 1)` is one.
# </details>


# %%
def clocks(seconds: list[list[float]], staleness: float) -> list[list[tuple[float, float]]]:
    """When iteration k of worker w starts and ends, if it takes seconds[w][k].

    staleness: 0 is BSP, math.inf is ASP. All workers have equally many iterations.

    >>> clocks([[1.0, 1.0], [2.0, 2.0]], staleness=0)
    [[(0.0, 1.0), (2.0, 3.0)], [(0.0, 2.0), (2.0, 4.0)]]
    """
    # BEGIN SOLUTION
    spans = [[] for _ in seconds]
    for k in range(len(seconds[0])):
        free = 0.0
        if k > staleness:
            free = max(mine[int(k - staleness - 1)][1] for mine in spans)
        for w, mine in enumerate(spans):
            start = max(free, mine[-1][1] if mine else 0.0)
            mine.append((start, start + seconds[w][k]))
    return spans
    # END SOLUTION


# %%
check("consistency.clocks")

# %% [markdown]
# ## A parameter server
#
# Now a program that keeps this rule. Rank 0 is the **server**: it has the weights. All other ranks are **workers**. In each step a worker computes a gradient,
# sends it to the server and receives $w$. That is all that a worker does; the rule is kept by the server, by *when it answers*:
#
#     worker 1    grad ──g──▶        ◀──w── grad ──g──▶      ...
#     server            w -= lr g ─────▶           ...            answers at once, or when the slowest is near enough
#     worker 2         grad        ──g──▶       ◀──w──
#
# - It applies each gradient as it comes, $w \leftarrow w - \eta\, g$: over a round that is $\eta$ times the *sum* over the workers, as in the lecture's SSP
#   formula. (Its BSP formula takes the mean: then $\eta$ is $N$ times as large.)
# - A worker that has sent $c$ gradients receives $w$ when every worker has sent at least $c - s$.
# - What it receives then has its own gradients, all of them: it **reads its own writes**.
#
# With `recv` the server would have to know who comes next. `comm.wait_any(requests)` waits for whichever message comes first, and returns its index in the
# list; the requests that have been waited for do not count any more until you put a new one in their place.

# %% [markdown]
# {{exercise server}}
#
# `train` is given: it says who is who.
#
# <details><summary>Hint 1: the server's loop</summary>
#
# One buffer and one `comm.irecv(buffer, worker)` for each worker. Then, `steps` times the number of workers: `i = comm.wait_any(requests)`; apply buffer i; count
# it; worker i + 1 now waits for an answer.
# </details>
# <details><summary>Hint 2: who is answered</summary>
#
# Keep a list of the workers that wait. One gradient can set several of them free: after each, go through the list and answer everyone whose count is at most
# `min(counts) + staleness`.
# </details>
# <details><summary>Hint 3: an answer</summary>
#
# `comm.send(w, i + 1)`, and, if more will come from this worker, a new `requests[i] = comm.irecv(buffers[i], i + 1)`.
# </details>


# %%
def serve(comm, w: Tensor, staleness: float, steps: int, lr: float) -> Tensor:
    """Apply `steps` gradients of each worker, ranks 1 to comm.size - 1; the weights at the end.

    w: the first weights, not to be changed. Answers each gradient with the weights, when
    the worker is at most `staleness` gradients ahead of the slowest.
    """
    # BEGIN SOLUTION
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] <= min(counts) + staleness]:
            held.remove(j)
            comm.send(w, j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w
    # END SOLUTION


def work(comm, grad, w: Tensor, steps: int) -> Tensor:
    """Send grad(w, k) for k = 0 to steps - 1, each for the w received last; the last w.

    w: the first weights, not to be changed.
    """
    # BEGIN SOLUTION
    w = w.clone()
    for k in range(steps):
        comm.send(grad(w, k), 0)
        comm.recv(w, 0)
    return w
    # END SOLUTION


def train(comm, grad, w: Tensor, staleness: float, steps: int, lr: float) -> Tensor:
    """Rank 0 serves, all others work."""
    if comm.rank == 0:
        return serve(comm, w, staleness, steps, lr)
    return work(comm, grad, w, steps)


# %%
check("consistency.server")
