"""Answers to exercises of lab `model_parallel` whose verdict was wrong once: see `test_verdicts`."""


# %% tensor_parallel: wrong all reduce on dy in place -> no_more_than_a_share
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight, self.bias = share(weight, 1, comm), bias  # not a copy

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y.add_(self.bias)

    def backward(self, dy):
        self.weight_grad = dy.T @ self.x
        self.bias_grad = dy.sum(0)
        return dy @ self.weight


# %% one_weird_trick: alt tuple -> full points
def one_weird_trick(layers, batch, p):
    return tuple("data" if w <= i * batch else "model" for w, i in layers)


# %% schedules: alt tuples of tuples -> full points
def gpipe(p, m):
    return tuple(tuple([("F", k, 0) for k in range(m)] + [("B", k, 0) for k in range(m)]) for _ in range(p))


# %% zero_bubble: wrong newest w -> no_more_memory
def zb_h1(p, m):
    out = []
    for i, order in enumerate(one_f_one_b(p, m)):
        ops, waiting = [], []
        for op, k, c in order:
            ops.append((op, k, c))
            if op == "B":
                waiting.append(("W", k, c))
                if len(waiting) > i:
                    ops.append(waiting.pop())
        out.append(ops + waiting)
    return out


# %% run_stage: wrong no wait sent -> no_more_messages_and_memory
def run_stage(stage, order, rows, comm):  # never waits for what it sent
    posted = post_receives(stage, order, comm)
    stage.zero_grad()
    split = any(op == "W" for op, *_ in order)
    last = comm.rank == comm.size - 1
    loss = 0.0
    for op, k, _ in order:
        got = None
        if (op, k) in posted:
            got, request = posted[op, k]
            request.wait()
        if op == "F":
            y = stage.forward(k, got)
            if last:
                loss += y * rows[k] / sum(rows)
            else:
                comm.isend(y, comm.rank + 1, tag=k)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if last else got)
            if comm.rank > 0:
                comm.isend(dx, comm.rank - 1, tag=k)
            if not split:
                stage.weights(k)
        else:
            stage.weights(k)
    return loss


# %% run_stage: wrong weights before send -> as_fast_as_predicted
def run_stage(
    stage, order, rows, comm
):  # the whole backward first, then the gradient is sent on (neighbour waits for W)
    posted = post_receives(stage, order, comm)
    stage.zero_grad()
    split = any(op == "W" for op, *_ in order)
    last = comm.rank == comm.size - 1
    sent, loss = [], 0.0
    for op, k, _ in order:
        got = None
        if (op, k) in posted:
            got, request = posted[op, k]
            request.wait()
        if op == "F":
            y = stage.forward(k, got)
            if last:
                loss += y * rows[k] / sum(rows)
            else:
                sent.append(comm.isend(y, comm.rank + 1, tag=k))
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if last else got)
            if not split:
                stage.weights(k)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        else:
            stage.weights(k)
    for r in sent:
        r.wait()
    return loss


# %% tensor_parallel: wrong lazy accumulate -> column
def share(w, dim, comm):
    return w.tensor_split(comm.size, dim)[comm.rank].clone()


class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight, self.bias = share(weight, 0, comm), share(bias, 0, comm)

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.weight_grad = getattr(self, "weight_grad", 0) + dy.T @ self.x
        self.bias_grad = getattr(self, "bias_grad", 0) + dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx


class RowLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight, self.bias = share(weight, 1, comm), bias.clone()

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias

    def backward(self, dy):
        self.weight_grad = getattr(self, "weight_grad", 0) + dy.T @ self.x
        self.bias_grad = getattr(self, "bias_grad", 0) + dy.sum(0)
        return dy @ self.weight


# %% tensor_parallel: alt grad buffers -> full points
def share(w, dim, comm):
    return w.tensor_split(comm.size, dim)[comm.rank].clone()


class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight, self.bias = share(weight, 0, comm), share(bias, 0, comm)
        self.weight_grad, self.bias_grad = (
            torch.zeros_like(self.weight),
            torch.zeros_like(self.bias),
        )  # buffers, filled in backward

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.weight_grad = dy.T @ self.x
        self.bias_grad = dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx


class RowLinear:
    def __init__(self, weight, bias, comm):
        self.comm = comm
        self.weight, self.bias = share(weight, 1, comm), bias.clone()

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias

    def backward(self, dy):
        self.weight_grad = dy.T @ self.x
        self.bias_grad = dy.sum(0)
        return dy @ self.weight
