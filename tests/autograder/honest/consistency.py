"""Lab `consistency` answered rightly, in many styles: each cell below stands in place of the reference's answer."""

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


# %% hogwild: counters, and a dictionary for each update
from collections import Counter, defaultdict


def overlap(edges, n):
    uses = Counter(v for edge in edges for v in set(edge))
    neighbours = [sum(not set(a).isdisjoint(b) for b in edges) for a in edges]
    m = len(edges)
    return max(map(len, edges)), max(uses.values()) / m, max(neighbours) / m


def hogwild(w, edges, gradient, lr, schedule):
    w = w.clone()
    updates = defaultdict(lambda: {"read": {}, "load": {}, "step": None})
    for event, k, v in schedule:
        update = updates[k]
        if event != "store":
            update[event][v] = w[v].item()
            continue
        if update["step"] is None:
            x = torch.tensor([update["read"][u] for u in edges[k]], dtype=w.dtype)
            update["step"] = dict(zip(edges[k], (lr * gradient(k, x)).tolist()))
        w[v] = update["load"][v] - update["step"][v]
    return w


# %% hogwild: a matrix of ones and zeros
def overlap(edges, n):
    E = torch.zeros(len(edges), n)
    for row, edge in zip(E, edges):
        row[list(edge)] = 1
    omega = int(E.sum(1).max())
    delta = E.sum(0).max().item() / len(edges)
    rho = (E @ E.T > 0).sum(1).max().item() / len(edges)
    return omega, delta, rho


def hogwild(w, edges, gradient, lr, schedule):
    memory = list(w.unbind())
    seen, registers = {}, {}

    def step(k):
        return lr * gradient(k, torch.stack([seen[k, u] for u in edges[k]]))

    steps = {}
    for op, k, v in schedule:
        match op:
            case "read":
                seen[k, v] = memory[v]
            case "load":
                registers[k, v] = memory[v]
            case "store":
                if k not in steps:
                    steps[k] = step(k)
                memory[v] = registers[k, v] - steps[k][list(edges[k]).index(v)]
    return torch.stack(memory)


# %% downpour: steps counted by hand, one server after the other
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w = w.clone()
    accrued = torch.zeros_like(w)
    for step in range(steps):
        if step % n_fetch == 0:
            for server, part in enumerate(w.tensor_split(servers)):
                comm.send(torch.empty(0, dtype=w.dtype), server)
                comm.recv(part, server)
        accrued = accrued + grad(w, step)
        if (step + 1) % n_push == 0 or step + 1 == steps:
            for server, part in enumerate(accrued.tensor_split(servers)):
                comm.send(part, server)
            accrued = torch.zeros_like(w)
    return w


def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    shard = w.tensor_split(servers)[comm.rank].clone()
    G = torch.ones_like(shard)
    replicas = list(range(servers, comm.size))
    scripts = [iter([op for op in plan(n_fetch, n_push, steps) if op in ("fetch", "push")]) for _ in replicas]
    expected, boxes = [None] * len(replicas), [None] * len(replicas)

    def expect(i):
        expected[i] = next(scripts[i], None)
        if expected[i] is None:
            return None
        boxes[i] = shard.new_empty(shard.shape if expected[i] == "push" else 0)
        return comm.irecv(boxes[i], replicas[i])

    requests = [expect(i) for i in range(len(replicas))]
    open_ones = len(replicas)
    while open_ones:
        i = comm.wait_any(requests)
        if expected[i] == "fetch":
            comm.send(shard, replicas[i])
        else:
            g = boxes[i]
            G.addcmul_(g, g)
            shard.addcdiv_(g, G.sqrt(), value=-lr)
        request = expect(i)
        if request is None:
            open_ones -= 1
        else:
            requests[i] = request
    return shard


# %% sandblaster: a list of numbers for a's, heaps for nodes
import heapq


def summed(comm, a, b):
    total = torch.dot(a, b)[None].clone()
    comm.all_reduce(total)
    return total.item()


def lbfgs_direction(comm, s, y, g):
    r = g.clone()
    alphas = [0.0] * len(s)
    for i in range(len(s) - 1, -1, -1):
        alphas[i] = summed(comm, s[i], r) / summed(comm, y[i], s[i])
        r = r - alphas[i] * y[i]
    if s:
        r = r * (summed(comm, s[-1], y[-1]) / summed(comm, y[-1], y[-1]))
    for i in range(len(s)):
        b = summed(comm, y[i], r) / summed(comm, y[i], s[i])
        r = r + (alphas[i] - b) * s[i]
    return r.neg()


def finish(tasks, speeds, backups=False):
    heap = [(0.0, i) for i in range(len(speeds))]
    ends = []
    for work in tasks:
        when, i = heapq.heappop(heap)
        ends.append(when + work / speeds[i])
        heapq.heappush(heap, (ends[-1], i))
    while backups and heap:
        when, i = heapq.heappop(heap)
        last = ends.index(max(ends))
        ends[last] = min(ends[last], when + tasks[last] / speeds[i])
    return max(ends)


# %% sandblaster: recursion over the pairs
def lbfgs_direction(comm, s, y, g):
    def dot(a, b):
        x = torch.sum(a * b).view(1)
        comm.all_reduce(x)
        return x

    def times_inverse(k, q):
        """H_k q, by the pairs before k."""
        if k == 0:
            return q if not s else q * (dot(s[-1], y[-1]) / dot(y[-1], y[-1]))
        rho = 1 / dot(y[k - 1], s[k - 1])
        a = rho * dot(s[k - 1], q)
        r = times_inverse(k - 1, q - a * y[k - 1])
        return r + (a - rho * dot(y[k - 1], r)) * s[k - 1]

    return -times_inverse(len(s), g)


def finish(tasks, speeds, backups=False):
    nodes = [0.0 for _ in speeds]
    done = {}
    for number, work in enumerate(tasks):
        fastest = nodes.index(min(nodes))
        nodes[fastest] += work / speeds[fastest]
        done[number] = nodes[fastest]
    if backups:
        for when, speed in sorted(zip(nodes, speeds), key=lambda node: node[0]):
            late = max(done, key=done.get)
            if when + tasks[late] / speed < done[late]:
                done[late] = when + tasks[late] / speed
    return max(done.values())


# %% adam: einsum, and a comparison by the formula
def from_factors(x, delta):
    return torch.einsum("bm,bn->mn", x, delta)


def fc_bytes(batch, m, n, how):
    return {"gradient": 4 * m * n, "factors": 4 * batch * m + 4 * batch * n}[how]


def cheaper(batch, m, n):
    return "factors" if batch * (m + n) < m * n else "gradient"


# %% adam: a sum of outer products, early returns
def from_factors(x, delta):
    return sum(torch.outer(a, d) for a, d in zip(x, delta))


FLOAT = 4


def fc_bytes(batch: int, m: int, n: int, how: str) -> int:
    if how == "gradient":
        return FLOAT * m * n
    assert how == "factors"
    return FLOAT * batch * (m + n)


def cheaper(batch: int, m: int, n: int) -> str:
    return min(["gradient", "factors"], key=lambda how: fc_bytes(batch, m, n, how))


# %% adam: rows times columns by broadcasting
def from_factors(x, delta):
    return (x[:, :, None] * delta[:, None, :]).sum(dim=0)


fc_bytes = lambda batch, m, n, how: (m * n if how == "gradient" else m * batch + batch * n) * 4


def cheaper(batch, m, n):
    if fc_bytes(batch, m, n, "factors") < fc_bytes(batch, m, n, "gradient"):
        return "factors"
    return "gradient"


# %% downpour: a message to all servers begun, then waited for
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    empty = w.new_empty(0)
    for op in plan(n_fetch, n_push, steps):
        if op == "fetch":
            for server in range(servers):
                comm.send(empty, server)
                comm.recv(w.tensor_split(servers)[server], server)
        elif op == "push":
            for server in range(servers):
                comm.send(total.tensor_split(servers)[server].clone(), server)
            total = torch.zeros_like(total)
        else:
            total = total + grad(w, k)
            k += 1
    return w


def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    mine = list(w.tensor_split(servers))[comm.rank].clone()
    squares = 1.0 + 0.0 * mine
    ops = [op for op in plan(n_fetch, n_push, steps) if op != "compute"]
    p = comm.size - servers
    position, buffers, requests = [0] * p, [None] * p, [None] * p
    for i in range(p):
        buffers[i] = mine.new_empty(0)
        requests[i] = comm.irecv(buffers[i], servers + i)
    for _ in range(p * len(ops)):
        i = comm.wait_any(requests)
        if ops[position[i]] == "push":
            g = buffers[i].clone()
            squares = squares + g * g
            mine = mine - lr * g / torch.sqrt(squares)
        else:
            comm.send(mine, servers + i)
        position[i] += 1
        if position[i] < len(ops):
            buffers[i] = torch.empty_like(mine) if ops[position[i]] == "push" else mine.new_empty(0)
            requests[i] = comm.irecv(buffers[i], servers + i)
    return mine


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


# %% hogwild: loops over loops
def overlap(edges, n):
    longest = most_used = most_met = 0
    for edge in edges:
        longest = max(longest, len(edge))
        met = 0
        for other in edges:
            if any(v in other for v in edge):
                met += 1
        most_met = max(most_met, met)
    for v in range(n):
        most_used = max(most_used, len([edge for edge in edges if v in edge]))
    return longest, most_used / len(edges), most_met / len(edges)


def hogwild(w, edges, gradient, lr, schedule):
    new = w.clone()
    x = {k: torch.zeros(len(edge), dtype=w.dtype) for k, edge in enumerate(edges)}
    register = {k: torch.zeros(len(edge), dtype=w.dtype) for k, edge in enumerate(edges)}
    g = {}
    for op, k, v in schedule:
        place = edges[k].index(v)
        if op == "read":
            x[k][place] = new[v]
        elif op == "load":
            register[k][place] = new[v]
        elif op == "store":
            if k not in g:
                g[k] = gradient(k, x[k])
            new[v] = register[k][place] - lr * g[k][place]
    return new
