"""Wrong answers to `downpour`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "hogwild.downpour"
SUMS = ("sums_between", "as_the_messages_came", "bytes_by_n_fetch_and_n_push", "a_slow_replica_stops_nobody")
ALL = ("one_replica_is_adagrad", *SUMS)
TIME = "a_slow_replica_stops_nobody"


@wrong(HERE, "pushes the last gradient", fails=SUMS, says="not the last one alone")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total = grad(w, k)
            k += 1
            continue
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
    return w


@wrong(HERE, "the sum is never set to 0", fails=ALL, says="the sum starts at 0 again")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
            continue
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
    return w


@wrong(HERE, "the mean since the last push", fails=SUMS, says="not their mean")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k) / n_push
            k += 1
            continue
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
        if op == "push":
            total.zero_()
    return w


@wrong(HERE, "fetches into nothing", fails=ALL, says="keeps its first weights")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
            continue
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part.clone(), server)
        if op == "push":
            total.zero_()
    return w


@wrong(HERE, "SGD on the servers", fails=ALL, says="That is SGD")
def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    mine = w.tensor_split(servers)[comm.rank].clone()
    ops, buffers, now = [op for op in plan(n_fetch, n_push, steps) if op != "compute"], {}, {}
    replicas = range(servers, comm.size)
    left = {r: list(ops) for r in replicas}

    def post(r):
        now[r] = left[r].pop(0)
        buffers[r] = torch.empty_like(mine) if now[r] == "push" else mine.new_empty(0)
        return comm.irecv(buffers[r], r)

    requests = [post(r) for r in replicas]
    for _ in range(len(ops) * len(replicas)):
        i = comm.wait_any(requests)
        r = replicas[i]
        if now[r] == "fetch":
            comm.send(mine, r)
        else:
            mine -= lr * buffers[r]
        if left[r]:
            requests[i] = post(r)
    return mine


@wrong(HERE, "divides before it adds the square", fails=ALL, says="First add the square of the push")
def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    mine = w.tensor_split(servers)[comm.rank].clone()
    squares = torch.ones_like(mine)
    ops, buffers, now = [op for op in plan(n_fetch, n_push, steps) if op != "compute"], {}, {}
    replicas = range(servers, comm.size)
    left = {r: list(ops) for r in replicas}

    def post(r):
        now[r] = left[r].pop(0)
        buffers[r] = torch.empty_like(mine) if now[r] == "push" else mine.new_empty(0)
        return comm.irecv(buffers[r], r)

    requests = [post(r) for r in replicas]
    for _ in range(len(ops) * len(replicas)):
        i = comm.wait_any(requests)
        r = replicas[i]
        if now[r] == "fetch":
            comm.send(mine, r)
        else:
            mine -= lr * buffers[r] / squares.sqrt()
            squares += buffers[r] ** 2
        if left[r]:
            requests[i] = post(r)
    return mine


@wrong(HERE, "a sum of squares for each replica", fails="as_the_messages_came", says="applied as their messages came")
def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    mine = w.tensor_split(servers)[comm.rank].clone()
    ops, buffers, now = [op for op in plan(n_fetch, n_push, steps) if op != "compute"], {}, {}
    replicas = range(servers, comm.size)
    left, squares = {r: list(ops) for r in replicas}, {r: torch.ones_like(mine) for r in replicas}

    def post(r):
        now[r] = left[r].pop(0)
        buffers[r] = torch.empty_like(mine) if now[r] == "push" else mine.new_empty(0)
        return comm.irecv(buffers[r], r)

    requests = [post(r) for r in replicas]
    for _ in range(len(ops) * len(replicas)):
        i = comm.wait_any(requests)
        r = replicas[i]
        if now[r] == "fetch":
            comm.send(mine, r)
        else:
            squares[r] += buffers[r] ** 2
            mine -= lr * buffers[r] / squares[r].sqrt()
        if left[r]:
            requests[i] = post(r)
    return mine


@wrong(HERE, "replicas in turn", fails=TIME, says="No replica waits in Downpour")
def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    mine = w.tensor_split(servers)[comm.rank].clone()
    squares = torch.ones_like(mine)
    for op in plan(n_fetch, n_push, steps):
        for r in range(servers, comm.size) if op != "compute" else ():
            if op == "fetch":
                comm.recv(mine.new_empty(0), r)
                comm.send(mine, r)
            else:
                g = torch.empty_like(mine)
                comm.recv(g, r)
                squares += g**2
                mine -= lr * g / squares.sqrt()
    return mine


@wrong(HERE, "what is left is not pushed", fails=SUMS, says="a deadlock")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
            continue
        if op == "push" and k % n_push:
            break
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
        if op == "push":
            total.zero_()
    return w


@wrong(HERE, "a copy that is none", fails="bytes_by_n_fetch_and_n_push", says="changed its argument w")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    total, k = torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
            continue
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
        if op == "push":
            total.zero_()
    return w


@wrong(
    HERE, "a push that is zeroed before it has left", fails="bytes_by_n_fetch_and_n_push", says="its tensor is changed"
)
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k, sent = w.clone(), torch.zeros_like(w), 0, []
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
        elif op == "fetch":
            for server, part in enumerate(w.tensor_split(servers)):
                comm.send(w.new_empty(0), server)
                comm.recv(part, server)
        else:
            sent += [comm.isend(part, server) for server, part in enumerate(total.tensor_split(servers))]
            total.zero_()
    for request in sent:
        request.wait()
    return w


@wrong(HERE, "a replica returns nothing", fails="bytes_by_n_fetch_and_n_push", says="what replica 1 returns")
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    w, total, k = w.clone(), torch.zeros_like(w), 0
    for op in plan(n_fetch, n_push, steps):
        if op == "compute":
            total += grad(w, k)
            k += 1
            continue
        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):
            comm.send(w.new_empty(0) if op == "fetch" else part, server)
            if op == "fetch":
                comm.recv(part, server)
        if op == "push":
            total.zero_()


slip(
    HERE,
    "a shard that is a view of w",
    "w.tensor_split(servers)[comm.rank].clone()",
    "w.tensor_split(servers)[comm.rank]",
    fails="bytes_by_n_fetch_and_n_push",
    says="changed its argument w",
)
slip(
    HERE,
    "a shard that leaves without a wait",
    "comm.send(mine, r)",
    "comm.isend(mine, r)",
    fails="bytes_by_n_fetch_and_n_push",
    says="wait",
)
slip(
    HERE,
    "a sum of squares that starts at 0",
    "torch.ones_like(mine)",
    "torch.zeros_like(mine)",
    fails=" ".join(ALL),
    says="The sum of squares starts at 1 here",
)
slip(
    HERE,
    "the squares of the last push only",
    "squares += buffers[r] ** 2",
    "squares = 1 + buffers[r] ** 2",
    fails=" ".join(ALL),
    says="The server keeps its sum of squares",
)
slip(
    HERE, "asks for gradient 0 in each step", "grad(w, k)", "grad(w, 0)", fails=" ".join(ALL), says="the w of gradient"
)
slip(
    HERE,
    "one buffer for all pushes",
    *("    left, now = {", "    buffer, empty = torch.empty_like(mine), mine.new_empty(0)\n    left, now = {"),
    *('torch.empty_like(mine) if now[r] == "push" else mine.new_empty(0)', 'buffer if now[r] == "push" else empty'),
    fails="bytes_by_n_fetch_and_n_push",
    says="begins in memory that another message still uses",
)
for mistake, fake, fails in (
    ("zeros where bytes are counted", "len(w) == 12", "bytes_by_n_fetch_and_n_push"),
    ("zeros where a replica is slow", "(steps, comm.size) == (5, 5)", "a_slow_replica_stops_nobody"),
):
    served = "return shard_server(comm, servers, w, n_fetch, n_push, steps, lr)"
    changed = f"mine = {served.removeprefix('return ')}\n        return mine.zero_() if {fake} else mine"
    slip(HERE, mistake, served, changed, fails=fails, says="applied as their messages came")
