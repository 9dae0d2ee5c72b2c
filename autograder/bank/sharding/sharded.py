"""Wrong answers to `Sharded`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("sharding.sharded")
BYTES, MEMORY, TIME = "three_times_the_weights", "two_layers_at_a_time", "gathers_are_hidden"
ALL = ("as_with_whole_layers", "the_next_pass", "tied_layers", BYTES, MEMORY, TIME)


@wrong("a DDP, which shards nothing", fails=ALL, says="Only this rank's share is as it is now")
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


slip(
    "whole weights that are kept",
    "self.shares = [",
    "self.whole = [w.clone() for w in weights]\n        self.shares = [",
    "forward(whole, x)",
    "forward(self.whole[now], x)",
    "backward(whole, dy)",
    "backward(self.whole[now], dy)",
    fails=ALL,
    says="The first weights give this",
)
slip(
    "weights of forward in backward",
    "x = self.layers[now].forward(whole, x)",
    "self.kept = {**getattr(self, 'kept', {}), now: whole}\n            x = self.layers[now].forward(whole, x)",
    "backward(whole, dy)",
    "backward(self.kept[now], dy)",
    fails=ALL,
    says="The weights of the forward pass give this",
)
slip(
    "everything is gathered at once",
    "coming = self.begin(order[0])\n"
    "        for now, after in itertools.zip_longest(order, order[1:]):\n"
    "            whole, requests = coming",
    "everything = {i: self.begin(i) for i in order}\n        for whole, requests in everything.values():",
    "            coming = self.begin(after) if after is not None else None\n"
    "            x = self.layers[now].forward(whole, x)",
    "        for now in order:\n"
    "            whole = everything[now][0]\n"
    "            x = self.layers[now].forward(whole, x)",
    "coming = self.begin(back[0])\n"
    "        for now, after in itertools.zip_longest(back, back[1:]):\n"
    "            whole, requests = coming",
    "everything = {i: self.begin(i) for i in back}\n        for whole, requests in everything.values():",
    "            coming = self.begin(after) if after is not None else None\n"
    "            dy, dw = self.layers[now].backward(whole, dy)",
    "        for now in back:\n"
    "            whole = everything[now][0]\n"
    "            dy, dw = self.layers[now].backward(whole, dy)",
    fails=(MEMORY, TIME),
    says="All layers are whole at once",
)
slip(
    "gathered and never freed",
    "self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]",
    "self.whole = {}\n        self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]",
    "x = self.layers[now].forward(whole, x)",
    "self.whole[now] = whole\n            x = self.layers[now].forward(whole, x)",
    "dy, dw = self.layers[now].backward(whole, dy)",
    "self.whole[now] = whole\n            dy, dw = self.layers[now].backward(whole, dy)",
    fails=MEMORY,
    says="All layers are whole at once",
)
slip(
    "nothing is gathered ahead",
    "coming = self.begin(order[0])\n"
    "        for now, after in itertools.zip_longest(order, order[1:]):\n"
    "            whole, requests = coming",
    "for now in order:\n            whole, requests = self.begin(now)",
    "coming = self.begin(after) if after is not None else None\n            x = self.layers[now].forward(whole, x)",
    "x = self.layers[now].forward(whole, x)",
    "coming = self.begin(back[0])\n"
    "        for now, after in itertools.zip_longest(back, back[1:]):\n"
    "            whole, requests = coming",
    "for now in back:\n            whole, requests = self.begin(now)",
    "coming = self.begin(after) if after is not None else None\n"
    "            dy, dw = self.layers[now].backward(whole, dy)",
    "dy, dw = self.layers[now].backward(whole, dy)",
    fails=TIME,
    says="s that it waits for",
)
AHEAD = "            coming = self.begin(after) if after is not None else None\n"
slip(
    "large layers are not gathered ahead",
    AHEAD + "            x = self.layers[now].forward(whole, x)\n",
    "            large = self.sizes[now] > 100\n"
    "            coming = self.begin(after) if after is not None and not large else None\n"
    "            x = self.layers[now].forward(whole, x)\n"
    "            coming = self.begin(after) if after is not None and large else coming\n",
    fails=TIME,
    says="s that it waits for",
)
slip(
    "nothing is gathered ahead in backward",
    "coming = self.begin(back[0])\n"
    "        for now, after in itertools.zip_longest(back, back[1:]):\n"
    "            whole, requests = coming",
    "for now in back:\n            whole, requests = self.begin(now)",
    "coming = self.begin(after) if after is not None else None\n"
    "            dy, dw = self.layers[now].backward(whole, dy)",
    "dy, dw = self.layers[now].backward(whole, dy)",
    fails=TIME,
    says="the next layer is the one before",
)
slip(
    "gathered ahead in the wrong direction",
    "coming = self.begin(back[0])\n"
    "        for now, after in itertools.zip_longest(back, back[1:]):\n"
    "            whole, requests = coming",
    "ahead = {}\n        for now in back:\n            whole, requests = ahead.pop(now, None) or self.begin(now)",
    "coming = self.begin(after) if after is not None else None\n"
    "            dy, dw = self.layers[now].backward(whole, dy)",
    "for _, unneeded in ahead.values():\n"
    "                for request in unneeded:\n"
    "                    request.wait()\n"
    "            ahead = {now + 1: self.begin(now + 1)} if 0 < now < len(self.shares) - 1 else {}\n"
    "            dy, dw = self.layers[now].backward(whole, dy)",
    fails=(BYTES, MEMORY, TIME),
    says="the next layer is the one before",
)
slip("a view keeps the whole", "(w, comm).clone()", "(w, comm)", fails=MEMORY, says="A part of a vector is a view")
slip(
    "the sum instead of the mean",
    "self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)",
    "self.grads[now] += reduce_scatter(dw, self.comm)",
    fails=ALL,
    says="This is the sum over the ranks",
)
slip(
    "gradients in float64 for weights in float32",
    "[torch.zeros_like(mine) for",
    "[torch.zeros_like(mine, dtype=torch.float64) for",
    fails=ALL,
    says="float32",
)
slip(
    "averaged over p twice",
    "self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)",
    "self.grads[now] += reduce_scatter(dw / self.comm.size, self.comm, 1 / self.comm.size)",
    fails=ALL,
    says="The mean is taken twice",
)
slip(
    "the rank's own gradients",
    "self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)",
    "self.grads[now] += share(dw, self.comm)",
    fails=ALL,
    says="own samples: sum them over",
)
slip(
    "a tied layer has one use's gradient",
    "self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)",
    "self.grads[now] = reduce_scatter(dw, self.comm, 1 / self.comm.size)",
    fails=("tied_layers", MEMORY),
    says="this is the gradient of one use",
    causes=2,
)
slip(
    "all-reduce for reduce-scatter",
    "self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)",
    "self.comm.all_reduce(dw)\n            self.grads[now] += share(dw, self.comm) / self.comm.size",
    fails=BYTES,
    says="each needs only the sum of its own share",
)


@wrong(
    "gradients add up over passes", fails="the_next_pass", says="The gradients of the previous pass are still included"
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


slip(
    "the last layer stays whole",
    "coming = self.begin(order[0])",
    "self.coming = self.begin(order[0])",
    "for now, after in itertools.zip_longest(order, order[1:]):\n            whole, requests = coming",
    "for now, after in itertools.zip_longest(order, order[1:]):\n            self.whole, requests = self.coming",
    "coming = self.begin(after) if after is not None else None\n            x = self.layers[now].forward(whole, x)",
    "self.coming = self.begin(after) if after is not None else None\n"
    "            x = self.layers[now].forward(self.whole, x)",
    "for now, after in itertools.zip_longest(back, back[1:]):",
    "self.whole = None\n        for now, after in itertools.zip_longest(back, back[1:]):",
    fails="two_layers_at_a_time",
    says="A layer is still whole",
)
slip(
    "weights that are used before they have arrived",
    "new_empty(self.sizes[i])",
    "new_zeros(self.sizes[i])",
    "            for request in requests:\n                request.wait()\n",
    "",
    fails=" ".join(ALL),
    says="call wait() on each request",
)
slip("sends that are not waited for", "sent + [", "[", fails=BYTES, says="wait")
slip(
    "sends without a wait where memory and time are measured",
    "sent + [",
    "sent * (len(self.layers) != 8) + [",
    fails=" ".join((BYTES, MEMORY, TIME)),
    says="wait",
)
slip(
    "the layers in their own order",
    "coming = self.begin(order[0])",
    "order = list(range(len(self.layers)))\n        coming = self.begin(order[0])",
    "back = order[::-1]",
    "back = list(range(len(self.layers)))[::-1]",
    fails="tied_layers",
    says="forward(x) on rank",
)
slip("the last gradient of weights", "return dy", "return dw", fails=" ".join(ALL), says="backward(dy) on rank")


BEGIN = "        parts[rank].copy_(self.shares[i])\n"
slip(
    "zeros as a rank's own part where gathers are timed",
    BEGIN,
    BEGIN + "        parts[rank].mul_(len(self.layers) != 8)\n",
    fails=" ".join((BYTES, MEMORY, TIME)),
    says="forward(x) on rank 0",
)


@wrong("three layers whole at a time", fails="two_layers_at_a_time", says="begin no gather before")
class Sharded:
    def __init__(self, layers, weights, comm):
        self.layers, self.comm, self.sizes = layers, comm, [len(w) for w in weights]
        self.shares = [share(w, comm).clone() for w in weights]

    def begin(self, i):
        whole = self.shares[i].new_empty(self.sizes[i])
        parts, others = whole.tensor_split(self.comm.size), [r for r in range(self.comm.size) if r != self.comm.rank]
        parts[self.comm.rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others]

    def whole(self, order, ahead):
        coming = [self.begin(i) for i in order[:ahead]]
        for n, now in enumerate(order):
            whole, requests = coming.pop(0)
            for request in requests:
                request.wait()
            coming += [self.begin(i) for i in order[n + ahead :][:1]]
            yield now, whole
            del whole

    def forward(self, x, order):
        for now, whole in self.whole(order, 1):
            x = self.layers[now].forward(whole, x)
            del whole
        return x

    def backward(self, dy, order):
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        for now, whole in self.whole(order[::-1], 2):
            dy, dw = self.layers[now].backward(whole, dy)
            del whole
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
            del dw
        return dy


ONCE = """            if len(set(order)) < len(order):
                found[now] = whole
            ready = (found[after], []) if after in found else None
            coming = ready or (self.begin(after) if after is not None else None)
"""
slip(
    "a layer that is used twice is gathered once in a pass",
    "        coming = self.begin(order[0])\n",
    "        found = {}\n        coming = self.begin(order[0])\n",
    "            coming = self.begin(after) if after is not None else None\n            x =",
    ONCE + "            x =",
    fails="tied_layers",
    says="Gather a layer that is used twice for each use",
)
slip(
    "small layers are all gathered in advance",
    "        coming = self.begin(order[0])\n",
    "        early = {i: self.begin(i) for i in order} if self.sizes[0] < 200 else {}\n"
    "        coming = early.get(order[0]) or self.begin(order[0])\n",
    "            coming = self.begin(after) if after is not None else None\n            x =",
    "            coming = early.get(after) or (self.begin(after) if after is not None else None)\n            x =",
    fails=MEMORY,
    says="Two layers are whole at a time",
)
