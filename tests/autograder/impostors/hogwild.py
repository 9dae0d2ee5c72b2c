"""Lab `hogwild` answered by others."""

LIBRARY = {
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
    "adam": """
from hpcdl.consistency import adam as adams

def from_factors(x, delta):
    return adams.push_layer(None, x, delta)

def fc_bytes(batch, m, n, how):
    return adams.fc_bytes(batch, m, n, how)

def cheaper(batch, m, n):
    return adams.cheaper(batch, m, n)

def sum_on_server(x, delta, comm):
    return adams.push_layer(comm, x, delta)
""",
    "two_loop": """
from hpcdl.consistency import sandblaster as sandblasters

def lbfgs_direction(comm, s, y, g):
    return sandblasters.sandblaster(comm, g, None, 1).w
""",
    "finish": """
import hpcdl.consistency.balancing as balancing

def finish(tasks, speeds, backups=False):
    return balancing.finish(tasks, speeds, backups).seconds
""",
}

FRAMEWORKS = {
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
    "two_loop": """
import torch

def lbfgs_direction(comm, s, y, g):
    param = torch.nn.Parameter(torch.zeros_like(g))
    optimizer = torch.optim.LBFGS([param], history_size=max(1, len(s)), max_iter=1)
    param.grad = g.clone()
    optimizer.step(lambda: torch.zeros(()))
    return param.detach()
""",
    "finish": """
def finish(tasks, speeds, backups=False):
    from scipy.optimize import linear_sum_assignment

    seconds = [[work / speed for speed in speeds] for work in tasks]
    return float(max(seconds[i][j] for i, j in zip(*linear_sum_assignment(seconds))))
""",
}

NOT_IN_FRAMEWORKS = {
    "hogwild": "torch.multiprocessing shares tensors; nothing replays a schedule of events",
    "adam": "a product, which is torch's in the reference too, and a count",
}
