"""Wrong answers to `offload`."""

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "sharding.offload"
ALL = ("moment_by_moment", "hidden_or_not")


@wrong(HERE, "one after another", fails=ALL, says="You do everything in sequence")
def offload(compute, nbytes, link, room):
    return sum(compute) + sum(nbytes) / link


@wrong(HERE, "the longer sum", fails=ALL, says="only a lower bound")
def offload(compute, nbytes, link, room):
    return max(sum(compute), sum(nbytes) / link)


slip(HERE, "room without end", "done[i - room] if i >= room else 0", "0", fails=ALL, says="You assume unlimited room")


@wrong(HERE, "room for one more", fails=ALL, says="room for one layer too many")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = max(there[-1] if there else 0.0, done[i - room - 1] if i > room else 0.0)
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]


@wrong(HERE, "room for one less", fails=ALL, says="room for one layer too few")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = max(there[-1] if there else 0.0, done[i - max(1, room - 1)] if i >= max(1, room - 1) else 0.0)
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]


@wrong(HERE, "all layers on the link at once", fails=ALL, says="The link loads one layer at a time")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = done[i - room] if i >= room else 0.0
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]
