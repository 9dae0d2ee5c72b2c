"""Lab `model_parallel` answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% tensor_parallel: bounds by divmod, einsum
def share(w, dim, comm):
    each, rest = divmod(w.shape[dim], comm.size)
    begin = comm.rank * each + min(comm.rank, rest)
    return w.narrow(dim, begin, each + (comm.rank < rest)).clone()


class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight = share(weight, 0, comm)
        self.bias = share(bias, 0, comm)

    def forward(self, x):
        self.inputs = x
        return torch.einsum("ni,oi->no", x, self.weight) + self.bias

    def backward(self, dy):
        self.weight_grad = torch.einsum("no,ni->oi", dy, self.inputs)
        self.bias_grad = torch.einsum("no->o", dy)
        dx = torch.einsum("no,oi->ni", dy, self.weight).contiguous()
        self.comm.all_reduce(dx)
        return dx


class RowLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight = share(weight, 1, comm)
        self.bias = bias.clone()

    def forward(self, x):
        self.inputs = x
        y = torch.einsum("ni,oi->no", x, self.weight).contiguous()
        self.comm.all_reduce(y)
        y += self.bias
        return y

    def backward(self, dy):
        self.weight_grad = torch.einsum("no,ni->oi", dy, self.inputs)
        self.bias_grad = torch.einsum("no->o", dy)
        return torch.einsum("no,oi->ni", dy, self.weight)


# %% tensor_parallel: one base class, addmm
def share(w, dim, comm):
    return torch.tensor_split(w, comm.size, dim=dim)[comm.rank].contiguous().clone()


class Part:
    def linear_backward(self, dy):
        self.weight_grad = dy.t().mm(self.x)
        self.bias_grad = dy.sum(dim=0)
        return dy.mm(self.weight)

    def summed(self, x):
        self.comm.all_reduce(x)
        return x


class ColumnLinear(Part):
    def __init__(self, weight, bias, comm):
        self.weight, self.bias = (share(w, 0, comm) for w in (weight, bias))
        self.comm = comm

    def forward(self, x):
        self.x = x
        return torch.addmm(self.bias, x, self.weight.t())

    def backward(self, dy):
        return self.summed(self.linear_backward(dy))


class RowLinear(Part):
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm

    def forward(self, x):
        self.x = x
        return self.summed(x.mm(self.weight.t())) + self.bias

    def backward(self, dy):
        return self.linear_backward(dy)


# %% tensor_parallel: indices, and an all-reduce of a copy
def share(w, dim, comm):
    mine = torch.arange(w.shape[dim]).tensor_split(comm.size)[comm.rank]
    return torch.index_select(w, dim, mine)


class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.weight = share(weight, 0, comm)
        self.bias = share(bias, 0, comm)
        self.comm, self.x = comm, None

    def forward(self, x):
        self.x = x
        return (self.weight @ x.T).T + self.bias

    def backward(self, dy):
        self.bias_grad = torch.ones(len(dy), dtype=dy.dtype) @ dy
        self.weight_grad = (self.x.T @ dy).T
        total = torch.matmul(dy, self.weight)
        self.comm.all_reduce(total)
        return total


class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight = share(weight, 1, comm)
        self.bias = torch.empty_like(bias).copy_(bias)
        self.comm, self.x = comm, None

    def forward(self, x):
        self.x = x
        total = torch.matmul(x, self.weight.T)
        self.comm.all_reduce(total)
        return total.add_(self.bias)

    def backward(self, dy):
        self.bias_grad = torch.ones(len(dy), dtype=dy.dtype) @ dy
        self.weight_grad = (self.x.T @ dy).T
        return torch.matmul(dy, self.weight)


# %% one_weird_trick: a dictionary, a comparison by hand
def volume(weights, inputs, batch, p, how):
    numbers = {"data": weights, "model": inputs * batch}[how]
    return 8 * numbers * (1 - 1 / p)


def one_weird_trick(layers, batch, p):
    plan = []
    for weights, inputs in layers:
        plan.append("data" if weights <= batch * inputs else "model")
    return plan


# %% one_weird_trick: early returns, steps of a ring
FLOAT = 4


def volume(weights, inputs, batch, p, how):
    if how == "data":
        return 2 * (p - 1) * weights * FLOAT / p
    assert how == "model", how
    return 2 * (p - 1) * batch * inputs * FLOAT / p


def one_weird_trick(layers, batch, p):
    def cheaper(layer):
        costs = {how: volume(*layer, batch, p, how) for how in ("data", "model")}
        return min(costs, key=costs.get)

    return list(map(cheaper, layers))


# %% one_weird_trick: sorted pairs
volume = lambda weights, inputs, batch, p, how: 4 * (weights if how == "data" else inputs * batch) * 2 * (p - 1) / p


def one_weird_trick(layers, batch, p):
    return [sorted((volume(w, i, batch, p, how), how) for how in ("data", "model"))[0][1] for w, i in layers]


# %% schedules: loops that append
def gpipe(p, m):
    orders = []
    for _ in range(p):
        order = []
        for k in range(m):
            order.append(("F", k, 0))
        for k in range(m):
            order.append(("B", k, 0))
        orders.append(order)
    return orders


def one_f_one_b(p, m):
    orders = []
    for i in range(p):
        order, f, b = [], 0, 0
        while b < m:
            if f < m and f - b < p - i:
                order.append(("F", f, 0))
                f += 1
            else:
                order.append(("B", b, 0))
                b += 1
        orders.append(order)
    return orders


def interleaved(p, m, v):
    forwards = []
    for group in range(m // p):
        for chunk in range(v):
            for k in range(p):
                forwards.append(("F", group * p + k, chunk))
    backwards = [("B", k, v - 1 - chunk) for _, k, chunk in forwards]
    return [in_turn(forwards, backwards, (v - 1) * p + 2 * (p - 1 - i) + 1) for i in range(p)]


# %% schedules: generators, and an index instead of three loops
def alternate(forwards, backwards, warmup):
    forwards, backwards = iter(forwards), iter(backwards)
    for _, op in zip(range(warmup), forwards):
        yield op
    for backward in backwards:
        yield backward
        yield from (op for _, op in zip(range(1), forwards))


def ops(name, m):
    return [(name, k, 0) for k in range(m)]


gpipe = lambda p, m: [ops("F", m) + ops("B", m)] * p


def one_f_one_b(p, m):
    return [list(alternate(ops("F", m), ops("B", m), min(p - i, m))) for i in range(p)]


def interleaved(p, m, v):
    def nth(n):
        group, rest = divmod(n, p * v)
        chunk, k = divmod(rest, p)
        return group * p + k, chunk

    turns = [nth(n) for n in range(m * v)]
    F = [("F", k, c) for k, c in turns]
    B = [("B", k, v - c - 1) for k, c in turns]
    return [list(alternate(F, B, min((v - 1) * p + 2 * (p - i) - 1, m * v))) for i in range(p)]


# %% schedules: itertools
import itertools


def gpipe(p, m):
    return [list(itertools.product("FB", range(m), [0])) for _ in range(p)]


def one_f_one_b(p, m):
    def stage(i):
        warm = min(p - i, m)
        order = [("F", k, 0) for k in range(warm)]
        for k in range(m - warm):
            order += [("B", k, 0), ("F", k + warm, 0)]
        return order + [("B", k, 0) for k in range(m - warm, m)]

    return [stage(i) for i in range(p)]


def interleaved(p, m, v):
    turns = [(first + k, chunk) for first, chunk, k in itertools.product(range(0, m, p), range(v), range(p))]
    orders = []
    for i in range(p):
        warm = (v - 1) * p + 2 * (p - i - 1) + 1
        f, b = [("F", *turn) for turn in turns], [("B", k, v - 1 - c) for k, c in turns]
        order, f = f[:warm], f[warm:]
        for pair in itertools.zip_longest(b, f):
            order.extend(op for op in pair if op is not None)
        orders.append(order)
    return orders


# %% zero_bubble: a queue, and passes over all stages
from collections import deque


def zb_h1(p, m):
    def stage(i):
        waiting = deque()
        for op in one_f_one_b(p, m)[i]:
            yield op
            if op[0] == "B":
                waiting.append(("W", op[1], op[2]))
            while len(waiting) > i:
                yield waiting.popleft()
        yield from waiting

    return [list(stage(i)) for i in range(p)]


def bubble(orders, f, b, w, message=0.0):
    p = len(orders)
    has_w = any(op[0] == "W" for order in orders for op in order)
    takes = dict(F=f, B=b, W=w) if has_w else dict(F=f, B=b + w)
    done, place = {}, [0] * p
    spans = [[] for _ in range(p)]
    moved = True
    while moved:
        moved = False
        for i, order in enumerate(orders):
            while place[i] < len(order):
                op, k, _ = order[place[i]]
                before = source(op, k, i, p)
                if before is not None and before not in done:
                    break
                ready = 0.0
                if before is not None:
                    ready = done[before] + (message if before[2] != i else 0.0)
                begin = max(ready, spans[i][-1][1] if spans[i] else 0.0)
                spans[i].append((begin, begin + takes[op]))
                done[op, k, i] = begin + takes[op]
                place[i] += 1
                moved = True
    if any(n < len(order) for n, order in zip(place, orders)):
        raise ValueError("a deadlock")
    longest = max(span[-1][1] - span[0][0] for span in spans)
    busy = sum(1 for op in orders[0] if op[0] == "F") * (f + b + w)
    return 1 - busy / longest


# %% zero_bubble: a count of what waits, recursion with a memory, and a ValueError of its own
import sys


class CircleError(ValueError):
    pass


def zb_h1(p, m):
    orders = []
    for i in range(p):
        order, done = [], 0
        for op in one_f_one_b(p, m)[i]:
            order.append(op)
            if op[0] == "B" and op[1] - done >= i:
                order.append(("W", done, 0))
                done += 1
        order.extend(("W", k, 0) for k in range(done, m))
        orders.append(order)
    return orders


def bubble(orders, f, b, w, message=0.0):
    p = len(orders)
    whole = all(op != "W" for order in orders for op, _, _ in order)
    seconds = {"F": f, "B": b + w if whole else b, "W": w}
    before = {}
    for i, order in enumerate(orders):
        for last, (op, k, _) in zip([None, *order], order):
            before[op, k, i] = last and (last[0], last[1], i)
    ends, under_way = {}, set()

    def end(node):
        if node is None:
            return 0.0
        if node in ends:
            return ends[node]
        if node in under_way or node not in before:
            raise CircleError(f"{node} waits for itself")
        under_way.add(node)
        op, k, i = node
        needed = source(op, k, i, p)
        late = message if needed is not None and needed[2] != i else 0.0
        ends[node] = max(end(before[node]), end(needed) + late) + seconds[op]
        return ends[node]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))
    times = []
    for i, order in enumerate(orders):
        (op, k, _), (last_op, last_k, _) = order[0], order[-1]
        for node in order:
            end((node[0], node[1], i))
        times.append(end((last_op, last_k, i)) - (end((op, k, i)) - seconds[op]))
    m = len([1 for op, _, _ in orders[0] if op == "F"])
    return 1 - m * (f + b + w) / max(times)


# %% run_stage: a function for each op
def run_stage(stage, order, rows, comm):
    posted = post_receives(stage, order, comm)
    n, outbox, losses = sum(rows), [], [0.0]
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    whole = not any(op == "W" for op, _, _ in order)

    def received(op, k):
        if (op, k) not in posted:
            return None
        tensor, request = posted[op, k]
        request.wait()
        return tensor

    def F(k):
        y = stage.forward(k, received("F", k))
        if last:
            losses.append(y * rows[k] / n)
        else:
            outbox.append(comm.isend(y, comm.rank + 1, tag=k))

    def B(k):
        dx = stage.backward(k, rows[k] / n if last else received("B", k))
        if not first:
            outbox.append(comm.isend(dx, comm.rank - 1, tag=k))
        if whole:
            W(k)

    def W(k):
        stage.weights(k)

    stage.zero_grad()
    for op, k, _ in order:
        {"F": F, "B": B, "W": W}[op](k)
    for request in outbox:
        request.wait()
    return sum(losses)


# %% run_stage: match, and the loss at the end
def run_stage(stage, order, rows, comm):
    waiting = post_receives(stage, order, comm)
    stage.zero_grad()
    sent, means = [], {}
    separate = "W" in {op for op, *_ in order}
    for op, k, _ in order:
        tensor = None
        if (op, k) in waiting:
            tensor, request = waiting.pop((op, k))
            request.wait()
        match op:
            case "F":
                y = stage.forward(k, tensor) if tensor is not None else stage.forward(k)
                if comm.rank + 1 < comm.size:
                    sent.append(comm.isend(y, comm.rank + 1, tag=k))
                else:
                    means[k] = y
            case "B":
                if tensor is None:
                    tensor = rows[k] / sum(rows)
                dx = stage.backward(k, tensor)
                if comm.rank:
                    sent.append(comm.isend(dx, comm.rank - 1, tag=k))
                if not separate:
                    stage.weights(k)
            case "W":
                stage.weights(k)
    while sent:
        sent.pop(0).wait()
    return sum(rows[k] * mean for k, mean in means.items()) / sum(rows) if means else 0.0


# %% one_weird_trick: a loop with early continue, printing
def volume(weights: int, inputs: int, batch: int, p: int, how: str) -> float:
    nbytes = 4 * weights
    if how != "data":
        nbytes = 4 * inputs * batch
    return sum(2 * nbytes / p for _ in range(p - 1))


def one_weird_trick(layers: list, batch: int, p: int) -> list:
    names = []
    for number, (weights, inputs) in enumerate(layers):
        if volume(weights, inputs, batch, p, "model") < volume(weights, inputs, batch, p, "data"):
            print("layer", number, "by model")
            names.append("model")
            continue
        names.append("data")
    return names


# %% schedules: recursion on what is left
def turns(forwards, backwards):
    if not backwards:
        return forwards
    return [backwards[0], *forwards[:1], *turns(forwards[1:], backwards[1:])]


def warmed(F, B, warm):
    return F[:warm] + turns(F[warm:], B)


def gpipe(p, m):
    F, B = ([(op, k, 0) for k in range(m)] for op in "FB")
    return [warmed(F, B, m) for stage in range(p)]


def one_f_one_b(p, m):
    F, B = ([(op, k, 0) for k in range(m)] for op in "FB")
    return [warmed(F, B, warm) for warm in range(p, 0, -1)]


def interleaved(p, m, v):
    F = [("F", g + k, c) for g in range(0, m, p) for c in range(v) for k in range(p)]
    B = [("B", g + k, c) for g in range(0, m, p) for c in reversed(range(v)) for k in range(p)]
    warm = [(v - 1) * p + 2 * (p - i) - 1 for i in range(p)]
    return [warmed(F, B, w) for w in warm]


# %% design: one rule, straight from the two numbers
def design(p, m, f, b, w, cap):
    orders = []
    for i in range(p):
        first = min(cap, 2 * (p - i) - 1 if cap >= 2 * p - 1 else p - i)
        order = [("F", k, 0) for k in range(min(first, m))]
        done = 0
        for k in range(m):
            order.append(("B", k, 0))
            if k + 1 - done > cap - first:
                order.append(("W", done, 0))
                done += 1
            if k + first < m:
                order.append(("F", k + first, 0))
        orders.append(order + [("W", k, 0) for k in range(done, m)])
    return orders


# %% design: greedy, the op that can start soonest; W when there is nothing else
def design(p, m, f, b, w, cap):
    ends, clock, did = {}, [0.0] * p, [{"F": 0, "B": 0, "W": 0} for _ in range(p)]
    orders, seconds = [[] for _ in range(p)], {"F": f, "B": b, "W": w}

    def next_op(i):
        n, found = did[i], []
        if n["B"] < n["F"]:
            came = ends.get(("F", n["B"], i) if i == p - 1 else ("B", n["B"], i + 1))
            if came is not None:
                found.append((max(clock[i], came), 0, "B"))
        ahead = min(cap, 2 * (p - i) - 1 if cap >= 2 * p - 1 else p - i)
        if n["F"] < m and n["F"] - n["W"] < cap and n["F"] - n["B"] < ahead:
            came = 0.0 if i == 0 else ends.get(("F", n["F"], i - 1))
            if came is not None:
                found.append((max(clock[i], came), 1, "F"))
        if n["W"] < n["B"]:
            found.append((clock[i], 2, "W"))
        return min(found, default=None)

    while any(len(order) < 3 * m for order in orders):
        start, _, op, i = min((*choice, i) for i in range(p) if (choice := next_op(i)))
        k = did[i][op]
        did[i][op] += 1
        clock[i] = ends[op, k, i] = start + seconds[op]
        orders[i].append((op, k, 0))
    return orders


# %% design: every pair of numbers is tried, lists for tuples
def one(p, m, cap, slope):
    made = []
    for i in range(p):
        first = max(1, min(cap, round(1 + slope * (p - 1 - i))))
        order, late = [], []
        for op, k, _ in in_turn([["F", k, 0] for k in range(m)], [["B", k, 0] for k in range(m)], first):
            order.append([op, k, 0])
            if op == "B":
                late.append(k)
            while len(late) > cap - first:
                order.append(["W", late.pop(0), 0])
        made.append(order + [["W", k, 0] for k in late])
    return made


def design(p, m, f, b, w, cap):
    best = None
    for slope in (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5):
        tried = one(p, m, cap, slope)
        idle = bubble([[tuple(op) for op in order] for order in tried], f, b, w)
        if best is None or idle < best[0]:
            best = idle, tried
    return best[1]
