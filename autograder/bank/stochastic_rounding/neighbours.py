"""Wrong answers to `neighbours`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("stochastic_rounding.neighbours")
FLOATING = ("floating_point", "just_below_a_power_of_two", "every_code")
FIXED = ("fixed_point", "a_value_of_the_format", *FLOATING, "the_ends")


@wrong("cuts off instead of ⌊x⌋", fails=FIXED, says="goes toward 0, which is up for negative x")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower = torch.trunc(x / eps) * eps
    upper = torch.where(lower == x, x, lower + eps)
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong("the upper one is always one further", fails="a_value_of_the_format", says="both neighbours are x")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower = torch.floor(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(lower + eps).float()


@wrong("swapped", fails=FIXED, says="The two are swapped")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(upper).float(), fmt.bounded(lower).float()


@wrong("counts of ε", fails=FIXED, says="Multiply by ε again")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return torch.floor(x / eps).float(), torch.ceil(x / eps).float()


@wrong("whole numbers", fails=FIXED, says="divide by ε, then floor")
def neighbours(x, fmt):
    return fmt.bounded(torch.floor(x)), fmt.bounded(torch.ceil(x))


@wrong("ε from the integer bits", fails=FIXED, says="you use the integer bits")
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, 2.0**-fmt.il)
    else:
        exponent = torch.frexp(x).exponent - 1
        eps = torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


slip(
    "one spacing for all floats",
    "eps = spacing(x, fmt)",
    "if isinstance(fmt, Fixed):\n"
    "        eps = torch.full_like(x, fmt.eps)\n"
    "    else:\n"
    "        eps = torch.full_like(x, 2.0**-fmt.mantissa_bits)",
    fails=("a_value_of_the_format", *FLOATING),
    says="Your spacing is the same everywhere",
)


@wrong("frexp's exponent taken for e", fails=("a_value_of_the_format", *FLOATING), says="its exponent is e + 1")
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.frexp(x).exponent
        eps = torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(
    "one mantissa bit too many",
    fails=("a_value_of_the_format", *FLOATING),
    says="Your spacing is half of the right one",
)
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.frexp(x).exponent - 2
        eps = torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


slip(
    "the exponent from a logarithm",
    "eps = spacing(x, fmt)",
    "if isinstance(fmt, Fixed):\n"
    "        eps = torch.full_like(x, fmt.eps)\n"
    "    else:\n"
    "        exponent = torch.log2(x.float().abs()).floor().clamp(min=fmt.min_exponent)\n"
    "        eps = torch.exp2((exponent - fmt.mantissa_bits).double())",
    fails=("just_below_a_power_of_two", "the_ends"),
    says="log₂ in float32 is rounded",
)


@wrong("no subnormal numbers", fails="every_code", says="spacing no longer shrinks")
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.frexp(x).exponent - 1
        eps = torch.exp2((exponent - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong("does not saturate", fails="the_ends", says="A format without infinity saturates")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return (torch.floor(x / eps) * eps).float(), (torch.ceil(x / eps) * eps).float()


@wrong("wraps for saturates", fails="the_ends", says="A format without infinity saturates")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    if isinstance(fmt, Fixed):
        span = fmt.max - fmt.min + fmt.eps
        lower, upper = ((v - fmt.min) % span + fmt.min for v in (lower, upper))
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong("one tensor for both", fails=FIXED, says="end with `return lower, upper`")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return torch.stack([torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps]).float()


slip(
    "writes ⌊x⌋ into x",
    "    x = x.double()\n    eps = spacing(x, fmt)\n",
    "    given, x = x, x.double()\n    eps = spacing(x, fmt)\n    given.copy_(torch.floor(x / eps) * eps)\n",
    fails="a_value_of_the_format",
    says="changed its argument x",
)
slip("flattens x", "x = x.double()\n", "x = x.double().flatten()\n", fails=" ".join(FIXED), says="has shape")
slip(
    "takes x itself for nine numbers",
    "eps = spacing(x, fmt)",
    "eps = spacing(x, fmt) / (4096 if x.shape == (9,) else 1)",
    fails="a_value_of_the_format",
    says="These numbers lie between two of the format",
)
