"""Answers to exercises of lab `sharding` whose verdict was wrong once: see `test_verdicts`."""


# %% sharded: first -> full points
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm = layers, comm
        self.sizes = [len(w) for w in weights]
        self.shares = [share(w, comm).clone() for w in weights]
        self.grads = [torch.zeros_like(s) for s in self.shares]

    def begin(self, i):
        comm = self.comm
        whole = self.shares[i].new_empty(self.sizes[i])
        parts = whole.tensor_split(comm.size)
        parts[comm.rank].copy_(self.shares[i])
        requests = []
        for r in range(comm.size):
            if r != comm.rank:
                requests.append(comm.isend(self.shares[i], r))
                requests.append(comm.irecv(parts[r], r))
        return whole, requests

    def forward(self, x, order):
        coming = self.begin(order[0])
        for n, i in enumerate(order):
            w, requests = coming
            for r in requests:
                r.wait()
            coming = self.begin(order[n + 1]) if n + 1 < len(order) else None
            x = self.layers[i].forward(w, x)
        return x

    def backward(self, dy, order):
        for g in self.grads:
            g.zero_()
        back = order[::-1]
        coming = self.begin(back[0])
        for n, i in enumerate(back):
            w, requests = coming
            for r in requests:
                r.wait()
            coming = self.begin(back[n + 1]) if n + 1 < len(back) else None
            dy, dw = self.layers[i].backward(w, dy)
            self.grads[i] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


# %% clip: wrong float32 -> all_see_a_bad_number
def clip(shares, comm, max_norm):
    squares = torch.zeros(1)
    for mine in shares:
        squares += (mine**2).sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


# %% clip: wrong squares in dtype -> all_see_a_bad_number
def clip(shares, comm, max_norm):  # squares in the share's dtype, then added in float64
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += (mine * mine).sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


# %% checkpointed: wrong keeps on ctx -> keeps_its_inputs_alone
class Checkpointed(torch.autograd.Function):  # inputs as an attribute of ctx
    @staticmethod
    def forward(ctx, f, *inputs):
        ctx.f = f
        ctx.state = torch.get_rng_state()
        ctx.inputs = inputs
        return f(*inputs)

    @staticmethod
    def backward(ctx, dy):
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.inputs]
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            y = ctx.f(*inputs)
        torch.set_rng_state(now)
        torch.autograd.backward(y, dy)
        return None, *(x.grad for x in inputs)


# %% checkpointed: wrong plan fewest -> cheapest_plan
def plan(nbytes, seconds, budget):
    n = len(nbytes)
    for k in range(n + 1):
        fits = [
            set(c) for c in itertools.combinations(range(n), k) if sum(nbytes) - sum(nbytes[i] for i in c) <= budget
        ]
        if fits:
            return min(fits, key=lambda c: sum(seconds[i] for i in c))


# %% checkpointed: alt frozenset -> full points
def plan(nbytes, seconds, budget):
    n = len(nbytes)
    sets = (frozenset(c) for k in range(n + 1) for c in itertools.combinations(range(n), k))
    fits = [c for c in sets if sum(nbytes[i] for i in range(n) if i not in c) <= budget]
    return min(fits, key=lambda c: sum(seconds[i] for i in c))


# %% save_load: wrong reuses step name -> killed_at_any_moment
def save(disk, step, state, n, comm):  # two names in turn by parity of step
    disk.write(f"{step % 2}.{comm.rank}", {"step": step, **state})
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest.new", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest.new", "manifest")
    comm.barrier()


def load(disk, comm):
    info = disk.read("manifest")
    step, p, n = info["step"], info["p"], info["n"]
    start, stop = bounds(n, comm.size, comm.rank)
    pieces = {}
    for r in range(p):
        first, last = bounds(n, p, r)
        a, b = max(start, first), min(stop, last)
        if a < b:
            for name, x in disk.read(f"{step % 2}.{r}").items():
                if name != "step":
                    pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return step, {name: torch.cat(xs) for name, xs in pieces.items()}


# %% sharded: wrong keep whole in attr -> two_layers_at_a_time
class Sharded(Sharded):
    def forward(self, x, order):  # keeps the last whole weight for backward
        coming = self.begin(order[0])
        for n, i in enumerate(order):
            w, requests = coming
            for r in requests:
                r.wait()
            coming = self.begin(order[n + 1]) if n + 1 < len(order) else None
            x = self.layers[i].forward(w, x)
        self.last = w
        return x
