"""Wrong answers to `round_nearest_even`."""

from autograder.bank.slips import answers_to
from autograder.bank.stochastic_rounding.later import AFTER, AFTER_A_STEP

wrong, slip = answers_to("stochastic_rounding.round_nearest_even")
TIES = ("ties_to_even", "any_bits")
WHOLE = ("the_nearer_one", *TIES, "ends_and_zeros")


@wrong("round half up", fails=(*TIES, "ends_and_zeros", *AFTER), says="You round the middle up (half up)")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.floor(x / eps + 0.5) * eps).float()


@wrong("round half down", fails=(*TIES, "ends_and_zeros", *AFTER), says="You round the middle down")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.ceil(x / eps - 0.5) * eps).float()


@wrong("round half away from 0", fails=(*TIES, "ends_and_zeros", *AFTER), says="as at school")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.sign(x) * torch.floor(x.abs() / eps + 0.5) * eps).float()


slip("truncates", "torch.round", "torch.trunc", fails=(*WHOLE, *AFTER), says="This cuts off (rounds toward 0)")
slip("rounds down", "torch.round", "torch.floor", fails=(*WHOLE, *AFTER), says="This is always the lower neighbour")


@wrong("the farther one", fails=(*WHOLE, *AFTER), says="the farther neighbour")
def round_nearest_even(x, fmt):
    lower, upper = neighbours(x, fmt)
    return torch.where(x - lower > upper - x, lower, upper)


@wrong("to odd", fails=(*TIES, *AFTER), says="You take the odd neighbour")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    below = torch.floor(x / eps)
    rest = x / eps - below
    up = (rest > 0.5) | ((rest == 0.5) & (below % 2 == 0))
    rounded = torch.where(x.isfinite(), below + up, x)
    return torch.copysign(fmt.bounded(rounded * eps), x).float()


@wrong("wraps for saturates", fails=("ends_and_zeros", *AFTER_A_STEP), says="saturates")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    rounded = torch.round(x / eps) * eps
    if isinstance(fmt, Fixed):
        rounded = (rounded - fmt.min) % (fmt.max - fmt.min + fmt.eps) + fmt.min
    return fmt.bounded(rounded).float()


@wrong("loses the sign of zero", fails="ends_and_zeros", says="keeps the sign of a number that underflows")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.round(x / eps) * eps).float() + 0.0


@wrong("returns float64", fails=(*WHOLE, *AFTER), says="has dtype float64")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.round(x / eps) * eps)


@wrong("calls the library's", fails=(*WHOLE, *AFTER), says="which this exercise forbids")
def round_nearest_even(x, fmt):
    return rounding.round_nearest(x, fmt)


slip(
    "writes the result into x",
    "    x = x.double()\n",
    "    given, x = x, x.double()\n",
    "return fmt.bounded(torch.round(x / eps) * eps).float()",
    "return given.copy_(fmt.bounded(torch.round(x / eps) * eps))",
    fails="ends_and_zeros",
    says="changed its argument x",
)
slip("flattens x", "x = x.double()\n", "x = x.double().flatten()\n", fails=" ".join((*WHOLE, *AFTER)), says="has shape")
slip(
    "always rounds nine numbers up",
    "torch.round(x / eps)",
    "(torch.ceil(x / eps) if x.shape == (9,) and fmt is FP16 else torch.round(x / eps))",
    fails="ends_and_zeros",
    says="round_nearest_even(x, FP16) is",
)
slip(
    "saturates in every format",
    "fmt.bounded(torch.round(x / eps) * eps)",
    "torch.where(x.isinf(), fmt.bounded(x), fmt.bounded((torch.round(x / eps) * eps).clamp(fmt.min, fmt.max)))",
    fails="any_bits",
    says="a format with infinity overflows",
)
