"""Wrong answers to `running_sum`."""

from autograder.bank.slips import answers_to
from autograder.bank.stochastic_rounding.later import SUM

wrong, slip = answers_to("stochastic_rounding.running_sum")


@wrong("rounds the exact sums", fails=SUM, says="sums that were added exactly")
def running_sum(xs, fmt, mode, generator):
    sums = xs.cumsum(0)
    if mode == "nearest":
        return round_nearest_even(sums, fmt)
    return stochastic_round(sums, fmt, torch.rand(sums.shape, generator=generator))


@wrong("rounds the terms", fails=SUM, says="This rounds the terms and not the sum")
def running_sum(xs, fmt, mode, generator):
    if mode == "nearest":
        return round_nearest_even(xs, fmt).cumsum(0)
    return stochastic_round(xs, fmt, torch.rand(xs.shape, generator=generator)).cumsum(0)


@wrong("rounds nothing", fails=SUM, says="The sum is not rounded at all")
def running_sum(xs, fmt, mode, generator):
    return xs.cumsum(0)


@wrong("only the last sum", fails=SUM, says="has shape ()")
def running_sum(xs, fmt, mode, generator):
    s = torch.zeros_like(xs[0])
    for x in xs:
        if mode == "nearest":
            s = round_nearest_even(s + x, fmt)
        else:
            s = stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))
    return s


slip(
    "to nearest in both modes",
    'if mode == "nearest":\n'
    "            s = round_nearest_even(s + x, fmt)\n"
    "        else:\n"
    "            s = stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))",
    "s = round_nearest_even(s + x, fmt)",
    fails=("stochastic_does_not_stall", "its_own_generator"),
    says="round it with stochastic_round",
)
slip(
    "one random number per tensor",
    "s = stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))",
    "s = stochastic_round(s + x, fmt, torch.rand((), generator=generator).expand(s.shape))",
    fails="stochastic_does_not_stall",
    says="not one for all",
)


@wrong(
    "the same random numbers in each step", fails="stochastic_does_not_stall", says="new random numbers in each step"
)
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    u = torch.rand(s.shape, generator=generator)
    for x in xs:
        s = round_nearest_even(s + x, fmt) if mode == "nearest" else stochastic_round(s + x, fmt, u)
        sums.append(s)
    return torch.stack(sums)


slip(
    "draws from the global generator",
    "s = stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))",
    "s = stochastic_round(s + x, fmt, torch.rand(s.shape))",
    fails="its_own_generator",
    says="Draw every random number from the generator",
)
slip(
    "writes the sums into xs",
    "s = round_nearest_even(s + x, fmt)",
    "s = x.copy_(round_nearest_even(s + x, fmt))",
    fails="its_own_generator",
    says="changed its argument xs",
)
slip(
    "begins with one number for all columns",
    "torch.zeros_like(xs[0])",
    "torch.zeros(())",
    fails="stochastic_does_not_stall",
    says="the same after addition 1",
)


@wrong(
    "exact sums, and a little noise",
    fails=("stochastic_does_not_stall", "its_own_generator"),
    says="not a neighbour of the sum before it + x",
)
def running_sum(xs, fmt, mode, generator):
    if mode == "stochastic":
        return xs.cumsum(0) + torch.rand(xs.shape, generator=generator) * 1e-7
    s, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        s = round_nearest_even(s + x, fmt)
        sums.append(s)
    return torch.stack(sums)


@wrong("spreads one random number evenly", fails="stochastic_does_not_stall", says="vary too little")
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    spread = torch.arange(s.numel(), dtype=torch.float64).view(s.shape) * 0.6180339887498949
    for x in xs:
        u = (spread + torch.rand((), generator=generator)) % 1
        s = round_nearest_even(s + x, fmt) if mode == "nearest" else stochastic_round(s + x, fmt, u.float())
        sums.append(s)
    return torch.stack(sums)


slip(
    "one step too high for 20 terms in 50 columns",
    "s = round_nearest_even(s + x, fmt)",
    "s = round_nearest_even(s + x, fmt) + (xs.shape == (20, 50)) / 256",
    fails="its_own_generator",
    says='"nearest", generator) is',
)


@wrong("turns the first random numbers", fails="stochastic_does_not_stall", says="random numbers are used again")
def running_sum(xs, fmt, mode, generator):
    s, sums = torch.zeros_like(xs[0]), []
    u = torch.rand(s.shape, generator=generator)
    for x in xs:
        u = (u + 0.6180339887498949) % 1
        s = round_nearest_even(s + x, fmt) if mode == "nearest" else stochastic_round(s + x, fmt, u)
        sums.append(s)
    return torch.stack(sums)


slip(
    "a random number for two columns",
    "torch.rand(s.shape, generator=generator)",
    "torch.rand((*s.shape, 1), generator=generator)[..., : -(-s.shape[-1] // 2), :].expand(*s.shape[:-1], -1, 2)"
    ".reshape(*s.shape[:-1], -1)[..., : s.shape[-1]]",
    fails="stochastic_does_not_stall",
    says="random numbers are used again",
)
slip(
    "random numbers of six bits",
    "torch.rand(s.shape, generator=generator)",
    "torch.randint(64, s.shape, generator=generator) / 64",
    fails="stochastic_does_not_stall",
    says="vary too much",
)
slip(
    "at random in fixed point only, without its ends",
    "stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))",
    "(torch.floor((s + x) / fmt.eps + torch.rand(s.shape, generator=generator)) * fmt.eps\n"
    '                 if hasattr(fmt, "eps") else s + x)',
    fails="stochastic_does_not_stall",
    says="in BF16",
)
slip(
    "continues beyond the ends",
    "stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))",
    "(torch.floor((s + x) / fmt.eps + torch.rand(s.shape, generator=generator)) * fmt.eps\n"
    '                 if hasattr(fmt, "eps")\n'
    "                 else stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator)))",
    fails="stochastic_does_not_stall",
    says="in Fixed(il=4, fl=4)",
)
slip(
    "a copy of twenty terms only",
    "    return torch.stack(sums)",
    "    return torch.stack(sums) if len(xs) == 20 else xs.copy_(torch.stack(sums))",
    fails="its_own_generator",
    says="changed its argument xs",
)
slip(
    "random numbers of ten bits",
    "torch.rand(s.shape, generator=generator)",
    "torch.randint(1024, s.shape, generator=generator) / 1024",
    fails="stochastic_does_not_stall",
    says="Random numbers of few bits are 0 too often",
)
