"""Wrong answers to `unmask_conv`."""

from autograder.authoring import wrong

BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("convolution.unmask_conv", "no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_conv():
    return []


@wrong("convolution.unmask_conv", "easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_conv():
    return [(5, 5, 3, 3, 1, 0)]


@wrong(
    "convolution.unmask_conv",
    "square images only",
    fails="unmasks_the_wrong",
    says="Hint: try an output that is not square",
)
def unmask_conv():
    return [(6, 6, 3, 3, 2, 0), (5, 5, 3, 3, 1, 1)]


@wrong(
    "convolution.unmask_conv",
    "a kernel larger than the image",
    fails="spares_the_right",
    says="the kernel of 5 x 5 is larger than the padded image of 3 x 3",
)
def unmask_conv():
    return [(5, 7, 2, 1, 2, 1), (3, 3, 5, 5, 1, 0)]


@wrong("convolution.unmask_conv", "a stride of 0", fails=BOTH, says="stride is 0, expected an int from 1 to 4")
def unmask_conv():
    return [(5, 5, 3, 3, 0, 0)]


@wrong("convolution.unmask_conv", "an image that is huge", fails=BOTH, says="H is 100000, expected an int from 1 to 10")
def unmask_conv():
    return [(100_000, 100_000, 3, 3, 1, 0)]


@wrong("convolution.unmask_conv", "sizes as text", fails=BOTH, says="H is '5', expected an int")
def unmask_conv():
    return [("5", 5, 3, 3, 1, 0)]


@wrong("convolution.unmask_conv", "two parts of six", fails=BOTH, says="of 6 parts")
def unmask_conv():
    return [(5, 5)]
