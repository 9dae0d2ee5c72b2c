"""Lab `consistency` answered by others."""

LIBRARY = {
    "clocks": """
def clocks(seconds, staleness):
    from hpcdl.consistency.clock import timeline

    found = timeline(seconds, staleness)
    return [list(zip(begun, ended)) for begun, ended in zip(found.start.tolist(), found.end.tolist())]
""",
    "server": """
import torch

def serve(comm, w, staleness, steps, lr):
    from hpcdl.consistency.server import Server

    return Server(comm, w, lambda params: torch.optim.SGD(params, lr), staleness=staleness).serve().w

def work(comm, grad, w, steps):
    from hpcdl.consistency.worker import work as librarys

    return librarys(comm, w, grad, steps)
""",
    "delay": """
import hpcdl.widgets.pictures.how_late as how_late

def delayed_sgd(w, grad, lr, delay, steps):
    return [w * factor for factor in how_late.swing(lr, delay, steps)]

def largest_stable_lr(curvature, delay):
    return how_late.bound(delay) / curvature
""",
    "hogwild": """
from hpcdl.consistency import hogwild as hogwilds

def overlap(edges, n):
    return tuple(hogwilds.sparsity(edges))

def hogwild(w, edges, gradient, lr, schedule):
    w = w.clone()
    hogwilds.hogwild(w, edges, lambda x, k: gradient(k, x), lr, range(len(edges)))
    return w
""",
    "downpour": """
def replica(comm, servers, grad, w, n_fetch, n_push, steps):
    from hpcdl.consistency import downpour as librarys

    return librarys.downpour(comm, w, grad, steps, servers, n_fetch, n_push)
""",
    "sandblaster": """
import hpcdl.consistency.balancing as balancing
from hpcdl.consistency import sandblaster as sandblasters

def lbfgs_direction(comm, s, y, g):
    return sandblasters.sandblaster(comm, g, None, 1).w

def finish(tasks, speeds, backups=False):
    return balancing.finish(tasks, speeds, backups).seconds
""",
    "adam": """
from hpcdl.consistency import adam as adams

def from_factors(x, delta):
    return adams.push_layer(None, x, delta)

def fc_bytes(batch, m, n, how):
    return adams.fc_bytes(batch, m, n, how)

def cheaper(batch, m, n):
    return adams.cheaper(batch, m, n)
""",
}

FRAMEWORKS = {
    "server": """
import torch

def train(comm, grad, w, staleness, steps, lr):
    w = w.clone()
    for k in range(steps):
        g = grad(w, k) if comm.rank else torch.zeros_like(w)
        comm.all_reduce(g)
        w -= lr * g
    return w
""",
    "downpour": """
import torch

def shard_server(comm, servers, w, n_fetch, n_push, steps, lr):
    mine = torch.nn.Parameter(w.tensor_split(servers)[comm.rank].clone())
    optimizer = torch.optim.Adagrad([mine], lr, initial_accumulator_value=1.0)
    for op in plan(n_fetch, n_push, steps):
        for r in range(servers, comm.size) if op != "compute" else ():
            if op == "fetch":
                comm.recv(mine.detach().new_empty(0), r)
                comm.send(mine.detach(), r)
            else:
                mine.grad = torch.empty_like(mine)
                comm.recv(mine.grad, r)
                optimizer.step()
    return mine.detach()
""",
    "sandblaster": """
import torch

def lbfgs_direction(comm, s, y, g):
    param = torch.nn.Parameter(torch.zeros_like(g))
    optimizer = torch.optim.LBFGS([param], history_size=max(1, len(s)), max_iter=1)
    param.grad = g.clone()
    optimizer.step(lambda: torch.zeros(()))
    return param.detach()

def finish(tasks, speeds, backups=False):
    from scipy.optimize import linear_sum_assignment

    seconds = [[work / speed for speed in speeds] for work in tasks]
    return float(max(seconds[i][j] for i, j in zip(*linear_sum_assignment(seconds))))
""",
}
NOT_IN_FRAMEWORKS = {
    "clocks": "no framework says when workers would wait",
    "delay": "an optimizer takes the gradient that it is given: how late it is, the caller says",
    "hogwild": "torch.multiprocessing shares tensors; nothing replays a schedule of events",
    "adam": "a product, which is torch's in the reference too, and a count",
}
