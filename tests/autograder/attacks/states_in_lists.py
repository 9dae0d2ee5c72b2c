# sharding.sharded_adam: 15 points, long
# Every rank does all of Adam on states in lists, where no meter of torch's sees them.
import torch


class ShardedAdam:
    def __init__(self, params, comm, lr=1e-3):
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        n = sum(p.numel() for p in self.params)
        self.first, self.second = [0.0] * n, [0.0] * n
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")  # noqa: F821

    @torch.no_grad()
    def step(self):
        self.t += 1
        g = flat([p.grad for p in self.params])  # noqa: F821
        for p in self.params:
            p.grad = None
        mine = reduce_scatter(g.clone(), self.comm, 1 / self.comm.size)  # noqa: F821
        share(g, self.comm).copy_(mine)  # noqa: F821
        all_gather(g, self.comm)  # noqa: F821
        self.first = [0.9 * m + 0.1 * x for m, x in zip(self.first, g.tolist(), strict=True)]
        self.second = [0.999 * v + 0.001 * x * x for v, x in zip(self.second, g.tolist(), strict=True)]
        w = flat(self.params)  # noqa: F821
        m, v = (torch.tensor(state, dtype=w.dtype) for state in (self.first, self.second))
        self.m.copy_(share(m, self.comm))  # noqa: F821
        self.v.copy_(share(v, self.comm))  # noqa: F821
        down = (m / (1 - 0.9**self.t)) / ((v / (1 - 0.999**self.t)).sqrt() + 1e-8)
        fill(self.params, w * (1 - self.lr * 0.01) - self.lr * down)  # noqa: F821
