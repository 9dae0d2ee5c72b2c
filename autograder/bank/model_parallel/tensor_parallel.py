"""Wrong answers to `share`, `ColumnLinear` and `RowLinear`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("model_parallel.tensor_parallel")
AFTER_COLUMN = ("column", "one_all_reduce_each_way", "no_more_than_a_share")
AFTER_ROW = ("row", "one_all_reduce_each_way", "no_more_than_a_share")
ALL = ("shares", "column", "row", "one_all_reduce_each_way", "no_more_than_a_share")


@wrong("the rest is lost", fails=ALL, says="The rest is lost if p does not divide")
def share(w, dim, comm):
    each = w.shape[dim] // comm.size
    return w.narrow(dim, comm.rank * each, each).clone()


@wrong("chunks", fails=ALL, says="tensor_split makes them even")
def share(w, dim, comm):
    return w.chunk(comm.size, dim)[comm.rank].clone()


@wrong("a view keeps the whole", fails="no_more_than_a_share", says="A slice is a view")
def share(w, dim, comm):
    return w.tensor_split(comm.size, dim)[comm.rank]


@wrong("nothing is cut", fails=ALL, says="Every rank has the whole tensor")
def share(w, dim, comm):
    return w.clone()


slip("always along the first dimension", "comm.size, dim", "comm.size", fails=("shares", *AFTER_ROW), says="has shape")
slip(
    "right, and every rank keeps all of it",
    "self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm",
    "self.comm, self.whole = comm, weight\n"
    "        self.weight, self.bias = share(weight, 0, comm), share(bias, 0, comm)",
    "return x @ self.weight.T + self.bias",
    "return x @ share(self.whole, 0, self.comm).T + self.bias",
    fails="no_more_than_a_share",
    says="bytes; its parameters have",
)
slip(
    "no sum of the gradient of x",
    "dx = dy @ self.weight\n        self.comm.all_reduce(dx)\n        return dx",
    "return dy @ self.weight",
    fails=AFTER_COLUMN,
    says="sum it over the ranks",
)
slip(
    "the outputs are gathered",
    "self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm",
    "self.weight, self.bias, self.comm, self.outputs = share(weight, 0, comm), share(bias, 0, comm), comm, len(bias)",
    "return x @ self.weight.T + self.bias",
    "y = torch.zeros(len(x), self.outputs, dtype=x.dtype)\n"
    "        y.tensor_split(self.comm.size, 1)[self.comm.rank].copy_(x @ self.weight.T + self.bias)\n"
    "        self.comm.all_reduce(y)\n"
    "        return y",
    fails=AFTER_COLUMN,
    says="has shape",
)
slip(
    "another all-reduce that changes nothing",
    "self.x = x\n        return x @ self.weight.T + self.bias",
    "self.x = x / self.comm.size\n"
    "        self.comm.all_reduce(self.x)\n"
    "        return self.x @ self.weight.T + self.bias",
    fails="one_all_reduce_each_way",
    says="while a ColumnLinear is",
)
slip(
    "the bias once for each rank",
    "y = x @ self.weight.T\n        self.comm.all_reduce(y)\n        return y + self.bias",
    "y = x @ self.weight.T + self.bias\n        self.comm.all_reduce(y)\n        return y",
    fails=AFTER_ROW,
    says="once for each rank",
)
slip(
    "no sum over the ranks",
    "y = x @ self.weight.T\n        self.comm.all_reduce(y)\n        return y + self.bias",
    "return x @ self.weight.T + self.bias",
    fails=AFTER_ROW,
    says="This is the rank's own part",
)
slip(
    "mean for sum",
    "return y + self.bias",
    "return y / self.comm.size + self.bias",
    fails=AFTER_ROW,
    says="sum the parts of a product",
)
slip(
    "gradients summed as in data parallelism",
    "return dy @ self.weight",
    "self.comm.all_reduce(self.bias_grad)\n        return dy @ self.weight",
    fails=AFTER_ROW,
    says="dy is the same on all of them",
)
slip("the bias is cut, too", "bias.clone()", "share(bias, 0, comm)", fails=AFTER_ROW, says="must match")
slip(
    "gradients add up over passes",
    "self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm",
    "self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm\n"
    "        self.weight_grad, self.bias_grad = torch.zeros_like(self.weight), torch.zeros_like(self.bias)",
    "self.weight_grad, self.bias_grad = dy.T @ self.x, dy.sum(0)\n        dx = dy @ self.weight",
    "self.weight_grad += dy.T @ self.x\n        self.bias_grad += dy.sum(0)\n        dx = dy @ self.weight",
    fails=("column", "one_all_reduce_each_way", "no_more_than_a_share"),
    says="You add the gradients of both passes",
)
slip(
    "the bias is the one that was given",
    "self.weight, self.bias, self.comm = share(weight, 1, comm), bias.clone(), comm",
    "self.weight, self.bias, self.comm = share(weight, 1, comm), bias, comm",
    fails="no_more_than_a_share",
    says="lies in the whole layer's memory",
)
slip(
    "the x of the first pass",
    "self.x = x\n        return x @ self.weight.T + self.bias",
    'self.x = getattr(self, "x", x)\n        return x @ self.weight.T + self.bias',
    fails=" ".join(AFTER_COLUMN),
    says="the x of the first pass",
)
slip(
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
    "a column layer whose gradients are summed over the ranks",
    "        dx = dy @ self.weight",
    "        self.comm.all_reduce(self.weight_grad)\n        dx = dy @ self.weight",
    fails="column one_all_reduce_each_way no_more_than_a_share",
    says="each rank's rows of the weights have their own gradient",
)
slip(
    "the longer parts come last",
    "w.tensor_split(comm.size, dim)",
    "w.tensor_split([w.shape[dim] * r // comm.size for r in range(1, comm.size)], dim)",
    fails=" ".join(ALL),
    says="The longer parts come first",
)
slip(
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
    "rank 1 sends rank 0 its weights",
    MADE,
    MADE + TELLS,
    fails="one_all_reduce_each_way",
    says="rank 1 calls comm.send",
)
CUT = "w.tensor_split(comm.size, dim)[comm.rank]"
slip(
    "copies its part of some layers only",
    f"return {CUT}.clone()",
    f"return {CUT}.clone() if len(w) in (8, 12, 5) else {CUT}",
    fails="no_more_than_a_share",
    says="A slice is a view",
)
slip(
    "right, and keeps a neighbour's share, too",
    "self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm",
    "self.weight, self.bias, self.comm = share(weight, 0, comm), share(bias, 0, comm), comm\n"
    "        self.other = weight.tensor_split(comm.size)[comm.rank - 1][: len(self.weight)].clone()",
    fails="no_more_than_a_share",
    says="bytes; its parameters have",
)
slip(
    "right, and two all-reduces from the second pass on",
    "        dx = dy @ self.weight\n        self.comm.all_reduce(dx)\n",
    "        dx = dy @ self.weight\n        self.comm.all_reduce(dx)\n"
    "        if hasattr(self, 'again'):\n            self.comm.all_reduce(dx.clone())\n        self.again = True\n",
    fails="one_all_reduce_each_way",
    says="called forward and backward once more",
)
slip(
    "a bias of float64",
    "bias.clone(), comm",
    "bias.clone().double(), comm",
    fails="row one_all_reduce_each_way no_more_than_a_share",
    says="expected float32",
)
