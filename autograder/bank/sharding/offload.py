"""Wrong answers to `offload`."""

from autograder.authoring import wrong

HERE = "sharding.offload"
ALL = ("moment_by_moment", "hidden_or_not")


@wrong(HERE, "one after another", fails=ALL, says="Everything one after another")
def offload(compute, nbytes, link, room):
    return sum(compute) + sum(nbytes) / link


@wrong(HERE, "the longer sum", fails=ALL, says="a bound that is not reached")
def offload(compute, nbytes, link, room):
    return max(sum(compute), sum(nbytes) / link)


@wrong(HERE, "room without end", fails=ALL, says="There is no end of room here")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = max(there[-1] if there else 0.0, 0.0)
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]


@wrong(HERE, "room for one more", fails=ALL, says="one layer's room too much")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = max(there[-1] if there else 0.0, done[i - room - 1] if i > room else 0.0)
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]


@wrong(HERE, "room for one less", fails=ALL, says="one layer's room too little")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = max(there[-1] if there else 0.0, done[i - max(1, room - 1)] if i >= max(1, room - 1) else 0.0)
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]


@wrong(HERE, "all layers on the link at once", fails=ALL, says="The link brings one layer at a time")
def offload(compute, nbytes, link, room):
    there, done = ([], [])
    for i, (seconds, size) in enumerate(zip(compute, nbytes, strict=True)):
        free = done[i - room] if i >= room else 0.0
        there.append(free + size / link)
        done.append(max(there[-1], done[-1] if done else 0.0) + seconds)
    return done[-1]
