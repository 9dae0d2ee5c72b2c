"""Wrong answers to `downpour`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("hogwild.downpour")
SUMS = ("sums_between", "as_the_messages_came", "bytes_by_n_fetch_and_n_push", "a_slow_replica_stops_nobody")
ALL = ("one_replica_is_adagrad", *SUMS)
TIME = "a_slow_replica_stops_nobody"
WAITS = ("bytes_by_n_fetch_and_n_push", TIME)

slip(
    "pushes the last gradient",
    "total += grad(w, k)",
    "total = grad(w, k)",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    '        if op == "push":\n            total.zero_()\n',
    "",
    fails=SUMS,
    says="not the last one alone",
)
slip(
    "the sum is never set to 0",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    '        if op == "push":\n            total.zero_()\n',
    "",
    fails=ALL,
    says="the sum starts at 0 again",
)
slip(
    "the mean since the last push",
    "total += grad(w, k)",
    "total += grad(w, k) / n_push",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    fails=SUMS,
    says="not their mean",
)
slip(
    "fetches into nothing",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    "comm.recv(part, server)",
    "comm.recv(part.clone(), server)",
    fails=ALL,
    says="keeps its first weights",
)
slip(
    "SGD on the servers",
    "squares, buffers = torch.ones_like(mine), {}\n"
    '    ops = [op for op in plan(n_fetch, n_push, steps) if op != "compute"]',
    'ops, buffers, now = [op for op in plan(n_fetch, n_push, steps) if op != "compute"], {}, {}',
    "left, now = {r: list(ops) for r in replicas}, {}",
    "left = {r: list(ops) for r in replicas}",
    "squares += buffers[r] ** 2\n            mine -= lr * buffers[r] / squares.sqrt()",
    "mine -= lr * buffers[r]",
    fails=ALL,
    says="That is SGD",
)
slip(
    "divides before it adds the square",
    "squares, buffers = torch.ones_like(mine), {}\n"
    '    ops = [op for op in plan(n_fetch, n_push, steps) if op != "compute"]\n'
    "    replicas = range(servers, comm.size)\n"
    "    left, now = {r: list(ops) for r in replicas}, {}",
    "squares = torch.ones_like(mine)\n"
    '    ops, buffers, now = [op for op in plan(n_fetch, n_push, steps) if op != "compute"], {}, {}\n'
    "    replicas = range(servers, comm.size)\n"
    "    left = {r: list(ops) for r in replicas}",
    "squares += buffers[r] ** 2\n            mine -= lr * buffers[r] / squares.sqrt()",
    "mine -= lr * buffers[r] / squares.sqrt()\n            squares += buffers[r] ** 2",
    fails=ALL,
    says="First add the square of the push",
)
slip(
    "a sum of squares for each replica",
    "squares, buffers = torch.ones_like(mine), {}\n"
    '    ops = [op for op in plan(n_fetch, n_push, steps) if op != "compute"]',
    'ops, buffers, now = [op for op in plan(n_fetch, n_push, steps) if op != "compute"], {}, {}',
    "left, now = {r: list(ops) for r in replicas}, {}",
    "left, squares = {r: list(ops) for r in replicas}, {r: torch.ones_like(mine) for r in replicas}",
    "squares += buffers[r] ** 2\n            mine -= lr * buffers[r] / squares.sqrt()",
    "squares[r] += buffers[r] ** 2\n            mine -= lr * buffers[r] / squares[r].sqrt()",
    fails=("as_the_messages_came", *WAITS),
    says="applied as their messages came",
)


@wrong("replicas in turn", fails=("as_the_messages_came", TIME), says="Take messages in order of arrival")
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


slip(
    "what is left is not pushed",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'if op == "push" and k % n_push:\n'
    "            break\n"
    '        for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    fails=SUMS,
    says="a deadlock",
)
slip(
    "an alias, not a copy",
    "w, total, k = w.clone(), torch.zeros_like(w), 0",
    "total, k = torch.zeros_like(w), 0",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    fails="bytes_by_n_fetch_and_n_push",
    says="changed its argument w",
)


@wrong("a push that is zeroed before it has left", fails=WAITS, says="its tensor is changed")
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


slip(
    "a replica returns nothing",
    'parts = (w if op == "fetch" else total).tensor_split(servers)\n        for server, part in enumerate(parts):',
    'for server, part in enumerate((w if op == "fetch" else total).tensor_split(servers)):',
    "    return w\n",
    "",
    fails="bytes_by_n_fetch_and_n_push",
    says="what replica 1 returns",
)
slip(
    "a shard that is a view of w",
    "w.tensor_split(servers)[comm.rank].clone()",
    "w.tensor_split(servers)[comm.rank]",
    fails="bytes_by_n_fetch_and_n_push",
    says="changed its argument w",
)
slip(
    "a shard that leaves without a wait",
    "comm.send(mine, r)",
    "comm.isend(mine, r)",
    fails=WAITS,
    says="wait",
)
slip(
    "sends without a wait where a replica is slow",
    "comm.send(mine, r)",
    "(comm.isend if steps == 5 else comm.send)(mine.clone(), r)",
    fails="a_slow_replica_stops_nobody",
    says="wait",
)
slip(
    "zeros for each fetch of several replicas",
    "comm.send(mine, r)",
    "comm.send(mine * (len(replicas) == 1), r)",
    fails=("as_the_messages_came", *WAITS),
    says="it sends its shard as it is",
)
slip(
    "the first weights for each fetch of several replicas",
    "comm.send(mine, r)",
    "comm.send(mine if len(replicas) == 1 else w.tensor_split(servers)[comm.rank].clone(), r)",
    fails=("as_the_messages_came", *WAITS),
    says="it sends its shard as it is",
)
slip(
    "a sum of squares that starts at 0",
    "torch.ones_like(mine)",
    "torch.zeros_like(mine)",
    fails=" ".join(ALL),
    says="The sum of squares starts at 1 here",
)
slip(
    "the squares of the last push only",
    "squares += buffers[r] ** 2",
    "squares = 1 + buffers[r] ** 2",
    fails=" ".join(ALL),
    says="The server keeps its sum of squares",
)
slip("asks for gradient 0 in each step", "grad(w, k)", "grad(w, 0)", fails=" ".join(ALL), says="the w of gradient")
slip(
    "one buffer for all pushes",
    *("    left, now = {", "    buffer, empty = torch.empty_like(mine), mine.new_empty(0)\n    left, now = {"),
    *('torch.empty_like(mine) if now[r] == "push" else mine.new_empty(0)', 'buffer if now[r] == "push" else empty'),
    fails=WAITS,
    says="begins in memory that another message still uses",
)
for mistake, fake, fails in (
    ("zeros where bytes are counted", "len(w) == 12", "bytes_by_n_fetch_and_n_push"),
    ("zeros where a replica is slow", "(steps, comm.size) == (5, 5)", "a_slow_replica_stops_nobody"),
):
    served = "return shard_server(comm, servers, w, n_fetch, n_push, steps, lr)"
    changed = f"mine = {served.removeprefix('return ')}\n        return mine.zero_() if {fake} else mine"
    slip(mistake, served, changed, fails=fails, says="applied as their messages came")
slip(
    "three replicas never fetch",
    'for op in plan(n_fetch, n_push, steps):\n        if op == "compute"',
    "for op in plan(n_fetch, n_push, steps):\n"
    '        if op == "fetch" and comm.size == servers + 3:\n            continue\n'
    '        if op == "compute"',
    'if op != "compute"]',
    'if op == "push" or op == "fetch" and comm.size != servers + 3]',
    fails=("as_the_messages_came", TIME),
    says="A fetch is an empty message and its answer",
)
slip(
    "servers and pushes of float64, whatever w is",
    "mine = w.tensor_split(servers)[comm.rank].clone()",
    "mine = w.tensor_split(servers)[comm.rank].double()",
    fails=" ".join(ALL),
    says="both sides need the same dtype",
)


@wrong("a replica that trains alone", fails=ALL, says="A fetch is an empty message and its answer")
def downpour(comm, servers, grad, w, n_fetch, n_push, steps, lr):
    if comm.rank < servers:
        mine = w.tensor_split(servers)[comm.rank].clone()
        comm.recv(mine, servers)
        return mine
    here, there, squares, total = w, w.clone(), torch.ones_like(w), torch.zeros_like(w)
    for k in range(steps):
        here = there.clone() if k % n_fetch == 0 else here
        total = total + grad(here, k)
        if (k + 1) % n_push == 0 or k == steps - 1:
            squares += total**2
            there -= lr * total / squares.sqrt()
            total = torch.zeros_like(w)
    for server, part in enumerate(there.tensor_split(servers)):
        comm.send(part, server)
    return here
