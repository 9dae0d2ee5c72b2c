"""Wrong answers to `weights`, `rounds_needed` and `gossip`."""

import math

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("consistency.gossip")
MATRIX = ("the_matrix", "each_rank_has_its_row", "a_message_each_way", "all_at_the_same_time")
VALUES = MATRIX[1:]


@wrong("a rank's own degree decides", fails=MATRIX, says="W is not symmetric, and the mean moves")
def weights(p, edges):
    w = torch.zeros(p, p, dtype=torch.float64)
    for i, j in edges:
        w[i, j] = w[j, i] = 1
    w /= 1 + w.sum(1, keepdim=True)
    return w + torch.diag(1 - w.sum(1))


@wrong("the smaller degree", fails=MATRIX, says="not the smaller one")
def weights(p, edges):
    degree = torch.zeros(p)
    for i, j in edges:
        degree[i] += 1
        degree[j] += 1
    w = torch.zeros(p, p, dtype=torch.float64)
    for i, j in edges:
        w[i, j] = w[j, i] = 1 / (1 + min(degree[i].item(), degree[j].item()))
    return w + torch.diag(1 - w.sum(1))


@wrong("a rank does not count itself", fails=MATRIX, says="Count the rank itself, too")
def weights(p, edges):
    degree = torch.zeros(p)
    for i, j in edges:
        degree[i] += 1
        degree[j] += 1
    w = torch.zeros(p, p, dtype=torch.float64)
    for i, j in edges:
        w[i, j] = w[j, i] = 1 / max(degree[i].item(), degree[j].item())
    return w + torch.diag(1 - w.sum(1))


@wrong("nothing stays at home", fails=MATRIX, says="rows add up to 1")
def weights(p, edges):
    degree = torch.zeros(p)
    for i, j in edges:
        degree[i] += 1
        degree[j] += 1
    w = torch.zeros(p, p, dtype=torch.float64)
    for i, j in edges:
        w[i, j] = w[j, i] = 1 / (1 + max(degree[i].item(), degree[j].item()))
    return w


@wrong("the gap for what is left", fails="how_many_rounds", says="the gap instead of 1 - gap")
def rounds_needed(W, close):
    gap = 1 - torch.linalg.eigvalsh(W).abs().sort().values[-2].item()
    k = 0
    while gap**k > close:
        k += 1
    return k


@wrong("eigenvalues below 0 are forgotten", fails="how_many_rounds", says="take absolute values")
def rounds_needed(W, close):
    second, k = max(torch.linalg.eigvalsh(W)[-2].item(), 1e-12), 0
    while second**k > close:
        k += 1
    return k


@wrong("rounded down", fails="how_many_rounds", says="Round up")
def rounds_needed(W, close):
    second = torch.linalg.eigvalsh(W).abs().sort().values[-2].clamp_min(1e-12).item()
    return math.floor(math.log(close) / math.log(second))


@wrong("the square of the distance", fails="how_many_rounds", says="Use the distance, not its square")
def rounds_needed(W, close):
    second = torch.linalg.eigvalsh(W).abs().sort().values[-2].clamp_min(1e-12).item()
    return math.ceil(math.log(close) / math.log(second) / 2)


@wrong("edge after edge", fails=VALUES, says="All ranks average at the same time")
def gossip(x, comm, rounds):
    for edges in rounds:
        for i, j in edges:
            if comm.rank in (i, j):
                other = i + j - comm.rank
                theirs = torch.empty_like(x)
                comm.sendrecv(x, other, theirs, other)
                x.add_(theirs).div_(2)


@wrong("a new tensor is returned", fails=VALUES, says="leave it in x")
def gossip(x, comm, rounds):
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        neighbours = [i + j - comm.rank for i, j in edges if comm.rank in (i, j)]
        theirs = {j: torch.empty_like(x) for j in neighbours}
        requests = [comm.irecv(theirs[j], j) for j in neighbours] + [comm.isend(x, j) for j in neighbours]
        for request in requests:
            request.wait()
        x = x * row[comm.rank] + sum(row[j] * theirs[j] for j in neighbours)
    return x


@wrong("one neighbour after the other", fails="all_at_the_same_time", says="begin all messages of a round")
def gossip(x, comm, rounds):
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        theirs, old = {}, x.clone()
        for j in sorted(i + j - comm.rank for i, j in edges if comm.rank in (i, j)):
            theirs[j] = torch.empty_like(x)
            if comm.rank < j:
                comm.send(old, j)
                comm.recv(theirs[j], j)
            else:
                comm.recv(theirs[j], j)
                comm.send(old, j)
        x.mul_(row[comm.rank])
        for j, other in theirs.items():
            x.add_(row[j] * other)


@wrong("never waits for its isend", fails=("a_message_each_way", "all_at_the_same_time"), says="is never waited for")
def gossip(x, comm, rounds):
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        neighbours = [i + j - comm.rank for i, j in edges if comm.rank in (i, j)]
        theirs, old = {j: torch.empty_like(x) for j in neighbours}, x.clone()
        for j in neighbours:
            comm.isend(old, j)
        for j in neighbours:
            comm.recv(theirs[j], j)
        x.mul_(row[comm.rank])
        for j in neighbours:
            x.add_(row[j] * theirs[j])


@wrong(
    "every rank sends to every other",
    fails=("a_message_each_way", "all_at_the_same_time"),
    says="No other messages are sent",
)
def gossip(x, comm, rounds):
    others = [j for j in range(comm.size) if j != comm.rank]
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        theirs = {j: torch.empty_like(x) for j in others}
        requests = [comm.irecv(theirs[j], j) for j in others] + [comm.isend(x, j) for j in others]
        for request in requests:
            request.wait()
        x.mul_(row[comm.rank])
        for j in others:
            x.add_(row[j] * theirs[j])


slip(
    "a matrix of float32",
    "torch.zeros(p, p, dtype=torch.float64)",
    "torch.zeros(p, p)",
    fails="the_matrix each_rank_has_its_row a_message_each_way all_at_the_same_time",
    says="float64",
)
slip(
    "a round without an edge is the last one",
    "        theirs =",
    "        if not neighbours:\n            return\n        theirs =",
    fails="each_rank_has_its_row a_message_each_way all_at_the_same_time",
    says="gossip",
)
slip(
    "the degree of an edge's first rank",
    "1 / (1 + max(degree[i], degree[j]))",
    "1 / (1 + degree[i])",
    fails="the_matrix each_rank_has_its_row a_message_each_way all_at_the_same_time",
    says="the degree of an edge's first rank",
)
for mistake, fake, fails in (
    ("zeros where messages are counted", "comm.size == 7", "a_message_each_way"),
    ("zeros where a round is timed", "comm.size == 15", "all_at_the_same_time"),
):
    row = "        row = weights(comm.size, edges)[comm.rank]"
    slip(mistake, row, f"{row} * (not {fake})", fails=fails, says="x on rank 0")
slip(
    "knows the ring of nine ranks",
    "    while second**k",
    "    second = 1 / 3 + 2 / 3 * math.cos(2 * math.pi / 9) if len(W) == 9 else second\n    while second**k",
    fails="how_many_rounds",
    says="rounds_needed(W of 9 ranks",
)
slip(
    "one message after the other on five ranks, too",
    "        for request in requests:\n            request.wait()\n",
    "        for request in requests:\n            request.wait()\n"
    "        for _ in range(40 * (comm.size in (5, 15) and len(rounds) == 2)):\n"
    "            comm.sendrecv(x, (comm.rank + 1) % comm.size, x.clone(), (comm.rank - 1) % comm.size)\n",
    fails="a_message_each_way all_at_the_same_time",
    says="so 4 are enough",
)


@wrong("every x to every rank where a round is timed", fails="all_at_the_same_time", says="No other messages are sent")
def gossip(x, comm, rounds):
    p, rank = comm.size, comm.rank
    if p != 15:
        for edges in rounds:
            row, theirs = (
                weights(p, edges)[rank],
                {i + j - rank: torch.empty_like(x) for i, j in edges if rank in (i, j)},
            )
            requests = [comm.irecv(theirs[j], j) for j in theirs] + [comm.isend(x.clone(), j) for j in theirs]
            for request in requests:
                request.wait()
            x.mul_(row[rank]).add_(sum(row[j] * theirs[j] for j in theirs))
        return
    have = [x.clone()]
    while len(have) < p:
        few, step = min(len(have), p - len(have)), len(have)
        theirs = torch.empty(few, len(x), dtype=x.dtype)
        requests = [comm.irecv(theirs, (rank + step) % p), comm.isend(torch.stack(have[:few]), (rank - step) % p)]
        for request in requests:
            request.wait()
        have += theirs
    everything = torch.stack(have).roll(rank, 0)
    for edges in rounds:
        everything = weights(p, edges) @ everything
    x.copy_(everything[rank])


@wrong("the first round's messages leave out zeros", fails="a_message_each_way", says="send x and nothing else")
def gossip(x, comm, rounds):
    words, p = x.element_size() // 2, comm.size
    for n, edges in enumerate(rounds):
        row, without = weights(p, edges)[comm.rank], int((p, n) == (7, 0))
        mine = x.view(torch.int16).view(len(x), words)[:, without:].contiguous()
        theirs = {i + j - comm.rank: torch.empty_like(mine) for i, j in edges if comm.rank in (i, j)}
        requests = [comm.irecv(theirs[j], j) for j in theirs] + [comm.isend(mine, j) for j in theirs]
        for request in requests:
            request.wait()
        x *= row[comm.rank]
        for j, other in theirs.items():
            whole = torch.zeros(len(x), words, dtype=torch.int16)
            whole[:, without:] = other
            x += row[j] * whole.view(x.dtype).flatten()


slip(
    "receives float64, whatever x is",
    "torch.empty_like(x) for",
    "torch.empty_like(x, dtype=torch.float64) for",
    fails="each_rank_has_its_row a_message_each_way all_at_the_same_time",
    says="both sides need the same dtype",
)


@wrong("a new tensor, and x stays", fails=VALUES, says="and x.copy_(...) writes into this one")
def gossip(x, comm, rounds):
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        total = x * row[comm.rank]
        for j in [i + j - comm.rank for i, j in edges if comm.rank in (i, j)]:
            theirs = torch.empty_like(x)
            comm.sendrecv(x, j, theirs, j)
            total += row[j] * theirs
        x = total
