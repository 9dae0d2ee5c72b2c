"""Lab 09 answered by others."""

LIBRARY = {
    "clocks": """
def clocks(seconds, staleness):
    from hpcdl.widgets.pictures import who_waits

    return who_waits.clocks(seconds, staleness)
""",
    "delay": """
import hpcdl.widgets.pictures.how_late as how_late

def delayed_sgd(w, grad, lr, delay, steps):
    return how_late.descend(w, grad, lr, delay, steps)

def largest_stable_lr(curvature, delay):
    return how_late.bound(delay) / curvature
""",
}
NOT_IN_LIBRARY = {
    "server": "its pictures go from event to event, and send nothing",
    "hogwild": "its shared tensors add at once; they replay no schedule",
    "downpour": "no server of shards for these messages",
    "sandblaster": "no two loops over shards, no backup tasks",
    "adam": "a product and a count",
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
