"""Wrong answers to `lbfgs_direction`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "hogwild.two_loop"
LOOPS = ("two_loops", "only_numbers_travel")


@wrong(HERE, "dot products of the own shards", fails=LOOPS, says="use only this rank's shards")
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


@wrong(HERE, "no scaling between the loops", fails=LOOPS, says="of the newest pair")
def lbfgs_direction(comm, s, y, g):
    def dot(a, b):
        x = (a * b).sum().reshape(1)
        comm.all_reduce(x)
        return x

    q, kept = g.clone(), []
    for s_i, y_i in zip(reversed(s), reversed(y), strict=True):
        rho = 1 / dot(y_i, s_i)
        a = rho * dot(s_i, q)
        q -= a * y_i
        kept.append((s_i, y_i, rho, a))
    for s_i, y_i, rho, a in reversed(kept):
        q += (a - rho * dot(y_i, q)) * s_i
    return -q


@wrong(HERE, "the loops in the wrong order", fails=LOOPS, says="from the newest pair to the oldest")
def lbfgs_direction(comm, s, y, g):
    def dot(a, b):
        x = (a * b).sum().reshape(1)
        comm.all_reduce(x)
        return x

    q, kept = g.clone(), []
    for s_i, y_i in zip(s, y, strict=True):
        rho = 1 / dot(y_i, s_i)
        a = rho * dot(s_i, q)
        q -= a * y_i
        kept.append((s_i, y_i, rho, a))
    if s:
        q *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])
    for s_i, y_i, rho, a in reversed(kept):
        q += (a - rho * dot(y_i, q)) * s_i
    return -q


@wrong(HERE, "uphill", fails=LOOPS, says="The direction is -r")
def lbfgs_direction(comm, s, y, g):
    def dot(a, b):
        x = (a * b).sum().reshape(1)
        comm.all_reduce(x)
        return x

    q, kept = g.clone(), []
    for s_i, y_i in zip(reversed(s), reversed(y), strict=True):
        rho = 1 / dot(y_i, s_i)
        a = rho * dot(s_i, q)
        q -= a * y_i
        kept.append((s_i, y_i, rho, a))
    if s:
        q *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])
    for s_i, y_i, rho, a in reversed(kept):
        q += (a - rho * dot(y_i, q)) * s_i
    return q


@wrong(HERE, "whole vectors travel", fails="only_numbers_travel", says="each dot product needs one number")
def lbfgs_direction(comm, s, y, g):
    sizes = torch.zeros(comm.size, dtype=torch.int64)
    sizes[comm.rank] = len(g)
    comm.all_reduce(sizes)

    def dot(a, b):
        x = torch.zeros(int(sizes.sum()), dtype=a.dtype)
        x.split(sizes.tolist())[comm.rank].copy_(a * b)
        comm.all_reduce(x)
        return x.sum()

    q, kept = g.clone(), []
    for s_i, y_i in zip(reversed(s), reversed(y), strict=True):
        rho = 1 / dot(y_i, s_i)
        a = rho * dot(s_i, q)
        q -= a * y_i
        kept.append((s_i, y_i, rho, a))
    if s:
        q *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])
    for s_i, y_i, rho, a in reversed(kept):
        q += (a - rho * dot(y_i, q)) * s_i
    return -q


@wrong(HERE, "the gradient is bent in place", fails="only_numbers_travel", says="changed its argument s, y or g")
def lbfgs_direction(comm, s, y, g):
    def dot(a, b):
        x = (a * b).sum().reshape(1)
        comm.all_reduce(x)
        return x

    kept = []
    for s_i, y_i in zip(reversed(s), reversed(y), strict=True):
        rho = 1 / dot(y_i, s_i)
        a = rho * dot(s_i, g)
        g -= a * y_i
        kept.append((s_i, y_i, rho, a))
    if s:
        g *= dot(s[-1], y[-1]) / dot(y[-1], y[-1])
    for s_i, y_i, rho, a in reversed(kept):
        g += (a - rho * dot(y_i, g)) * s_i
    return -g


slip(
    "hogwild.two_loop",
    "reverses the given lists",
    "    q, kept = g.clone(), []",
    "    s.reverse(), y.reverse()\n    q, kept = g.clone(), []",
    "zip(reversed(s), reversed(y), strict=True)",
    "zip(s, y, strict=True)",
    "dot(s[-1], y[-1]) / dot(y[-1], y[-1])",
    "dot(s[0], y[0]) / dot(y[0], y[0])",
    fails="only_numbers_travel",
    says="changed its argument s, y or g",
)

slip(
    "hogwild.two_loop",
    "needs a history",
    "    if s:\n        q *=",
    "    q *=",
    fails="two_loops only_numbers_travel",
    says="out of range",
)
slip(
    "hogwild.two_loop",
    "the scaling upside down",
    "dot(s[-1], y[-1]) / dot(y[-1], y[-1])",
    "dot(y[-1], y[-1]) / dot(s[-1], y[-1])",
    fails="two_loops only_numbers_travel",
    says="not its inverse",
)

slip(
    "hogwild.two_loop",
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
    slip(HERE, mistake, old, new, fails="two_loops only_numbers_travel", says=says)

slip(
    HERE,
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
    HERE,
    "vectors as long as the longest",
    "        comm.all_reduce(x)\n        return x",
    "        x = torch.cat([x, torch.zeros(127).double()])\n        comm.all_reduce(x)\n        return x[:1]",
    fails="only_numbers_travel",
    says="whatever n is",
)
