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
    "gossip": """
from hpcdl.consistency import gossip as gossips

def weights(p, edges):
    import torch

    return torch.from_numpy(gossips.mixing(p, sorted((min(edge), max(edge)) for edge in edges)))

def rounds_needed(W, close):
    import math

    gap = gossips.spectral_gap(W.numpy())
    return max(1, math.ceil(math.log(close) / math.log(max(1e-12, 1 - gap))))

def gossip(x, comm, rounds):
    for edges in rounds:
        gossips.mix(x, comm, edges)
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
}

NOT_IN_FRAMEWORKS = {
    "clocks": "no framework says when workers would wait",
    "delay": "an optimizer takes the gradient that it is given: how late it is, the caller says",
    "gossip": "torch.distributed has no averages with neighbours",
}
