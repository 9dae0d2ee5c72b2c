"""Answers to exercises of lab `hogwild` whose verdict was wrong once: see `test_verdicts`."""


# %% hogwild: alt recompute each store -> full points
def overlap(edges, n):
    from collections import Counter

    s = [set(e) for e in edges]
    return (
        max(map(len, s)),
        max(Counter(v for e in s for v in e).values()) / len(s),
        max(sum(not a.isdisjoint(b) for b in s) for a in s) / len(s),
    )


def hogwild(w, edges, gradient, lr, schedule):
    w = w.clone()
    read = {}
    load = {}
    for op, k, v in schedule:
        if op == "read":
            read[k, v] = w[v].clone()
        if op == "load":
            load[k, v] = w[v].clone()
        if op == "store":
            x = torch.stack([read[k, u] for u in edges[k]])
            w[v] = load[k, v] - lr * gradient(k, x)[edges[k].index(v)]
    return w


# %% two_loop: alt heap matrix -> full points
def lbfgs_direction(
    comm, s, y, g
):  # one message: all dot products of the basis in one all_reduce (Chen et al. 2014, "vector-free L-BFGS")
    m = len(s)
    if m == 0:
        return g.neg()
    V = torch.stack([*s, *y, g])
    M = V @ V.T
    comm.all_reduce(M)
    d = V.new_zeros(2 * m + 1)
    d[-1] = 1
    a = [None] * m
    for i in range(m - 1, -1, -1):
        a[i] = (M[i] @ d) / M[i, m + i]
        d[m + i] -= a[i]
    d *= M[m - 1, 2 * m - 1] / M[2 * m - 1, 2 * m - 1]
    for i in range(m):
        d[i] += a[i] - (M[m + i] @ d) / M[i, m + i]
    return -(d @ V)


# %% finish: alt heap matrix -> full points
import heapq


def finish(tasks, speeds, backups=False):
    heap = [(0.0, i) for i in range(len(speeds))]
    ends = []
    for t in tasks:
        at, i = heapq.heappop(heap)
        at += t / speeds[i]
        ends.append(at)
        heapq.heappush(heap, (at, i))
    while backups and heap:
        at, i = heapq.heappop(heap)
        j = ends.index(max(ends))
        ends[j] = min(ends[j], at + tasks[j] / speeds[i])
    return max(ends)


# %% two_loop: alt rho in a list -> full points
def lbfgs_direction(comm, s, y, g):
    def dot(a, b):
        x = (a * b).sum().reshape(1)
        comm.all_reduce(x)
        return x

    if not s:
        return -g
    rho = [1 / dot(a, b) for a, b in zip(y, s)]
    q = g.clone()
    a = {}
    for i in reversed(range(len(s))):
        a[i] = rho[i] * dot(s[i], q)
        q = q - a[i] * y[i]
    r = dot(s[-1], y[-1]) / dot(y[-1], y[-1]) * q
    for i in range(len(s)):
        b = rho[i] * dot(y[i], r)
        r = r + (a[i] - b) * s[i]
    return -r


# %% finish: wrong backup tie order -> backup_tasks
def finish(tasks, speeds, backups=False):
    free = [0.0] * len(speeds)
    ends = []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
        ends.append(free[i])
    if backups:
        for i in range(len(free)):
            last = max(range(len(ends)), key=ends.__getitem__)
            ends[last] = min(ends[last], free[i] + tasks[last] / speeds[i])
    return max(ends)
