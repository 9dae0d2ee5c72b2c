"""Wrong answers to `unmask_fit`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("perceptron.unmask_fit")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_fit():
    return []


@wrong("easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_fit():
    return [([(1, 2)], [1], 0.5, 10)]


@wrong(
    "only what is learned soon",
    fails="unmasks_the_wrong",
    says="Hint: try samples that are not learned within max_epochs",
)
def unmask_fit():
    return [([(2, 0), (1, 0)], [1, -1], 0.5, 20)]


@wrong("numbers that are no quarters", fails=BOTH, says="lr is 0.1, expected a multiple of 0.25")
def unmask_fit():
    return [([(1, 2)], [1], 0.1, 10)]


@wrong("labels 0 and 1", fails="spares_the_right", says="each +1 or -1")
def unmask_fit():
    return [
        ([(2, 0), (1, 0)], [1, -1], 0.5, 20),
        ([(1, 1), (1, -1), (-1, 1), (-1, -1)], [-1, 1, 1, -1], 0.5, 6),
        ([(1, 1)], [0], 0.5, 5),
    ]


@wrong("a label too few", fails=BOTH, says="2 points have 1 labels, and each has one")
def unmask_fit():
    return [([(1, 2), (2, 1)], [1], 0.5, 10)]


@wrong("epochs without end", fails=BOTH, says="max_epochs is 1000000000, expected an int from 1 to 20")
def unmask_fit():
    return [([(1, 1), (1, -1), (-1, 1), (-1, -1)], [-1, 1, 1, -1], 0.5, 10**9)]


@wrong("a tensor of points", fails=BOTH, says="expected a list of 1 to 8 pairs")
def unmask_fit():
    return [(torch.ones(3, 2), [1, -1, 1], 0.5, 10)]


@wrong("not a list", fails=BOTH, says="is an int, expected a list of inputs")
def unmask_fit():
    return 8
