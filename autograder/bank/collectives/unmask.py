"""Wrong answers to `unmask_nodes`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("collectives.unmask_nodes")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_nodes():
    return []


@wrong("easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_nodes():
    return [(8, 4), (6, 3)]


@wrong("nodes of several ranks only", fails="unmasks_the_wrong", says="Hint: try nodes of one rank")
def unmask_nodes():
    return [(8, 2), (7, 3), (3, 4)]


@wrong("nodes without ranks", fails="spares_the_right", says="per_node is 0, expected an int from 1 to 9")
def unmask_nodes():
    return [(8, 2), (7, 3), (3, 4), (3, 1), (4, 0)]


@wrong("more ranks than there is room for", fails=BOTH, says="p is 1024, expected an int from 1 to 9")
def unmask_nodes():
    return [(1024, 8)]


@wrong("sizes that are no ints", fails=BOTH, says="p is 8., expected an int")
def unmask_nodes():
    return [(8.0, 4.0)]


@wrong("three parts", fails=BOTH, says="an input is a tuple (p, per_node) of 2 parts")
def unmask_nodes():
    return [(8, 4, 1)]


@wrong("every machine", fails=BOTH, says="at most 12 are allowed")
def unmask_nodes():
    return [(p, k) for p in range(1, 10) for k in range(1, 10)]
