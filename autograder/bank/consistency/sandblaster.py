"""Wrong answers to `lbfgs_direction` and `finish`."""

import torch

from autograder.authoring import wrong

HERE = "consistency.sandblaster"
LOOPS = ("two_loops", "only_numbers_travel")
FINISH = ("who_is_free_takes_the_next", "backup_tasks")


@wrong(HERE, "dot products of the own shards", fails=LOOPS, says="of this rank's shards alone")
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


@wrong(HERE, "whole vectors travel", fails="only_numbers_travel", says="of a dot product one number travels")
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


@wrong(HERE, "tasks dealt out in turn", fails=FINISH, says="Tasks are dealt out in turn here")
def finish(tasks, speeds, backups=False):
    p = len(speeds)
    return max(sum(work / speed for work in tasks[i::p]) for i, speed in enumerate(speeds))


@wrong(HERE, "speed multiplies", fails=FINISH, says="a fast node takes fewer seconds")
def finish(tasks, speeds, backups=False):
    free, ends = [0.0] * len(speeds), []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work * speeds[i]
        ends.append(free[i])
    for i in sorted(range(len(free)), key=free.__getitem__) if backups else []:
        last = max(range(len(ends)), key=ends.__getitem__)
        ends[last] = min(ends[last], free[i] + tasks[last] * speeds[i])
    return max(ends)


@wrong(HERE, "no backups", fails="backup_tasks", says="backups are left out")
def finish(tasks, speeds, backups=False):
    free = [0.0] * len(speeds)
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
    return max(free)


@wrong(HERE, "a task is done when both copies are", fails="backup_tasks", says="when the first of its copies is")
def finish(tasks, speeds, backups=False):
    free, ends = [0.0] * len(speeds), []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
        ends.append(free[i])
    for i in sorted(range(len(free)), key=free.__getitem__) if backups else []:
        last = max(range(len(ends)), key=ends.__getitem__)
        ends[last] = max(ends[last], free[i] + tasks[last] / speeds[i])
    return max(ends)


@wrong(HERE, "idle nodes in the order of the list", fails="backup_tasks", says="the order in which they become free")
def finish(tasks, speeds, backups=False):
    free, ends = [0.0] * len(speeds), []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
        ends.append(free[i])
    for i in range(len(free)) if backups else []:
        last = max(range(len(ends)), key=ends.__getitem__)
        ends[last] = min(ends[last], free[i] + tasks[last] / speeds[i])
    return max(ends)


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
