# %% [markdown]
# # Lab {{number consistency}} · How late may a gradient be?
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
import math
import time

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor

from autograder import check
from hpcdl.comm import simulate
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import gossip, how_late, who_waits

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Four workers compute gradients for one server. Worker 3 is slower than the others, and it has samples like nobody else's. A worker may be $s$ iterations ahead of
# the slowest, and then it waits (grey). Below: the loss that the server's weights have meanwhile.
#
# With which $s$ is the loss small the soonest? Say it first, then:
# 1. Move the **staleness**. What becomes of the grey, and what of the loss?
# 2. Loss over **updates** in place of time: which $s$ is the best now?
# 3. Make all workers equally fast on average (1.0) with much **jitter**. Who is it that waits, and how much staleness does it take?

# %%
guess(
    "consistency.staleness",
    "Worker 3 is three times as slow as the others. With which staleness s is the loss small the soonest?",
    choices=("0", "1 to 8", "infinity"),
)

# %%
with when_solved():
    guessed("consistency.staleness")
    setting = 3.0, 0.5, 0.1  # how much slower, jitter, seconds of a pull: where the sliders stand at first
    soonest = min(who_waits.STALENESS, key=lambda s: who_waits.reached(*who_waits.run(s, *setting)[1:]))
    reveal("consistency.staleness", {0: "0", math.inf: "infinity"}.get(soonest, "1 to 8"))
    display(who_waits.explorable())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. With $s = 0$ the fast workers wait for more than half of the time. With $s = \infty$ nobody waits, and the loss stops falling: the server hears three times as much from each
#    fast worker as from the slow one, and of its samples it learns too little and too late. A few iterations of staleness have most of the speed, and no bias:
#    in the long run all workers do equally many iterations.
# 2. Counted in updates, waiting costs nothing, and old gradients are only worse: $s = 0$ is among the best. Whether staleness pays is a question of time.
# 3. Whoever happens to be late. With $s = 0$ every iteration is as long as the longest of four, and they wait for half of the time; with four of slack nearly all of that evens out.
# </details>

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

    staleness: 0 is BSP, math.inf is ASP. All workers have equally many iterations, 1 or
    more. Returns for each worker a pair for each iteration.

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

# %%
with when_solved():
    chance = torch.Generator().manual_seed(0)
    seconds = (0.5 + torch.rand(4, 200, generator=chance)).tolist()
    print("four workers, 0.5 to 1.5 s for an iteration: iterations per second and share of waiting")
    for staleness in (0, 1, 2, 4, 8, math.inf):
        spans = clocks(seconds, staleness)
        end = max(mine[-1][1] for mine in spans)
        busy = sum(map(sum, seconds)) / sum(mine[-1][1] for mine in spans)
        print(f"   s = {staleness:3}: {4 * 200 / end:5.2f} per second, {1 - busy:5.1%} waiting")

# %% [markdown]
# **A question to read by.** The lecture writes for SSP, $N$ workers and worker $n$'s weights at $t + 1$:
#
# $$w_{n,t+1} = w_0 - \eta \sum_{i=1}^{t-s} \sum_{j=1}^{N} g_{j,i} - \eta \sum_{i=t-s}^{t} g_{n,i} - \eta \sum_{(j,i) \in S_{n,t+1}} g_{j,i}$$
#
# all gradients that must have come; the worker's own since; and those of others that happen to have come. Something is in it twice. What?
#
# <details><summary>Found it?</summary>
#
# Worker $n$'s own gradient of iteration $i = t - s$: the first sum goes up to $t - s$, over all workers, and the second one begins there. Let the second begin at
# $t - s + 1$. A server that counts, as yours will, does not make this mistake: it applies what comes, once.
# </details>

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
    """Apply `steps` gradients of each worker; the weights at the end.

    Workers are ranks 1 to comm.size - 1. w: the first weights, not to be changed. A
    gradient is answered with the weights, when its worker is at most `staleness` gradients
    ahead of the slowest. Wait for every isend and irecv.
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

# %% [markdown]
# ## What a late gradient does
#
# A worker that is ahead has an old gradient in its hand: the one at the weights of $\tau$ steps ago. Take it all the same:
#
# $$w_{t+1} = w_t - \eta\, \nabla L(w_{t-\tau})$$
#
# Near a minimum, along a direction of curvature $\lambda$, the gradient is $\lambda w$. Put $w_t = z^t$ into the formula: $z^{\tau+1} - z^\tau + \eta\lambda = 0$. All is
# well while every root $z$ is smaller than 1 in absolute value. The first one to reach the unit circle is $z = e^{i\varphi}$, and then
# $\eta\lambda = e^{i\tau\varphi}(1 - e^{i\varphi})$ has to be a real number. Since $1 - e^{i\varphi} = -2i \sin(\varphi/2)\, e^{i\varphi/2}$, that is so when
# $(\tau + \frac12)\varphi = \frac{\pi}{2}$, and what is left is
#
# $$\eta\lambda < 2 \sin\frac{\pi}{4\tau + 2}$$
#
# Without delay that is 2, as in lab 02; with $\tau = 1$ it is 1. And with $\tau = 10$?

# %%
guess(
    "consistency.delay",
    "Gradients that are 10 steps late: below which ηλ is all well?",
    truth=lambda: 2 * math.sin(math.pi / (4 * 10 + 2)),
)

# %% [markdown]
# {{exercise delay}}
#
# <details><summary>Hint</summary>
#
# Collect all weights in a list `ws` that begins with w. The gradient of step t is taken at `ws[max(0, t - delay)]`, and the step starts at `ws[-1]`. Make a new
# tensor in each step.
# </details>


# %%
def delayed_sgd(w: Tensor, grad, lr: float, delay: int, steps: int) -> list[Tensor]:
    """The weights w_0 = w, w_1, ..., w_steps of SGD whose gradients are `delay` steps late.

    As long as there is nothing older, the gradient is taken at w_0.
    """
    # BEGIN SOLUTION
    ws = [w]
    for t in range(steps):
        ws.append(ws[-1] - lr * grad(ws[max(0, t - delay)]))
    return ws
    # END SOLUTION


def largest_stable_lr(curvature: float, delay: int) -> float:
    """The learning rate below which that converges on L(w) = curvature w^2 / 2.

    >>> largest_stable_lr(4.0, delay=0)
    0.5
    """
    # BEGIN SOLUTION
    return 2 * math.sin(math.pi / (4 * delay + 2)) / curvature
    # END SOLUTION


# %%
check("consistency.delay")

# %% [markdown]
# **How late before it explodes.** At the left the bound, at the right a run of *your* `delayed_sgd` on $L = w^2/2$, which is the dot. Find the largest learning rate for
# a delay of 10. What does the run look like just below the bound, and how is that different from $\tau = 0$?

# %%
how_late.explorable(delayed_sgd)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# It is 0.15: a delay of ten steps takes a learning rate 13 times smaller. The bound is about $\frac{\pi}{2\tau}$ for long delays. Near it the weight swings like a
# pendulum, slowly, since it hears too late that it has gone too far; without delay it jumps from one side to the other in each step.
#
# That is what asynchronous training pays: with $p$ workers of equal speed a gradient is about $p - 1$ updates late.
# </details>

# %% [markdown]
# ## Without locks
#
# On one machine threads can share the weights themselves. With a lock around each update they stand in a queue. **HOGWILD!** (Niu et al. 2011) takes the lock
# away, and lets them write over each other. That goes well if they seldom meet: if each sample touches few components, its **hyperedge** $e$, and the edges
# overlap little. Three numbers say how much, $E$ being all edges:
#
# $$\Omega = \max_{e} |e| \qquad \Delta = \max_v \frac{|\{e \in E : v \in e\}|}{|E|} \qquad \rho = \max_e \frac{|\{e' \in E : e' \cap e \ne \emptyset\}|}{|E|}$$
#
# the largest edge, the most used component, the edge that meets the most edges (itself among them).
#
# What can go wrong when two threads meet? Algorithm 1 of the lecture, $x_v \leftarrow x_v - \gamma G_{ev}(x_e)$, is for a processor three kinds of events:
#
# | event | |
# |---|---|
# | `("read", k, v)` | update k reads component v, for its gradient |
# | `("load", k, v)` | it takes component v into a register |
# | `("store", k, v)` | what is in the register, minus the step in component v, is written back |
#
# A gradient is *late* when another store falls between its read and its store. Worse: when another store falls between *load* and *store* of one component, that
# other update is **lost**.

# %% [markdown]
# {{exercise hogwild}}
#
# Update k has the edge `edges[k]`: it reads all of its components, and then loads and stores each of them. The events of all updates come in one list, the
# `schedule`, in which updates may be mixed. `gradient(k, x)` is the gradient of sample k, x being what update k has read, in the order of `edges[k]`; a tensor as
# long as the edge.
#
# <details><summary>Hint 1: overlap</summary>
#
# Sets help: `set(a) & set(b)` is what two edges share. Two of the three numbers are shares of `len(edges)`.
# </details>
# <details><summary>Hint 2: replay</summary>
#
# Two dicts with the key `(k, v)`: what has been read, what has been loaded. Mind that `w[v]` is a view: `.clone()` it, or it changes when w does.
# </details>
# <details><summary>Hint 3: the step</summary>
#
# At the first store of update k compute its step, `lr * gradient(k, torch.stack([read[k, u] for u in edges[k]]))`, and keep it for the others. Component v has the
# place `edges[k].index(v)` in it.
# </details>


# %%
def overlap(edges: list[tuple[int, ...]], n: int) -> tuple[int, float, float]:
    """Omega, Delta and rho of edges over the components 0 to n - 1.

    >>> overlap([(0, 1), (1, 2), (3,), (3, 4, 5)], n=6)
    (3, 0.5, 0.5)
    """
    # BEGIN SOLUTION
    omega = max(len(edge) for edge in edges)
    delta = max(sum(v in edge for edge in edges) for v in range(n)) / len(edges)
    meets = [sum(bool(set(a) & set(b)) for b in edges) for a in edges]
    return omega, delta, max(meets) / len(edges)
    # END SOLUTION


def hogwild(
    w: Tensor,
    edges: list[tuple[int, ...]],
    gradient,
    lr: float,
    schedule: list[tuple[str, int, int]],
) -> Tensor:
    """The weights after all events of the schedule; w itself is not changed."""
    # BEGIN SOLUTION
    w, read, loaded, steps = w.clone(), {}, {}, {}
    for op, k, v in schedule:
        if op == "read":
            read[k, v] = w[v].clone()
        elif op == "load":
            loaded[k, v] = w[v].clone()
        else:
            if k not in steps:
                x = torch.stack([read[k, u] for u in edges[k]])
                steps[k] = lr * gradient(k, x)
            w[v] = loaded[k, v] - steps[k][edges[k].index(v)]
    return w
    # END SOLUTION


# %%
check("consistency.hogwild")

# %% [markdown]
# Niu and others tried three data sets on 10 cores, 20 epochs, against threads that take turns with locks (their figure 2). In RCV1 some component is part of every sample
# (Δ = 1). Do its times show it? Then count lost updates yourself, in the second table: that is what Δ and ρ are about.

# %%
print("                 rho   Delta     HOGWILD!, s   with locks, s")
for name, rho, delta, free, locked in (
    ("RCV1", 0.44, 1.0, 9.5, 61.8),
    ("Netflix", 2.5e-3, 2.3e-3, 301.0, 2569.1),
    ("DBLife", 8.6e-3, 4.3e-3, 230.0, 413.5),
):
    print(f"{name:12}{rho:8.4f}{delta:8.4f}{free:16.1f}{locked:16.1f}")


def lost_updates(n: int, at_once: int, samples: int = 400) -> float:
    """Share of stores that write over another's, of updates of 3 out of n components, so many at a time."""
    chance = torch.Generator().manual_seed(0)
    edges = [tuple(torch.randperm(n, generator=chance)[:3].tolist()) for _ in range(samples)]
    queues, loaded, stored, lost = [], {}, {}, 0
    todo = [[(op, k, v) for v in edge for op in ("load", "store")] for k, edge in enumerate(edges)]
    for now in range(6 * samples):
        while todo and len(queues) < at_once:
            queues.append(todo.pop())
        queue = queues[int(torch.randint(len(queues), (), generator=chance))]
        op, k, v = queue.pop(0)
        queues = [queue for queue in queues if queue]
        if op == "load":
            loaded[k, v] = now
        else:
            lost += stored.get(v, -1) > loaded[k, v]
            stored[v] = now
    return lost / (3 * samples)


print("\nshare of updates that get lost, by how many threads and components there are")
print("components" + "".join(f"{p:4} threads" for p in (1, 2, 4, 8)))
for n in (10, 100, 1000):
    print(f"{n:10}" + "".join(f"{lost_updates(n, p):12.2%}" for p in (1, 2, 4, 8)))

# %% [markdown]
# ## Downpour: several servers
#
# **DistBelief** (Dean et al. 2012) had a model too large for one server, so each of several servers has a shard of it, `w.tensor_split(servers)[rank]`. And
# messages too slow to send in every step, so a replica
#
# - **fetches** the weights before steps 0, `n_fetch`, 2 `n_fetch`, ..., and keeps computing with what it has in between;
# - **adds up** its gradients, and **pushes** the sum after every `n_push` steps, and what is left after the last.
#
# A server applies what comes when it comes, without a word to the other servers: so a replica may fetch one shard from before another's push, and the next one
# from after it. And each server does **Adagrad** on its shard, which calms components that move a lot. It keeps a sum of squares $G$ of its own, 1 at first:
#
# $$G \leftarrow G + g^2 \qquad w \leftarrow w - \frac{\eta\, g}{\sqrt{G}}$$
#
# (In the paper a replica also takes plain steps on its own copy between two fetches. We leave that out.)
#
# How does a server know what comes next from a replica? Both go through the same list:


# %%
def plan(n_fetch: int, n_push: int, steps: int) -> list[str]:
    """What a replica does, in order: "fetch", "compute" and "push".

    >>> plan(n_fetch=2, n_push=3, steps=4)
    ['fetch', 'compute', 'compute', 'fetch', 'compute', 'push', 'compute', 'push']
    """
    ops = []
    for step in range(steps):
        ops += ["fetch"] * (step % n_fetch == 0) + ["compute"]
        ops += ["push"] * ((step + 1) % n_push == 0 or step == steps - 1)
    return ops


# %% [markdown]
# {{exercise downpour}}
#
# Ranks 0 to `servers` - 1 are servers, the others replicas. A fetch is an empty message to each server, `w.new_empty(0)`, and its shard back. A push is the shard
# of the sum to each server. So a server always knows how long the next message of a replica is.
#
# <details><summary>Hint 1: a replica</summary>
#
# `parts = w.tensor_split(servers)` are views of its copy of w: receive into them. After a push the sum starts at 0 again. `compute`, number k, is
# `total += grad(w, k)`.
# </details>
# <details><summary>Hint 2: a server</summary>
#
# For each replica an iterator over its ops, without those that are "compute". A function that takes the next op of replica i and posts the `irecv` for it, into
# an empty tensor or a buffer as long as the shard. Where there is no next op, it leaves the request that is done: `wait_any` does not count it.
# </details>
# <details><summary>Hint 3: which came</summary>
#
# Keep for each replica the op that you have posted. After `i = comm.wait_any(requests)` it is a fetch (send the shard) or a push (Adagrad with the buffer). The
# number of messages is known: loop so often.
# </details>


# %%
def downpour(
    comm,
    servers: int,
    grad,
    w: Tensor,
    n_fetch: int,
    n_push: int,
    steps: int,
    lr: float,
) -> Tensor:
    """Train by Downpour SGD; on a server its shard at the end, on a replica its last copy.

    w: the first weights, the same on all ranks, not to be changed. grad(w, k): a replica's
    gradient in step k. Wait for every isend and irecv.
    """
    if comm.rank < servers:
        return shard_server(comm, servers, w, n_fetch, n_push, steps, lr)
    return replica(comm, servers, grad, w, n_fetch, n_push, steps)


def replica(
    comm,
    servers: int,
    grad,
    w: Tensor,
    n_fetch: int,
    n_push: int,
    steps: int,
) -> Tensor:
    """Fetch, compute and push as `plan` says; the copy of w at the end."""
    # BEGIN SOLUTION
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
            continue
        parts = (w if op == "fetch" else total).tensor_split(servers)
        for server, part in enumerate(parts):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
        if op == "push":
            total.zero_()
    return w
    # END SOLUTION


def shard_server(
    comm,
    servers: int,
    w: Tensor,
    n_fetch: int,
    n_push: int,
    steps: int,
    lr: float,
) -> Tensor:
    """Answer every fetch, do Adagrad with every push, of whoever comes first; its shard."""
    # BEGIN SOLUTION
    mine = w.tensor_split(servers)[comm.rank].clone()
    squares, buffers = torch.ones_like(mine), {}
    ops = [op for op in plan(n_fetch, n_push, steps) if op != "compute"]
    replicas = range(servers, comm.size)
    left, now = {r: list(ops) for r in replicas}, {}

    def post(r: int):
        now[r] = left[r].pop(0)
        buffers[r] = torch.empty_like(mine) if now[r] == "push" else mine.new_empty(0)
        return comm.irecv(buffers[r], r)

    requests = [post(r) for r in replicas]
    for _ in range(len(ops) * len(replicas)):
        i = comm.wait_any(requests)
        r = replicas[i]
        if now[r] == "fetch":
            comm.send(mine, r)
        else:
            squares += buffers[r] ** 2
            mine -= lr * buffers[r] / squares.sqrt()
        if left[r]:
            requests[i] = post(r)
    return mine
    # END SOLUTION


# %%
check("consistency.downpour")


# %%
def logistic(comm, n_fetch: int, n_push: int, steps: int = 60):
    """Two servers, four replicas with samples of their own: a server's shard at the end."""
    chance = torch.Generator().manual_seed(comm.rank)
    x = torch.randn(steps, 16, 20, generator=chance)
    y = (x.sum(2) > 0).float()

    def grad(w, k):
        comm.compute(1.0 + 0.5 * torch.rand((), generator=chance).item())
        return x[k].T @ (torch.sigmoid(x[k] @ w) - y[k]) / 16

    return downpour(comm, 2, grad, torch.zeros(20), n_fetch, n_push, steps, 1.0)


with when_solved():
    test = torch.randn(4000, 20, generator=torch.Generator().manual_seed(9))
    print("n_fetch  n_push   bytes of a replica, sent and received   right, of 4,000")
    for n_fetch, n_push in ((1, 1), (1, 5), (5, 1), (5, 5), (20, 20)):
        run = simulate(logistic, 6, n_fetch, n_push)
        moved = [sum(e.nbytes for e in run.trace if e.rank == 2 and e.op == op) for op in ("send", "recv")]
        right = ((test @ torch.cat(run.results[:2]) > 0) == (test.sum(1) > 0)).float().mean()
        print(f"{n_fetch:7}{n_push:8}{moved[0]:14}{moved[1]:14}{right.item():27.1%}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# A replica sends $\frac{\text{steps}}{n_{push}}$ times the bytes of $w$ and receives $\frac{\text{steps}}{n_{fetch}}$ times as many. Twenty times fewer, and here no worse: all
# replicas have samples of the same kind, and a sum of twenty gradients is a larger batch. That is not so with every model: the authors of DistBelief took
# $n_{fetch} = n_{push} = 1$, with 200 replicas.
# </details>
#
# ## Sandblaster: only numbers travel
#
# The other half of DistBelief is a batch method, **L-BFGS**: it uses the last $m$ differences of weights $s_i = w_{i+1} - w_i$ and of gradients
# $y_i = g_{i+1} - g_i$ to bend the gradient into a better direction. Two loops do it (Nocedal 1980), with $\rho_i = 1 / (y_i \cdot s_i)$:
#
#     q = g
#     for i = newest to oldest:    a_i = rho_i (s_i · q);   q = q - a_i y_i
#     r = (s · y) / (y · y) q      of the newest s and y
#     for i = oldest to newest:    b = rho_i (y_i · r);     r = r + (a_i - b) s_i
#     direction = -r
#
# All of that are dot products and sums of vectors. If every rank has its shard of all the vectors, the sums stay at home, and of each dot product *one number*
# from each rank travels: "coordinator messages are small". In Sandblaster a coordinator adds those up; here `comm.all_reduce` does.
#
# The batch itself is cut into many small tasks, more than there are nodes. Who is done takes the next one. At the end, when no task is left, nodes that are
# idle do those again that are still under way on a slow node, and whoever is first counts: **backup tasks**, as MapReduce has them.

# %% [markdown]
# {{exercise sandblaster}}
#
# Tasks are taken in order, each by the node that is free first (of several the first one in the list). A node i of speed `speeds[i]` does `work / speeds[i]` seconds
# on a task. With backups: when all tasks are taken, every node, in the order in which they become free, looks once at the task that would be done *last* now,
# and if it can do it sooner it does it, too.
#
# <details><summary>Hint 1: a dot product</summary>
#
# `x = (a * b).sum().reshape(1)`, then `comm.all_reduce(x)`. The same on all ranks.
# </details>
# <details><summary>Hint 2: no history</summary>
#
# Without any s and y the direction is `-g`.
# </details>
# <details><summary>Hint 3: finish</summary>
#
# A list `free` of when each node is free, and a list `ends` of when each task is done. The node that is free first is
# `min(range(len(free)), key=free.__getitem__)`.
# </details>


# %%
def lbfgs_direction(comm, s: list[Tensor], y: list[Tensor], g: Tensor) -> Tensor:
    """This rank's shard of the L-BFGS direction.

    s, y: shards of the last differences, the oldest first; without any the direction is -g.
    g: its shard of the gradient. None of them is changed.
    """

    # BEGIN SOLUTION
    def dot(a, b):
        x = (a * b).sum().reshape(1)
        comm.all_reduce(x)
        return x

    q, kept = g.clone(), []
    for s_i, y_i in zip(reversed(s), reversed(y), strict=True):
        rho = 1 / dot(y_i, s_i)
        a = rho * dot(s_i, q)
        q -= a * y_i
        kept.append((s_i, y_i, rho, a))
    if s:
        q *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])
    for s_i, y_i, rho, a in reversed(kept):
        q += (a - rho * dot(y_i, q)) * s_i
    return -q
    # END SOLUTION


def finish(tasks: list[float], speeds: list[float], backups: bool = False) -> float:
    """Seconds until all tasks are done, each by the node that is free first.

    backups: at the end idle nodes, in the order in which they become free, do again what
    would be done last.

    >>> finish([4.0, 4.0, 4.0], speeds=[2.0, 1.0])
    4.0
    >>> finish([4.0, 4.0], speeds=[4.0, 1.0]), finish([4.0, 4.0], [4.0, 1.0], backups=True)
    (4.0, 2.0)
    """
    # BEGIN SOLUTION
    free, ends = [0.0] * len(speeds), []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
        ends.append(free[i])
    for i in sorted(range(len(free)), key=free.__getitem__) if backups else []:
        last = max(range(len(ends)), key=ends.__getitem__)
        ends[last] = min(ends[last], free[i] + tasks[last] / speeds[i])
    return max(ends)
    # END SOLUTION


# %%
check("consistency.sandblaster")


# %%
def minimize(comm, n: int, memory: int, steps: int) -> list[float]:
    """The norm of the gradient in each step of L-BFGS on a narrow valley of n dimensions, of which a rank has a shard."""
    curvature = torch.logspace(0, 3, n, dtype=torch.float64).tensor_split(comm.size)[comm.rank]
    w, s, y, norms = torch.ones_like(curvature), [], [], []
    g = curvature * w
    for _ in range(steps):
        squares = (g * g).sum().reshape(1)
        comm.all_reduce(squares)
        norms.append(squares.sqrt().item())
        d = lbfgs_direction(comm, s, y, g)
        along = torch.stack([(g * d).sum(), (curvature * d * d).sum()])
        comm.all_reduce(along)
        step = -along[0] / along[1] * d  # the best length of step: the loss is a quadratic
        old = max(0, len(s) + 1 - memory)  # pairs to forget
        s, y = [*s, step][old:], [*y, curvature * step][old:]
        w += step
        g = curvature * w
    return norms


with when_solved():
    figure, axes = plt.subplots(figsize=(9.6, 3.2), layout="constrained")
    for memory, colour in ((0, style.GREY), (1, style.BLUE), (10, style.GREEN)):
        run = simulate(minimize, 4, 100, memory, 120)
        axes.semilogy(run.results[0], color=colour, label=f"{memory} pairs")
    axes.set(xlabel="step", ylabel="norm of gradient", title="L-BFGS over four ranks, by the pairs that it remembers")
    axes.legend()
    plt.show()
    print("seconds of a batch of 60 tasks on 12 nodes, one of them 20 times slower")
    nodes = [1.0] * 11 + [0.05]
    print(f"   without backups {finish([1.0] * 60, nodes):.1f}, with {finish([1.0] * 60, nodes, True):.1f}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Without memory it is gradient descent with the best step, and hopeless in a narrow valley. One pair is enough here, and ten do no better: on a quadratic, with the best
# length of every step, all of them are conjugate gradients. On a network the loss is no quadratic, and more pairs help.
#
# One slow node of twelve makes a batch three times as long, and a copy of its task costs nobody anything. A gradient that comes twice must be counted once, though.
# </details>

# %% [markdown]
# ## Project Adam: send what it is made of
#
# The gradient of a fully connected layer with $m$ inputs and $n$ outputs has $mn$ numbers. But it is a product, $x^T \delta$: of the layer's inputs $x$, $B \times m$ for a
# batch of $B$ samples, and the errors $\delta$ of its outputs, $B \times n$. **Project Adam** (Chilimbi et al. 2014) sends those to the server, $B(m + n)$ numbers, and the
# server multiplies. Which is less depends on the batch.

# %% [markdown]
# {{exercise adam}}
#
# <details><summary>Hint</summary>
#
# They are equal at $B = \frac{mn}{m + n}$.
# </details>


# %%
def from_factors(x: Tensor, delta: Tensor) -> Tensor:
    """The gradient (m, n) of a layer y = x W from x (B, m) and delta (B, n)."""
    # BEGIN SOLUTION
    return x.T @ delta
    # END SOLUTION


def fc_bytes(batch: int, m: int, n: int, how: str) -> int:
    """Bytes in float32 that a worker sends for a layer of m inputs and n outputs.

    how: "gradient" or "factors".

    >>> fc_bytes(32, 1000, 100, "gradient"), fc_bytes(32, 1000, 100, "factors")
    (400000, 140800)
    """
    # BEGIN SOLUTION
    return 4 * (m * n if how == "gradient" else batch * (m + n))
    # END SOLUTION


def cheaper(batch: int, m: int, n: int) -> str:
    """Which of the two sends fewer bytes; "gradient" where they are equal."""
    # BEGIN SOLUTION
    factors, gradient = (fc_bytes(batch, m, n, how) for how in ("factors", "gradient"))
    return "factors" if factors < gradient else "gradient"
    # END SOLUTION


# %%
check("consistency.adam")

# %%
with when_solved():
    print("VGG-16's fully connected layers, MB that a worker sends (and the batch at which both are equal)")
    for name, m, n in (("fc6", 25088, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)):
        sent = [fc_bytes(32, m, n, how) / 1e6 for how in ("gradient", "factors")]
        print(f"   {name}: gradient {sent[0]:6.1f}, factors of 32 samples {sent[1]:5.1f}   ({m * n / (m + n):.0f})")

# %% [markdown]
# ## Nobody serves: gossip
#
# Need there be a server at all? In lab 08 an all-reduce gave every rank the mean. **Gossip** does not even try: in each round a rank averages with its neighbours,
# and trains on (Lian et al. 2017). All of them come closer to the mean, the mean itself stays, and how fast depends on who is whose neighbour. Those are the
# topologies of the lecture: a *ring*, a *wheel*, *random* peers; and for comparison everyone with everyone.
#
# A round is a matrix, $x \leftarrow Wx$: rows that add up to 1, symmetric, $W_{ij} = \frac{1}{1 + \max(d_i, d_j)}$ for neighbours with $d_i$ and $d_j$ neighbours of their own.
# Its largest eigenvalue is 1 (the mean stays). The distance from the mean shrinks by the second largest, in absolute value: 1 less that is the **spectral gap**.
#
# 1. Ring: double the number of ranks. How many times more rounds does it take?
# 2. Which topology is the best by *rounds*, which by *messages of the busiest rank*? Try 32 ranks.
# 3. Why is the wheel good by rounds, and who pays for it?

# %%
gossip.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Four times: the gap of a ring is $\frac23 (1 - \cos\frac{2\pi}{p})$, about $\frac{13}{p^2}$. News goes to the next rank in each round, and spreads like heat.
# 2. By rounds everyone with everyone, which is an all-reduce. By messages random peers: one message in a round, and the distance shrinks to
#    $\sqrt{\frac{p - 2}{2(p - 1)}}$ on average, some 0.7 for *any* number of ranks. Tomorrow's partner is most likely someone who knows something else.
# 3. All ranks are two steps from each other, by way of the hub. The hub sends $p - 1$ messages in a round: it is a server again.
# </details>

# %% [markdown]
# ## Live: three rules on four engines
#
# Four engines, MPI processes beside this kernel: a server and three workers, with *your* `train`. Worker 3 is three times slower than the others. A gradient is that of a
# small regression; that it takes a while is done by sleeping, so that even two cores have room for everybody. First with all three rules for the same number of
# steps; then what `clocks` foretells from the seconds that were measured: it says when each gradient begins and ends, and so which ones are in the weights
# that it is taken at, and so the loss at every moment.
#
# How many steps per second does each rule make, if a gradient takes 20 ms and worker 3's takes 60?

# %%
guess(
    "consistency.bsp",
    "BSP, where all wait for all: how many steps per second, of all workers together?",
    unit="steps/s",
)

# %%
guess(
    "consistency.asp",
    "And ASP, where nobody waits?",
    unit="steps/s",
)

# %%
from hpcdl.cluster import Cluster

STEPS, TAKES, SLOWER, TARGET = 40, 0.02, 3, 0.01
RULES = {"BSP": 0, "SSP(3)": 3, "ASP": math.inf}
TRUE = torch.arange(10.0)  # the weights to be found


def samples(rank: int) -> Tensor:
    """A worker's samples, 8 for each of its steps."""
    return torch.randn(STEPS, 8, len(TRUE), generator=torch.Generator().manual_seed(rank))


def step_of(x: Tensor, w: Tensor) -> Tensor:
    """The learning rate times the gradient at w."""
    return 0.1 * x.T @ (x @ (w - TRUE)) / len(x)


def loss_at(w: Tensor) -> float:
    """The loss over all samples there can be, of that of w = 0."""
    return ((w - TRUE).square().sum() / TRUE.square().sum()).item()


def train_live(comm, staleness: float, steps: int = STEPS):
    """Of each gradient of this rank: begin and end, the loss at the w it saw, and how far the rank was ahead."""
    torch.set_num_threads(1)
    n, workers, spans, losses, ahead = len(TRUE), comm.size - 1, [], [], []
    x = samples(comm.rank)

    def grad(w, k):
        begin = time.perf_counter()
        losses.append(loss_at(w[:n]))
        ahead.append(k - min(round(count) for count in w[n:].tolist()))
        g = torch.zeros_like(w)  # the last components count: each worker's own is -1
        g[:n] = step_of(x[k], w[:n])
        g[n + comm.rank - 1] = -1.0
        time.sleep(TAKES * (SLOWER if comm.rank == workers else 1))
        spans.append((begin, time.perf_counter()))
        return g

    comm.barrier()
    train(comm, grad, torch.zeros(n + workers), staleness, steps, 1.0)
    return spans, losses, ahead


cluster = Cluster(n=4).start()

# %%
live = {}
with when_solved():
    guessed("consistency.bsp")
    guessed("consistency.asp")
    simulate(lambda comm: train_live(comm, 1, steps=2) and None, 4)  # a mistake is easier to read here
    for rule, staleness in RULES.items():
        live[rule] = cluster.run(train_live, staleness, timeout=60)[1:]


# %%
def rates(spans) -> tuple[float, float]:
    """Gradients per second until the first worker has done all of its own, and the workers' share of waiting until then."""
    zero, end = min(mine[0][0] for mine in spans), min(mine[-1][1] for mine in spans)
    inside = [(a, min(b, end)) for mine in spans for a, b in mine if a < end]
    done = sum(b <= end for mine in spans for _, b in mine)
    return done / (end - zero), 1 - sum(b - a for a, b in inside) / (len(spans) * (end - zero))


def foretold_losses(spans) -> list[list[float]]:
    """The loss at the beginning of each gradient, if each one is applied as soon as it ends."""
    begins = [(a, 1, j, k) for j, mine in enumerate(spans) for k, (a, _) in enumerate(mine)]
    ends = [(b, 0, j, k) for j, mine in enumerate(spans) for k, (_, b) in enumerate(mine)]
    x = [samples(j + 1) for j in range(len(spans))]
    w, seen, losses = torch.zeros_like(TRUE), {}, [[] for _ in spans]
    for _, begin, j, k in sorted(begins + ends):
        if begin:
            seen[j] = w
            losses[j].append(loss_at(w))
        else:
            w = w - step_of(x[j][k], seen[j])
    return losses


def curve_of(spans, losses) -> list[tuple[float, float]]:
    """Seconds since the first gradient began, and the loss at that time, of all workers together."""
    points = sorted((a, loss) for of in zip(spans, losses, strict=True) for (a, _), loss in zip(*of, strict=True))
    return [(a - points[0][0], loss) for a, loss in points]


def seconds_to(target: float, curve) -> float:
    """When the loss is no larger than the target for the first time; infinity where it never is."""
    return min((seconds for seconds, loss in curve if loss <= target), default=math.inf)


measured, foretold = {}, {}
for rule, workers in live.items():
    spans, losses, _ = zip(*workers, strict=True)
    predicted = clocks([[b - a for a, b in mine] for mine in spans], RULES[rule])
    measured[rule] = (*rates(spans), curve_of(spans, losses))
    foretold[rule] = (*rates(predicted), curve_of(predicted, foretold_losses(predicted)))

if len(live) == len(RULES):
    print(f"        steps/s  foretold   waiting  foretold{f's to {TARGET:.0%}':>10}  foretold")
    for rule in live:
        (rate, waits, curve), (rate2, waits2, curve2) = measured[rule], foretold[rule]
        when, when2 = seconds_to(TARGET, curve), seconds_to(TARGET, curve2)
        print(f"{rule:6}{rate:9.1f}{rate2:10.1f}{waits:10.1%}{waits2:10.1%}{when:10.2f}{when2:10.2f}")
        if rule in ("BSP", "ASP"):
            reveal(f"consistency.{rule.lower()}", rate)

# %%
if len(live) == len(RULES):
    figure, panels = plt.subplots(1, 4, figsize=(9.6, 2.8), layout="constrained", width_ratios=[2.2, 1, 1, 1])
    for rule, colour, axes in zip(live, (style.VERMILLION, style.BLUE, style.GREEN), panels[1:], strict=True):
        panels[0].semilogy(*zip(*measured[rule][-1], strict=True), color=colour, label=rule)
        panels[0].semilogy(*zip(*foretold[rule][-1], strict=True), ":", color=colour)
        late = [lead for *_, ahead in live[rule] for lead in ahead]
        axes.hist(late, bins=[lead - 0.5 for lead in range(max(8, *late) + 2)], color=colour)
        axes.set(title=rule, xlabel="iterations ahead")
    panels[0].axhline(TARGET, color=style.GREY, linewidth=1)
    panels[0].set(xlim=(0, 1.2), ylim=(1e-4, 1.5), xlabel="time, s (dotted: foretold)", title="loss, of the first")
    panels[0].legend()
    panels[1].set_ylabel("gradients")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - BSP goes at the pace of the slowest: three gradients in 60 ms. ASP lets everyone go at their own: 50 + 50 + 17 in a second. SSP is as fast as ASP until the fast
#   are three ahead, and then as slow as BSP: against a worker that is *always* slow, staleness gives a head start, no more. What it evens out is chance.
# - ASP reaches one percent in about half of BSP's time, and SSP keeps up with it while its head start lasts. Here all samples are of one kind, and a delay of a few
#   updates costs next to nothing. In the first picture it did: there the slow worker had samples like nobody else's.
# - `clocks` says it nearly exactly, the loss too. What it leaves out is what the messages and the server take, a fraction of a millisecond for each gradient here.
# - No worker is ever more than $s$ ahead. With ASP there is no limit: here the fast workers end some 25 iterations ahead.
# </details>

# %% [markdown]
# ## Live: HOGWILD! on two engines
#
# Now without any server, and without a message: `shared_tensor` is a vector in memory that both processes see, and they write to it as they please. The samples are
# like texts: 2,000 rows of some 40 words out of 10,000, for sparse logistic regression. An update is the loop below, Algorithm 1 of the lecture. As a witness, each
# process also counts its updates in *one* number that both share, the least sparse thing there is: load, add 1, store.
#
# First one process, then two which share the work. What becomes of the loss, how many counts get lost, and how much faster are two?

# %%
guess(
    "consistency.hogwild",
    "How many times as many updates a second do two processes make as one?",
    unit="times",
)


# %%
def free_for_all(comm, workers: int, updates: int):
    """Begin and end of this rank's share of the updates, the loss then, and the counter; ranks from `workers` on are idle."""
    from hpcdl.comm import shared_tensor
    from hpcdl.consistency.hogwild import logistic, logistic_loss
    from hpcdl.data import rcv1_like

    torch.set_num_threads(1)
    rows = rcv1_like(2000, features=10_000, nonzeros=40)
    edges, gradient = logistic(rows)
    w, counter = shared_tensor(comm, rows.features), shared_tensor(comm, 1, torch.int64)
    comm.barrier()
    if comm.rank >= workers:
        return None
    chance = torch.Generator().manual_seed(comm.rank)
    order = torch.randint(len(rows), (updates // workers,), generator=chance).tolist()
    begin = time.perf_counter()
    for k in order:
        e = edges[k]
        w.add(e, -0.5 * gradient(w.read(e), k))
        counter.write(0, counter.read(0) + 1)
    return begin, time.perf_counter(), logistic_loss(rows, w.read()), counter.read().item()


UPDATES = 8_000
with when_solved():
    guessed("consistency.hogwild")
    print(f"{'processes':>9}{'updates/s':>12}{'loss':>9}{'lost counts':>14}")
    speeds = []
    for workers in (1, 2):
        found = [one for one in cluster.run(free_for_all, workers, UPDATES, timeout=60) if one]
        begins, ends, losses, counts = zip(*found, strict=True)
        last = ends.index(max(ends))  # who ends last sees what all have written
        lost = UPDATES - counts[last]
        speeds.append(UPDATES / (max(ends) - min(begins)))
        print(f"{workers:9}{speeds[-1]:12.0f}{losses[last]:9.4f}{lost:9} ({lost / UPDATES:.1%})")
    reveal("consistency.hogwild", speeds[1] / speeds[0])

# %%
cluster.stop()  # the engines have done their work: give back their memory

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Where two cores are free, two processes make not quite twice as many updates in a second. The loss is the same to about a percent: not to the bit, and not the same
# twice. Counts *do* get lost, every time that both have loaded the same number before one has stored it. The weights lose next to none: most words are in
# few texts, and `w.add` loads and stores within nanoseconds. And a lost step is not a wrong one: the next gradient is taken at what is there.
#
# With memory of their own these two would have to send their steps to each other; with a lock they would stand in a queue. Compiled, the same loop makes a few hundred
# times as many updates in a second (`hpcdl.consistency.logistic_epochs`), and then two cores really meet: that is the other half of the paper.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to ask of yourself.
#
# I. Mitliagkas et al. (2016) found that asynchrony acts like momentum: $p$ workers whose gradients are late by chance walk, on average, as plain descent with momentum
# $1 - 1/p$ does. Draw the mean of 200 asynchronous runs on a parabola for $p$ = 2, 4 and 8, each with random lateness. *Proof:* fit the momentum that makes one synchronous run
# lie on it; compare with $1 - 1/p$. What does that say of the momentum you had set yourself?

# %% [markdown]
# ## Further reading
#
# - Q. Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server"; M. Li et al. 2014, "Scaling distributed machine learning with
#   the parameter server".
# - F. Niu et al. 2011, "HOGWILD!: A lock-free approach to parallelizing stochastic gradient descent"; C. De Sa et al. 2015, "Taming the wild: A unified analysis of
#   HOGWILD!-style algorithms".
# - J. Dean et al. 2012, "Large scale distributed deep networks": Downpour SGD and Sandblaster L-BFGS. J. Nocedal 1980, "Updating quasi-Newton matrices with limited
#   storage". J. Dean, S. Ghemawat 2004, "MapReduce: Simplified data processing on large clusters": backup tasks.
# - T. Chilimbi et al. 2014, "Project Adam: Building an efficient and scalable deep learning training system".
# - X. Lian et al. 2017, "Can decentralized algorithms outperform centralized algorithms? A case study for decentralized parallel stochastic gradient descent"; S. Boyd et
#   al. 2006, "Randomized gossip algorithms".
# - J. Chen et al. 2016, "Revisiting distributed synchronous SGD": why many went back to BSP, with backup workers.
