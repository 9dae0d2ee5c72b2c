"""Wrong but plausible answers to lab 06.

Each is the reference with one mistake, and what it calls is the reference's own: `spacing`, for one. Where the later
exercises call the wrong function, they lose checks too.
"""
# ruff: noqa: F821 (an answer's names are those of the notebook, in which it replaces a function)

from __future__ import annotations

import dataclasses

from autograder.authoring import BANK, wrong

NEIGHBOURS = "stochastic_rounding.neighbours"
FLOATING = ("floating_point", "just_below_a_power_of_two", "every_code")
FIXED = ("fixed_point", "a_value_of_the_format", *FLOATING, "the_ends")


@wrong(NEIGHBOURS, "cuts off in place of ⌊x⌋", fails=FIXED, says="goes toward 0, and that is up for negative x")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower = torch.trunc(x / eps) * eps
    upper = torch.where(lower == x, x, lower + eps)
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(NEIGHBOURS, "the upper one is always one further", fails="a_value_of_the_format", says="both neighbours are x")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower = torch.floor(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(lower + eps).float()


@wrong(NEIGHBOURS, "swapped", fails=FIXED, says="The two are swapped")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(upper).float(), fmt.bounded(lower).float()


@wrong(NEIGHBOURS, "counts of ε", fails=FIXED, says="Multiply by ε again")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return torch.floor(x / eps).float(), torch.ceil(x / eps).float()


@wrong(NEIGHBOURS, "whole numbers", fails=FIXED, says="divide by ε, then floor")
def neighbours(x, fmt):
    return fmt.bounded(torch.floor(x)), fmt.bounded(torch.ceil(x))


@wrong(NEIGHBOURS, "ε from the integer bits", fails=FIXED, says="made of the integer bits")
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, 2.0**-fmt.il)
    else:
        exponent = torch.frexp(x).exponent - 1
        eps = torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(
    NEIGHBOURS,
    "one spacing for all floats",
    fails=("a_value_of_the_format", *FLOATING),
    says="The spacing is the same everywhere here",
)
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        eps = torch.full_like(x, 2.0**-fmt.mantissa_bits)
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(
    NEIGHBOURS, "frexp's exponent taken for e", fails=("a_value_of_the_format", *FLOATING), says="its exponent is e + 1"
)
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.frexp(x).exponent
        eps = torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(NEIGHBOURS, "one mantissa bit too many", fails=FLOATING, says="This spacing is half of what it is")
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.frexp(x).exponent - 2
        eps = torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(
    NEIGHBOURS,
    "the exponent from a logarithm",
    fails=("just_below_a_power_of_two", "the_ends"),
    says="log₂ in float32 is rounded",
)
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.log2(x.float().abs()).floor().clamp(min=fmt.min_exponent)
        eps = torch.exp2((exponent - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(NEIGHBOURS, "no subnormal numbers", fails="every_code", says="spacing stops shrinking")
def neighbours(x, fmt):
    x = x.double()
    if isinstance(fmt, Fixed):
        eps = torch.full_like(x, fmt.eps)
    else:
        exponent = torch.frexp(x).exponent - 1
        eps = torch.exp2((exponent - fmt.mantissa_bits).double())
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(NEIGHBOURS, "does not saturate", fails="the_ends", says="A format that has no infinity saturates")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return (torch.floor(x / eps) * eps).float(), (torch.ceil(x / eps) * eps).float()


@wrong(NEIGHBOURS, "wraps for saturates", fails="the_ends", says="A format that has no infinity saturates")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    if isinstance(fmt, Fixed):
        span = fmt.max - fmt.min + fmt.eps
        lower, upper = ((v - fmt.min) % span + fmt.min for v in (lower, upper))
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()


@wrong(NEIGHBOURS, "one tensor for both", fails=FIXED, says="end with `return lower, upper`")
def neighbours(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return torch.stack([torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps]).float()


NEAREST = "stochastic_rounding.round_nearest_even"
TIES = ("ties_to_even", "any_bits")
WHOLE = ("the_nearer_one", *TIES, "ends_and_zeros")
SUM = ("rounded_after_every_addition", "nearest_stalls", "stochastic_does_not_stall", "its_own_generator")
LATER = ("weights_stay_in_the_format", "each_weight_its_own", "small_updates_count", "no_global_generator")
STEP = ("a_step_to_nearest", *LATER, "leaves_its_inputs_alone")
AFTER = (*(f"running_sum.{check}" for check in SUM), *(f"sgd_low_precision.{check}" for check in STEP))


@wrong(NEAREST, "round half up", fails=(*TIES, "ends_and_zeros", *AFTER), says="You round the middle up (half up)")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.floor(x / eps + 0.5) * eps).float()


@wrong(NEAREST, "round half down", fails=(*TIES, "ends_and_zeros", *AFTER), says="You round the middle down")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.ceil(x / eps - 0.5) * eps).float()


@wrong(NEAREST, "round half away from 0", fails=(*TIES, "ends_and_zeros", *AFTER), says="as one does at school")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.sign(x) * torch.floor(x.abs() / eps + 0.5) * eps).float()


@wrong(NEAREST, "truncates", fails=(*WHOLE, *AFTER), says="This cuts off (rounds toward 0)")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.trunc(x / eps) * eps).float()


@wrong(NEAREST, "rounds down", fails=(*WHOLE, *AFTER), says="the lower neighbour always")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.floor(x / eps) * eps).float()


@wrong(NEAREST, "the farther one", fails=(*WHOLE, *AFTER), says="the farther neighbour")
def round_nearest_even(x, fmt):
    lower, upper = neighbours(x, fmt)
    return torch.where(x - lower > upper - x, lower, upper)


@wrong(NEAREST, "to odd", fails=(*TIES, *AFTER), says="You take the odd neighbour")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    below = torch.floor(x / eps)
    rest = x / eps - below
    up = (rest > 0.5) | ((rest == 0.5) & (below % 2 == 0))
    rounded = torch.where(x.isfinite(), below + up, x)
    return torch.copysign(fmt.bounded(rounded * eps), x).float()


@wrong(NEAREST, "wraps for saturates", fails="ends_and_zeros", says="saturates")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    rounded = torch.round(x / eps) * eps
    if isinstance(fmt, Fixed):
        rounded = (rounded - fmt.min) % (fmt.max - fmt.min + fmt.eps) + fmt.min
    return fmt.bounded(rounded).float()


@wrong(NEAREST, "loses the sign of zero", fails="ends_and_zeros", says="keeps the sign of what underflows")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.round(x / eps) * eps).float() + 0.0


@wrong(NEAREST, "returns float64", fails=(*WHOLE, *AFTER), says="has dtype float64")
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.round(x / eps) * eps)


@wrong(NEAREST, "calls the library's", fails=WHOLE, says="which this exercise forbids")
def round_nearest_even(x, fmt):
    return rounding.round_nearest(x, fmt)


STOCHASTIC = "stochastic_rounding.stochastic_round"
UNBIASED = ("running_sum.stochastic_does_not_stall", "sgd_low_precision.small_updates_count")
NOT_RANDOM = (
    *(*UNBIASED, "running_sum.its_own_generator", "sgd_low_precision.no_global_generator"),
    "sgd_low_precision.each_weight_its_own",
)
ALL = ("up_where_u_is_below_p", "negative_numbers", "a_value_stays", "the_odds_are_exact", "beyond_the_ends")


@wrong(
    STOCHASTIC,
    "turns the odds round",
    fails=(*ALL, "running_sum.stochastic_does_not_stall", *(f"sgd_low_precision.{check}" for check in LATER)),
    says="The odds are turned round",
)
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u < 1 - (x / eps - whole)
    return fmt.bounded((whole + up) * eps).float()


@wrong(STOCHASTIC, "adds u, then cuts", fails=ALL, says="This goes up where u ≥ 1 − p")
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.floor(x / eps + u) * eps).float()


@wrong(
    STOCHASTIC,
    "adds u twice",
    fails=(*ALL, UNBIASED[0], *(f"sgd_low_precision.{check}" for check in LATER)),
    says="This adds u twice",
)
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.floor(x / eps + u + u) * eps).float()


@wrong(STOCHASTIC, "counts u twice", fails=(*ALL, *UNBIASED), says="This counts u twice")
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u + u < x / eps - whole
    return fmt.bounded((whole + up) * eps).float()


@wrong(STOCHASTIC, "does not use u", fails=(*ALL, *NOT_RANDOM), says="This does not use u")
def stochastic_round(x, fmt, u):
    return round_nearest_even(x, fmt)


@wrong(
    STOCHASTIC,
    "one random number per tensor",
    fails=(*ALL, *UNBIASED, "sgd_low_precision.each_weight_its_own"),
    says="One random number decides for all",
)
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u.flatten()[0] < x / eps - whole
    return fmt.bounded((whole + up) * eps).float()


@wrong(
    STOCHASTIC,
    "biased for negatives",
    fails=("negative_numbers", "the_odds_are_exact", UNBIASED[1]),
    says="biased for negative x",
)
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u < (x / eps - torch.trunc(x / eps)).abs()
    return fmt.bounded((whole + up) * eps).float()


@wrong(
    STOCHASTIC,
    "cuts off for ⌊x⌋",
    fails=("negative_numbers", "the_odds_are_exact", UNBIASED[1]),
    says="cutting off is not ⌊x⌋",
)
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.trunc(x / eps)
    up = u < x / eps - whole
    return fmt.bounded((whole + up) * eps).float()


@wrong(
    STOCHASTIC,
    "rounds |x|",
    fails=("negative_numbers", "the_odds_are_exact"),
    says="This rounds |x| and puts the sign back",
)
def stochastic_round(x, fmt, u):
    size = x.double().abs()
    eps = spacing(size, fmt)
    whole = torch.floor(size / eps)
    up = u < size / eps - whole
    return fmt.bounded(torch.sign(x) * (whole + up) * eps).float()


@wrong(STOCHASTIC, "u ≤ p", fails=("a_value_stays", "the_odds_are_exact"), says="Up where u < p, not where u ≤ p")
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u <= x / eps - whole
    return fmt.bounded((whole + up) * eps).float()


@wrong(STOCHASTIC, "wraps for saturates", fails="beyond_the_ends", says="saturates")
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    rounded = (whole + (u < x / eps - whole)) * eps
    if isinstance(fmt, Fixed):
        rounded = (rounded - fmt.min) % (fmt.max - fmt.min + fmt.eps) + fmt.min
    return fmt.bounded(rounded).float()


BITS = "stochastic_rounding.bf16_round_bits"
EVERY_BIT = ("add_and_cut", "carry_into_the_exponent", "all_random_numbers", "every_bf16_stays", "not_a_number")


@wrong(BITS, "truncates", fails=EVERY_BIT, says="no carry arrives")
def bf16_round_bits(x, rand16):
    return (x.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "round half up", fails=EVERY_BIT, says="This rounds half up")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "adds twice", fails=EVERY_BIT, says="This adds rand16 twice")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16 + rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "subtracts", fails=EVERY_BIT, says="rand16 was subtracted")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) - rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "adds to the upper half", fails=EVERY_BIT, says="rand16 was added to the upper half")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) >> 16) + rand16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "loses the carry", fails=EVERY_BIT, says="no carry arrives")
def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    total = (bits & -0x10000) | ((bits + rand16) & 0xFFFF)
    return (total >> 16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "compares in place of adding", fails=EVERY_BIT, says="here the carry of a sum decides")
def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    up = rand16 < (bits & 0xFFFF)
    return ((bits >> 16) + up).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "the carry stays in the mantissa", fails="carry_into_the_exponent", says="cut off at the mantissa")
def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    total = (bits & -0x800000) | ((bits + rand16) & 0x7FFFFF)
    rounded = (total >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)


@wrong(BITS, "NaN becomes something else", fails="not_a_number", says="put NaN back")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong(BITS, "returns codes", fails=EVERY_BIT, says="Return the numbers, not their codes")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16) >> 16).to(torch.int16)


@wrong(BITS, "adds 1 too much", fails=EVERY_BIT, says="")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16 + 1) >> 16).to(torch.int16).view(torch.bfloat16)


RUNNING = "stochastic_rounding.running_sum"


@wrong(RUNNING, "rounds the exact sums", fails=SUM, says="sums that were added exactly")
def running_sum(xs, fmt, mode, generator):
    sums = xs.cumsum(0)
    if mode == "nearest":
        return round_nearest_even(sums, fmt)
    return stochastic_round(sums, fmt, torch.rand(sums.shape, generator=generator))


@wrong(RUNNING, "rounds the terms", fails=SUM, says="This rounds the terms and not the sum")
def running_sum(xs, fmt, mode, generator):
    if mode == "nearest":
        return round_nearest_even(xs, fmt).cumsum(0)
    return stochastic_round(xs, fmt, torch.rand(xs.shape, generator=generator)).cumsum(0)


@wrong(RUNNING, "rounds nothing", fails=SUM, says="The sum is not rounded at all")
def running_sum(xs, fmt, mode, generator):
    return xs.cumsum(0)


@wrong(RUNNING, "only the last sum", fails=SUM, says="has shape ()")
def running_sum(xs, fmt, mode, generator):
    s = torch.zeros_like(xs[0])
    for x in xs:
        if mode == "nearest":
            s = round_nearest_even(s + x, fmt)
        else:
            s = stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))
    return s


@wrong(
    RUNNING,
    "to nearest in both modes",
    fails=("stochastic_does_not_stall", "its_own_generator"),
    says="all end at the same",
)
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        s = round_nearest_even(s + x, fmt)
        sums.append(s)
    return torch.stack(sums)


@wrong(RUNNING, "one random number per tensor", fails="stochastic_does_not_stall", says="not one for all")
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        if mode == "nearest":
            s = round_nearest_even(s + x, fmt)
        else:
            s = stochastic_round(s + x, fmt, torch.rand((), generator=generator).expand(s.shape))
        sums.append(s)
    return torch.stack(sums)


@wrong(
    RUNNING,
    "the same random numbers in each step",
    fails="stochastic_does_not_stall",
    says="new random numbers in each step",
)
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    u = torch.rand(s.shape, generator=generator)
    for x in xs:
        s = round_nearest_even(s + x, fmt) if mode == "nearest" else stochastic_round(s + x, fmt, u)
        sums.append(s)
    return torch.stack(sums)


@wrong(
    RUNNING,
    "draws from the global generator",
    fails="its_own_generator",
    says="Draw every random number from the generator",
)
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        if mode == "nearest":
            s = round_nearest_even(s + x, fmt)
        else:
            s = stochastic_round(s + x, fmt, torch.rand(s.shape))
        sums.append(s)
    return torch.stack(sums)


SGD = "stochastic_rounding.sgd_low_precision"


@wrong(SGD, "climbs", fails=STEP, says="It climbs")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w + lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))


@wrong(SGD, "no learning rate", fails=STEP, says="The learning rate is missing")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))


@wrong(SGD, "rounds the gradient only", fails=STEP, says="This rounds the gradient")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    if mode == "nearest":
        return w - lr * round_nearest_even(grad, fmt)
    return w - lr * stochastic_round(grad, fmt, torch.rand(grad.shape, generator=generator))


@wrong(SGD, "rounds the gradient only, at random", fails=LATER, says="is no neighbour of w − lr · grad")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    if mode == "nearest":
        return round_nearest_even(w - lr * grad, fmt)
    return w - lr * stochastic_round(grad, fmt, torch.rand(grad.shape, generator=generator))


@wrong(SGD, "rounds nothing", fails=STEP, says="The new weights are not rounded")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return w - lr * grad


@wrong(SGD, "rounds down always", fails=STEP, says="This rounds down always")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return neighbours(w - lr * grad, fmt)[0]


@wrong(SGD, "to nearest in both modes", fails=LATER[1:], says="or there is none")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return round_nearest_even(w - lr * grad, fmt)


@wrong(SGD, "one random number per tensor", fails=LATER[1:3], says="they share one random number")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand((), generator=generator).expand(new.shape))


@wrong(SGD, "up or down with even odds", fails="small_updates_count", says="a weight's move, in ε, is")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    lower, upper = neighbours(new, fmt)
    return torch.where(torch.rand(new.shape, generator=generator) < 0.5, lower, upper)


@wrong(
    SGD, "draws from the global generator", fails="no_global_generator", says="a state that the whole program shares"
)
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand(new.shape))


@wrong(SGD, "seeds the generator anew", fails="no_global_generator", says="don't seed it anew")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    generator.manual_seed(0)
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))


@wrong(SGD, "in place", fails="leaves_its_inputs_alone", says="changed its argument w")
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    w -= lr * grad
    if mode == "nearest":
        return round_nearest_even(w, fmt)
    return stochastic_round(w, fmt, torch.rand(w.shape, generator=generator))


def wrong_kernel(mistake: str, *, fails, says: str):
    """A wrong `rounding_kernel`: the bank keeps sources without decorators, and a kernel is one by its decorator."""

    def register(definition):
        wrong("stochastic_rounding.rounding_kernel", mistake, fails=fails, says=says)(definition)
        BANK[-1] = dataclasses.replace(BANK[-1], source="@triton.jit\n" + BANK[-1].source)
        return definition

    return register


KERNEL = ("the_same_bits", "any_launch", "every_seed")


@wrong_kernel("truncates", fails=KERNEL, says="This cuts off without adding random bits")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, (bits >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("round half up", fails=KERNEL, says="This rounds half up")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, ((bits + 0x8000) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("a call of Philox for each element", fails=KERNEL, says="counter i // 8")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    rand16 = tl.randint(seed, i) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("the first word for all eight", fails=KERNEL, says="take its first word")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    rand16 = (tl.randint(seed, i // 8) >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("the low half for both", fails=KERNEL, says="Only the even elements are right")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = word & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("halves swapped", fails=KERNEL, says="The halves are swapped")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 - 16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("random bits by the place in the block", fails="any_launch", says="launch(x, 1000, 3, 64)")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + j
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, j // 8)
    k = (j % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (j % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)


@wrong_kernel("no mask at the store", fails="any_launch", says="wrote behind the end")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0x3F800000)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16))


@wrong_kernel("a seed of its own", fails=KERNEL, says="launch(x, 256, 7, 256)")
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(0, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)
