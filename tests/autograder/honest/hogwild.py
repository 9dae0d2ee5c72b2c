"""Lab `hogwild` answered rightly, in many styles: each cell below replaces the reference's answer."""

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


# %% two_loop: a list of numbers for a's, heaps for nodes
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


# %% finish: a list of numbers for a's, heaps for nodes
import heapq


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


# %% two_loop: recursion over the pairs
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


# %% finish: recursion over the pairs
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


def sum_on_server(x, delta, comm):
    m, n = x.shape[1], delta.shape[1]
    if comm.rank > 0:
        if cheaper(len(x), m, n) == "factors":
            comm.send(torch.tensor([len(x), 1]), 0, 1)
            comm.send(x, 0, 2)
            comm.send(delta, 0, 2)
        else:
            comm.send(torch.tensor([len(x), 0]), 0, 1)
            comm.send(from_factors(x, delta), 0, 2)
        return
    found = []
    for worker in range(1, comm.size):
        control = torch.empty(2, dtype=torch.int64)
        comm.recv(control, worker, 1)
        if control[1]:
            a, d = x.new_empty(int(control[0]), m), x.new_empty(int(control[0]), n)
            comm.recv(a, worker, 2)
            comm.recv(d, worker, 2)
            found.append(from_factors(a, d))
        else:
            found.append(x.new_empty(m, n))
            comm.recv(found[-1], worker, 2)
    return torch.stack(found).sum(dim=0)


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


CONTROL, DATA = 1, 2


def sum_on_server(x, delta, comm):
    (_, m), (_, n) = x.shape, delta.shape
    if comm.rank == 0:
        workers = range(1, comm.size)
        controls = [torch.zeros(2, dtype=torch.long) for _ in workers]
        requests = [comm.irecv(control, w, tag=CONTROL) for control, w in zip(controls, workers)]
        total = torch.zeros(m, n, dtype=x.dtype)
        for _ in workers:  # whoever comes first
            i = comm.wait_any(requests)
            batch, whole = controls[i].tolist()
            shapes = [(m, n)] if whole == 2 else [(batch, m), (batch, n)]
            parts = [torch.empty(shape, dtype=x.dtype) for shape in shapes]
            for part in parts:
                comm.recv(part, i + 1, tag=DATA)
            total = total + (parts[0] if whole == 2 else from_factors(*parts))
        return total
    parts = (x, delta) if cheaper(x.shape[0], m, n) == "factors" else (from_factors(x, delta),)
    requests = [comm.isend(torch.tensor([x.shape[0], 1 + (len(parts) == 1)]), 0, tag=CONTROL)]
    requests += [comm.isend(part.contiguous(), 0, tag=DATA) for part in parts]
    for request in requests:
        request.wait()
    return None


# %% adam: rows times columns by broadcasting
def from_factors(x, delta):
    return (x[:, :, None] * delta[:, None, :]).sum(dim=0)


fc_bytes = lambda batch, m, n, how: (m * n if how == "gradient" else m * batch + batch * n) * 4


def cheaper(batch, m, n):
    if fc_bytes(batch, m, n, "factors") < fc_bytes(batch, m, n, "gradient"):
        return "factors"
    return "gradient"


def push(x, delta, comm, how):
    pieces = {"factors": [x, delta], "gradient": [x.T @ delta]}[how]
    comm.send(torch.tensor([x.size(0), how == "factors"], dtype=torch.int64), 0, 1)
    for piece in pieces:
        comm.send(piece.contiguous(), 0, 2)


def take(worker, like, m, n, comm):
    comm.recv(control := torch.tensor([0, 0]), worker, 1)
    batch, is_factors = control.tolist()
    if not is_factors:
        comm.recv(g := like.new_zeros((m, n)), worker, 2)
        return g
    comm.recv(a := like.new_zeros((batch, m)), worker, 2)
    comm.recv(d := like.new_zeros((batch, n)), worker, 2)
    return a.T @ d


def sum_on_server(x, delta, comm):
    m, n = x.size(1), delta.size(1)
    if comm.rank:
        return push(x, delta, comm, cheaper(x.size(0), m, n))
    return sum((take(worker, x, m, n, comm) for worker in range(2, comm.size)), take(1, x, m, n, comm))


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


# %% two_loop: the coefficients of a basis, whose products travel as one matrix
def lbfgs_direction(comm, s, y, g):
    m, basis = len(s), torch.stack([*s, *y, g])
    products = basis @ basis.T
    comm.all_reduce(products)
    d, a = basis.new_zeros(2 * m + 1), [0.0] * m
    d[2 * m] = 1.0
    for i in reversed(range(m)):
        a[i] = (products[i] @ d) / products[i, m + i]
        d[m + i] -= a[i]
    if m:
        d *= products[m - 1, 2 * m - 1] / products[2 * m - 1, 2 * m - 1]
    for i in range(m):
        d[i] += a[i] - (products[m + i] @ d) / products[i, m + i]
    return -(basis.T @ d)


# %% finish: a class for each node
class Node:
    def __init__(self, speed):
        self.speed, self.free = speed, 0.0


def finish(tasks, speeds, backups=False):
    nodes = [Node(speed) for speed in speeds]
    ends = {}
    for k, task in enumerate(tasks):
        node = min(nodes, key=lambda node: node.free)
        node.free += task / node.speed
        ends[k] = node.free
    if backups:
        for node in sorted(nodes, key=lambda node: node.free):
            last = max(ends, key=lambda k: ends[k])
            ends[last] = min(ends[last], node.free + tasks[last] / node.speed)
    return max(ends.values())


# %% downpour: a loop for each kind of rank, Adagrad in a function
def adagrad(shard, squares, g, lr):
    squares.add_(g.square())
    shard.sub_(lr * g / squares**0.5)


def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    mine, summed = w.clone(), torch.zeros_like(w)
    for step in range(steps):
        if step % n_fetch == 0:
            for server, part in enumerate(mine.tensor_split(servers)):
                comm.send(torch.empty(0, dtype=w.dtype), server)
                comm.recv(part, server)
        summed = summed + grad(mine, step)
        if (step + 1) % n_push == 0 or step + 1 == steps:
            for server, part in enumerate(summed.tensor_split(servers)):
                comm.send(part.clone(), server)
            summed = torch.zeros_like(w)
    return mine


def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    shard = w.tensor_split(servers)[comm.rank].clone()
    squares = torch.ones_like(shard)
    replicas = list(range(servers, comm.size))
    talks = [[op for op in plan(n_fetch, n_push, steps) if op != "compute"][::-1] for _ in replicas]

    def buffer(op):
        return torch.empty_like(shard) if op == "push" else torch.empty(0, dtype=shard.dtype)

    buffers = [buffer(talk[-1]) for talk in talks]
    requests = [comm.irecv(out, r) for out, r in zip(buffers, replicas)]
    while any(talks):
        i = comm.wait_any(requests)
        if talks[i].pop() == "push":
            adagrad(shard, squares, buffers[i], lr)
        else:
            comm.send(shard, replicas[i])
        if talks[i]:
            buffers[i] = buffer(talks[i][-1])
            requests[i] = comm.irecv(buffers[i], replicas[i])
    return shard


# %% two_loop: all dot products from one all-reduced Gram matrix
def lbfgs_direction(comm, s, y, g):
    if len(s) == 0:
        return g.neg()
    m = len(s)
    vectors = torch.stack([*s, *y, g])
    gram = vectors @ vectors.T
    flat = gram.flatten().contiguous()
    comm.all_reduce(flat)
    gram = flat.view_as(gram)
    c = torch.zeros(2 * m + 1, dtype=gram.dtype)
    c[-1] = 1.0
    a = {}
    for i in reversed(range(m)):
        a[i] = gram[i] @ c / gram[i, m + i]
        c[m + i] -= a[i]
    c = c * gram[m - 1, 2 * m - 1] / gram[2 * m - 1, 2 * m - 1]
    for i in range(m):
        b = gram[m + i] @ c / gram[i, m + i]
        c[i] += a[i] - b
    return -(c @ vectors)


# %% adam: all control messages first, factors stacked
def from_factors(x: Tensor, delta: Tensor) -> Tensor:
    return sum((torch.outer(a, b) for a, b in zip(x, delta)), x.new_zeros(x.shape[1], delta.shape[1]))


def fc_bytes(batch: int, m: int, n: int, how: str) -> int:
    numbers = m * n if how == "gradient" else batch * m + batch * n
    return numbers * 4


def cheaper(batch, m, n):
    if batch * (m + n) < m * n:
        return "factors"
    return "gradient"


def sum_on_server(x, delta, comm):
    m, n, workers = x.shape[1], delta.shape[1], range(1, comm.size)
    if comm.rank:
        if cheaper(x.shape[0], m, n) == "factors":
            comm.send(torch.tensor([x.shape[0], 7]), 0, tag=1)
            comm.send(x, 0, tag=2)
            comm.send(delta, 0, tag=2)
        else:
            comm.send(torch.tensor([x.shape[0], 3]), 0, tag=1)
            comm.send(from_factors(x, delta), 0, tag=2)
        return
    controls = {r: torch.zeros(2, dtype=torch.int64) for r in workers}
    for q in [comm.irecv(c, r, tag=1) for r, c in controls.items()]:
        q.wait()
    parts = {}
    for r, c in controls.items():
        rows = int(c[0])
        shapes = [(rows, m), (rows, n)] if c[1] == 7 else [(m, n)]
        buffers = [torch.zeros(shape, dtype=x.dtype) for shape in shapes]
        parts[r] = buffers, [comm.irecv(b, r, tag=2) for b in buffers]
    out = torch.zeros((m, n), dtype=x.dtype)
    for buffers, requests in parts.values():
        for q in requests:
            q.wait()
        out = out + (buffers[0] if len(buffers) == 1 else buffers[0].T @ buffers[1])
    return out
