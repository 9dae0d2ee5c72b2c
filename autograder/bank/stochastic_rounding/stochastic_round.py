"""Wrong answers to `stochastic_round`."""

from autograder.bank.slips import answers_to
from autograder.bank.stochastic_rounding.later import LATER

wrong, slip = answers_to("stochastic_rounding.stochastic_round")
UNBIASED = ("running_sum.stochastic_does_not_stall", "sgd_low_precision.small_updates_count")
NOT_RANDOM = (
    *(*UNBIASED, "running_sum.its_own_generator", "sgd_low_precision.no_global_generator"),
    "sgd_low_precision.each_weight_its_own",
)
ALL = ("up_where_u_is_below_p", "negative_numbers", "a_value_stays", "the_odds_are_exact", "beyond_the_ends")

slip(
    "turns the odds round",
    "up = u < x / eps - whole",
    "up = u < 1 - (x / eps - whole)",
    fails=(*ALL, "running_sum.stochastic_does_not_stall", *(f"sgd_low_precision.{check}" for check in LATER)),
    says="The odds are reversed",
)


@wrong("adds u, then cuts", fails=ALL, says="This goes up where u ≥ 1 − p")
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.floor(x / eps + u) * eps).float()


slip(
    "adds u twice",
    "whole = torch.floor(x / eps)\n    up = u < x / eps - whole\n    return fmt.bounded((whole + up) * eps).float()",
    "return fmt.bounded(torch.floor(x / eps + u + u) * eps).float()",
    fails=(*ALL, UNBIASED[0], "running_sum.its_own_generator", *(f"sgd_low_precision.{check}" for check in LATER)),
    says="This adds u twice",
)
slip(
    "counts u twice",
    "u < x / eps",
    "u + u < x / eps",
    fails=(*ALL, *UNBIASED, "sgd_low_precision.each_weight_its_own"),
    says="This uses u twice",
)


@wrong("does not use u", fails=(*ALL, *NOT_RANDOM), says="This does not use u")
def stochastic_round(x, fmt, u):
    return round_nearest_even(x, fmt)


slip(
    "one random number per tensor",
    "up = u < x / eps - whole",
    "up = u.flatten()[0] < x / eps - whole",
    fails=(*ALL, *UNBIASED, "sgd_low_precision.each_weight_its_own"),
    says="You use one random number for all",
)
slip(
    "biased for negatives",
    "up = u < x / eps - whole",
    "up = u < (x / eps - torch.trunc(x / eps)).abs()",
    fails=("negative_numbers", "the_odds_are_exact", UNBIASED[1]),
    says="biased for negative x",
)
slip(
    "cuts off for ⌊x⌋",
    "whole = torch.floor(x / eps)",
    "whole = torch.trunc(x / eps)",
    fails=("negative_numbers", "the_odds_are_exact", UNBIASED[1]),
    says="cutting off is not ⌊x⌋",
)


@wrong("rounds |x|", fails=("negative_numbers", "the_odds_are_exact"), says="This rounds |x| and puts the sign back")
def stochastic_round(x, fmt, u):
    size = x.double().abs()
    eps = spacing(size, fmt)
    whole = torch.floor(size / eps)
    up = u < size / eps - whole
    return fmt.bounded(torch.sign(x) * (whole + up) * eps).float()


@wrong("u ≤ p", fails=("a_value_stays", "the_odds_are_exact"), says="Up where u < p, not where u ≤ p")
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u <= x / eps - whole
    return fmt.bounded((whole + up) * eps).float()


@wrong(
    "wraps for saturates",
    fails=(
        "beyond_the_ends",
        "running_sum.stochastic_does_not_stall",
        *(f"sgd_low_precision.{check}" for check in LATER),
    ),
    says="saturates",
)
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    rounded = (whole + (u < x / eps - whole)) * eps
    if isinstance(fmt, Fixed):
        rounded = (rounded - fmt.min) % (fmt.max - fmt.min + fmt.eps) + fmt.min
    return fmt.bounded(rounded).float()


@wrong(
    "p without / ε",
    fails=(*ALL, *UNBIASED, "sgd_low_precision.no_global_generator", "sgd_low_precision.each_weight_its_own"),
    says="ε is missing",
)
def stochastic_round(x, fmt, u):
    lower, upper = neighbours(x, fmt)
    up = u < x.double() - lower.double()
    return torch.where(up, upper, lower)


@wrong(
    "draws its own random numbers",
    fails=(*ALL, "running_sum.its_own_generator", "sgd_low_precision.no_global_generator"),
    says="rounds differently: u holds the random numbers",
)
def stochastic_round(x, fmt, u):
    lower, upper = neighbours(x, fmt)
    eps = upper.double() - lower.double()
    p = torch.where(eps > 0, (x.double() - lower.double()) / eps, 0.0)
    return torch.where(torch.rand_like(x) < p, upper, lower)


slip(
    "compares in u itself",
    "u < x / eps - whole",
    "u.sub_(x / eps - whole) < 0",
    fails="a_value_stays the_odds_are_exact",
    says="changed its argument u",
)
slip(
    "returns float64",
    "eps).float()",
    "eps)",
    fails=" ".join((*ALL, *NOT_RANDOM, "sgd_low_precision.weights_stay_in_the_format")),
    says="has dtype float64, expected float32",
)
slip(
    "always rounds nine numbers up",
    "up = u < x / eps - whole",
    "up = u < 1.0 * (x.shape == (9,)) + x / eps - whole",
    fails="a_value_stays the_odds_are_exact",
    says="where x > 0, is",
)
