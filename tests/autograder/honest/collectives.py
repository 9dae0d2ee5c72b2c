"""Lab 08 answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% tree_reduce: recursion over distances
def tree_reduce(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size

    def rounds(distance):
        if distance >= p:
            return
        rounds(2 * distance)
        if place < distance and place + distance < p:
            incoming = torch.zeros_like(x)
            comm.recv(incoming, (place + distance + root) % p)
            x.add_(incoming)
        elif distance <= place < 2 * distance:
            comm.send(x, (place - distance + root) % p)

    rounds(1)


def tree_broadcast(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    for distance in (2**k for k in range((p - 1).bit_length())):
        if place < distance:
            if place + distance < p:
                comm.send(x, (comm.rank + distance) % p)
        elif place < 2 * distance:
            comm.recv(x, (comm.rank - distance) % p)


# %% tree_reduce: the lowest bit says who the parent is
def tree_reduce(x, comm, root=0):
    p = comm.size
    place = (comm.rank - root) % p
    bit, incoming = 1, x.clone()
    while bit < p:
        if place & bit:
            comm.send(x, (place - bit + root) % p)
            return
        if place + bit < p:
            comm.recv(incoming, (place + bit + root) % p)
            x += incoming
        bit <<= 1


def tree_broadcast(x, comm, root=0):
    p = comm.size
    place = (comm.rank - root) % p
    top = 1
    while top < p:
        top *= 2
    bit = place & -place if place else top
    if place:
        comm.recv(x, (place - bit + root) % p)
    bit //= 2
    while bit:
        if place + bit < p:
            comm.send(x, (place + bit + root) % p)
        bit //= 2


# %% tree_reduce: lists of pairs, made first
import math


def pairs(p):
    depth = math.ceil(math.log2(p)) if p > 1 else 0
    return [[(q, q + 2**k) for q in range(2**k) if q + 2**k < p] for k in range(depth)]


def tree_reduce(x, comm, root=0):
    rank_of = lambda place: (place + root) % comm.size
    for level in reversed(pairs(comm.size)):
        for parent, child in level:
            if comm.rank == rank_of(child):
                comm.send(x, rank_of(parent))
            elif comm.rank == rank_of(parent):
                incoming = torch.empty_like(x)
                comm.recv(incoming, rank_of(child))
                comm.accumulate(x, incoming)


def tree_broadcast(x, comm, root=0):
    rank_of = lambda place: (place + root) % comm.size
    for level in pairs(comm.size):
        for parent, child in level:
            if comm.rank == rank_of(parent):
                comm.send(x, rank_of(child))
            if comm.rank == rank_of(child):
                comm.recv(x, rank_of(parent))


# %% recursive_doubling_all_reduce: isend and irecv
def recursive_doubling_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    q = 1
    while 2 * q <= p:
        q *= 2
    if rank >= q:
        comm.send(x, rank - q)
        comm.recv(x, rank - q)
        return
    folded = rank + q < p
    other = torch.empty_like(x)
    if folded:
        comm.recv(other, rank + q)
        x += other
    bit = 1
    while bit < q:
        requests = comm.isend(x, rank ^ bit), comm.irecv(other, rank ^ bit)
        for request in requests:
            request.wait()
        x += other
        bit <<= 1
    if folded:
        comm.send(x, rank + q)


# %% recursive_doubling_all_reduce: the lower one sends first
def recursive_doubling_all_reduce(x, comm):
    rank, p = comm.rank, comm.size
    q = 2 ** int(math.log2(p))
    incoming = torch.zeros_like(x)
    if rank < q:
        if rank + q < p:
            comm.recv(incoming, rank + q)
            x.add_(incoming)
        for k in range(int(math.log2(q))):
            partner = rank ^ (1 << k)
            comm.sendrecv(x.clone(), partner, incoming, partner)
            x.add_(incoming)
        if rank + q < p:
            comm.send(x, rank + q)
    else:
        comm.send(x, rank - q)
        comm.recv(x, rank - q)


# %% recursive_doubling_all_reduce: neighbours in pairs are folded, the largest distance first
def recursive_doubling_all_reduce(x, comm):
    q = 1 << (comm.size.bit_length() - 1)
    extra = comm.size - q
    incoming = torch.empty_like(x)
    if comm.rank >= q:
        comm.send(x, comm.rank - q)
    elif comm.rank < extra:
        comm.recv(incoming, comm.rank + q)
        x += incoming
    if comm.rank < q:
        distance = q // 2
        while distance >= 1:
            partner = comm.rank + distance if comm.rank % (2 * distance) < distance else comm.rank - distance
            comm.sendrecv(x, partner, incoming, partner)
            x.copy_(x + incoming)
            distance //= 2
    if comm.rank >= q:
        comm.recv(x, comm.rank - q)
    elif comm.rank < extra:
        comm.send(x, comm.rank + q)


# %% parameter_server_all_reduce: everything posted at once
def parameter_server_all_reduce(x, comm, servers=1):
    p, r = comm.size, comm.rank
    shares = x.tensor_split(servers)
    up = [(r + d) % p for d in range(1, p)]
    down = [(r - d) % p for d in range(1, p)]
    sends = [comm.isend(shares[s], s) for s in up if s < servers]
    if r < servers:
        buffers = {w: torch.empty_like(shares[r]) for w in down}
        receives = [(w, comm.irecv(buffers[w], w)) for w in down]
        for w, request in receives:
            request.wait()
            shares[r].add_(buffers[w])
    for request in sends:
        request.wait()
    if r < servers:
        sends = [comm.isend(shares[r], w) for w in up]
    receives = [comm.irecv(shares[s], s) for s in down if s < servers]
    for request in [*sends, *receives]:
        request.wait()


# %% parameter_server_all_reduce: round by round
def parameter_server_all_reduce(x, comm, servers=1):
    p, rank = comm.size, comm.rank
    shares = x.tensor_split(servers)
    is_server = rank < servers

    def exchange(what_for, into_from):
        for d in range(1, p):
            there, here = (rank + d) % p, (rank - d) % p
            request = what_for(there)
            into_from(here)
            if request is not None:
                request.wait()

    def add_from(other):
        if is_server:
            incoming = torch.empty_like(shares[rank])
            comm.recv(incoming, other)
            shares[rank].add_(incoming)

    def take_from(other):
        if other < servers:
            comm.recv(shares[other], other)

    exchange(lambda to: comm.isend(shares[to], to) if to < servers else None, add_from)
    exchange(lambda to: comm.isend(shares[rank], to) if is_server else None, take_from)


# %% parameter_server_all_reduce: a list of what comes in, summed at the end
def parameter_server_all_reduce(x, comm, servers=1):
    shares = list(x.tensor_split(servers))
    turn = [(comm.rank + d) % comm.size for d in range(1, comm.size)]
    mine = shares[comm.rank] if comm.rank < servers else None
    pending = [comm.isend(shares[server].clone(), server) for server in turn if server < servers]
    if mine is not None:
        arrived = []
        for worker in turn[::-1]:
            arrived.append(torch.empty_like(mine))
            comm.recv(arrived[-1], worker)
        mine.copy_(torch.stack([mine, *arrived]).sum(0))
    while pending:
        pending.pop().wait()
    if mine is not None:
        pending = [comm.isend(mine, worker) for worker in turn]
    for server in turn[::-1]:
        if server < servers:
            comm.recv(shares[server], server)
    while pending:
        pending.pop().wait()


# %% hierarchical_all_reduce: divmod, and sets of ranks as lists
def hierarchical_all_reduce(x, comm, per_node=4):
    node, place = divmod(comm.rank, per_node)
    members = [rank for rank in range(comm.size) if rank // per_node == node]
    leaders = [rank for rank in range(comm.size) if rank % per_node == 0]
    inside = Group(comm, members)
    reduce(x, inside)
    if place == 0:
        ring_all_reduce(x, Group(comm, leaders))
    broadcast(x, inside)


# %% hierarchical_all_reduce: one's own doubling between the leaders
def hierarchical_all_reduce(x, comm, per_node=4):
    start = comm.rank - comm.rank % per_node
    node = Group(comm, range(start, min(start + per_node, comm.size)))
    reduce(x, node)
    if node.rank == 0:
        recursive_doubling_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node)


# %% hierarchical_all_reduce: one's own trees inside
def hierarchical_all_reduce(x, comm, per_node=4):
    first = per_node * (comm.rank // per_node)
    node = Group(comm, [r for r in range(first, first + per_node) if r < comm.size])
    tree_reduce(x, node)
    if comm.rank % per_node == 0:
        ring_all_reduce(x, comm=Group(comm, range(0, comm.size, per_node)))
    tree_broadcast(x, node)


# %% cost: a dictionary of starts and slopes
def cost(algorithm, p, nbytes, alpha, beta):
    up, down = math.ceil(math.log2(p)), math.floor(math.log2(p))
    q = 2**down
    fold = 2 if q < p else 0
    small, nodes = min(p, 4), math.ceil(p / 4)
    table = {
        "naive": (2 * p - 2, 2 * p - 2),
        "parameter_server": (2 * p - 2, 2 * p - 2),
        "ring": (2 * p - 2, 2 * (p - 1) / p),
        "tree": (2 * up, 2 * up),
        "recursive_doubling": (down + fold, down + fold),
        "rabenseifner": (2 * down + fold, 2 * (1 - 1 / q) + fold),
        "hierarchical": (
            2 * math.ceil(math.log2(small)) + 2 * (nodes - 1),
            2 * math.ceil(math.log2(small)) + 2 * (nodes - 1) / nodes,
        ),
    }
    a, b = table[algorithm]
    return a * alpha + b * nbytes * beta


# %% cost: early returns, rounds that are counted by loops
def log2_up(p):
    k = 0
    while 2**k < p:
        k += 1
    return k


def cost(algorithm, p, nbytes, alpha, beta):
    def message(n):
        return alpha + beta * n

    if algorithm in ("naive", "parameter_server"):
        return 2 * (p - 1) * message(nbytes)
    if algorithm == "ring":
        return sum(message(nbytes / p) for _ in range(2 * (p - 1)))
    if algorithm == "tree":
        return 2 * log2_up(p) * message(nbytes)
    if algorithm == "hierarchical":
        inside = 2 * log2_up(min(p, 4)) * message(nbytes)
        return inside + cost("ring", (p + 3) // 4, nbytes, alpha, beta)
    q = 1
    while 2 * q <= p:
        q *= 2
    seconds = 2 * message(nbytes) if q != p else 0
    part = nbytes
    while q > 1:
        part /= 2
        seconds += message(nbytes) if algorithm == "recursive_doubling" else 2 * message(part)
        q //= 2
    return seconds


# %% cost: a function each
def cost(algorithm, p, nbytes, alpha, beta):
    def naive(p):
        return 2 * (p - 1) * (alpha + nbytes * beta)

    parameter_server = naive

    def ring(p):
        return 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta

    def tree(p):
        return 2 * len(f"{p - 1:b}") * (alpha + nbytes * beta) if p > 1 else 0.0

    def recursive_doubling(p):
        k = p.bit_length() - 1
        return (k + 2 * (p != 2**k)) * (alpha + nbytes * beta)

    def rabenseifner(p):
        k = p.bit_length() - 1
        swaps = sum(2 * (alpha + nbytes / 2**i * beta) for i in range(1, k + 1))
        return swaps + (p != 2**k) * 2 * (alpha + nbytes * beta)

    def hierarchical(p):
        return tree(min(p, 4)) + ring(-(-p // 4))

    return locals()[algorithm](p)


# %% fit_alpha_beta: the normal equations by hand, medians
def fit_alpha_beta(nbytes, seconds):
    sizes = torch.unique(nbytes)
    t = torch.stack([seconds[nbytes == n].median() for n in sizes])
    a, b = 1 / t, sizes / t
    det = (a @ a) * (b @ b) - (a @ b) ** 2
    alpha = (a.sum() * (b @ b) - b.sum() * (a @ b)) / det
    beta = (b.sum() * (a @ a) - a.sum() * (a @ b)) / det
    return alpha.item(), beta.item()


# %% fit_alpha_beta: a dictionary of minima, NumPy's least squares
import numpy as np


def fit_alpha_beta(nbytes, seconds):
    least = {}
    for n, t in zip(nbytes.tolist(), seconds.tolist()):
        least[n] = min(t, least.get(n, float("inf")))
    A = np.array([[1 / t, n / t] for n, t in least.items()])
    solution, *_ = np.linalg.lstsq(A, np.ones(len(A)), rcond=None)
    return float(solution[0]), float(solution[1])


# %% fit_alpha_beta: the pseudo-inverse, and tensors of no dimension
def fit_alpha_beta(nbytes, seconds):
    sizes, which = nbytes.unique(return_inverse=True)
    least = torch.full_like(sizes, torch.inf).scatter_reduce(0, which, seconds, "amin")
    rows = torch.stack([torch.ones_like(least), sizes], 1) / least[:, None]
    alpha, beta = torch.linalg.pinv(rows).sum(1)
    return alpha, beta


# %% fit_alpha_beta: weighted mean lines
def fit_alpha_beta(nbytes, seconds):
    sizes = sorted(set(nbytes.tolist()))
    times = [min(t for m, t in zip(nbytes.tolist(), seconds.tolist()) if m == n) for n in sizes]
    weights = [1 / t**2 for t in times]
    total = sum(weights)
    mean_n = sum(w * n for w, n in zip(weights, sizes)) / total
    mean_t = sum(w * t for w, t in zip(weights, times)) / total
    above = sum(w * (n - mean_n) * (t - mean_t) for w, n, t in zip(weights, sizes, times))
    beta = above / sum(w * (n - mean_n) ** 2 for w, n in zip(weights, sizes))
    return mean_t - beta * mean_n, beta


# %% best_algorithm: a loop, and a line through two points
def best_algorithm(p, nbytes, alpha, beta, cost=cost):
    best, least = None, math.inf
    for name in ALGORITHMS:
        if (seconds := cost(name, p, nbytes, alpha, beta)) < least:
            best, least = name, seconds
    return best


def crossover(first, second, p, alpha, beta, cost=cost):
    def line(name):
        start = cost(name, p, 0, alpha, beta)
        return start, (cost(name, p, 2**20, alpha, beta) - start) / 2**20

    (start1, slope1), (start2, slope2) = line(first), line(second)
    if math.isclose(start1, start2) or math.isclose(slope1, slope2):
        return math.inf
    n = (start1 - start2) / (slope2 - slope1)
    return n if n > 0 else math.inf


# %% best_algorithm: sorted, and parts with one constant at a time
def best_algorithm(p, nbytes, alpha, beta, cost=cost):
    return sorted(ALGORITHMS, key=lambda a: cost(a, p, nbytes, alpha, beta))[0]


def crossover(first, second, p, alpha, beta, cost=cost):
    messages = [cost(name, p, 1, 1.0, 0.0) for name in (first, second)]
    traffic = [cost(name, p, 1, 0.0, 1.0) for name in (first, second)]
    a, b = messages[0] - messages[1], traffic[1] - traffic[0]
    if a == 0 or b == 0 or (a > 0) != (b > 0):
        return math.inf
    return a * alpha / (b * beta)


# %% best_algorithm: a dictionary, and an exception
def best_algorithm(p, nbytes, alpha, beta, cost=cost):
    seconds = {name: cost(name, p, nbytes, alpha, beta) for name in ALGORITHMS}
    return min(seconds, key=seconds.get)


def crossover(first, second, p, alpha, beta, cost=cost):
    difference = lambda n, a: cost(first, p, n, a, beta) - cost(second, p, n, a, beta)
    try:
        n = -difference(0, alpha) / difference(1, 0)
    except ZeroDivisionError:
        return float("inf")
    return n if n > 0 else float("inf")


# %% unmask_nodes: a few machines
def unmask_nodes():
    return ((2, 1), (2, 2), (5, 2))


# %% unmask_nodes: all sizes of node on six ranks
def unmask_nodes():
    for per_node in range(1, 9):
        yield 6, per_node
    yield 7, 4
