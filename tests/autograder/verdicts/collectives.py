"""Answers to exercises of lab `collectives` whose verdict was wrong once: see `test_verdicts`."""


# %% tree_reduce: isend without wait -> reduce_in_log_p_rounds
def tree_reduce(x, comm, root=0):
    p = comm.size
    me = (comm.rank - root) % p
    buf = torch.empty_like(x)
    d = 1
    while d < p:
        if me % (2 * d) == d:
            comm.isend(x, (me - d + root) % p)
            return
        if me + d < p:
            comm.recv(buf, (me + d + root) % p)
            x += buf
        d *= 2


def tree_broadcast(x, comm, root=0):
    p = comm.size
    me = (comm.rank - root) % p
    d = 1
    while d < p:
        if me < d and me + d < p:
            comm.isend(x, (me + d + root) % p)
        elif d <= me < 2 * d:
            comm.recv(x, (me - d + root) % p)
        d *= 2


# %% recursive_doubling_all_reduce: isend without wait -> log_p_rounds
def recursive_doubling_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    q = 1
    while 2 * q <= p:
        q *= 2
    buf = torch.empty_like(x)
    if r >= q:
        comm.send(x, r - q)
        comm.recv(x, r - q)
        return
    if r + q < p:
        comm.recv(buf, r + q)
        x += buf
    d = 1
    while d < q:
        comm.isend(x.clone(), r ^ d)
        comm.recv(buf, r ^ d)
        x += buf
        d *= 2
    if r + q < p:
        comm.send(x, r + q)


# %% tree_reduce: isend waits -> full points
def tree_reduce(x, comm, root=0):
    p = comm.size
    me = (comm.rank - root) % p
    d = 1
    while d < p:
        if me % (2 * d) == d:
            comm.isend(x, (me - d + root) % p).wait()
            return
        if me + d < p:
            buf = torch.zeros_like(x)
            comm.irecv(buf, (me + d + root) % p).wait()
            x += buf
        d *= 2


def tree_broadcast(x, comm, root=0):
    p = comm.size
    me = (comm.rank - root) % p
    d = 1
    while d < p:
        if me < d and me + d < p:
            comm.send(x, (me + d + root) % p)
        elif d <= me < 2 * d:
            comm.recv(x, (me - d + root) % p)
        d *= 2


# %% cost: integer division -> naive_ring_and_tree
def cost(algorithm, p, nbytes, alpha, beta):
    lg = p.bit_length() - 1
    extra = 2 * (alpha + beta * nbytes) if 2**lg != p else 0
    m = alpha + nbytes * beta
    if algorithm in ("naive", "parameter_server"):
        return 2 * (p - 1) * m
    if algorithm == "ring":
        return 2 * (p - 1) * (alpha + nbytes // p * beta)
    if algorithm == "tree":
        return 2 * (p - 1).bit_length() * m
    if algorithm == "recursive_doubling":
        return lg * m + extra
    if algorithm == "rabenseifner":
        return 2 * lg * alpha + 2 * (2**lg - 1) / 2**lg * nbytes * beta + extra
    g = -(-p // 4)
    return 2 * (min(p, 4) - 1).bit_length() * m + 2 * (g - 1) * (alpha + nbytes / g * beta)


# %% cost: formulas -> full points
def cost(algorithm, p, nbytes, alpha, beta):
    if p == 1:
        return 0
    lg = math.floor(math.log2(p))
    extra = 2 * (alpha + beta * nbytes) if 2**lg != p else 0
    return {
        "naive": 2 * (p - 1) * (alpha + nbytes * beta),
        "parameter_server": 2 * (p - 1) * (alpha + nbytes * beta),
        "ring": 2 * (p - 1) * alpha + 2 * (p - 1) * nbytes * beta / p,
        "tree": 2 * math.ceil(math.log2(p)) * (alpha + nbytes * beta),
        "recursive_doubling": lg * (alpha + nbytes * beta) + extra,
        "rabenseifner": 2 * lg * alpha + 2 * (2**lg - 1) / 2**lg * nbytes * beta + extra,
        "hierarchical": 2 * math.ceil(math.log2(min(p, 4))) * (alpha + nbytes * beta)
        + 2 * (math.ceil(p / 4) - 1) * (alpha + nbytes / math.ceil(p / 4) * beta),
    }[algorithm]
