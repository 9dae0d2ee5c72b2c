"""Wrong answers to `from_factors`, `fc_bytes` and `cheaper`."""

from autograder.authoring import wrong

HERE = "consistency.adam"
BYTES = ("bytes_of_both", "which_is_less")


@wrong(HERE, "transposed", fails="the_gradient_from_its_factors", says="W is m x n here")
def from_factors(x, delta):
    return delta.T @ x


@wrong(HERE, "the mean over the batch", fails="the_gradient_from_its_factors", says="The sum over the batch")
def from_factors(x, delta):
    return x.T @ delta / len(x)


@wrong(HERE, "numbers in place of bytes", fails=BYTES, says="each has 4 bytes")
def fc_bytes(batch, m, n, how):
    return m * n if how == "gradient" else batch * (m + n)


@wrong(HERE, "a gradient for each sample", fails=BYTES, says="its size does not depend on it")
def fc_bytes(batch, m, n, how):
    return 4 * (batch * m * n if how == "gradient" else batch * (m + n))


@wrong(HERE, "errors stay at home", fails=BYTES, says="have to travel, too")
def fc_bytes(batch, m, n, how):
    return 4 * (m * n if how == "gradient" else batch * m)


@wrong(HERE, "one sample", fails=BYTES, says="there are B of them")
def fc_bytes(batch, m, n, how):
    return 4 * (m * n if how == "gradient" else m + n)


@wrong(HERE, "factors where they are equal", fails="which_is_less", says="Where both are equal it is the gradient")
def cheaper(batch, m, n):
    return "factors" if batch * (m + n) <= m * n else "gradient"


@wrong(HERE, "a small batch takes the gradient", fails="which_is_less", says="VGG-16's fc6")
def cheaper(batch, m, n):
    return "gradient" if batch < m * n / (m + n) else "factors"
