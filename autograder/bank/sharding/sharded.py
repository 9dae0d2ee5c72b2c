"""Wrong answers to `Sharded`."""

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "sharding.sharded"
BYTES, MEMORY, TIME = "three_times_the_weights", "two_layers_at_a_time", "gathers_are_hidden"
ALL = ("as_with_whole_layers", "the_next_pass", "tied_layers", BYTES, MEMORY, TIME)


@wrong(
    HERE,
    "a DDP: right, and shards nothing",
    fails=(BYTES, MEMORY, TIME),
    says="to every rank: each needs only",
)
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.weights, self.comm = layers, list(weights), comm
        self.shares = [share(w, comm) for w in weights]

    def forward(self, x, order):
        for i in order:
            x = self.layers[i].forward(self.weights[i], x)
        return x

    def backward(self, dy, order):
        whole = [w.new_zeros(len(w)) for w in self.weights]
        for i in order[::-1]:
            dy, dw = self.layers[i].backward(self.weights[i], dy)
            whole[i] += dw
        for dw in whole:
            self.comm.all_reduce(dw)
        self.grads = [share(dw, self.comm) / self.comm.size for dw in whole]
        return dy


@wrong(HERE, "everything is gathered at once", fails=(MEMORY, TIME), says="All layers are whole at once")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        everything = {i: self.begin(i) for i in order}
        for whole, requests in everything.values():
            for request in requests:
                request.wait()
        for now in order:
            whole = everything[now][0]
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        everything = {i: self.begin(i) for i in back}
        for whole, requests in everything.values():
            for request in requests:
                request.wait()
        for now in back:
            whole = everything[now][0]
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "gathered and never freed", fails=MEMORY, says="All layers are whole at once")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.whole = {}
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            self.whole[now] = whole
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            self.whole[now] = whole
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "nothing is gathered ahead", fails=TIME, says="gathers of 0.6 s that it waits for")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        for now in order:
            whole, requests = self.begin(now)
            for request in requests:
                request.wait()
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        for now in back:
            whole, requests = self.begin(now)
            for request in requests:
                request.wait()
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "nothing is gathered ahead in backward", fails=TIME, says="the next layer is the one before")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        for now in back:
            whole, requests = self.begin(now)
            for request in requests:
                request.wait()
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(
    HERE,
    "gathered ahead in the wrong direction",
    fails=(BYTES, MEMORY, TIME),
    says="the next layer is the one before",
)
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        ahead = {}
        for now in back:
            whole, requests = ahead.pop(now, None) or self.begin(now)
            for request in requests:
                request.wait()
            for _, unneeded in ahead.values():
                for request in unneeded:
                    request.wait()
            ahead = {now + 1: self.begin(now + 1)} if now + 1 < len(self.shares) else {}
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "a view keeps the whole", fails=MEMORY, says="A part of a vector is a view")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm) for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "the sum instead of the mean", fails=ALL, says="This is the sum over the ranks")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm)
        return dy


@wrong(HERE, "averaged over p twice", fails=ALL, says="The mean is taken twice")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw / self.comm.size, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "the rank's own gradients", fails=ALL, says="own samples: sum them over")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += share(dw, self.comm)
        return dy


@wrong(  # its shares of the gradients are views, too
    HERE,
    "a tied layer has one use's gradient",
    fails=("tied_layers", MEMORY),
    says="this is the gradient of one use",
    causes=2,
)
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] = reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "all-reduce for reduce-scatter", fails=BYTES, says="each needs only the sum of its own share")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = (layers, comm, [len(w) for w in weights])
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank, whole = (self.comm.size, self.comm.rank, self.shares[i].new_empty(self.sizes[i]))
        parts, others = (whole.tensor_split(p), [r for r in range(p) if r != rank])
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return (whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others])

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.comm.all_reduce(dw)
            self.grads[now] += share(dw, self.comm) / self.comm.size
        return dy


@wrong(
    HERE,
    "gradients add up over passes",
    fails="the_next_pass",
    says="The gradients of the previous pass are still included",
)
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]
        self.shares = [share(w, comm).clone() for w in weights]
        self.grads = [torch.zeros_like(mine) for mine in self.shares]

    def begin(self, i):
        p, rank = self.comm.size, self.comm.rank
        whole = self.shares[i].new_empty(self.sizes[i])
        parts, others = whole.tensor_split(p), [r for r in range(p) if r != rank]
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others]

    def forward(self, x, order):
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x

    def backward(self, dy, order):
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


@wrong(HERE, "the last layer stays whole", fails="two_layers_at_a_time", says="A layer is still whole")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        p, rank = self.comm.size, self.comm.rank
        whole = self.shares[i].new_empty(self.sizes[i])
        parts, others = whole.tensor_split(p), [r for r in range(p) if r != rank]
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others]

    def forward(self, x, order):
        self.coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            self.whole, requests = self.coming
            for request in requests:
                request.wait()
            self.coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(self.whole, x)
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        self.whole = None
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy


slip(HERE, "sends that are not waited for", "sent + [", "[", fails=BYTES, says="wait")
slip(
    HERE,
    "the layers in their own order",
    "coming = self.begin(order[0])",
    "order = list(range(len(self.layers)))\n        coming = self.begin(order[0])",
    "back = order[::-1]",
    "back = list(range(len(self.layers)))[::-1]",
    fails="tied_layers",
    says="forward(x) on rank",
)
slip(HERE, "the last gradient of weights", "return dy", "return dw", fails=" ".join(ALL), says="backward(dy) on rank")

BEGIN = "        parts[rank].copy_(self.shares[i])\n"
slip(
    HERE,
    "zeros as a rank's own part where gathers are timed",
    BEGIN,
    BEGIN + "        parts[rank].mul_(len(self.layers) != 6)\n",
    fails="gathers_are_hidden",
    says="forward(x) on rank 0",
)
