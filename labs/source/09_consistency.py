# %% [markdown]
# # Lab {{number consistency}} · How late may a gradient be?
# ## BSP, ASP and SSP, a parameter server, delays, and gossip
#
# In lab 07 every machine waited for all the others in every step, so one slow machine slowed down all of them. What if machines did not wait? Then a worker
# computes its gradient from weights that other workers have changed in the meantime: the gradient comes *late*. In this lab you find out how late a gradient
# may be, and what you gain by allowing it.
#
# **You will be able to**
# - predict when each worker computes and when it waits, for any staleness between BSP and ASP;
# - write a parameter server that answers in order of arrival, and holds back only the workers that are too far ahead;
# - compute the learning rate at which a delay makes training diverge;
# - let ranks agree without a server, and predict how many rounds they need.
#
# **100 points, 4 exercises, about 115 minutes: 25 reading + 80 exercises + 10 runs.** You need gradient descent (lab 02); labs 07 and 08 help. MPI came with the
# installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$ | ranks: servers and workers |
# | $w$, $\eta$ | weights, learning rate (`lr`) |
# | $s$ | staleness: how many iterations a worker may be ahead of the slowest one |
# | $\tau$ | delay of a gradient, in steps |
# | $W$, $d_i$ | the matrix of one round of gossip, the number of neighbours of rank $i$ |

# %%
import math
import time

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor

from autograder import check
from hpcdl.comm import simulate
from hpcdl.consistency.gossip import TOPOLOGIES
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved, your_program
from hpcdl.widgets.pictures import gossip as gossip_picture
from hpcdl.widgets.pictures import how_late, who_waits

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Four workers compute gradients for one server. Worker 3 is slower than the others, and its samples differ from theirs. A worker may be $s$ iterations ahead of
# the slowest one; then it must wait (grey). Below you see the loss of the server's weights over time.
#
# Which $s$ reaches a small loss first? Make your guess, then:
# 1. Move the **staleness**. What happens to the grey, and what happens to the loss?
# 2. Plot the loss over **updates** instead of time. Which $s$ is best now?
# 3. Make all workers equally fast on average (1.0) with much **jitter**. Who waits now, and how much staleness removes most of the waiting?

# %%
guess(
    "consistency.staleness",
    "Worker 3 is three times as slow as the others. Which staleness s reaches a small loss first?",
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
# 1. With $s = 0$ the fast workers wait more than half of the time. With $s = \infty$ no worker waits, but the loss stops falling: the server receives three
#    times as many gradients from each fast worker as from the slow one, so it learns too little from the slow worker's samples, and too late. A few iterations
#    of staleness give most of the speed without this bias: in the long run all workers do the same number of iterations.
# 2. Counted in updates, waiting costs nothing and old gradients only hurt, so $s = 0$ is among the best. Staleness pays only when you count seconds.
# 3. All of them: in each iteration, everyone waits for the worker that happens to be late. With $s = 0$ every iteration takes as long as the longest of four,
#    and the workers wait half of the time. With $s = 4$ most of this evens out.
# </details>

# %% [markdown]
# ## Three ways to wait
#
# Workers compute gradients; a server holds the weights. The lecture names three rules. They are one rule with a parameter, the **staleness** $s$: a worker may
# begin iteration $k = 0, 1, 2, \dots$ when *every* worker has finished $k - s$ iterations.
#
# | rule | $s$ | what it means |
# |---|---|---|
# | BSP, bulk-synchronous | 0 | no worker begins an iteration before all have finished the previous one |
# | SSP, stale-synchronous | 1, 2, ... | no worker is more than $s$ iterations ahead of the slowest |
# | ASP, asynchronous | $\infty$ | no worker waits |

# %% [markdown]
# {{exercise clocks}}
#
# Compute when each iteration of each worker starts and ends.
#
# <details><summary>Hint 1: what a worker waits for</summary>
#
# Iteration k starts at the later of two moments: when the worker's own iteration k - 1 has ended, and when the last of all workers has ended *its* iteration
# k - s - 1. (Iterations are counted from 0, so this worker has then finished k - s of them.) If there is no such iteration, there is nothing to wait for.
# </details>
# <details><summary>Hint 2: in which order</summary>
#
# Go iteration by iteration, not worker by worker: iteration k waits only for smaller k.
# </details>
# <details><summary>Hint 3: infinity</summary>
#
# `k - math.inf` is `-math.inf`, which is not an index. Test `k > staleness` first; then `int(k - staleness - 1)` is a valid index.
# </details>


# %%
def clocks(seconds: list[list[float]], staleness: float) -> list[list[tuple[float, float]]]:
    """Return when iteration k of worker w starts and ends, if it takes seconds[w][k].

    staleness: 0 is BSP, math.inf is ASP. All workers have the same number of iterations,
    at least 1. Returns a list for each worker, with a pair for each iteration.

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
        print(f"   s = {staleness:3}: {4 * 200 / end:5.2f} per second, {100 * (1 - busy):3.1f} % waiting")

# %% [markdown]
# **Spot the mistake.** For SSP with $N$ workers, the lecture writes worker $n$'s weights at $t + 1$ as
#
# $$w_{n,t+1} = w_0 - \eta \sum_{i=1}^{t-s} \sum_{j=1}^{N} g_{j,i} - \eta \sum_{i=t-s}^{t} g_{n,i} - \eta \sum_{(j,i) \in S_{n,t+1}} g_{j,i}$$
#
# The first sum has all gradients that must have arrived, the second one the worker's own gradients since then, and the third one the other workers' gradients
# that happen to have arrived. One term appears twice. Which one?
#
# <details><summary>Found it?</summary>
#
# Worker $n$'s own gradient of iteration $i = t - s$: the first sum goes up to $t - s$ over all workers, and the second one begins there. Let the second sum
# begin at $t - s + 1$. A server that counts gradients, as yours will, cannot make this mistake: it applies each gradient once, when it arrives.
# </details>

# %% [markdown]
# ## A parameter server
#
# Now write a program that keeps this rule. Rank 0 is the **server** and holds the weights. All other ranks are **workers**. In each step a worker computes a
# gradient, sends it to the server and receives $w$. A worker does nothing else; the server enforces the rule by choosing *when it answers*:
#
#     worker 1    grad ──g──▶        ◀──w── grad ──g──▶      ...
#     server            w -= lr g ─────▶           ...            answers at once, or when the slowest has caught up
#     worker 2         grad        ──g──▶       ◀──w──
#
# - The server applies each gradient as it arrives, $w \leftarrow w - \eta\, g$. Over a round, this is $\eta$ times the *sum* over the workers, as in the
#   lecture's SSP formula. (The lecture's BSP formula takes the mean; there $\eta$ is $N$ times as large.)
# - A worker that has sent $c$ gradients receives $w$ when every worker has sent at least $c - s$.
# - These weights include all of the worker's own gradients: it **reads its own writes**.
#
# With `recv` the server would have to know which worker sends next. `comm.wait_any(requests)` waits for the message that arrives first, and returns its index
# in the list. It ignores requests that have already been waited for, until you put a new request at this index.

# %% [markdown]
# {{exercise server}}
#
# Write the server and the worker. `train` is given: it assigns the roles.
#
# <details><summary>Hint 1: the server's loop</summary>
#
# Start with one buffer and one `comm.irecv(buffer, worker)` for each worker. Then, `steps` times the number of workers: `i = comm.wait_any(requests)`, apply
# buffer i and count it. Worker i + 1 now waits for an answer.
# </details>
# <details><summary>Hint 2: which workers to answer</summary>
#
# Keep a list of the waiting workers. One gradient can release several of them: after each gradient, go through the list and answer every worker whose count is
# at most `min(counts) + staleness`.
# </details>
# <details><summary>Hint 3: an answer</summary>
#
# `comm.send(w, i + 1)` and, if this worker will send more, a new `requests[i] = comm.irecv(buffers[i], i + 1)`.
# </details>


# %%
def serve(comm, w: Tensor, staleness: float, steps: int, lr: float) -> Tensor:
    """Apply `steps` gradients from each worker, and return the final weights.

    Workers are ranks 1 to comm.size - 1. w: the initial weights; do not change them.
    Answer each gradient with the weights, as soon as its worker is at most `staleness`
    gradients ahead of the slowest one. Wait for every isend and irecv.
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
    """Send grad(w, k) for k = 0 to steps - 1, each at the w received last; return the last
    w.

    w: the initial weights; do not change them.
    """
    # BEGIN SOLUTION
    w = w.clone()
    for k in range(steps):
        comm.send(grad(w, k), 0)
        comm.recv(w, 0)
    return w
    # END SOLUTION


def train(comm, grad, w: Tensor, staleness: float, steps: int, lr: float) -> Tensor:
    """Serve on rank 0, work on all other ranks; return the final weights."""
    if comm.rank == 0:
        return serve(comm, w, staleness, steps, lr)
    return work(comm, grad, w, steps)


# %%
check("consistency.server")

# %% [markdown]
# Predict what *your* server and workers do. These questions have no points; a run of your program gives the answers.

# %%
with when_solved():
    your_program(
        "consistency.server",
        lambda comm: train(comm, lambda w, k: w, torch.ones(100), staleness=1, steps=5, lr=0.1),
        p=6,
        on="5 steps with 100 weights, staleness 1",
    )

# %% [markdown]
# ## What a late gradient does
#
# The gradient of a worker that is ahead is old: it belongs to the weights of $\tau$ steps ago. What if you use it anyway?
#
# $$w_{t+1} = w_t - \eta\, \nabla L(w_{t-\tau})$$
#
# Near a minimum, along a direction of curvature $\lambda$, the gradient is $\lambda w$. Try $w_t = z^t$ in the formula: it gives
# $z^{\tau+1} - z^\tau + \eta\lambda = 0$. Training converges while every root $z$ is smaller than 1 in absolute value. The first root to reach the unit circle
# is $z = e^{i\varphi}$, and then $\eta\lambda = e^{i\tau\varphi}(1 - e^{i\varphi})$ must be a real number. Since
# $1 - e^{i\varphi} = -2i \sin(\varphi/2)\, e^{i\varphi/2}$, it is real when $(\tau + \frac12)\varphi = \frac{\pi}{2}$. This gives the bound
#
# $$\eta\lambda < 2 \sin\frac{\pi}{4\tau + 2}$$
#
# Without delay the bound is 2, as in lab 02; with $\tau = 1$ it is 1. What is it with $\tau = 10$?

# %%
guess(
    "consistency.delay",
    "Gradients are 10 steps late. Below which ηλ does training converge?",
    truth=lambda: 2 * math.sin(math.pi / (4 * 10 + 2)),
)

# %% [markdown]
# {{exercise delay}}
#
# Write SGD with late gradients, and the bound as a learning rate.
#
# <details><summary>Hint</summary>
#
# Collect all weights in a list `ws` that begins with w. Step t takes the gradient at `ws[max(0, t - delay)]`, and starts from `ws[-1]`. Make a new tensor in
# each step.
# </details>


# %%
def delayed_sgd(w: Tensor, grad, lr: float, delay: int, steps: int) -> list[Tensor]:
    """Return the weights w_0 = w, w_1, ..., w_steps of SGD, gradients `delay` steps late.

    While no weights are that old, take the gradient at w_0. Do not change w.
    """
    # BEGIN SOLUTION
    ws = [w]
    for t in range(steps):
        ws.append(ws[-1] - lr * grad(ws[max(0, t - delay)]))
    return ws
    # END SOLUTION


def largest_stable_lr(curvature: float, delay: int) -> float:
    """Return the largest stable learning rate of delayed SGD on L(w) = curvature w^2 / 2.

    >>> largest_stable_lr(4.0, delay=0)
    0.5
    """
    # BEGIN SOLUTION
    return 2 * math.sin(math.pi / (4 * delay + 2)) / curvature
    # END SOLUTION


# %%
check("consistency.delay")

# %% [markdown]
# **How late is too late?** On the left you see the bound, and on the right a run of *your* `delayed_sgd` on $L = w^2/2$ at the learning rate of the dot. Find
# the largest learning rate for a delay of 10. What does the run look like just below the bound, and how does it differ from $\tau = 0$?

# %%
how_late.explorable(delayed_sgd)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# It is 0.15: a delay of ten steps needs a learning rate 13 times smaller. For long delays the bound is about $\frac{\pi}{2\tau}$. Near the bound the weight
# swings slowly, like a pendulum: each step learns too late that the weight has gone too far. Without delay the weight jumps from one side to the other in each
# step.
#
# This is the price of asynchronous training: with $p$ workers of equal speed a gradient is about $p - 1$ updates late.
# </details>

# %% [markdown]
# ## Without a server: gossip
#
# Do you need a server at all, or can ranks work *peer to peer*? In lab 08 an all-reduce gave every rank the mean. **Gossip** does not even compute the mean: in each round a rank averages with
# its neighbours only, and then continues training (Lian et al. 2017). All ranks come closer to the mean, and the mean itself does not change. How fast they
# agree depends on the topology, that is, which ranks are neighbours. The lecture has three topologies: a *ring*, a *wheel* (a ring with a hub in the middle),
# and *random* peers, which form new pairs in each round.
#
# An **edge** $(i, j)$ says that ranks $i$ and $j$ send each other their $x$. The **degree** $d_i$ is the number of edges of rank $i$. With Metropolis weights
# (Xiao, Boyd and Kim 2007) one round is
#
# $$x_i \leftarrow \sum_j W_{ij}\, x_j \qquad W_{ij} = \frac{1}{1 + \max(d_i, d_j)} \text{ for an edge } (i, j) \qquad W_{ii} = 1 - \sum_{j \ne i} W_{ij}$$
#
# and $W_{ij} = 0$ for all other pairs. $W$ is symmetric, and its rows add up to 1. So its columns add up to 1, too, and a round does not change the sum over
# all ranks.
#
# The largest eigenvalue of $W$ is 1: it belongs to the mean. Let $\lambda$ be the second largest *absolute value* of the eigenvalues. Each round multiplies the
# distance from the mean by $\lambda$ or less; from the worst start, by exactly $\lambda$. The number $1 - \lambda$ is called the **spectral gap**.

# %% [markdown]
# {{exercise gossip}}
#
# Write the matrix of a round, the number of rounds that the worst start needs, and the rounds themselves. `rounds` holds a list of edges for each round. An
# edge is a pair of ranks in either order, and appears once in the list. A rank without an edge in a round keeps its `x`.
#
# <details><summary>Hint 1: the matrix</summary>
#
# First count how often each rank is part of an edge. Then fill in `W[i, j]` and `W[j, i]`, and the diagonal last.
# </details>
# <details><summary>Hint 2: the second eigenvalue</summary>
#
# `torch.linalg.eigvalsh(W)` returns the eigenvalues of a symmetric matrix in ascending order. An eigenvalue of $-\frac12$ shrinks the distance as $\frac12$ does.
# </details>
# <details><summary>Hint 3: one round</summary>
#
# For each neighbour, begin a receive into a separate tensor and a send; then wait for all of them. Change `x` only after that: until you have waited for a
# send, `x` is the message.
# </details>


# %%
def weights(p: int, edges: list[tuple[int, int]]) -> Tensor:
    """Return the matrix W of one round between p ranks, in float64.

    >>> weights(3, [(0, 1)]).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    # BEGIN SOLUTION
    degree = [0] * p
    for edge in edges:
        for i in edge:
            degree[i] += 1
    w = torch.zeros(p, p, dtype=torch.float64)
    for i, j in edges:
        w[i, j] = w[j, i] = 1 / (1 + max(degree[i], degree[j]))
    return w + torch.diag(1 - w.sum(1))
    # END SOLUTION


def rounds_needed(W: Tensor, close: float) -> int:
    """Return the smallest number of rounds that shrinks the distance from the mean to at
    most `close` times the initial distance, for any initial values.

    W: the matrix of two or more ranks, all connected. close: between 0 and 1.

    >>> rounds_needed(torch.tensor([[0.75, 0.25], [0.25, 0.75]]), close=0.1)
    4
    """
    # BEGIN SOLUTION
    second, k = torch.linalg.eigvalsh(W).abs().sort().values[-2].item(), 0
    while second**k > close:
        k += 1
    return k
    # END SOLUTION


def gossip(x: Tensor, comm, rounds: list[list[tuple[int, int]]]) -> None:
    """Average x with the neighbours' x in each round, in place.

    Keep all messages of a round in flight at the same time. Wait for every isend and irecv.
    """
    # BEGIN SOLUTION
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        neighbours = [i + j - comm.rank for i, j in edges if comm.rank in (i, j)]
        theirs = [torch.empty_like(x) for _ in neighbours]
        requests = [comm.irecv(out, j) for out, j in zip(theirs, neighbours, strict=True)]
        requests += [comm.isend(x, j) for j in neighbours]
        for request in requests:
            request.wait()
        x *= row[comm.rank]
        for out, j in zip(theirs, neighbours, strict=True):
            x += row[j] * out
    # END SOLUTION


# %%
check("consistency.gossip")

# %% [markdown]
# Predict what *your* gossip does in a ring:

# %%
with when_solved():
    your_program(
        "consistency.gossip",
        lambda comm: gossip(torch.ones(100), comm, [TOPOLOGIES["ring"](comm.size, 0)] * 2),
        p=7,
        on="2 rounds in a ring with 100 numbers",
    )

# %% [markdown]
# **How many rounds?** There are 16 ranks in a ring. One half of it starts with 1, the other half with 0. After how many rounds is only 1 % of the
# distance from the mean left?

# %%
guess(
    "consistency.gossip",
    "16 ranks in a ring: how many rounds until 1 % of the distance from the mean is left?",
    unit="rounds",
)


# %%
def rounds_taken(name: str, p: int, most: int = 120) -> tuple[int, int]:
    """Count on the simulated machine: rounds until 1 % is left, and the messages that the busiest rank sent by then."""
    edges = [TOPOLOGIES[name](p, number) for number in range(most)]

    def follow(comm):
        x, seen = torch.tensor([float(comm.rank < p // 2)], dtype=torch.float64), []
        for now in edges:
            gossip(x, comm, [now])
            seen.append(x.item())
        return seen

    values = torch.tensor(simulate(follow, p).results, dtype=torch.float64)
    left = (values - 0.5).norm(dim=0) / (0.5 * p**0.5)
    rounds = 1 + int((left <= 0.01).nonzero()[0])
    ends = torch.tensor([end for now in edges[:rounds] for edge in now for end in edge])
    return rounds, int(ends.bincount().max())


with when_solved():
    guessed("consistency.gossip")
    print("16 ranks: rounds until 1 % of the distance is left, and messages that the busiest rank sends by then")
    print(f"{'':14}{'worst start':>12}{'counted':>9}{'messages':>10}")
    for name, topology in progress(TOPOLOGIES.items(), "topology"):
        most = "–" if name == "random peers" else rounds_needed(weights(16, topology(16, 0)), 0.01)
        counted, messages = rounds_taken(name, 16)
        print(f"{name:14}{most:>12}{counted:9}{messages:10}")
    reveal("consistency.gossip", rounds_taken("ring", 16)[0])

# %% [markdown]
# Now look at the rounds one by one, and change the number of ranks.
#
# 1. Ring: double the number of ranks. How many times as many rounds does it take?
# 2. Which topology needs the fewest *rounds*, and which the fewest *messages of the busiest rank*? Try 32 ranks.
# 3. Why does the wheel need few rounds, and which rank pays for it?

# %%
gossip_picture.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Four times: the gap of a ring is $\frac23 (1 - \cos\frac{2\pi}{p})$, about $\frac{13}{p^2}$. In each round values move only to the next rank, so they
#    spread like heat.
# 2. The fewest rounds: everyone with everyone, which is an all-reduce. The fewest messages: random peers. Each rank sends one message in a round, and the distance
#    shrinks to $\sqrt{\frac{p - 2}{2(p - 1)}}$ on average, about 0.7 for *any* number of ranks. The next partner has most likely averaged with other ranks, so
#    it brings new values.
# 3. All ranks are at most two steps from each other, through the hub. The hub pays: it sends $p - 1$ messages in a round, like a server.
# </details>

# %% [markdown]
# **Training by gossip.** Eight ranks train one linear model. Each rank has its own samples with noisy targets. In each step a rank takes a gradient step on its
# *own* samples, and then does one round of gossip. The error below is the mean over all ranks of $\|w - w_{true}\|^2$ late in the training. It shows how much
# noise is left in the weights.


# %%
def train_by_gossip(comm, name: str, steps: int = 80) -> float:
    """Return the mean squared error of this rank's weights in the second half of a training."""
    chance, true = torch.Generator().manual_seed(comm.rank), torch.arange(10.0)
    w, total = torch.zeros(10), 0.0
    for step in range(steps):
        x = torch.randn(8, 10, generator=chance)
        y = x @ true + 3 * torch.randn(8, generator=chance)
        w -= 0.1 * x.T @ (x @ w - y) / 8
        if name != "nobody":
            gossip(w, comm, [TOPOLOGIES[name](comm.size, step)])
        total += (w - true).square().sum().item() if step >= steps // 2 else 0.0
    return total / (steps - steps // 2)


with when_solved():
    print("8 ranks: error of the weights, and messages that the busiest rank sends in a step")
    for name in ("nobody", *TOPOLOGIES):
        run = simulate(train_by_gossip, 8, name)
        sent = max(sum(e.op == "send" for e in run.trace if e.rank == rank) for rank in range(8)) / 80
        print(f"   {name:14}{sum(run.results) / 8:8.3f}{sent:8.0f}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Without gossip, every rank keeps the noise of its own samples. One message in each step, to a different peer each time, removes most of it. The exact mean of
# all ranks, which data-parallel training computes, removes a little more, for seven messages. Lian and others found the same for networks: with many ranks and
# slow links, training by gossip takes hardly more steps, and each step is shorter.
# </details>

# %% [markdown]
# ## Live: three rules on four engines
#
# Four engines, which are MPI processes next to this kernel, run *your* `train`: a server and three workers. Worker 3 is three times slower than the others.
# Each gradient comes from a small regression, slowed down by sleeping so that two cores are enough. First all three rules run for the same number of steps.
# Then `clocks` predicts the run from the measured seconds of each gradient: it gives when each gradient begins and ends. From this follows which gradients are
# in the weights that another one is computed at, and so the loss at every moment.
#
# A gradient takes 20 ms, and 60 ms on worker 3. How many steps per second does each rule make?

# %%
guess(
    "consistency.bsp",
    "BSP, where all wait for all: how many steps per second do all workers make together?",
    unit="steps/s",
)

# %%
guess(
    "consistency.asp",
    "And ASP, where no worker waits?",
    unit="steps/s",
)

# %%
from hpcdl.cluster import Cluster

STEPS, TAKES, SLOWER, TARGET = 40, 0.02, 3, 0.01
RULES = {"BSP": 0, "SSP(3)": 3, "ASP": math.inf}
TRUE = torch.arange(10.0)  # the weights to be found


def samples(rank: int) -> Tensor:
    """Return a worker's samples, 8 for each of its steps."""
    return torch.randn(STEPS, 8, len(TRUE), generator=torch.Generator().manual_seed(rank))


def step_of(x: Tensor, w: Tensor) -> Tensor:
    """Return the learning rate times the gradient at w."""
    return 0.1 * x.T @ (x @ (w - TRUE)) / len(x)


def loss_at(w: Tensor) -> float:
    """Return the expected loss over all samples, relative to the loss of w = 0."""
    return ((w - TRUE).square().sum() / TRUE.square().sum()).item()


def train_live(comm, staleness: float, steps: int = STEPS):
    """Return for each gradient of this rank: begin and end, the loss at its w, and how far ahead the rank was."""
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
cluster.stop()  # the engines are no longer needed: free their memory


# %%
def rates(spans) -> tuple[float, float]:
    """Return gradients per second until the first worker finishes, and the workers' share of waiting until then."""
    zero, end = min(mine[0][0] for mine in spans), min(mine[-1][1] for mine in spans)
    inside = [(a, min(b, end)) for mine in spans for a, b in mine if a < end]
    done = sum(b <= end for mine in spans for _, b in mine)
    return done / (end - zero), 1 - sum(b - a for a, b in inside) / (len(spans) * (end - zero))


def predicted_losses(spans) -> list[list[float]]:
    """Return the loss at the beginning of each gradient, if each is applied as soon as it ends."""
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
    """Return seconds since the first gradient began and the loss at that time, for all workers together."""
    points = sorted((a, loss) for of in zip(spans, losses, strict=True) for (a, _), loss in zip(*of, strict=True))
    return [(a - points[0][0], loss) for a, loss in points]


def seconds_to(target: float, curve) -> float:
    """Return when the loss first reaches the target, in seconds; infinity if it never does."""
    return min((seconds for seconds, loss in curve if loss <= target), default=math.inf)


measured, predicted = {}, {}
for rule, workers in live.items():
    spans, losses, _ = zip(*workers, strict=True)
    expected = clocks([[b - a for a, b in mine] for mine in spans], RULES[rule])
    measured[rule] = (*rates(spans), curve_of(spans, losses))
    predicted[rule] = (*rates(expected), curve_of(expected, predicted_losses(expected)))

if len(live) == len(RULES):
    print(f"        steps/s predicted   waiting predicted{f's to {100 * TARGET:.0f} %':>10} predicted")
    for rule in live:
        (rate, waits, curve), (rate2, waits2, curve2) = measured[rule], predicted[rule]
        when, when2 = seconds_to(TARGET, curve), seconds_to(TARGET, curve2)
        print(f"{rule:6}{rate:9.1f}{rate2:10.1f}{100 * waits:8.1f} %{100 * waits2:8.1f} %{when:10.2f}{when2:10.2f}")
    for rule in ("BSP", "ASP"):
        reveal(f"consistency.{rule.lower()}", measured[rule][0], measured=True)

# %%
if len(live) == len(RULES):
    figure, panels = plt.subplots(1, 4, figsize=(9.6, 2.8), layout="constrained", width_ratios=[2.2, 1, 1, 1])
    for rule, colour, axes in zip(live, (style.VERMILLION, style.BLUE, style.GREEN), panels[1:], strict=True):
        panels[0].semilogy(*zip(*measured[rule][-1], strict=True), color=colour, label=rule)
        panels[0].semilogy(*zip(*predicted[rule][-1], strict=True), ":", color=colour)
        late = [lead for *_, ahead in live[rule] for lead in ahead]
        axes.hist(late, bins=[lead - 0.5 for lead in range(max(8, *late) + 2)], color=colour)
        axes.set(title=rule, xlabel="iterations ahead")
    panels[0].axhline(TARGET, color=style.GREY, linewidth=1)
    panels[0].set(xlim=(0, 1.2), ylim=(1e-4, 1.5), xlabel="time, s (dotted: predicted)", title="loss / initial loss")
    panels[0].legend()
    panels[1].set_ylabel("gradients")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - BSP goes at the pace of the slowest worker: three gradients in 60 ms. With ASP each worker goes at its own pace: 50 + 50 + 17 gradients in a second. SSP is
#   as fast as ASP until the fast workers are three ahead, and then as slow as BSP. Against a worker that is *always* slow, staleness gives only a head start.
#   It helps against random delays.
# - ASP reaches one percent in about half of BSP's time, and SSP keeps up while its head start lasts. Here all workers draw the same kind of samples, so a delay
#   of a few updates costs next to nothing. In the first picture it did cost something, because the slow worker's samples differed from the others'.
# - `clocks` predicts all of this almost exactly, even the loss. It leaves out only the time of the messages and the server, here a fraction of a millisecond
#   for each gradient.
# - No worker is ever more than $s$ ahead. With ASP there is no limit: here the fast workers end about 25 iterations ahead.
# </details>

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# I. Mitliagkas et al. (2016) found that asynchrony acts like momentum: on average, $p$ workers with randomly late gradients move like plain descent with
# momentum $1 - 1/p$. Draw the mean of 200 asynchronous runs on a parabola for $p$ = 2, 4 and 8, each with random delays. *Proof:* fit the momentum that makes
# one synchronous run match this mean, and compare it with $1 - 1/p$. What does this mean for the momentum that you set yourself?

# %% [markdown]
# ## Further reading
#
# - A whole parameter server in under 100 lines: `import hpcdl.consistency.plain`, then `hpcdl.consistency.plain??` in a cell of its own shows all of it.
# - Q. Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server"; M. Li et al. 2014, "Scaling distributed machine learning with
#   the parameter server".
# - X. Lian et al. 2017, "Can decentralized algorithms outperform centralized algorithms? A case study for decentralized parallel stochastic gradient descent"; S. Boyd et
#   al. 2006, "Randomized gossip algorithms"; L. Xiao, S. Boyd, S.-J. Kim 2007, "Distributed average consensus with least-mean-square deviation".
# - J. Chen et al. 2016, "Revisiting distributed synchronous SGD": why many returned to BSP, with backup workers.
