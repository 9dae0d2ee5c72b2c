"""Wrong answers to `unmask_ring`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("ddp.unmask_ring")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_ring():
    return []


@wrong("easy inputs only", fails=BOTH, says="unmask 0 of 4 impostors")
def unmask_ring():
    return [(4, 12), (2, 8)]


@wrong("never one rank", fails="unmasks_the_wrong", says="Hint: try a ring of one")
def unmask_ring():
    return [(7, 5)]


@wrong("no number at all", fails="spares_the_right", says="n is 0, expected an int from 1 to 32")
def unmask_ring():
    return [(1, 3), (7, 5), (4, 0)]


@wrong("more ranks than there is room for", fails=BOTH, says="p is 1000, expected an int from 1 to 9")
def unmask_ring():
    return [(1000, 4)]


@wrong("numbers without end", fails=BOTH, says="n is 1000000000000, expected an int from 1 to 32")
def unmask_ring():
    return [(4, 10**12)]


@wrong("lists of ranks", fails=BOTH, says="p is [0, 1, 2], expected an int")
def unmask_ring():
    return [([0, 1, 2], 4)]


@wrong("one input instead of a list", fails=BOTH, says="Put brackets around it: return [(7, 5)]")
def unmask_ring():
    return (7, 5)
