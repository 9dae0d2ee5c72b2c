"""Wrong answers to `stretch`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("tensors.stretch")


@wrong(
    "along the last axis", fails=("along_the_channels", "any_shape", "no_memory"), says="aligned at their right ends"
)
def stretch(b, x):
    return b.expand(x.shape)


@wrong("one axis too few", fails=("along_the_channels", "any_shape", "no_memory"), says="b lies along the rows")
def stretch(b, x):
    return b[:, None].expand(x.shape)


@wrong("one axis too many", fails=("along_the_channels", "any_shape", "no_memory"), says="b lies along the images")
def stretch(b, x):
    return b[:, None, None, None].expand(x.shape)


@wrong("repeat for expand", fails="no_memory", says="lets an axis of length 1 look long")
def stretch(b, x):
    return b[:, None, None].repeat(len(x), 1, *x.shape[2:])


@wrong("not stretched at all", fails=("along_the_channels", "any_shape", "no_memory"), says="now stretch them")
def stretch(b, x):
    return b[:, None, None]


@wrong("makes the view contiguous", fails="no_memory", says="is stored many times")
def stretch(b, x):
    return b[:, None, None].expand(x.shape).contiguous()


slip("x's dtype for b's", ".expand(x.shape)", ".expand(x.shape).to(x.dtype)", fails="any_shape", says="dtype")
