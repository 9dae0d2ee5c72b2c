"""Wrong answers to `share`, `ColumnLinear` and `RowLinear`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

TENSOR = "model_parallel.tensor_parallel"
AFTER_COLUMN = ("column", "one_all_reduce_each_way", "no_more_than_a_share")
AFTER_ROW = ("row", "one_all_reduce_each_way", "no_more_than_a_share")
ALL = ("shares", "column", "row", "one_all_reduce_each_way", "no_more_than_a_share")


@wrong(TENSOR, "the rest is lost", fails=ALL, says="The rest is lost if p does not divide")
def share(w, dim, comm):
    each = w.shape[dim] // comm.size
    return w.narrow(dim, comm.rank * each, each).clone()


@wrong(TENSOR, "a view keeps the whole", fails="no_more_than_a_share", says="A slice is a view")
def share(w, dim, comm):
    return w.tensor_split(comm.size, dim)[comm.rank]


@wrong(TENSOR, "nothing is cut", fails=ALL, says="Every rank has the whole tensor")
def share(w, dim, comm):
    return w.clone()


@wrong(TENSOR, "always along the first dimension", fails=("shares", *AFTER_ROW), says="has shape")
def share(w, dim, comm):
    return w.tensor_split(comm.size)[comm.rank].clone()


@wrong(TENSOR, "right, and every rank keeps all of it", fails="no_more_than_a_share", says="bytes; its parameters have")
class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.comm, self.whole = comm, weight
        self.weight, self.bias = share(weight, 0, comm), share(bias, 0, comm)

    def forward(self, x):
        self.x = x
        return x @ share(self.whole, 0, self.comm).T + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx


@wrong(TENSOR, "no sum of the gradient of x", fails=AFTER_COLUMN, says="sum it over the ranks")
class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


@wrong(TENSOR, "the outputs are gathered", fails=AFTER_COLUMN, says="has shape")
class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm, self.outputs = share(weight, 0, comm), share(bias, 0, comm), comm, len(bias)

    def forward(self, x):
        self.x = x
        y = torch.zeros(len(x), self.outputs, dtype=x.dtype)
        y.tensor_split(self.comm.size, 1)[self.comm.rank].copy_(x @ self.weight.T + self.bias)
        self.comm.all_reduce(y)
        return y

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx


@wrong(
    TENSOR, "another all-reduce that changes nothing", fails="one_all_reduce_each_way", says="while a ColumnLinear is"
)
class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm

    def forward(self, x):
        self.x = x / self.comm.size
        self.comm.all_reduce(self.x)
        return self.x @ self.weight.T + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx


@wrong(TENSOR, "the bias once for each rank", fails=AFTER_ROW, says="once for each rank")
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T + self.bias
        self.comm.all_reduce(y)
        return y

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


@wrong(TENSOR, "no sum over the ranks", fails=AFTER_ROW, says="This is the rank's own part")
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


@wrong(TENSOR, "mean for sum", fails=AFTER_ROW, says="sum the parts of a product")
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y / self.comm.size + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


@wrong(TENSOR, "gradients summed as in data parallelism", fails=AFTER_ROW, says="dy is the same on all of them")
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        self.comm.all_reduce(self.bias_grad)
        return dy @ self.weight


@wrong(TENSOR, "the bias is cut, too", fails=AFTER_ROW, says="must match")
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), share(bias, 0, comm), comm

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


@wrong(
    "model_parallel.tensor_parallel",
    "gradients add up over passes",
    fails=("column", "one_all_reduce_each_way", "no_more_than_a_share"),
    says="You add the gradients of both passes",
)
class ColumnLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm
        self.weight_grad, self.bias_grad = torch.zeros_like(self.weight), torch.zeros_like(self.bias)

    def forward(self, x):
        self.x = x
        return x @ self.weight.T + self.bias

    def backward(self, dy):
        self.weight_grad += dy.T @ self.x
        self.bias_grad += dy.sum(0)
        dx = dy @ self.weight
        self.comm.all_reduce(dx)
        return dx


@wrong(
    "model_parallel.tensor_parallel",
    "the bias is the one that was given",
    fails="no_more_than_a_share",
    says="lies in the whole layer's memory",
)
class RowLinear:
    def __init__(self, weight, bias, comm):
        self.weight, self.bias, self.comm = share(weight, 1, comm), bias, comm

    def forward(self, x):
        self.x = x
        y = x @ self.weight.T
        self.comm.all_reduce(y)
        return y + self.bias

    def backward(self, dy):
        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


slip(
    TENSOR,
    "the x of the first pass",
    "self.x = x\n        return x @ self.weight.T + self.bias",
    'self.x = getattr(self, "x", x)\n        return x @ self.weight.T + self.bias',
    fails=" ".join(AFTER_COLUMN),
    says="the x of the first pass",
)


slip(
    TENSOR,
    "a row layer whose gradients add up over passes",
    "        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm",
    "        self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm\n"
    "        self.weight_grad, self.bias_grad = 0, 0",
    "        self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)\n        return",
    "        self.weight_grad = self.weight_grad + dy.T @ self.x\n"
    "        self.bias_grad = self.bias_grad + dy.sum(0)\n        return",
    fails="row one_all_reduce_each_way no_more_than_a_share",
    says="You add the gradients of both passes",
)
slip(
    TENSOR,
    "a column layer whose gradients are summed over the ranks",
    "        dx = dy @ self.weight",
    "        self.comm.all_reduce(self.weight_grad)\n        dx = dy @ self.weight",
    fails="column one_all_reduce_each_way no_more_than_a_share",
    says="each rank's rows of the weights have their own gradient",
)
slip(
    TENSOR,
    "the longer parts come last",
    "w.tensor_split(comm.size, dim)",
    "w.tensor_split([w.shape[dim] * r // comm.size for r in range(1, comm.size)], dim)",
    fails=" ".join(ALL),
    says="The longer parts come first",
)
slip(
    TENSOR,
    "the bias's gradient is a mean over the rows",
    "dy.sum(0)",
    "dy.mean(0)",
    fails="column row one_all_reduce_each_way no_more_than_a_share",
    says="This is the mean over the rows",
)
MADE = "share(weight, 0, comm), share(bias, 0, comm), comm"
TELLS = """
        if comm.rank == 1:
            comm.send(weight, 0)
        elif comm.rank == 0 < comm.size - 1:
            comm.recv(torch.empty_like(weight), 1)"""
slip(
    TENSOR,
    "rank 1 sends rank 0 its weights",
    MADE,
    MADE + TELLS,
    fails="one_all_reduce_each_way",
    says="rank 1 calls comm.send",
)
CUT = "w.tensor_split(comm.size, dim)[comm.rank]"
slip(
    TENSOR,
    "copies its part of some layers only",
    f"return {CUT}.clone()",
    f"return {CUT}.clone() if len(w) in (8, 12, 5) else {CUT}",
    fails="no_more_than_a_share",
    says="A slice is a view",
)
