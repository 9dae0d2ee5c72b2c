# %% [markdown]
# # Lab {{number hogwild}} · Training without waiting
# ## HOGWILD!, Downpour, Sandblaster and Project Adam
#
# In lab {{number consistency}} a server held back the workers that were too far ahead. Here are four systems that train without such a rule, or that send much
# less: threads that write to one vector without locks, replicas that fetch and push on their own schedule, a batch method that sends only single numbers, and a
# layer that sends the factors of its gradient.
#
# **You will be able to**
# - say when threads may write to one vector without locks, and watch an update get lost;
# - write Downpour SGD over several servers;
# - write a distributed L-BFGS whose messages are single numbers;
# - balance tasks over nodes of different speeds, and compute what backup tasks save;
# - choose between sending a gradient and sending its factors.
#
# **100 points, 5 exercises, about 120 minutes: 20 reading + 92 exercises + 8 runs.** You need gradient descent (lab 02) and lab {{number consistency}}'s parameter server. MPI came with the
# installation. No GPU.
#
# | here | means |
# |---|---|
# | $w$, $\eta$, $\gamma$ | weights, learning rate (`lr`; the HOGWILD! paper calls it $\gamma$) |
# | $e, E, n$ | a hyperedge (the components that one sample touches), all hyperedges, the number of components |
# | $G$ | Adagrad's sum of squares |
# | $s_k$, $y_k$ | differences of weights and of gradients (L-BFGS) |
# | $x$, $\delta$, $B$ | a layer's inputs, the errors of its outputs, the number of samples |

# %%
import time

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from autograder import check
from hpcdl.comm import simulate
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved, your_program
from hpcdl.widgets.pictures import lost_updates

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## Without locks
#
# On one machine threads can share the weights. With a lock around each update, they queue for it. **HOGWILD!** (Niu et al. 2011) removes the lock and lets the
# threads write at any time. That works if they seldom meet: if each sample touches few components, its **hyperedge** $e$, and the edges overlap little. With
# $E$ the set of all edges, three numbers measure the overlap:
#
# $$\Omega = \max_{e} |e| \qquad \Delta = \max_v \frac{|\{e \in E : v \in e\}|}{|E|} \qquad \rho = \max_e \frac{|\{e' \in E : e' \cap e \ne \emptyset\}|}{|E|}$$
#
# the size of the largest edge, the share of edges that contain the most used component, and the largest share of edges that one edge meets (including itself).
#
# What can go wrong when two threads meet? Algorithm 1 of the lecture is $x_v \leftarrow x_v - \gamma G_{ev}(x_e)$ for each $v$ in $e$, where $G_{ev}(x_e)$ is
# component $v$ of the gradient of sample $e$, and $x_e$ are the components that it read. For a processor it consists of three kinds of events:
#
# | event | |
# |---|---|
# | `("read", k, v)` | update k reads component v, for its gradient |
# | `("load", k, v)` | update k loads component v into a register |
# | `("store", k, v)` | it writes the register minus the step in component v back to memory |
#
# A gradient is *late* if another update stores between its read and its store. Worse, if another update stores between the *load* and the *store* of one
# component, that other update is **lost**.
#
# Below, each thread makes updates of two components. A bar is one update: blue if it meets no other, orange if its gradient is late, vermillion if a part of it is
# lost. Move the number of **components**: from how many on is a lost update rare? Then add **threads**.

# %%
lost_updates.explorable()

# %% [markdown]
# {{exercise hogwild}}
#
# Compute the three numbers of the overlap, and replay the events of a schedule. Update k has the edge `edges[k]`: it reads all of its components, and then
# loads and stores each of them, in any order. The list `schedule` holds the events of all updates, which may be interleaved. `gradient(k, x)` is the gradient
# of sample k: x holds what update k has read, in the order of `edges[k]`, and the result is a tensor of the same length.
#
# <details><summary>Hint 1: overlap</summary>
#
# Use sets: `set(a) & set(b)` is what two edges have in common. Two of the three numbers are fractions of `len(edges)`.
# </details>
# <details><summary>Hint 2: replay</summary>
#
# Keep two dicts with the key `(k, v)`: one for the values read, one for the values loaded. `w[v]` is a view: `.clone()` it, or it will change with w.
# </details>
# <details><summary>Hint 3: the step</summary>
#
# At the first store of update k compute its step, `lr * gradient(k, torch.stack([read[k, u] for u in edges[k]]))`, and keep it for the later stores. Component
# v is at the index `edges[k].index(v)`.
# </details>


# %%
def overlap(edges: list[tuple[int, ...]], n: int) -> tuple[int, float, float]:
    """Return Omega, Delta and rho of edges over the components 0 to n - 1.

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
    """Return the weights after all events of the schedule, without changing w."""
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
check("hogwild.hogwild")

# %% [markdown]
# Niu and others ran 20 epochs on 10 cores with three data sets, and compared with threads that take turns with locks (their figure 2). In RCV1 some component
# is part of every sample (Δ = 1). Can you see it in its times? Then look at the second table, which counts lost updates: Δ and ρ measure how likely they are.

# %%
guess(
    "hogwild.lost",
    "Eight threads make updates of 3 components out of 10: what share of the updates gets lost?",
    unit="%",
)

# %%
print("                 rho   Delta     HOGWILD!, s   with locks, s")
for name, rho, delta, free, locked in (
    ("RCV1", 0.44, 1.0, 9.5, 61.8),
    ("Netflix", 2.5e-3, 2.3e-3, 301.0, 2569.1),
    ("DBLife", 8.6e-3, 4.3e-3, 230.0, 413.5),
):
    print(f"{name:12}{rho:8.4f}{delta:8.4f}{free:16.1f}{locked:16.1f}")


def share_lost(n: int, at_once: int, samples: int = 1000) -> float:
    """Return the share of stores that overwrite another's, with `at_once` updates of 3 of n components at a time."""
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


guessed("hogwild.lost")
print("\nshare of updates that get lost, by number of threads and components")
print("components" + "".join(f"{p:4} threads" for p in (1, 2, 4, 8)))
for n in (10, 100, 1000):
    print(f"{n:10}" + "".join(f"{100 * share_lost(n, p):10.2f} %" for p in (1, 2, 4, 8)))
reveal("hogwild.lost", 100 * share_lost(10, 8))

# %% [markdown]
# ## Downpour: several servers
#
# The model of **DistBelief** (Dean et al. 2012) was too large for one server, so each of several servers holds a shard of it, `w.tensor_split(servers)[rank]`.
# And messages were too slow to send in every step. So a replica
#
# - **fetches** the weights before steps 0, `n_fetch`, 2 `n_fetch`, ..., and computes with this copy in between;
# - **accumulates** its gradients, and **pushes** the sum after every `n_push` steps, and the rest after the last step.
#
# A server applies each push when it arrives, without contacting the other servers. So a replica may fetch one shard from before another replica's push, and the
# next shard from after it. Each server does **Adagrad** on its shard, which takes smaller steps in components that have moved a lot. It keeps its own sum of
# squares $G$, which starts at 1:
#
# $$G \leftarrow G + g^2 \qquad w \leftarrow w - \frac{\eta\, g}{\sqrt{G}}$$
#
# (In the paper a replica also takes plain steps on its own copy between two fetches. We leave that out.)
#
# How does a server know what a replica sends next? Both follow the same list:


# %%
def plan(n_fetch: int, n_push: int, steps: int) -> list[str]:
    """Return what a replica does, in order: "fetch", "compute" and "push".

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
# Write a server and a replica. Ranks 0 to `servers` - 1 are servers, the others are replicas. To fetch, a replica sends an empty message, `w.new_empty(0)`, to
# each server, and receives the server's shard. To push, it sends each server its shard of the sum. So a server always knows the length of a replica's next
# message.
#
# <details><summary>Hint 1: a replica</summary>
#
# `parts = w.tensor_split(servers)` are views of the replica's copy of w: receive into them. After a push the sum starts at 0 again. The `compute` number k is
# `total += grad(w, k)`.
# </details>
# <details><summary>Hint 2: a server</summary>
#
# Keep for each replica an iterator over its ops without "compute". Write a function that takes the next op of replica i and posts the `irecv` for it, into an
# empty tensor or into a buffer as long as the shard. If there is no next op, leave the finished request in the list: `wait_any` ignores it.
# </details>
# <details><summary>Hint 3: what has arrived</summary>
#
# Remember for each replica the op that you have posted. After `i = comm.wait_any(requests)` it is a fetch (send the shard) or a push (Adagrad with the buffer).
# You know the number of messages: loop that many times.
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
    """Train by Downpour SGD; return a server's final shard, or a replica's last copy of w.

    w: the initial weights, equal on all ranks. grad(w, k): a replica's gradient in step k.
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
    """Fetch, compute and push as `plan` says; return the last copy of w.

    Do not change the given w. Wait for every isend and irecv.
    """
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
    """Answer fetches and pushes (Adagrad) in order of arrival; return the final shard.

    Do not change the given w. Wait for every isend and irecv; until then no other message
    may use its tensor.
    """
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
check("hogwild.downpour")

# %% [markdown]
# Predict what *your* servers and replicas do. These questions have no points; a run of your program gives the answers.

# %%
with when_solved():
    your_program(
        "hogwild.downpour",
        lambda comm: downpour(comm, 2, lambda w, k: w, torch.ones(100), 2, 3, 6, 0.1),
        p=6,
        on="2 servers, 100 weights, a fetch every 2 and a push every 3 of 6 steps",
    )


# %%
def logistic(comm, n_fetch: int, n_push: int, steps: int = 60):
    """Train with two servers and four replicas with their own samples; return a server's final shard."""
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
        print(f"{n_fetch:7}{n_push:8}{moved[0]:14}{moved[1]:14}{100 * right.item():25.1f} %")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# A replica sends $\frac{\text{steps}}{n_{push}}$ times the bytes of $w$ and receives $\frac{\text{steps}}{n_{fetch}}$ times as many. Twenty times fewer bytes
# do no harm here: all replicas have the same kind of samples, and a sum of twenty gradients acts like a larger batch. Not every model allows this: the authors
# of DistBelief used $n_{fetch} = n_{push} = 1$, with 200 replicas.
# </details>
#
# ## Sandblaster: send single numbers
#
# The other half of DistBelief is a batch method, **L-BFGS**. It uses the last $m$ differences of weights, $s_i = w_{i+1} - w_i$, and of gradients,
# $y_i = g_{i+1} - g_i$, to turn the gradient into a better direction. Two loops compute it (Nocedal 1980), with $\rho_i = 1 / (y_i \cdot s_i)$:
#
#     q = g
#     for i = newest to oldest:    a_i = rho_i (s_i · q);   q = q - a_i y_i
#     r = (s · y) / (y · y) q      of the newest s and y
#     for i = oldest to newest:    b = rho_i (y_i · r);     r = r + (a_i - b) s_i
#     direction = -r
#
# These are only dot products and sums of vectors. If every rank holds its shard of all vectors, it computes the sums locally. Each dot product needs *one
# number* from each rank: "coordinator messages are small". In Sandblaster a coordinator adds these numbers; here `comm.all_reduce` does.

# %% [markdown]
# {{exercise two_loop}}
#
# Write the two loops. Every rank holds its shard of each $s_i$, each $y_i$ and $g$, and returns its shard of the direction.
#
# <details><summary>Hint 1: a dot product</summary>
#
# `x = (a * b).sum().reshape(1)`, then `comm.all_reduce(x)`. The result is the same on all ranks.
# </details>
# <details><summary>Hint 2: no history</summary>
#
# Without any s and y the direction is `-g`.
# </details>


# %%
def lbfgs_direction(comm, s: list[Tensor], y: list[Tensor], g: Tensor) -> Tensor:
    """Return this rank's shard of the L-BFGS direction.

    s, y: shards of the last differences, the oldest first; if empty, the direction is -g.
    g: this rank's shard of the gradient, which may have no elements. Do not change any of
    them.
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


# %%
check("hogwild.two_loop")


# %%
def minimize(comm, n: int, memory: int, steps: int) -> list[float]:
    """Return the gradient's norm in each step of L-BFGS on a narrow valley of n dimensions, sharded over the ranks."""
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
    for memory, colour in progress(((0, style.GREY), (1, style.BLUE), (10, style.GREEN)), "run"):
        run = simulate(minimize, 4, 100, memory, 120)
        axes.semilogy(run.results[0], color=colour, label=f"{memory} pairs")
    axes.set(xlabel="step", ylabel="norm of gradient", title="L-BFGS over four ranks, by the pairs that it remembers")
    axes.legend()
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Without memory it is gradient descent with the best step length, which is hopeless in a narrow valley. One pair is enough here, and ten are not better: on a
# quadratic, with the best length of every step, they all equal conjugate gradients. A network's loss is not a quadratic, and there more pairs help.
# </details>
#
# ## Sandblaster: tasks and their copies
#
# Sandblaster cuts the batch into many small tasks, more than there are nodes. A node that is done takes the next one. At the end, when no task is left, idle
# nodes repeat the tasks that slow nodes are still working on, and the first result counts. These are **backup tasks**, as in MapReduce.

# %% [markdown]
# {{exercise finish}}
#
# Compute when the last task is done. Nodes take the tasks in order; the next task goes to the node that is free first (the first one in the list, if there are
# several). Node i needs `work / speeds[i]` seconds for a task. With backups, when all tasks are taken, each node looks once, in the order in which the nodes
# become free. It looks at the task that would now finish *last*, and repeats it if it can finish it sooner.
#
# <details><summary>Hint 1: two lists</summary>
#
# Keep a list `free` with the time when each node is free, and a list `ends` with the time when each task is done. The node that is free first is
# `min(range(len(free)), key=free.__getitem__)`.
# </details>
# <details><summary>Hint 2: a copy</summary>
#
# A copy on node i would be done at `free[i] + work / speeds[i]`. It never delays a task: the earlier of the two ends counts. Each node looks only once.
# </details>


# %%
def finish(tasks: list[float], speeds: list[float], backups: bool = False) -> float:
    """Return the seconds until all tasks are done, each by the node that is free first.

    backups: at the end each idle node, in the order in which nodes become free, repeats
    the task that would finish last.

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
check("hogwild.finish")

# %% [markdown]
# A batch of 60 equal tasks runs on 12 nodes, and one of the nodes is 20 times slower than the others. How many times longer does the batch take without backup
# tasks than with them?

# %%
guess("hogwild.backups", "How many times longer without backup tasks?", unit="times")

# %%
with when_solved():
    guessed("hogwild.backups")
    print("seconds of a batch of 60 tasks on 12 nodes, one of them 20 times slower")
    nodes = [1.0] * 11 + [0.05]
    print(f"   without backups {finish([1.0] * 60, nodes):.1f}, with {finish([1.0] * 60, nodes, True):.1f}")
    reveal("hogwild.backups", finish([1.0] * 60, nodes) / finish([1.0] * 60, nodes, True))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# One slow node of twelve makes a batch three times as long. A copy of its task costs nothing, because the other nodes are idle. But a gradient that arrives
# twice must be counted only once.
# </details>

# %% [markdown]
# ## Project Adam: send the factors
#
# The gradient of a fully connected layer with $m$ inputs and $n$ outputs has $mn$ numbers. But it is a product, $x^T \delta$, of two factors: the layer's
# inputs $x$, $B \times m$ for a batch of $B$ samples, and the errors $\delta$ of its outputs, $B \times n$. **Project Adam** (Chilimbi et al. 2014) sends these
# factors to the server, $B(m + n)$ numbers, and the server multiplies them. Which message is shorter depends on the batch.
#
# (Convolutional layers have few weights. For these, a worker in Adam accumulates its updates and sends the *difference of the weights* after some batches, as a
# replica of Downpour sends sums.)
#
# The server cannot know in advance which of the two arrives, nor how many rows it has. So Adam separates two kinds of messages: short **control** messages,
# which announce what follows, and **data**. Here control has tag 1 and is a tensor of two int64: the batch, and a code of your choice for the kind of message.
# Data have tag 2.

# %% [markdown]
# {{exercise adam}}
#
# Write the product, count the bytes of the gradient and of the factors (without the control message), and choose. Then write a step with a server: each worker sends its layer's gradient the cheaper
# way, and rank 0 adds the gradients.
#
# <details><summary>Hint 1: the crossover</summary>
#
# Both messages are equally long at $B = \frac{mn}{m + n}$.
# </details>
# <details><summary>Hint 2: two kinds of messages</summary>
#
# `comm.send(torch.tensor([len(x), 1]), 0, tag=1)` announces factors; `comm.recv(control, worker, tag=1)` receives it into a tensor of int64. Then the server
# knows the shapes of the tensors to receive with tag 2.
# </details>


# %%
def from_factors(x: Tensor, delta: Tensor) -> Tensor:
    """Return the gradient (m, n) of a layer y = x W from x (B, m) and delta (B, n)."""
    # BEGIN SOLUTION
    return x.T @ delta
    # END SOLUTION


def fc_bytes(batch: int, m: int, n: int, how: str) -> int:
    """Return the float32 bytes that a worker sends for a layer of m inputs and n outputs.

    how: "gradient" or "factors".

    >>> fc_bytes(32, 1000, 100, "gradient"), fc_bytes(32, 1000, 100, "factors")
    (400000, 140800)
    """
    # BEGIN SOLUTION
    return 4 * (m * n if how == "gradient" else batch * (m + n))
    # END SOLUTION


def cheaper(batch: int, m: int, n: int) -> str:
    """Return "factors" or "gradient", whichever needs fewer bytes; "gradient" if equal."""
    # BEGIN SOLUTION
    factors, gradient = (fc_bytes(batch, m, n, how) for how in ("factors", "gradient"))
    return "factors" if factors < gradient else "gradient"
    # END SOLUTION


def sum_on_server(x: Tensor, delta: Tensor, comm) -> Tensor | None:
    """Return the sum of the workers' gradients (m, n) on rank 0 (server); None on workers.

    x (B, m) and delta (B, n), of one dtype: each worker's own, B may differ between
    workers, and may be 0; the server's have no rows. Each worker sends one control message
    (tag 1), then data (tag 2): x and delta, or the gradient, as `cheaper` says.
    """
    # BEGIN SOLUTION
    m, n = x.shape[1], delta.shape[1]
    if comm.rank > 0:
        factors = cheaper(len(x), m, n) == "factors"
        comm.send(torch.tensor([len(x), int(factors)]), 0, tag=1)
        for part in (x, delta) if factors else (from_factors(x, delta),):
            comm.send(part, 0, tag=2)
        return None
    total, control = x.new_zeros(m, n), torch.zeros(2, dtype=torch.int64)
    for worker in range(1, comm.size):
        comm.recv(control, worker, tag=1)
        batch, factors = control.tolist()
        shapes = [(batch, m), (batch, n)] if factors else [(m, n)]
        parts = [x.new_empty(shape) for shape in shapes]
        for part in parts:
            comm.recv(part, worker, tag=2)
        total += from_factors(*parts) if factors else parts[0]
    return total
    # END SOLUTION


# %%
check("hogwild.adam")

# %% [markdown]
# VGG-16's first fully connected layer has 25,088 inputs and 4,096 outputs. How many times smaller are the factors of 32 samples than the gradient?

# %%
guess("hogwild.factors", "How many times smaller are the factors of 32 samples?", unit="times")

# %%
with when_solved():
    guessed("hogwild.factors")
    print("VGG-16's fully connected layers, MB that a worker sends (and the batch at which both are equal)")
    for name, m, n in (("fc6", 25088, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)):
        sent = [fc_bytes(32, m, n, how) / 1e6 for how in ("gradient", "factors")]
        print(f"   {name}: gradient {sent[0]:6.1f}, factors of 32 samples {sent[1]:5.1f}   ({m * n / (m + n):.0f})")
    fewer = fc_bytes(32, 25088, 4096, "gradient") / fc_bytes(32, 25088, 4096, "factors")
    reveal("hogwild.factors", fewer)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# For the first layer the factors are 110 times smaller, and a batch of 32 is far below the crossover of 3,521 samples. For the last layer they are 25 times
# smaller. But the server must do the multiplications that the workers would have done. So Adam's servers were machines with fast processors. Today, with an
# all-reduce between equal GPUs, the gradients themselves are sent.
# </details>

# %% [markdown]
# ## Live: HOGWILD! on two engines
#
# Now train without a server and without messages. Two engines, which are MPI processes next to this kernel, share a vector: `shared_tensor` is memory that both
# processes see and write to at any time. The samples are like texts: 2,000 rows of about 40 words out of 10,000, for sparse logistic regression. An update is
# the loop below, Algorithm 1 of the lecture. To show what gets lost, each process also counts its updates in *one* shared number, the least sparse data
# possible: load, add 1, store.
#
# First one process works alone, then two share the work. What happens to the loss, how many counts get lost, and how much faster are two processes?

# %%
guess(
    "hogwild.hogwild",
    "How many times as many updates per second do two processes make as one?",
    unit="times",
)


# %%
from hpcdl.cluster import Cluster


def free_for_all(comm, workers: int, updates: int):
    """Do this rank's share of the updates; return begin, end, loss and counter. Ranks from `workers` on are idle."""
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
cluster = Cluster(n=2).start()
with when_solved():
    guessed("hogwild.hogwild")
    print(f"{'processes':>9}{'updates/s':>12}{'loss':>9}{'lost counts':>14}")
    speeds = []
    for workers in (1, 2):
        found = [one for one in cluster.run(free_for_all, workers, UPDATES, timeout=60) if one]
        begins, ends, losses, counts = zip(*found, strict=True)
        last = ends.index(max(ends))  # the last one to end sees what all have written
        lost = UPDATES - counts[last]
        speeds.append(UPDATES / (max(ends) - min(begins)))
        print(f"{workers:9}{speeds[-1]:12.0f}{losses[last]:9.4f}{lost:9} ({100 * lost / UPDATES:.1f} %)")
    reveal("hogwild.hogwild", speeds[1] / speeds[0], measured=True)

# %%
cluster.stop()  # the engines are no longer needed: free their memory

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# If two cores are free, two processes make almost twice as many updates per second. The loss is the same to about a percent, but not to the last bit, and it
# differs between runs. Counts *do* get lost, every time that both processes load the same number before one stores it. The weights lose almost no updates: most
# words are in few texts, and `w.add` loads and stores within nanoseconds. And a lost step does no lasting harm: the next gradient is computed from the weights
# that are there.
#
# With separate memories the two processes would have to send each other their steps; with a lock they would have to queue. Compiled, the same loop makes a few
# hundred times as many updates per second (`hpcdl.consistency.logistic_epochs`), and then the two cores meet often. The other half of the paper is about this
# case.
# </details>

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# Downpour's replicas take plain steps on their own copy between two fetches; ours wait for the next fetch. Add these steps. *Proof:* with `n_fetch = 1` nothing
# changes. With 20, the replica's own loss falls between two fetches, as you can see in its gradients. And for the digits of lab 04, does the server's loss
# after 200 pushes get better or worse?

# %% [markdown]
# ## Further reading
#
# - F. Niu et al. 2011, "HOGWILD!: A lock-free approach to parallelizing stochastic gradient descent"; C. De Sa et al. 2015, "Taming the wild: A unified analysis of
#   HOGWILD!-style algorithms".
# - J. Dean et al. 2012, "Large scale distributed deep networks": Downpour SGD and Sandblaster L-BFGS. J. Nocedal 1980, "Updating quasi-Newton matrices with limited
#   storage". J. Dean, S. Ghemawat 2004, "MapReduce: Simplified data processing on large clusters": backup tasks.
# - T. Chilimbi et al. 2014, "Project Adam: Building an efficient and scalable deep learning training system".
