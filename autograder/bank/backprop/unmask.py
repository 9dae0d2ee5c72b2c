"""Wrong answers to `unmask_softmax`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("backprop.unmask_softmax")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_softmax():
    return []


@wrong("easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_softmax():
    return [([[1.0, 2.0], [3.0, 4.0]], [0, 1])]


@wrong("large logits of one row only", fails="unmasks_the_wrong", says="Hint: try a row that is far below another row")
def unmask_softmax():
    return [([[1.0, 2.0], [3.0, 4.0]], [0, 1]), ([[1000.0, 0.0]], [0]), ([[40.0, 0.0]], [1])]


@wrong("a class that is not there", fails="spares_the_right", says="a label is 2, and there are 2 classes")
def unmask_softmax():
    return [
        ([[1.0, 2.0], [3.0, 4.0]], [0, 1]),
        ([[500.0, 0.0], [-500.0, 0.0]], [1, 0]),
        ([[800.0] * 2, [-500.0] * 2], [0, 0]),
        ([[1.0, 2.0]], [2]),
    ]


@wrong("rows of several lengths", fails=BOTH, says="the rows of logits are not all of one length")
def unmask_softmax():
    return [([[1.0, 2.0], [1.0, 2.0, 3.0]], [0, 0])]


@wrong("infinite logits", fails=BOTH, says="each a number from -10000 to 10000")
def unmask_softmax():
    return [([[float("inf"), 0.0]], [0])]


@wrong("a batch that is huge", fails=BOTH, says="expected a list of 1 to 6 rows")
def unmask_softmax():
    return [([[0.0, 1.0]] * 50_000, [0] * 50_000)]


@wrong("a tensor instead of a list", fails=BOTH, says="expected a list of 1 to 6 rows")
def unmask_softmax():
    return [(torch.zeros(2, 2), torch.tensor([0, 1]))]


@wrong("nothing returned", fails=BOTH, says="is None, expected a list of inputs")
def unmask_softmax():
    return None
