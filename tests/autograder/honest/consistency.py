"""Lab `consistency` answered rightly, in many styles: each cell below replaces the reference's answer."""

# %% clocks: recursion that remembers
from functools import lru_cache


def clocks(seconds, staleness):
    workers = range(len(seconds))

    @lru_cache(maxsize=None)
    def end(w, k):
        return 0.0 if k < 0 else start(w, k) + seconds[w][k]

    @lru_cache(maxsize=None)
    def start(w, k):
        if math.isinf(staleness):
            return end(w, k - 1)
        return max(end(w, k - 1), max(end(v, k - int(staleness) - 1) for v in workers))

    iterations = range(len(seconds[0]))
    for k in iterations:  # from the first on, so that no call goes deep
        [end(w, k) for w in workers]
    return [[(start(w, k), end(w, k)) for k in iterations] for w in workers]


# %% clocks: a list of the moments at which all have finished so many
def clocks(seconds, staleness):
    n, finished = len(seconds), []
    spans, free = [[] for _ in range(n)], [0.0] * n
    for k, column in enumerate(zip(*seconds)):
        gate = 0.0 if k - staleness <= 0 else finished[int(k - staleness) - 1]
        for w in range(n):
            begin = free[w] if free[w] > gate else gate
            free[w] = begin + column[w]
            spans[w].append((begin, free[w]))
        finished.append(max(free))
    return spans


# %% clocks: a matrix of ends
def clocks(seconds, staleness):
    t = torch.tensor(seconds, dtype=torch.float64)
    ends, starts = torch.zeros_like(t), torch.zeros_like(t)
    for k in range(t.shape[1]):
        if k > 0:
            starts[:, k] = ends[:, k - 1]
        if k > staleness:
            starts[:, k].clamp_(min=ends[:, int(k - staleness - 1)].max().item())
        ends[:, k] = starts[:, k] + t[:, k]
    return [list(zip(s, e)) for s, e in zip(starts.tolist(), ends.tolist())]


# %% server: a class that counts
class Server:
    def __init__(self, comm, w, staleness, steps, lr):
        self.comm, self.w, self.staleness, self.steps, self.lr = comm, w.clone(), staleness, steps, lr
        self.count = {worker: 0 for worker in range(1, comm.size)}
        self.waiting = []
        self.inbox = {worker: torch.empty_like(w) for worker in self.count}
        self.requests = [comm.irecv(self.inbox[worker], worker) for worker in self.count]

    def may_go_on(self, worker):
        return all(self.count[worker] - other <= self.staleness for other in self.count.values())

    def one(self):
        worker = self.comm.wait_any(self.requests) + 1
        self.w = self.w - self.lr * self.inbox[worker]
        self.count[worker] += 1
        self.waiting.append(worker)
        free = list(filter(self.may_go_on, self.waiting))
        self.waiting = [worker for worker in self.waiting if worker not in free]
        for worker in free:
            self.comm.send(self.w, worker)
            if self.count[worker] < self.steps:
                self.requests[worker - 1] = self.comm.irecv(self.inbox[worker], worker)


def serve(comm, w, staleness, steps, lr):
    server = Server(comm, w, staleness, steps, lr)
    while sum(server.count.values()) < steps * (comm.size - 1):
        server.one()
    return server.w


def work(comm, grad, w, steps):
    for k in range(steps):
        comm.send(grad(w, k), 0)
        w = torch.empty_like(w)
        comm.recv(w, 0)
    return w


# %% server: a set of those that wait, and sorted answers
def serve(comm, w, staleness, steps, lr):
    w = w.detach().clone()
    workers = list(range(1, comm.size))
    done, held = dict.fromkeys(workers, 0), set()
    buffers = torch.empty(len(workers), *w.shape, dtype=w.dtype)
    requests = [comm.irecv(buffers[r - 1], r) for r in workers]
    left = steps * len(workers)
    while left:
        r = comm.wait_any(requests) + 1
        w.sub_(buffers[r - 1], alpha=lr)
        done[r] += 1
        held.add(r)
        left -= 1
        slowest = min(done.values())
        for r in sorted(held):
            if done[r] - slowest <= staleness:
                held.discard(r)
                comm.send(w, r)
                if done[r] < steps:
                    requests[r - 1] = comm.irecv(buffers[r - 1], r)
    return w


def work(comm, grad, w, steps):
    mine = w.clone()
    k = 0
    while k < steps:
        g = grad(mine, k)
        comm.send(g, dest=0)
        comm.recv(mine, source=0)
        k += 1
    return mine


# %% delay: a queue of old weights
from collections import deque


def delayed_sgd(w, grad, lr, delay, steps):
    old = deque([w], maxlen=delay + 1)
    path = [w.clone()]
    for _ in range(steps):
        path.append(path[-1] - lr * grad(old[0]))
        old.append(path[-1])
    return path


def largest_stable_lr(curvature, delay):
    return 2 * math.cos(math.pi * delay / (2 * delay + 1)) / curvature


# %% delay: places counted from the end, and complex numbers
def delayed_sgd(w, grad, lr, delay, steps):
    path = [w]
    while len(path) <= steps:
        late = path[-1 - delay] if len(path) > delay else path[0]
        path += [path[-1] - lr * grad(late)]
    return path


def largest_stable_lr(curvature, delay):
    angle = math.pi / (2 * delay + 1)
    return abs(1 - complex(math.cos(angle), math.sin(angle))) / curvature


# %% delay: rows of a matrix that is made first
def delayed_sgd(w, grad, lr, delay, steps):
    ws = torch.empty(steps + 1, *w.shape, dtype=w.dtype)
    ws[0] = w
    for t in range(steps):
        then = t - delay if t > delay else 0
        ws[t + 1] = torch.sub(ws[t], grad(ws[then]), alpha=lr)
    return list(ws.unbind())


def largest_stable_lr(curvature, delay):
    return 2 / curvature * torch.sin(torch.tensor(torch.pi / (4 * delay + 2), dtype=torch.float64)).item()


# %% clocks: one worker's clock in a class
class Clock:
    def __init__(self):
        self.spans = []

    @property
    def free(self):
        return self.spans[-1][1] if self.spans else 0.0

    def run(self, begin, seconds):
        self.spans.append((begin, begin + seconds))


def clocks(seconds, staleness):
    workers = [Clock() for _ in seconds]
    for k in range(len(seconds[0])):
        oldest = k - 1 - staleness
        gate = max(worker.spans[int(oldest)][1] for worker in workers) if oldest >= 0 else 0.0
        for worker, own in zip(workers, seconds):
            worker.run(max(worker.free, gate), own[k])
    return [worker.spans for worker in workers]


# %% delay: a generator
def walk(w, grad, lr, delay):
    history = [w]
    while True:
        yield history[-1]
        late = history[max(len(history) - 1 - delay, 0)]
        history.append(history[-1] - lr * grad(late))


def delayed_sgd(w, grad, lr, delay, steps):
    return [point for point, _ in zip(walk(w, grad, lr, delay), range(steps + 1))]


largest_stable_lr = lambda curvature, delay: (2 / curvature) * math.sin(0.5 * math.pi / (2 * delay + 1))


# %% gossip: matrices, and a power that is watched
def weights(p, edges):
    adjacent = torch.zeros(p, p, dtype=torch.float64)
    for i, j in edges:
        adjacent[i, j] = adjacent[j, i] = 1.0
    degree = adjacent.sum(1)
    w = adjacent / (1 + torch.maximum(degree[:, None], degree[None, :]))
    return w - torch.diag(w.sum(1)) + torch.eye(p, dtype=torch.float64)


def rounds_needed(W, close):
    p, k = len(W), 0
    far = torch.eye(p, dtype=W.dtype) - 1 / p
    while torch.linalg.matrix_norm(far, 2) > close:
        far, k = W @ far, k + 1
    return k


def gossip(x, comm, rounds):
    for edges in rounds:
        row = weights(comm.size, edges)[comm.rank]
        neighbours = [j for j in range(comm.size) if j != comm.rank and row[j] > 0]
        theirs = torch.empty(len(neighbours), *x.shape, dtype=x.dtype)
        requests = [comm.irecv(theirs[k], j) for k, j in enumerate(neighbours)]
        requests += [comm.isend(x, j) for j in neighbours]
        for request in requests:
            request.wait()
        mine = row[comm.rank] * x
        for k, j in enumerate(neighbours):
            mine += row[j] * theirs[k]
        x.copy_(mine)


# %% gossip: sets of neighbours, the logarithm, differences
def neighbours_of(rank, edges):
    return {a + b - rank for a, b in edges if rank in (a, b)}


def weights(p, edges):
    near = [neighbours_of(i, edges) for i in range(p)]
    w = torch.zeros((p, p)).double()
    for i in range(p):
        for j in near[i]:
            w[i, j] = 1 / (1 + max(len(near[i]), len(near[j])))
        w[i, i] = 1 - w[i].sum()
    return w


def rounds_needed(W, close):
    values = sorted(abs(v) for v in torch.linalg.eigvalsh(W).tolist())
    second = values[-2]
    if second < 1e-12:
        return 1
    return math.ceil(math.log(close) / math.log(second))


def gossip(x, comm, rounds):
    for edges in rounds:
        near = sorted(neighbours_of(comm.rank, edges))
        old, others, waiting = x.clone(), {}, []
        for j in near:
            others[j] = torch.zeros_like(x)
            waiting += [comm.isend(old, j), comm.irecv(others[j], j)]
        for request in waiting:
            request.wait()
        for j in near:
            share = 1 / (1 + max(len(near), len(neighbours_of(j, edges))))
            x += share * (others[j] - old)


# %% gossip: a class for a round
class Round:
    def __init__(self, p, edges):
        self.p, self.degree = p, [0] * p
        self.edges = [tuple(edge) for edge in edges]
        for edge in self.edges:
            for i in edge:
                self.degree[i] += 1

    def share(self, i, j):
        return 1 / (1 + max(self.degree[i], self.degree[j]))

    def of(self, rank):
        return [(j if i == rank else i) for i, j in self.edges if rank in (i, j)]


def weights(p, edges):
    now = Round(p, edges)
    rows = [[now.share(i, j) if j in now.of(i) else 0.0 for j in range(p)] for i in range(p)]
    for i, row in enumerate(rows):
        row[i] = 1.0 - sum(row)
    return torch.tensor(rows, dtype=torch.float64)


def rounds_needed(W, close):
    smaller, k = torch.linalg.eigvalsh(W)[:-1].abs().max().item(), 1
    while smaller**k > close:
        k += 1
    return k


def gossip(x, comm, rounds):
    for now in (Round(comm.size, edges) for edges in rounds):
        near = now.of(comm.rank)
        theirs = [torch.empty_like(x) for _ in near]
        receiving = [comm.irecv(out, j) for out, j in zip(theirs, near)]
        sending = [comm.isend(x, j) for j in near]
        for request in receiving + sending:
            request.wait()
        shares = [now.share(comm.rank, j) for j in near]
        x.mul_(1 - sum(shares))
        for share, out in zip(shares, theirs):
            x.add_(out, alpha=share)


# %% clocks: recursion with a cache
from functools import cache


def clocks(seconds, staleness):
    workers, n = range(len(seconds)), len(seconds[0])

    @cache
    def end(w, k):
        return start(w, k) + seconds[w][k] if k >= 0 else 0.0

    @cache
    def start(w, k):
        s = end(w, k - 1)
        if k > staleness:
            s = max(s, max(end(other, k - int(staleness) - 1) for other in workers))
        return s

    for k in range(n):
        for w in workers:
            end(w, k)
    return [[(start(w, k), end(w, k)) for k in range(n)] for w in workers]


# %% gossip: differences added, loops, tags
def neighbours(p, edges):
    near = [[] for _ in range(p)]
    for a, b in edges:
        near[a] += [b]
        near[b] += [a]
    return near


def weights(p, edges):
    near = neighbours(p, edges)
    W = torch.eye(p, dtype=torch.float64)
    for a in range(p):
        for b in near[a]:
            share = 1 / (1 + max(len(near[a]), len(near[b])))
            W[a, b] += share
            W[a, a] -= share
    return W


def rounds_needed(W, close):
    p = len(W)
    rest = W.to(torch.float64) - torch.full((p, p), 1 / p, dtype=torch.float64)
    norm = torch.linalg.matrix_norm(rest, 2).item()
    if norm <= close:
        return 1
    return math.ceil(math.log(close) / math.log(norm) - 1e-9)


def gossip(x, comm, rounds):
    for number, edges in enumerate(rounds):
        near = neighbours(comm.size, edges)
        before, requests, arrived = x.detach().clone(), [], []
        for other in near[comm.rank]:
            arrived.append(torch.zeros_like(x))
            requests.append(comm.irecv(arrived[-1], other, tag=number))
        for other in near[comm.rank]:
            requests.append(comm.isend(before, other, tag=number))
        [r.wait() for r in requests]
        for other, there in zip(near[comm.rank], arrived):
            share = 1 / (1 + max(len(near[other]), len(near[comm.rank])))
            x += share * (there - before)


# %% delay: recursion
def delayed_sgd(w, grad, lr, delay, steps):
    def go(path):
        if len(path) > steps:
            return path
        late = path[max(0, len(path) - 1 - delay)]
        return go([*path, path[-1] - lr * grad(late)])

    return go([w])


def largest_stable_lr(curvature, delay):
    return 2 * math.sin(math.pi / (4 * delay + 2)) / curvature
