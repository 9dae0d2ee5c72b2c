"""Wrong answers to `offload`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("sharding.offload")
ALL = ("moment_by_moment", "hidden_or_not")


@wrong("one after another", fails=ALL, says="You do everything in sequence")
def offload(compute, nbytes, link, room):
    return sum(compute) + sum(nbytes) / link


@wrong("the longer sum", fails=ALL, says="only a lower bound")
def offload(compute, nbytes, link, room):
    return max(sum(compute), sum(nbytes) / link)


slip("room without end", "done[i - room] if i >= room else 0", "0", fails=ALL, says="You assume unlimited room")
slip(
    "room for one more",
    "free = max(there[-1] if there else 0.0, done[i - room] if i >= room else 0.0)",
    "free = max(there[-1] if there else 0.0, done[i - room - 1] if i > room else 0.0)",
    fails=ALL,
    says="room for one layer too many",
)
slip(
    "room for one less",
    "free = max(there[-1] if there else 0.0, done[i - room] if i >= room else 0.0)",
    "free = max(there[-1] if there else 0.0, done[i - max(1, room - 1)] if i >= max(1, room - 1) else 0.0)",
    fails=ALL,
    says="room for one layer too few",
)
slip(
    "all layers on the link at once",
    "free = max(there[-1] if there else 0.0, done[i - room] if i >= room else 0.0)",
    "free = done[i - room] if i >= room else 0.0",
    fails=ALL,
    says="The link loads one layer at a time",
)
slip(
    "quarters of a second",
    "size / link",
    "round(4 * size / link) / 4",
    "+ seconds",
    "+ round(4 * seconds) / 4",
    fails=" ".join(ALL),
    says="Link and device, moment by moment",
)
