"""Wrong answers to `lbfgs_direction`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("hogwild.two_loop")
LOOPS = ("two_loops", "only_numbers_travel")


@wrong("dot products of the own shards", fails=LOOPS, says="use only this rank's shards")
def lbfgs_direction(comm, s, y, g):
    q, kept = g.clone(), []
    for s_i, y_i in zip(reversed(s), reversed(y), strict=True):
        rho = 1 / (y_i @ s_i)
        a = rho * (s_i @ q)
        q -= a * y_i
        kept.append((s_i, y_i, rho, a))
    if s:
        q *= (s[-1] @ y[-1]) / (y[-1] @ y[-1])
    for s_i, y_i, rho, a in reversed(kept):
        q += (a - rho * (y_i @ q)) * s_i
    return -q


slip(
    "no scaling between the loops",
    "    if s:\n        q *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])\n",
    "",
    fails=LOOPS,
    says="of the newest pair",
)
slip(
    "the loops in the wrong order",
    "for s_i, y_i in zip(reversed(s), reversed(y), strict=True):",
    "for s_i, y_i in zip(s, y, strict=True):",
    fails=LOOPS,
    says="from the newest pair to the oldest",
)
slip("uphill", "return -q", "return q", fails=LOOPS, says="The direction is -r")
slip(
    "whole vectors travel",
    "def dot(a, b):\n        x = (a * b).sum().reshape(1)\n        comm.all_reduce(x)\n        return x",
    "sizes = torch.zeros(comm.size, dtype=torch.int64)\n"
    "    sizes[comm.rank] = len(g)\n"
    "    comm.all_reduce(sizes)\n"
    "    def dot(a, b):\n"
    "        x = torch.zeros(int(sizes.sum()), dtype=a.dtype)\n"
    "        x.split(sizes.tolist())[comm.rank].copy_(a * b)\n"
    "        comm.all_reduce(x)\n"
    "        return x.sum()",
    fails="only_numbers_travel",
    says="each dot product needs one number",
)
slip(
    "the gradient is bent in place",
    "q, kept = g.clone(), []",
    "kept = []",
    "a = rho * dot(s_i, q)\n        q -= a * y_i",
    "a = rho * dot(s_i, g)\n        g -= a * y_i",
    "q *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])",
    "g *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])",
    "q += (a - rho * dot(y_i, q)) * s_i\n    return -q",
    "g += (a - rho * dot(y_i, g)) * s_i\n    return -g",
    fails="only_numbers_travel",
    says="changed its argument",
)
slip(
    "reverses the given lists",
    "    q, kept = g.clone(), []",
    "    s.reverse(), y.reverse()\n    q, kept = g.clone(), []",
    "zip(reversed(s), reversed(y), strict=True)",
    "zip(s, y, strict=True)",
    "dot(s[-1], y[-1]) / dot(y[-1], y[-1])",
    "dot(s[0], y[0]) / dot(y[0], y[0])",
    fails="only_numbers_travel",
    says="changed its argument",
)
slip(
    "needs a history", "    if s:\n        q *=", "    q *=", fails="two_loops only_numbers_travel", says="out of range"
)
slip(
    "the scaling upside down",
    "dot(s[-1], y[-1]) / dot(y[-1], y[-1])",
    "dot(y[-1], y[-1]) / dot(s[-1], y[-1])",
    fails="two_loops only_numbers_travel",
    says="not its inverse",
)
slip(
    "an empty shard stays away",
    "        x = (a * b)",
    "        if not len(a):\n            return torch.zeros(1)\n        x = (a * b)",
    fails="two_loops only_numbers_travel",
    says="a deadlock",
)

SCALE, SECOND = "dot(s[-1], y[-1]) / dot(y[-1], y[-1])", "(a - rho * dot(y_i, q)) * s_i"
for mistake, old, new, says in (
    ("rho is not inverted", "1 / dot(y_i, s_i)", "dot(y_i, s_i)", "rho is 1 / (y · s)"),
    ("the first loop subtracts s", "q -= a * y_i", "q -= a * s_i", "subtracts a_i y_i"),
    ("the second loop adds y", SECOND, SECOND.replace("* s_i", "* y_i"), "adds (a_i - b) s_i, not"),
    ("the second loop adds both factors", SECOND, SECOND.replace("-", "+"), "subtract b from a_i"),
    ("the scaling of the oldest pair", SCALE, SCALE.replace("-1", "0"), "not of the oldest"),
    ("the scaling by s and s", SCALE, "dot(s[-1], s[-1]) / dot(s[-1], y[-1])", "(s · y) / (y · y)"),
    ("the second loop from the newest pair", "in reversed(kept):", "in kept:", "from the oldest pair to the newest"),
):
    slip(mistake, old, new, fails="two_loops only_numbers_travel", says=says)


slip(
    "whole vectors travel from one rank to another",
    "        comm.all_reduce(x)\n        return x",
    """        x = torch.stack([x[0], torch.tensor(len(a) * (comm.rank == 0)).double()])
        comm.all_reduce(x)
        if comm.size > 2 and comm.rank == 0:
            comm.send(a, 2)
        elif comm.rank == 2:
            comm.recv(a.new_empty(int(x[1])), 0)
        return x[:1]""",
    fails="only_numbers_travel",
    says="Rank 0 sends",
)


slip(
    "vectors as long as the longest",
    "        comm.all_reduce(x)\n        return x",
    "        x = torch.cat([x, torch.zeros(127).double()])\n        comm.all_reduce(x)\n        return x[:1]",
    fails="only_numbers_travel",
    says="whatever n is",
)
slip(
    "numbers that are sent without a wait",
    "        comm.all_reduce(x)\n        return x",
    """        others, total = set(range(comm.size)) - {comm.rank}, x.clone()
        for rank in others:
            comm.isend(x, rank)
        for rank in others:
            part = torch.empty_like(x)
            comm.recv(part, rank)
            total += part
        return total""",
    fails="only_numbers_travel",
    says="is never waited for",
)
slip(
    "a direction of float64",
    "    q, kept = g.clone(), []",
    "    q, kept = g.double(), []",
    fails="two_loops only_numbers_travel",
    says="expected float32",
)


@wrong("the dense matrix on every rank", fails=LOOPS, says="A matrix of n x n numbers does not fit")
def lbfgs_direction(comm, s, y, g):
    sizes = torch.zeros(comm.size, dtype=torch.float64)
    sizes[comm.rank] = len(g)
    comm.all_reduce(sizes)

    def whole(x):
        out = torch.zeros(int(sizes.sum()), dtype=x.dtype)
        out.split(sizes.long().tolist())[comm.rank].copy_(x)
        comm.all_reduce(out)
        return out

    s, y, full = [whole(x) for x in s], [whole(x) for x in y], whole(g)
    eye = torch.eye(len(full), dtype=g.dtype)
    h = eye * (s[-1] @ y[-1]) / (y[-1] @ y[-1]) if s else eye
    for a, b in zip(s, y, strict=True):
        rho = 1 / (a @ b)
        left = eye - rho * torch.outer(a, b)
        h = left @ h @ left.T + rho * torch.outer(a, a)
    return (-h @ full).split(sizes.long().tolist())[comm.rank]
