# %% [markdown]
# # Lab 08 · Collectives
# ## What a message costs
#
# In data-parallel training each processor computes its own gradient, and all of them need the sum. This operation is an
# **all-reduce**, and there are many ways to do it: through a server, around a ring, up and down a tree. They all
# compute the same numbers, but one may be a hundred times as fast as another. Four numbers decide which one is
# fastest: the number of ranks, the message size and two constants of the machine. You will measure the two constants.
#
# **You will be able to**
# - write an all-reduce in four ways, for any number of ranks, without a deadlock;
# - compute the cost of an algorithm exactly from two constants, $\alpha$ per message and $\beta$ per byte;
# - measure $\alpha$ and $\beta$ of a real machine, in spite of outliers;
# - predict which all-reduce is best for given ranks and sizes, where that changes, and what to expect from 1,024 GPUs.
#
# **100 points, 8 exercises, about 115 minutes: 17 reading + 90 exercises + 8 runs; an extra exercise takes 8 more, and has 10 of the points.** You need Python functions and tensors. You need no GPU. Lab 07 uses an
# all-reduce; here you look inside. Everything up to exercise 5 runs in this kernel, on a simulated machine. Then you
# start MPI processes (MPI is already installed). In this lab $n$ is a number of bytes, and $\beta$ the seconds per
# byte.

# %%
import inspect
import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
from IPython.display import Code, display
from torch import Tensor

from autograder import check
from hpcdl.collectives import ALL_REDUCE, broadcast, naive_all_reduce, reduce, ring_all_reduce
from hpcdl.comm import Group, simulate
from hpcdl.machine import cores
from hpcdl.widgets import LiveFigure, guess, guessed, reveal, style, when_solved, your_program
from hpcdl.widgets.pictures import best_algorithm as best_map
from hpcdl.widgets.pictures import message_cost, topology

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Each disk is a **rank**, one of $p$ processes, each with its own vector $x$. Every rank needs the sum of all $x$. The
# left side shows the messages; the right side shows when each rank sends. The picture is the trace of the real
# algorithm on a simulated machine.
#
# Press play, then try these:
# 1. Choose **star (naive)**, and watch rank 0. Then compare the total time with the **ring**'s.
# 2. Set the size of $x$ to 100 B, then to 1 MB. Which algorithm is the fastest for each? (Look at the last number on
#    the time axis.)
# 3. Choose **recursive doubling** with 8 ranks, then with 9. What do the extra ranks do?
# 4. Choose **Parameter server** with 8 ranks and $k$ = 1, 2, 4, 8 servers. Which other algorithm resembles the last
#    one?

# %%
topology.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. All messages of the star go into or out of rank 0, one at a time, while the others wait: $2(p-1)$ messages in a
#    row. In the ring all ranks send all the time, and each message is only $1/p$ of $x$.
# 2. With 100 B recursive doubling wins, because it has the fewest messages in a row. With 1 MB the ring and
#    Rabenseifner win, because their ranks send the fewest bytes.
# 3. Rank 8 sends its $x$ to rank 0 before the others begin, and gets the result after they are done. That takes two
#    more rounds.
# 4. With one server it is the star. With $p$ servers every rank sums one share and sends it to all. This takes as many
#    messages and bytes as the ring, but they do not only go to neighbours.
#
# The lecture draws two more topologies, a *wheel* and *random* peers. They are for averages that need not be exact at
# once. Lab {{number consistency}} uses them.
# </details>

# %% [markdown]
# ## How processes send messages
#
# An algorithm is one function that every rank runs. Its argument is a **communicator** `comm`, which also tells it its
# rank:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number, 0 to p-1, and p |
# | `comm.send(x, dest)` | send the tensor `x`; returns when it has been received |
# | `comm.recv(out, source)` | wait for a message and put it into `out`, a tensor with the sender's dtype and number of elements |
# | `comm.sendrecv(x, dest, out, source)` | both at the same time |
# | `comm.isend(x, dest)`, `comm.irecv(out, source)` | begin and return at once; call `.wait()` on the result before you use the tensor |
#
# Here is the star from the picture, from the library:

# %%
Code(inspect.getsource(naive_all_reduce), language="python")

# %% [markdown]
# (`comm.accumulate(x, incoming)` is `x += incoming`; the simulated machine can count time for it. The first two lines
# reject tensors that cannot be sent, and weight this rank's share. Your functions need neither.)
#
# `simulate(f, p)` calls `f(comm)` on `p` ranks in this kernel, in **virtual time**: a message of $n$ bytes takes
# $\alpha + n\beta$ seconds, and a rank sends one message and receives one at a time. With $\alpha = 1$ and $\beta = 0$
# the clock counts rounds. Here rank $r$ begins with $x = 10^r$, so the digits of a sum tell you which ranks' numbers
# are in it.


# %%
def on_ranks(f: Callable, p: int, n: int = 2, **options):
    """Run `f(x, comm, **options)` on p ranks; rank r begins with n elements 10^r. `results` are the x afterwards, by rank."""

    def rank(comm):
        x = torch.full((n,), 10**comm.rank)
        f(x, comm, **options)
        return x.tolist()

    return simulate(rank, p, alpha=1.0)


run = on_ranks(naive_all_reduce, p=4)
print(run.results, f"after {run.seconds:.0f} rounds")

# %% [markdown]
# The most common mistake in a program like this is a **deadlock**. Two ranks want to swap their tensors, and both send
# first. `send` returns only when the other side receives, but the other side is sending, too. On a real machine this
# may work for small messages, which the network buffers, and hang for large ones. The simulated machine never buffers
# messages, so it detects the deadlock at once:


# %%
def swap(comm):
    mine, theirs = torch.zeros(3), torch.zeros(3)
    comm.send(mine, 1 - comm.rank)
    comm.recv(theirs, 1 - comm.rank)


try:
    simulate(swap, 2)
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## Trees
#
# If rank 0 wants to send something to all ranks, the others can help. Each rank that has it can pass it on, so the
# number of ranks that have it doubles in each round: 1, 2, 4, 8, ... After $\lceil \log_2 p \rceil$ rounds all ranks
# have it. Backwards, the same tree computes a sum: in each round half of the remaining ranks send their partial sum to
# the other half and are done.
#
#     broadcast, p = 6, root 0             reduce, p = 6, root 0
#     round 1, distance 1:  0→1            round 1, distance 4:  4→0  5→1
#     round 2, distance 2:  0→2  1→3       round 2, distance 2:  2→0  3→1
#     round 3, distance 4:  0→4  1→5       round 3, distance 1:  1→0
#
# If the root is not 0, count from the root: rank $r$ has the *place* $(r - \text{root}) \bmod p$.

# %% [markdown]
# {{exercise tree_reduce}}
#
# Write both trees, for any number of ranks and any root. `x` may have any shape. In `tree_reduce` the other ranks' `x`
# may contain anything afterwards.
#
# <details><summary>Hint 1: which ranks send in a round?</summary>
#
# In the broadcast's round with `distance` d, the places below d already have `x`. Place q < d sends to place q + d, *if
# it exists*: q + d < p. Places d to 2d - 1 receive. All others do nothing in this round.
# </details>
# <details><summary>Hint 2: places and ranks</summary>
#
# Decide with places, but send to ranks. The rank `distance` places further is `(comm.rank + distance) % p`, for every
# root.
# </details>
# <details><summary>Hint 3: the distances</summary>
#
# Broadcast: `distance = 1`, then `while distance < p:` and `distance *= 2` at the end. Reduce: the same distances, the largest first;
# the largest is half of `1 << (p - 1).bit_length()`, the first power of two that is at least p.
# </details>
# <details><summary>Hint 4: a round</summary>
#
# In a round of the broadcast, places below `distance` send to the place `distance` further on, if it exists. Places
# from `distance` to below `2 * distance` receive. For the reduce, swap the two, receive into a second tensor, and add
# it to `x`. Ranks are places plus `root`, modulo p.
# </details>


# %%
def tree_reduce(x: Tensor, comm, root: int = 0) -> None:
    """Sum `x` over the ranks into rank `root`'s `x`, in ⌈log2 p⌉ rounds of a binomial tree.

    x: any shape, changed in place; on other ranks it holds partial sums afterwards. Every
    rank but the root sends once.

    >>> on_ranks(tree_reduce, p=3, n=1, root=2).results[2]
    [111]
    """
    # BEGIN SOLUTION
    p, place = comm.size, (comm.rank - root) % comm.size
    incoming = torch.empty_like(x)
    distance = 1 << (p - 1).bit_length()
    while distance > 1:
        distance //= 2
        if place < distance and place + distance < p:
            comm.recv(incoming, (comm.rank + distance) % p)
            x += incoming
        elif distance <= place < 2 * distance:
            comm.send(x, (comm.rank - distance) % p)
    # END SOLUTION


def tree_broadcast(x: Tensor, comm, root: int = 0) -> None:
    """Overwrite `x` on every rank with rank `root`'s, in ⌈log2 p⌉ rounds.

    >>> on_ranks(tree_broadcast, p=3, n=1, root=2).results
    [[100], [100], [100]]
    """
    # BEGIN SOLUTION
    p, place = comm.size, (comm.rank - root) % comm.size
    distance = 1
    while distance < p:
        if place < distance and place + distance < p:
            comm.send(x, (comm.rank + distance) % p)
        elif distance <= place < 2 * distance:
            comm.recv(x, (comm.rank - distance) % p)
        distance *= 2
    # END SOLUTION


# %%
check("collectives.tree_reduce")

# %% [markdown]
# Try it with any `p`. The second number of the line is the number of rounds:

# %%
with when_solved():
    run = on_ranks(tree_reduce, p=6)
    print(run.results, f"after {run.seconds:.0f} rounds")

# %% [markdown]
# Now predict what *your* reduce does. These questions have no points; a run of your program gives the answers.

# %%
with when_solved():
    your_program(
        "collectives.tree_reduce",
        lambda comm: tree_reduce(torch.ones(1000), comm),
        p=7,
        on="a reduce of 1,000 numbers",
    )

# %% [markdown]
# ## Recursive doubling
#
# An all-reduce up the tree and down again takes $2\lceil\log_2 p\rceil$ rounds, and on the way down the ranks add
# nothing. Let all ranks take part instead. In round $k$ each rank swaps its partial sum with the rank at distance
# $2^k$, and both add. After one round every rank has the sum of two, then of four, then of eight. This takes $\log_2 p$
# rounds, half as many as the tree, and needs no root.
#
#     p = 4     start      a         b         c         d
#     round 1   0↔1 2↔3    a+b       a+b       c+d       c+d
#     round 2   0↔2 1↔3    a+b+c+d   a+b+c+d   a+b+c+d   a+b+c+d
#
# The partner of rank $r$ at distance $2^k$ is $r$ with bit $k$ flipped: `comm.rank ^ distance`. If $p$ is a power of
# two, every partner exists. Otherwise let $q$ be the largest power of two below $p$. First each rank $r \ge q$ sends
# its $x$ to rank $r - q$ (we say it is *folded* in). Then the first $q$ ranks do recursive doubling, and at the end
# they send the sum back.
#
# There is one more condition. Floating-point addition is not associative, so another order gives different last bits.
# If the bits of two copies of a network differ, the copies drift apart. So **every rank must end with the same bits**.
# Two partners compute $a+b$ and $b+a$, which are equal to the last bit.

# %% [markdown]
# {{exercise recursive_doubling_all_reduce}}
#
# Write recursive doubling for any number of ranks.
#
# <details><summary>Hint 1: powers of two first</summary>
#
# You need five lines: a second tensor for the received numbers; `distance` 1, 2, 4, ... below p; `sendrecv` with the
# partner; add.
# </details>
# <details><summary>Hint 2: a deadlock</summary>
#
# If both sides call `send` and then `recv`, they wait forever. `comm.sendrecv(x, partner, incoming, partner)` does both
# at once. It needs two tensors: you cannot receive into the tensor that you are sending.
# </details>
# <details><summary>Hint 3: any p</summary>
#
# `q = 1 << (comm.size.bit_length() - 1)`. A rank ≥ q sends its x to `rank - q`, receives the result from there, and
# returns. A rank r < q with r + q < p receives and adds this x before its first round, and sends the result after its
# last round.
# </details>


# %%
def recursive_doubling_all_reduce(x: Tensor, comm) -> None:
    """Sum `x` over the ranks, in place: log2 p rounds for p a power of two, ⌊log2 p⌋ + 2
    for any other p.

    x: any shape; every rank ends with the same bits.

    >>> on_ranks(recursive_doubling_all_reduce, p=3, n=1).results
    [[111], [111], [111]]
    """
    # BEGIN SOLUTION
    rank, q = comm.rank, 1 << (comm.size.bit_length() - 1)
    incoming = torch.empty_like(x)
    if rank >= q:
        comm.send(x, rank - q)
        comm.recv(x, rank - q)
        return
    if rank + q < comm.size:
        comm.recv(incoming, rank + q)
        x += incoming
    distance = 1
    while distance < q:
        comm.sendrecv(x, rank ^ distance, incoming, rank ^ distance)
        x += incoming
        distance *= 2
    if rank + q < comm.size:
        comm.send(x, rank + q)
    # END SOLUTION


# %%
check("collectives.recursive_doubling_all_reduce")

# %% [markdown]
# This is *your* function in the picture. Play it with 8 ranks and with 11.

# %%
topology.explorable(recursive_doubling_all_reduce)

# %% [markdown]
# With 7 ranks, three of them are folded in. Predict what *your* program does:

# %%
with when_solved():
    your_program(
        "collectives.recursive_doubling_all_reduce",
        lambda comm: recursive_doubling_all_reduce(torch.ones(1000), comm),
        p=7,
        on="1,000 numbers",
    )

# %% [markdown]
# ## Parameter servers
#
# The first large systems had **workers**, which compute gradients, and **servers**, which store the parameters and add
# up the gradients (Dean et al. 2012; Li et al. 2014). With one server it is the star, and the server's link carries
# $2(p-1)$ times $x$. Several servers share the work. Server $j$ owns share $j$ of $x$. Every worker sends each share to
# its owner, and gets the sums back.
#
# Here the servers are ranks 0 to `servers - 1`, and they are workers, too. The order matters. If all ranks begin with
# server 0, they queue there while the other servers are idle. So let rank $r$ send to rank $r + d \bmod p$ in round
# $d$. Then every server gets a message from a different rank in each round.
#
#     p = 4, servers 0 and 1:   round 1   0→1  3→0        (0 sends its share 1 to server 1, ...)
#                               round 2   2→0  3→1
#                               round 3   1→0  2→1

# %% [markdown]
# {{exercise parameter_server_all_reduce}}
#
# Write the all-reduce for any number of servers. `x` has one dimension. Share $j$ is `x.tensor_split(servers)[j]`. It
# is a view of `x`, so if you add to it, you change `x`. If there are more servers than elements, some shares are empty.
# You may still send them.
#
# <details><summary>Hint 1: in two halves</summary>
#
# First collect the shares: as a worker, send each share to its owner; as a server, receive p - 1 times and add. Then
# distribute the sums: as a server, send your share to all others; as a worker, receive each share from its owner.
# </details>
# <details><summary>Hint 2: a server is a worker, too</summary>
#
# It must send its own shares while it receives. `comm.isend` begins a message and returns at once. Collect the requests
# in a list, do all receives, and then `wait()` for the requests.
# </details>
# <details><summary>Hint 3: the order</summary>
#
# `others = [(comm.rank + d) % comm.size for d in range(1, comm.size)]` is the order for sending. A message sent d ranks
# up comes from d ranks down, so receive in the order of `reversed(others)`.
# </details>
# <details><summary>Hint 4: the first half</summary>
#
# Begin the sends of all shares that have a server, and keep the requests. A server then receives its share from every
# other rank, into a second tensor, and adds it to its own. Wait for the requests only after that. In the second half,
# the servers send and everybody receives.
# </details>


# %%
def parameter_server_all_reduce(x: Tensor, comm, servers: int = 1) -> None:
    """Sum `x` over the ranks, in place: ranks 0 to servers-1 each sum one share of `x`
    and send
    it to all.

    x: shape (n,). servers: 1 to comm.size. k servers take 1/k of one server's time for the
    bytes. Wait for every isend and irecv.

    >>> on_ranks(parameter_server_all_reduce, p=3, n=2, servers=2).results
    [[111, 111], [111, 111], [111, 111]]
    """
    # BEGIN SOLUTION
    shares = x.tensor_split(servers)
    others = [(comm.rank + d) % comm.size for d in range(1, comm.size)]
    requests = [comm.isend(shares[other], other) for other in others if other < servers]
    if comm.rank < servers:
        incoming = torch.empty_like(shares[comm.rank])
        for other in reversed(others):
            comm.recv(incoming, other)
            shares[comm.rank].add_(incoming)
    for request in requests:
        request.wait()
    requests = [comm.isend(shares[comm.rank], other) for other in others if comm.rank < servers]
    for other in reversed(others):
        if other < servers:
            comm.recv(shares[other], other)
    for request in requests:
        request.wait()
    # END SOLUTION


# %%
check("collectives.parameter_server_all_reduce")

# %% [markdown]
# Predict what *your* program does with two servers:

# %%
with when_solved():
    your_program(
        "collectives.parameter_server_all_reduce",
        lambda comm: parameter_server_all_reduce(torch.ones(1000), comm, servers=2),
        p=6,
        on="1,000 numbers on 2 servers",
    )

# %% [markdown]
# ## Nodes
#
# GPUs are grouped in nodes. A fast bus connects the GPUs of a node. The nodes share a network, where a message takes
# longer. A **hierarchical** all-reduce sends as little as possible over the network:
#
# 1. sum inside each node, to its first rank, the *leader*;
# 2. all-reduce between the leaders;
# 3. broadcast inside each node.
#
# `Group(comm, ranks)` makes a communicator of some of the ranks, with new numbers 0, 1, ... Only its members may make
# it. With groups, each of the three steps is one call, and you can use any all-reduce for the second.

# %% [markdown]
# {{exercise hierarchical_all_reduce}}
#
# Write these three steps. Ranks 0 to `per_node - 1` are the first node, and so on; the last node may be smaller. Use
# the library's functions, so that this exercise does not depend on those above: `reduce(x, comm)` and `broadcast(x,
# comm)` are the trees with root 0, `ring_all_reduce(x, comm)` is the ring.
#
# <details><summary>Hint 1: my node</summary>
#
# Its first rank is `comm.rank // per_node * per_node`. Its ranks are a `range` from there, up to at most `comm.size`.
# </details>
# <details><summary>Hint 2: the leaders</summary>
#
# They are `range(0, comm.size, per_node)`. Only a leader makes this group; the other ranks go straight to the third
# step and wait there.
# </details>


# %%
def hierarchical_all_reduce(x: Tensor, comm, per_node: int = 4) -> None:
    """Sum `x` over the ranks, in place: up a tree inside each node, between one leader per
    node, and down a tree inside each node.

    x: any shape. per_node: ranks of a node, 1 or more. Only the first rank of a node may
    send to or receive from other nodes.

    >>> on_ranks(hierarchical_all_reduce, p=3, n=1, per_node=2).results
    [[111], [111], [111]]
    """
    # BEGIN SOLUTION
    first = comm.rank // per_node * per_node
    node = Group(comm, range(first, min(first + per_node, comm.size)))
    reduce(x, node)
    if comm.rank == first:
        ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node)
    # END SOLUTION


# %%
check("collectives.hierarchical_all_reduce")

# %% [markdown]
# Predict what *your* nodes do:

# %%
with when_solved():
    your_program(
        "collectives.hierarchical_all_reduce",
        lambda comm: hierarchical_all_reduce(torch.ones(1000), comm, per_node=3),
        p=7,
        on="1,000 numbers, 3 ranks in a node",
    )

# %% [markdown]
# ## The cost
#
# You have seen it in the pictures: an algorithm takes as long as its *longest path*, the messages that must follow each
# other. With $\alpha$ seconds per message (latency) and $\beta$ seconds per byte ($1/\beta$ is the bandwidth), a
# message of $n$ bytes takes $\alpha + n\beta$ (Hockney 1994). An all-reduce takes
#
# $$ T = a\,\alpha + b\,n\beta, $$
#
# where $a$ is the number of messages in a row and $b\,n$ their bytes. You can read both from the algorithm:
#
# - **naive** and **parameter server** (with one server): $p-1$ messages of $n$ bytes into rank 0, one after the other,
#   and as many out of it.
# - **tree**: $\lceil\log_2 p\rceil$ rounds up and as many down, each with all $n$ bytes.
# - **ring**: $p-1$ steps that add and $p-1$ steps that pass on, each with a chunk of $n/p$ bytes.
# - **recursive doubling**: $\log_2 p$ rounds with $n$ bytes. If $p$ is not a power of two: the rounds for $q$ ranks,
#   and two more messages of $n$ bytes.
# - **Rabenseifner** (2004): each rank swaps *half* of its $x$ with a partner, then half of that half, until it has
#   summed $1/q$ of $x$. Then it goes the same way back. This takes $2\log_2 q$ rounds, and $n/2 + n/4 + \dots =
#   \frac{q-1}{q} n$ bytes each way. If $p$ is not a power of two, it folds, like recursive doubling.
# - **hierarchical** with four ranks per node: a tree all-reduce among $\min(p, 4)$ and a ring among $\lceil p/4 \rceil$.

# %% [markdown]
# {{exercise cost}}
#
# Write these formulas as one function. The check runs the library's algorithms on the simulated machine and compares
# your formula with the clock.
#
# <details><summary>Hint 1: whole rounds</summary>
#
# For a whole number p ≥ 1, $\lceil\log_2 p\rceil$ is `(p - 1).bit_length()` and $\lfloor\log_2 p\rfloor$ is
# `p.bit_length() - 1`, without rounding errors.
# </details>
# <details><summary>Hint 2: the folded ranks</summary>
#
# With k = ⌊log₂ p⌋ and q = 2ᵏ: if p > q, add 2 (alpha + nbytes · beta) to the cost for q.
# </details>
# <details><summary>Hint 3: hierarchical</summary>
#
# `cost` may call itself: `cost("tree", min(p, 4), ...) + cost("ring", ...)`.
# </details>


# %%
def cost(algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> float:
    """Seconds of an all-reduce of `nbytes` bytes over `p` ranks.

    algorithm: "naive", "ring", "tree", "recursive_doubling", "rabenseifner",
    "parameter_server" (one server) or "hierarchical" (nodes of four). alpha: seconds per
    message, beta: seconds per byte. The additions take no time here. One rank sends
    nothing: it takes 0 seconds.

    >>> cost("ring", 4, 1000, alpha=10.0, beta=0.01)  # 6 messages, 250 bytes each
    75.0
    """
    # BEGIN SOLUTION
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    q = 2**k
    folding = 2 * message if p > q else 0.0
    match algorithm:
        case "naive" | "parameter_server":
            return 2 * (p - 1) * message
        case "ring":
            return 2 * (p - 1) * (alpha + nbytes / p * beta)
        case "tree":
            return 2 * (p - 1).bit_length() * message
        case "recursive_doubling":
            return k * message + folding
        case "rabenseifner":
            return 2 * k * alpha + 2 * (q - 1) / q * nbytes * beta + folding
        case "hierarchical":
            return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    # END SOLUTION


# %%
check("collectives.cost")

# %% [markdown]
# The lecture on distributed deep learning has a table of these costs for $N$ workers and $M$ bytes. Here are its rows,
# how they grow, and the results of your formulas and this lab:
#
# | | lecture | latency grows as | bytes through one link | here |
# |---|---|---|---|---|
# | parameter server | $2\alpha + 2(N-1)M\beta$ | $O(1)$ | $O(MN)$ | $2(N-1)\alpha + 2(N-1)M\beta$ |
# | ring | $2(N-1)\alpha + 2\frac{N-1}{N} M\beta$ | $O(N)$ | $O(M)$ | the same |
# | tree | $2\alpha\log N + 2\log N\, M\beta$ | $O(\log(N))$ | $O(M \log(N))$ | the same, with $\log_2$ rounded up |
# | broadcast | $\alpha\log N + \log N\, M\beta$ | $O(\log(N))$ | $O(M \log(N))$ | the way down of `tree`: the same |
# | all-gather | $\alpha\log N + (N-1) M\beta$ | $O(\log(N))$ | $O(MN)$ | the second half of a ring: $(N-1)\alpha + (N-1)M\beta$ |
#
# In the last row *each* worker has $M$ bytes at the start, so the result has $NM$ bytes. Its latency is recursive
# doubling's, with messages that double from round to round.
#
# > **Read the columns before you continue.** Which rows can you not use for $10^9$ bytes on a thousand workers, and which not for $10^3$ bytes?
#
# <details><summary>Which ones?</summary>
#
# For $10^9$ bytes the bytes decide. With one server a link carries 1,998 times $M$, in the tree 20 times, in the ring
# less than twice. An all-gather cannot avoid this: each worker must receive the $NM$ bytes that it will hold. For
# $10^3$ bytes the number of messages in a row decides: 1,998 in the ring, 20 in the tree.
# </details>
#
# <details><summary>Why does the parameter server's latency differ? Who is right?</summary>
#
# In the lecture's model all workers send at the same time, so their latencies overlap, and only the bytes queue for the
# server's link. In our model the server handles one message after the other, each with its $\alpha$. Which is closer to
# reality depends on the cause of the latency. If it is the wire, latencies overlap. If it is the processor's work for
# each message, they do not. Only a measurement can decide, and that comes next.
# </details>

# %% [markdown]
# ## A real machine
#
# Now start MPI processes next to this notebook. *(The command behind it: `mpiexec -n 2 python ...`.)*

# %%
from hpcdl.cluster import Cluster, publish

ranks = max(2, min(4, cores()))
cluster = Cluster(n=ranks).start()
print(ranks, "engines")


# %% [markdown]
# **Ping-pong.** Ranks 0 and 1 send a message back and forth; half of a round trip is the time of one message. We
# measure each size nine times, and repeat small messages many times in a row. The function runs on the engines, and
# `publish` sends each number here while they continue.

# %%
guess(
    "collectives.message",
    "How long does a message of 4 bytes take, from one process to another on this machine?",
    unit="µs",
)


# %%
def ping_pong(comm, sizes, repeats=9):
    partner = 1 - comm.rank
    for nbytes in sizes if comm.rank < 2 else ():
        x = torch.zeros(nbytes // 4)
        times = max(1, min(50, 100_000 // nbytes))
        for repeat in range(-1, repeats):  # the first one warms up
            start = comm.clock()
            for _ in range(times):
                if comm.rank == 0:
                    comm.send(x, partner)
                comm.recv(x, partner)
                if comm.rank == 1:
                    comm.send(x, partner)
            if comm.rank == 0 and repeat >= 0:
                publish((nbytes, (comm.clock() - start) / (2 * times)))


sizes = [4 * 8**k for k in range(8)]  # 4 B to 8 MB
measured = [record.value for record in cluster.stream(ping_pong, sizes, timeout=60)]
nbytes, seconds = torch.tensor(measured, dtype=torch.float64).T
with when_solved():
    guessed("collectives.message")
    least = 1e6 * seconds[nbytes == 4].min()
    print(f"{len(nbytes)} measurements; 4 bytes took {least:.3g} µs at best")
    reveal("collectives.message", least)

# %% [markdown]
# First fit them **by hand**. The small dots are all measurements; the marks are the fastest of each size. Move α until
# the flat part on the left fits the marks, then β until the slope on the right does.

# %%
message_cost.explorable({"one message": (nbytes, seconds)})

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# α shifts the flat left end up and down and has no effect on the right. β shifts the ramp and has no effect on the
# left. They meet near $n = \alpha/\beta$. The line rarely goes through all dots. Between a few KB and some 100 KB MPI
# changes its method (it copies small messages at once, but large ones wait for the receiver), and large messages do not
# fit into the cache. The straight line is only a model. And some dots are far above the marks, because the machine was
# busy with something else.
# </details>

# %% [markdown]
# {{exercise fit_alpha_beta}}
#
# Write the fit. There are two difficulties.
#
# *Scale.* The longest message takes thousands of times as long as the shortest. Ordinary least squares would fit the
# longest messages, and α would get lost in the noise. So make the errors *relative*: minimize $\sum_i
# \left(\frac{\alpha + n_i\beta}{t_i} - 1\right)^2$, which is least squares again, with rows $(1/t_i,\; n_i/t_i)$ and
# right-hand sides 1.
#
# *Outliers.* Other work on the machine can make a message two or a hundred times as slow, but never faster. Each size
# was measured several times. Take one number per size, and choose it so that a few slow messages do not change it.
#
# <details><summary>Hint 1: one number per size</summary>
#
# `nbytes.unique()` are the sizes; `seconds[nbytes == size]` are the times of one of them. Their `min()` is the message
# with the least disturbance. (The median works, too, if fewer than half were disturbed; the mean does not.)
# </details>
# <details><summary>Hint 2: least squares in torch</summary>
#
# `torch.linalg.lstsq(A, b).solution` minimizes ‖A s − b‖². A has a row per size and two columns; `torch.stack([...], dim=1)` makes it from its columns.
# </details>


# %%
def fit_alpha_beta(nbytes: Tensor, seconds: Tensor) -> tuple[float, float]:
    """Alpha (seconds per message) and beta (seconds per byte) from measured times of
    messages.

    nbytes, seconds: shape (m,), float64; each size occurs several times, in any order,
    and some
    times are far too long.

    >>> # 1 + 0.01 n
    >>> fit_alpha_beta(torch.tensor([100.0, 100.0, 900.0]), torch.tensor([2.0, 2.0, 10.0]))
    (1.0, 0.01)
    """
    # BEGIN SOLUTION
    sizes = nbytes.unique()
    least = torch.stack([seconds[nbytes == size].min() for size in sizes])
    rows = torch.stack([1 / least, sizes / least], dim=1)
    alpha, beta = torch.linalg.lstsq(rows, torch.ones_like(least)).solution.tolist()
    return alpha, beta
    # END SOLUTION


# %%
check("collectives.fit_alpha_beta")

# %% [markdown]
# ## Measured against predicted
#
# Now run your algorithms on real processes. First the cell tests them on the simulated machine. Then they run on the
# engines, next to the library's, and your `cost` predicts their times with the α and β of your fit. Before you run the
# cell, guess: how far off will this two-parameter model be?


# %%
def tree_all_reduce(x, comm):
    tree_reduce(x, comm, 0)
    tree_broadcast(x, comm, 0)


def measure(comm, algorithms, sizes, repeats=9):
    for nbytes in sizes:
        for name, all_reduce in algorithms.items():
            x = torch.zeros(nbytes // 4)
            times = max(1, min(20, 100_000 // nbytes))
            for repeat in range(-1, repeats):
                comm.barrier()
                start = comm.clock()
                for _ in range(times):
                    all_reduce(x, comm)
                if comm.rank == 0 and repeat >= 0:
                    publish((name, nbytes, (comm.clock() - start) / times))


algorithms = {
    "naive": naive_all_reduce,
    "ring": ring_all_reduce,
    "tree": tree_all_reduce,
    "recursive_doubling": recursive_doubling_all_reduce,
    "parameter_server": parameter_server_all_reduce,
}
times = {name: ([], []) for name in algorithms}


def predict(name, size, alpha, beta):
    return cost(name, ranks, size, alpha, beta)


with when_solved():
    for name, all_reduce in algorithms.items():
        on_ranks(all_reduce, ranks)
        predict(name, 4, 1.0, 1.0)
    alpha, beta = fit_alpha_beta(nbytes, seconds)
    state = {"measured": times, "predict": predict, "alpha": alpha, "beta": beta, "shown": message_cost.ALL}
    with LiveFigure(message_cost.draw, (9.6, 4.4), layout=[["times", "ratio"]], width_ratios=[1.35, 1]) as live:
        for record in cluster.stream(measure, algorithms, sizes, timeout=120):
            name, size, second = record.value
            times[name][0].append(size)
            times[name][1].append(second)
            live.update(state)

# %% [markdown]
# Here you can look at one algorithm at a time. Move the sliders to see whether another α and β would explain it better.

# %%
with when_solved():
    alpha, beta = fit_alpha_beta(nbytes, seconds)
    display(message_cost.explorable(times, predict, alpha, beta))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The order of the algorithms and the shape of the curves are right: flat, then a ramp. This is enough to choose an
#   algorithm.
# - The fastest times are mostly within a factor of two or three of the prediction, and seldom much closer. Small
#   messages take longer than predicted, because α does not include Python's own work for each call, and with more
#   engines than cores a rank waits for a core. Large messages take longer, too, because additions take time (other
#   models have a third constant, γ, for them), and two messages in opposite directions share one memory bus.
# - At the dots far above their marks, the machine was busy with something else.
# </details>

# %%
cluster.stop()  # the engines are no longer needed: free their memory

# %% [markdown]
# ## Which one?
#
# Every cost is a straight line in $n$, with the start $a\,\alpha$ and the slope $b\,\beta$. Few messages in a row mean
# a low start, and few bytes a small slope, but no algorithm has both. So the best algorithm depends on $n$, and it
# changes where two lines cross:
#
# $$ a_1\alpha + b_1 n\beta = a_2\alpha + b_2 n\beta \quad\Longrightarrow\quad n = \frac{(a_1 - a_2)\,\alpha}{(b_2 - b_1)\,\beta}. $$

# %% [markdown]
# {{exercise best_algorithm}}
#
# Write the choice of an algorithm, and the size at which two of them cross. Both functions get `cost` as an argument.
# The default is your function; the check passes its own, with the same arguments.
#
# <details><summary>Hint 1: the minimum by a key</summary>
#
# `min(names, key=lambda name: ...)` gives the name with the smallest key.
# </details>
# <details><summary>Hint 2: start and slope of a line that you can only evaluate</summary>
#
# The cost of 0 bytes is the start. With alpha = 0, the cost of one byte is the slope.
# </details>
# <details><summary>Hint 3: when do they cross?</summary>
#
# One algorithm must start lower and the other must rise more slowly. Then numerator and denominator have the same sign
# and neither is 0. Otherwise one of them is better everywhere: `math.inf`.
# </details>

# %%
ALGORITHMS = (
    "naive",
    "ring",
    "tree",
    "recursive_doubling",
    "rabenseifner",
    "parameter_server",
    "hierarchical",
)


def best_algorithm(
    p: int,
    nbytes: float,
    alpha: float,
    beta: float,
    cost: Callable = cost,
) -> str:
    """The name of the cheapest all-reduce of ALGORITHMS; any of them if several are equal.

    >>> best_algorithm(2, 1000, alpha=1.0, beta=0.0)
    'recursive_doubling'
    """
    # BEGIN SOLUTION
    return min(ALGORITHMS, key=lambda name: cost(name, p, nbytes, alpha, beta))
    # END SOLUTION


def crossover(
    first: str,
    second: str,
    p: int,
    alpha: float,
    beta: float,
    cost: Callable = cost,
) -> float:
    """The number of bytes, above 0, at which two algorithms cost the same; math.inf if it
    does
    not exist.

    >>> crossover("tree", "ring", 4, alpha=1.0, beta=0.001)  # 4 + 0.004 n = 6 + 0.0015 n
    800.0
    """
    # BEGIN SOLUTION
    fewer_messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    more_per_byte = cost(second, p, 1, 0.0, beta) - cost(first, p, 1, 0.0, beta)
    return fewer_messages / more_per_byte if fewer_messages * more_per_byte > 0 else math.inf
    # END SOLUTION


# %%
check("collectives.best_algorithm")

# %% [markdown]
# ## The map
#
# The map shows, for each number of ranks and each size, the colour of the best algorithm by *your* `cost`. Move the
# cross with the first two sliders. The curves on the right show the cross's row of the map.
#
# 1. Move α. What happens to the map? And what if you then change β by the same factor?
# 2. Why do two colours alternate on the right side, like a comb?
# 3. Find a place where the wrong choice costs a factor of 100.

# %%
best_map.explorable(cost)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. It slides sideways, and then it slides back. Only the ratio α/β matters: it is the size at which a message's
#    latency costs as much as its bytes.
# 2. Rabenseifner needs a power of two. For 12, 24, 48 ranks it must fold, which costs two messages of all $n$ bytes.
#    The ring works for any $p$, so it wins as soon as $n$ is large. For 16, 32, 64 Rabenseifner sends no more bytes
#    than the ring, but in far fewer rounds.
# 3. In the upper right corner: 1,024 ranks and 1 GB through one server, naive, takes a thousand times as long as
#    Rabenseifner.
#
# `hierarchical` is nowhere on the map: if all links are equal, nodes gain nothing. See below.
# </details>

# %% [markdown]
# ## 1,024 ranks
#
# You measured a few processes. How long would an all-reduce take over the same links with 1,024? Take the gradients of
# ResNet-50, 25.5 million weights of 4 bytes each: 102 MB. The curves are your `cost` with your α and β. The crosses are
# the real algorithms, run on the simulated machine with that many ranks.

# %%
guess(
    "collectives.naive",
    "1,024 ranks, everything through one of them: how many times as long as with the best algorithm?",
    unit="times",
)


# %%
def virtual_seconds(name: str, p: int, nbytes: float, alpha: float, beta: float) -> float:
    """The all-reduce itself on p simulated ranks; 4p bytes represent nbytes."""

    def rank(comm):
        ALL_REDUCE[name](torch.zeros(p), comm)

    return simulate(rank, p, alpha=alpha, beta=beta * nbytes / (4 * p)).seconds


gradients = 102e6
with when_solved():
    guessed("collectives.naive")
    alpha, beta = fit_alpha_beta(nbytes, seconds)
    best = best_algorithm(1024, gradients, alpha, beta)
    figure, axes = plt.subplots(figsize=(9.6, 4.2), layout="constrained")
    many = [2**k for k in range(1, 11)]
    for name in ("naive", "tree", "recursive_doubling", "ring", "rabenseifner"):
        (line,) = axes.loglog(many, [cost(name, p, gradients, alpha, beta) for p in many], label=name.replace("_", " "))
        checked = [4, 16, 64]
        simulated = [virtual_seconds(name, p, gradients, alpha, beta) for p in checked]
        axes.loglog(checked, simulated, "x", color=line.get_color(), markersize=9, markeredgewidth=2)
    axes.set(xlabel="ranks p", ylabel="seconds", title="All-reduce of 102 MB over links like these")
    axes.set_xticks(many, many)
    axes.minorticks_off()
    axes.legend()
    plt.show()
    naive_time, best_time = (cost(name, 1024, gradients, alpha, beta) for name in ("naive", best))
    print(
        f"1,024 ranks: {best} takes {best_time:.3g} s, naive {naive_time:.3g} s, {naive_time / best_time:.0f} times as long."
    )
    reveal("collectives.naive", naive_time / best_time)

# %% [markdown]
# **And nodes?** The lectures' case study has nodes of 8 GPUs with 100 Gb/s Ethernet between them, β = 80 ps per byte.
# The other numbers of this table are assumptions, so look only at the trend: α = 20 µs between nodes, 5 µs and 100 ps
# per byte inside. A flat ring takes all $2(p-1)$ steps at the speed of the slowest link.

# %%
from hpcdl.cost import collectives as library

network, inside = (20e-6, 80e-12), (5e-6, 100e-12)
print(f"{'':>12}{'1 MB':>28}{'100 MB':>28}")
print(f"{'GPUs':>12}{'flat ring':>14}{'hierarchical':>14}{'flat ring':>14}{'hierarchical':>14}")
for p in (8, 64, 512, 1024, 2048):
    row = []
    for size in (1_024_000, 102_400_000):
        flat = max(library.ring(p, size, *links) for links in ((network, inside) if p > 8 else (inside,)))
        row += [flat, library.hierarchical(p, size, *network, per_node=8, within=inside)]
    print(f"{p:>12}" + "".join(f"{1e3 * value:>11.2f} ms" for value in row))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# For 1 MB latency dominates the flat ring: 4,094 messages in a row for 2,048 GPUs. With one leader per node there are
# 256 ranks in the ring, so an eighth of the messages. For 100 MB the flat ring is the better one up to 1,024 GPUs: it
# sends each byte twice, while the trees inside a node send all of $x$ in each round. So systems use both, one for small
# tensors and the other for large ones: the "hybrid all-reduce" of the case study (Jia et al. 2018).
# </details>

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, are hierarchical all-reduces: they sum a number over the ranks, in place, and only the
# first rank of a node talks to other nodes. Four are right, each written in its own way. The other four are impostors,
# which are right for many inputs. You do not see their code. You choose the machine.

# %% [markdown]
# {{exercise unmask_nodes}}
#
# Return a list of at most 12 inputs, each a tuple `(p, per_node)`: `p` ranks, 1 to 9, in nodes of `per_node`, 1 to 9; the last node may be smaller.
#
# You unmask a program if some rank does not have the sum, or if a rank other than the first of its node talks to
# another node. Each impostor that you unmask earns two points. You get two more points if you unmask a program and all
# your inputs follow the rules; an input that breaks them does not count. The check shows which programs you have
# caught, and with which input. Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# Think about nodes: how many there are, how large they are, and whether all have the same size.
# </details>
# <details><summary>Hint 2: extreme machines</summary>
#
# Try one node for all ranks, one rank in each node, and a last node that is not full. A machine like the exercise's
# default unmasks few.
# </details>


# %%
def unmask_nodes() -> list[tuple[int, int]]:
    """Inputs (p, per_node) for which the impostors among the eight programs are wrong.

    Returns at most 12 tuples.

    An input that unmasks none of them:

        [(8, 4)]
    """
    # BEGIN SOLUTION
    return [
        (5, 1),  # nodes of one rank
        (5, 5),  # one node
        (7, 3),  # a last node that is smaller
        (8, 2),  # full nodes, of another size than four
    ]
    # END SOLUTION


# %%
check("collectives.unmask_nodes")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **A** makes nodes of four ranks for every per_node.
# - **D** counts ⌊p / per_node⌋ nodes.
# - **F** does not broadcast the sum if there is only one node.
# - **H** does nothing if a node has one rank.
#
# A's sums are right on every machine. Only its *messages* show the mistake, so this course's checks also read traces.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# A ring uses each link in one direction. Cut the tensor in two. Send one half around to the right and the other half
# around to the left, with `isend` and `irecv` to both neighbours. *Proof:* the sums are right for $p$ = 2 … 9. The
# simulated machine's ranks have only one port to send, and its clock shows $4(p-1)\alpha + 2\frac{p-1}{p} n\beta$. Why
# do you gain nothing? What would it be with a port for each neighbour, and what is it between your engines?

# %% [markdown]
# ## Further reading
#
# - R. W. Hockney 1994, "The communication challenge for MPP: Intel Paragon and Meiko CS-2": the origin of $\alpha +
#   n\beta$.
# - R. Thakur, R. Rabenseifner and W. Gropp 2005, "Optimization of collective communication operations in MPICH": how a
#   library chooses: your map, but measured.
# - R. Rabenseifner 2004, "Optimization of collective reduction operations": halving and doubling.
# - P. Patarasuk and X. Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations": why no all-reduce sends fewer bytes than the ring.
# - M. Li et al. 2014, "Scaling distributed machine learning with the parameter server".
# - X. Jia et al. 2018, "Highly scalable deep learning training system with mixed-precision: training ImageNet in four minutes": the hierarchical and the hybrid
#   all-reduce.
