"""Wrong answers to `ShardedAdam`."""

from autograder.bank.slips import answers_to

_, slip = answers_to("sharding.sharded_adam")
ALL = (
    "as_one_machine",
    "a_rank_without_a_share",
    "no_more_bytes",
    "states_of_the_share_alone",
    "gradients_are_gone",
)
MEMORY = "states_of_the_share_alone"

slip(
    "right, and shards nothing",
    'self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")',
    'self.m, self.v = (torch.zeros_like(flat(self.params)) for _ in "mv")',
    "gradients = flat([param.grad for param in self.params])",
    "g = flat([param.grad for param in self.params])",
    "g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "self.comm.all_reduce(g)",
    "adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)\n        all_gather(w, self.comm)",
    "adamw(w, g / self.comm.size, self.m, self.v, self.t, self.lr)",
    fails=("a_rank_without_a_share", "no_more_bytes", MEMORY),
    says="gives every rank the whole sum",
)
slip(
    "all-reduce for reduce-scatter",
    "gradients = flat([param.grad for param in self.params])",
    "g = flat([param.grad for param in self.params])",
    "g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "self.comm.all_reduce(g)",
    "adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)",
    "adamw(share(w, self.comm), share(g, self.comm) / self.comm.size, self.m, self.v, self.t, self.lr)",
    fails="no_more_bytes",
    says="A rank needs the sum of its own share",
)
slip(
    "all-reduce for reduce-scatter of many elements",
    "gradients = flat([param.grad for param in self.params])",
    "g = flat([param.grad for param in self.params])",
    "g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "if len(g) < 500:\n"
    "            g = reduce_scatter(g, self.comm, 1 / self.comm.size)\n"
    "        else:\n"
    "            self.comm.all_reduce(g)\n"
    "            g = share(g, self.comm) / self.comm.size",
    fails="no_more_bytes",
    says="A rank needs the sum of its own share",
)
slip(
    "an all-reduce of reduce-scatter and gather",
    "gradients = flat([param.grad for param in self.params])",
    "g = flat([param.grad for param in self.params])",
    "g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "reduce_scatter(g, self.comm, 1 / self.comm.size)\n        all_gather(g, self.comm)",
    "adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)",
    "adamw(share(w, self.comm), share(g, self.comm), self.m, self.v, self.t, self.lr)",
    fails="no_more_bytes",
    says="an all-reduce and a gather",
)
slip(
    "states of all elements",
    'self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")',
    'self.m, self.v = (torch.zeros_like(flat(self.params)) for _ in "mv")',
    "adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)",
    "m, v = share(self.m, self.comm), share(self.v, self.comm)\n"
    "        adamw(share(w, self.comm), g, m, v, self.t, self.lr)",
    fails=("a_rank_without_a_share", MEMORY),
    says="as much as without sharding",
)
slip(
    "a view keeps all gradients",
    "g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "self.g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)",
    "adamw(share(w, self.comm), self.g, self.m, self.v, self.t, self.lr)",
    fails=MEMORY,
    says="A view keeps the whole vector in memory",
)
slip(
    "averaged over p twice",
    "gradients = flat([param.grad for param in self.params])",
    "gradients = flat([param.grad for param in self.params]) / self.comm.size",
    fails=ALL,
    says="The mean is taken twice",
)
slip(
    "the sum instead of the mean",
    "g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "g = reduce_scatter(gradients, self.comm)",
    fails=ALL,
    says="This is the sum over the ranks",
)
slip(
    "the new weights are not gathered",
    "        all_gather(w, self.comm)\n",
    "",
    fails=ALL,
    says="Only the rank's own share is new",
)
slip(
    "t stays 1",
    "self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0",
    "self.params, self.comm, self.lr = list(params), comm, lr",
    "        self.t += 1\n",
    "",
    "adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)",
    "adamw(share(w, self.comm), g, self.m, self.v, 1, self.lr)",
    fails=ALL,
    says="t does not count the steps",
)
slip(
    "t begins at 1",
    "self.t = list(params), comm, lr, 0",
    "self.t = list(params), comm, lr, 1",
    fails=ALL,
    says="one too large",
)
slip("t is not counted", "        self.t += 1\n", "", fails=ALL, says="count t up before adamw")
slip(
    "gradients stay",
    "gradients = flat([param.grad for param in self.params])\n"
    "        for param in self.params:\n"
    "            param.grad = None\n"
    "        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)",
    "g = reduce_scatter(flat([param.grad for param in self.params]), self.comm, 1 / self.comm.size)",
    fails=(MEMORY, "gradients_are_gone"),
    says="No rank needs them after the sum",
)
slip(
    "gradients set to zero",
    "            param.grad = None\n",
    "            param.grad.zero_()\n",
    fails=(MEMORY, "gradients_are_gone"),
    says="zeros in it take as much memory",
)
slip(
    "states under other names",
    "self.m, self.v",
    "self.momentum, self.variance",
    fails=MEMORY,
    says="has no attribute m",
)
slip("steps under another name", "self.t", "self.steps", fails=MEMORY, says="t is the number of steps so far")
slip(
    "states in float64 for weights in float32",
    "comm)) for _",
    "comm), dtype=torch.float64) for _",
    fails=" ".join(ALL),
    says="need one dtype",
)
slip(
    "a rank without a share returns early",
    "        w = flat(self.params)\n        adamw",
    "        if not len(g):\n            return\n        w = flat(self.params)\n        adamw",
    fails="a_rank_without_a_share",
    says="both sides need",
)
slip(
    "new weights that are sent without a wait",
    "        all_gather(w, self.comm)\n",
    """        parts = w.tensor_split(self.comm.size)
        others = set(range(self.comm.size)) - {self.comm.rank}
        for rank in others:
            self.comm.isend(parts[self.comm.rank], rank)
        for rank in others:
            self.comm.recv(parts[rank], rank)
""",
    fails="no_more_bytes states_of_the_share_alone",
    says="is never waited for",
)
