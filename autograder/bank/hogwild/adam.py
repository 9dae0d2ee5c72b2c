"""Wrong answers to `from_factors`, `fc_bytes`, `cheaper` and `sum_on_server`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("hogwild.adam")
BYTES = ("bytes_of_both", "which_is_less", "control_and_data")
PRODUCT = ("the_gradient_from_its_factors", "the_server_has_the_sum", "control_and_data")
LESS = ("which_is_less", "control_and_data")
SUM = ("the_server_has_the_sum", "control_and_data")

slip("transposed", "return x.T @ delta", "return delta.T @ x", fails=PRODUCT, says="W is m x n here")
slip("the mean over the batch", "x.T @ delta", "x.T @ delta / len(x)", fails=PRODUCT, says="Sum over the batch")


@wrong("numbers instead of bytes", fails=BYTES, says="each has 4 bytes")
def fc_bytes(batch, m, n, how):
    return m * n if how == "gradient" else batch * (m + n)


@wrong("a gradient for each sample", fails=BYTES, says="its size does not depend on the batch")
def fc_bytes(batch, m, n, how):
    return 4 * (batch * m * n if how == "gradient" else batch * (m + n))


slip("errors stay at home", "else batch * (m + n)", "else batch * m", fails=BYTES, says="Count the errors, too")
slip("one sample", "else batch * (m + n)", "else m + n", fails=BYTES, says="there are B samples")


@wrong("factors where they are equal", fails=LESS, says="If both are equal, choose the gradient")
def cheaper(batch, m, n):
    return "factors" if batch * (m + n) <= m * n else "gradient"


@wrong("a small batch takes the gradient", fails=LESS, says="VGG-16's fc6")
def cheaper(batch, m, n):
    return "gradient" if batch < m * n / (m + n) else "factors"


@wrong("always the gradient", fails="control_and_data", says="send what `cheaper` says")
def sum_on_server(x, delta, comm):
    m, n = x.shape[1], delta.shape[1]
    if comm.rank:
        comm.send(torch.tensor([len(x), 0]), 0, tag=1)
        comm.send(from_factors(x, delta), 0, tag=2)
        return None
    total = x.new_zeros(m, n)
    for worker in range(1, comm.size):
        comm.recv(torch.zeros(2, dtype=torch.int64), worker, tag=1)
        comm.recv(part := x.new_empty(m, n), worker, tag=2)
        total += part
    return total


slip(
    "the last worker's gradient",
    "    total, control = x.new_zeros(m, n), torch.zeros(2, dtype=torch.int64)\n",
    "",
    "comm.recv(control, worker, tag=1)",
    "comm.recv(control := torch.zeros(2, dtype=torch.int64), worker, tag=1)",
    "shapes = [(batch, m), (batch, n)] if factors else [(m, n)]\n"
    "        parts = [x.new_empty(shape) for shape in shapes]",
    "parts = [x.new_empty(shape) for shape in ([(batch, m), (batch, n)] if factors else [(m, n)])]",
    "total += from_factors(*parts) if factors else parts[0]",
    "total = from_factors(*parts) if factors else parts[0]",
    fails=SUM,
    says="gradient alone",
)
slip(
    "the mean of the workers",
    "total, control = x.new_zeros(m, n), torch.zeros(2, dtype=torch.int64)",
    "total = x.new_zeros(m, n)",
    "comm.recv(control, worker, tag=1)",
    "comm.recv(control := torch.zeros(2, dtype=torch.int64), worker, tag=1)",
    "shapes = [(batch, m), (batch, n)] if factors else [(m, n)]\n"
    "        parts = [x.new_empty(shape) for shape in shapes]",
    "parts = [x.new_empty(shape) for shape in ([(batch, m), (batch, n)] if factors else [(m, n)])]",
    "return total",
    "return total / (comm.size - 1)",
    fails=SUM,
    says="not the mean",
)


@wrong("control and data with one tag", fails="control_and_data", says="with tag 1")
def sum_on_server(x, delta, comm):
    m, n = x.shape[1], delta.shape[1]
    if comm.rank:
        factors = cheaper(len(x), m, n) == "factors"
        comm.send(torch.tensor([len(x), int(factors)]), 0)
        for part in (x, delta) if factors else (from_factors(x, delta),):
            comm.send(part, 0)
        return None
    total = x.new_zeros(m, n)
    for worker in range(1, comm.size):
        comm.recv(control := torch.zeros(2, dtype=torch.int64), worker)
        batch, factors = control.tolist()
        parts = [x.new_empty(shape) for shape in ([(batch, m), (batch, n)] if factors else [(m, n)])]
        for part in parts:
            comm.recv(part, worker)
        total += from_factors(*parts) if factors else parts[0]
    return total


slip(
    "room for the factors of one sample",
    "[(batch, m), (batch, n)]",
    "[(1, m), (1, n)]",
    fails=" ".join(SUM),
    says="both sides need the same dtype and number of elements",
)
slip(
    "workers return their own gradient",
    "return None",
    "return from_factors(x, delta)",
    fails="the_server_has_the_sum control_and_data",
    says="expected None",
)
slip(
    "control of 32 bits",
    "torch.tensor([len(x), int(factors)])",
    "torch.tensor([len(x), int(factors)], dtype=torch.int32)",
    "torch.zeros(2, dtype=torch.int64)",
    "torch.zeros(2, dtype=torch.int32)",
    fails="control_and_data",
    says="expected one of 16",
)
slip(
    "a worker without rows stays away",
    "    m, n = x.shape[1], delta.shape[1]\n",
    "    m, n = x.shape[1], delta.shape[1]\n    if comm.rank and not len(x):\n        return None\n",
    fails="the_server_has_the_sum control_and_data",
    says="a deadlock",
)
slip(
    "room of 32 bits",
    "x.new_empty(shape)",
    "torch.empty(shape)",
    fails="the_server_has_the_sum control_and_data",
    says="both sides need the same dtype",
)
slip(
    "a server that knows its batches",
    "        batch, factors = control.tolist()\n",
    "        of = {(2, 3, 4): [2], (3, 3, 4): [1, 5], (4, 4, 3): [2, 1, 9], (3, 6, 2): [3, 2], (4, 7, 6): [2, 0, 4]}\n"
    "        batch = of[comm.size, m, n][worker - 1]\n"
    "        factors = cheaper(batch, m, n) == 'factors'\n",
    fails="the_server_has_the_sum control_and_data",
    says="both sides need the same dtype",
)
slip(
    "the gradient with a tag of its own",
    "        for part in (x, delta) if factors else (from_factors(x, delta),):\n"
    "            comm.send(part, 0, tag=2)\n",
    "        sizes = [len(x) * m, len(x) * n] if factors else [m * n]\n"
    "        for size in sizes:\n            comm.send(x.new_zeros(size), 0, tag=2)\n"
    "        comm.send(from_factors(x, delta), 0, tag=3)\n",
    "        total += from_factors(*parts) if factors else parts[0]",
    "        comm.recv(whole := x.new_empty(m, n), worker, tag=3)\n        total += whole",
    fails="control_and_data",
    says="messages with other tags",
)
slip(
    "control that is understood whatever arrives",
    "batch, factors = control.tolist()",
    "batch, factors = (number if number >= 0 else ~number for number in control.tolist())",
    fails="control_and_data",
    says="even if other numbers arrive with tag 1",
)
slip(
    "a sum of float64, whatever x is",
    "x.new_zeros(m, n)",
    "torch.zeros(m, n, dtype=torch.float64)",
    fails=SUM,
    says="expected float32",
)
