"""Wrong answers to `ShardedAdam`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

ADAM = "sharding.sharded_adam"
ALL = (
    "as_one_machine",
    "a_rank_without_a_share",
    "no_more_bytes",
    "states_of_the_share_alone",
    "gradients_are_gone",
)
MEMORY = "states_of_the_share_alone"


@wrong(ADAM, "right, and shards nothing", fails=("no_more_bytes", MEMORY), says="gives every rank the whole sum")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(flat(self.params)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        g = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        self.comm.all_reduce(g)
        w = flat(self.params)
        adamw(w, g / self.comm.size, self.m, self.v, self.t, self.lr)
        fill(self.params, w)


@wrong(ADAM, "all-reduce for reduce-scatter", fails="no_more_bytes", says="A rank needs the sum of its own share")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        g = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        self.comm.all_reduce(g)
        w = flat(self.params)
        adamw(share(w, self.comm), share(g, self.comm) / self.comm.size, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "an all-reduce of reduce-scatter and gather", fails="no_more_bytes", says="an all-reduce and a gather")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        g = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        reduce_scatter(g, self.comm, 1 / self.comm.size)
        all_gather(g, self.comm)
        w = flat(self.params)
        adamw(share(w, self.comm), share(g, self.comm), self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "states of all elements", fails=MEMORY, says="as much as without sharding")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(flat(self.params)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        m, v = share(self.m, self.comm), share(self.v, self.comm)
        adamw(share(w, self.comm), g, m, v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "a view keeps all gradients", fails=MEMORY, says="A view keeps the whole vector in memory")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        self.g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), self.g, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "averaged over p twice", fails=ALL, says="The mean is taken twice")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        gradients = flat([param.grad for param in self.params]) / self.comm.size
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "the sum instead of the mean", fails=ALL, says="This is the sum over the ranks")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "the new weights are not gathered", fails=ALL, says="Only the rank's own share is new")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)
        fill(self.params, w)


@wrong(ADAM, "t stays 1", fails=ALL, says="t does not count the steps")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr = list(params), comm, lr
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, 1, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


@wrong(ADAM, "gradients stay", fails=(MEMORY, "gradients_are_gone"), says="No rank needs them after the sum")
class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")

    @torch.no_grad()
    def step(self):
        self.t += 1
        g = reduce_scatter(flat([param.grad for param in self.params]), self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)


slip(
    ADAM,
    "states under other names",
    "self.m, self.v",
    "self.momentum, self.variance",
    fails=MEMORY,
    says="has no attribute m",
)
slip(ADAM, "steps under another name", "self.t", "self.steps", fails=MEMORY, says="t is the number of steps so far")
slip(
    ADAM,
    "states in float64 for weights in float32",
    "comm)) for _",
    "comm), dtype=torch.float64) for _",
    fails=" ".join(ALL),
    says="need one dtype",
)
