"""Lab 06 answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% neighbours: log2 by the bits of frexp, ldexp
def spacing(x, fmt):
    if isinstance(fmt, Fixed):
        return torch.ones_like(x) * 2.0**-fmt.fl
    _, exponent = torch.frexp(x)
    e = torch.maximum(exponent - 1, torch.tensor(fmt.min_exponent))
    return torch.ldexp(torch.ones_like(x), e - fmt.mantissa_bits)


def neighbours(x, fmt):
    v = x.double()
    gap = spacing(v, fmt)
    return tuple(fmt.bounded(way(v / gap) * gap).float() for way in (torch.floor, torch.ceil))


# %% neighbours: number by number, with math
import math


def one_spacing(v, fmt):
    if isinstance(fmt, Fixed):
        return fmt.eps
    if math.isnan(v) or math.isinf(v):
        return 1.0
    e = math.frexp(v)[1] - 1 if v else fmt.min_exponent
    return 2.0 ** (max(e, fmt.min_exponent) - fmt.mantissa_bits)


def spacing(x, fmt):
    return torch.tensor([one_spacing(v, fmt) for v in x.flatten().tolist()], dtype=torch.float64).reshape(x.shape)


def neighbours(x, fmt):
    x = x.double()
    units = x / (eps := spacing(x, fmt))
    lower = units.floor() * eps
    upper = -((-units).floor()) * eps
    return fmt.bounded(lower).to(torch.float32), fmt.bounded(upper).to(torch.float32)


# %% neighbours: the one below, and one step up where it is not x
def spacing(x, fmt):
    match fmt:
        case Fixed():
            return torch.zeros_like(x) + fmt.eps
        case _:
            exponent = torch.frexp(x).exponent.sub(1).clamp_(min=fmt.min_exponent)
            return 2.0 ** (exponent - fmt.mantissa_bits).double()


def neighbours(x, fmt):
    x = x.double()
    gap = spacing(x, fmt)
    below = (x / gap).floor() * gap
    above = torch.where(below == x, below, below + gap)
    return fmt.bounded(below).float(), fmt.bounded(above).float()


# %% neighbours: NumPy
import numpy as np


def spacing(x, fmt):
    a = x.numpy()
    if isinstance(fmt, Fixed):
        return torch.as_tensor(np.full(a.shape, fmt.eps))
    exponent = np.maximum(np.frexp(a)[1] - 1, fmt.min_exponent)
    return torch.as_tensor(np.ldexp(np.ones(a.shape), exponent - fmt.mantissa_bits))


def neighbours(x, fmt):
    x = x.to(torch.float64)
    eps = spacing(x, fmt).numpy()
    lower, upper = np.floor(x.numpy() / eps) * eps, np.ceil(x.numpy() / eps) * eps
    return fmt.bounded(torch.as_tensor(lower)).float(), fmt.bounded(torch.as_tensor(upper)).float()


# %% round_nearest_even: the nearer neighbour, by cases
def round_nearest_even(x, fmt):
    x = x.double()
    eps = spacing(x, fmt)
    below = torch.floor(x / eps)
    rest = x / eps - below
    odd = below % 2 == 1
    up = (rest > 0.5) | ((rest == 0.5) & odd)
    whole = torch.where(up, below + 1, below)
    result = fmt.bounded(torch.where(x.isinf(), x, whole * eps))
    return result.float() if isinstance(fmt, Fixed) else torch.copysign(result, x).float()


# %% round_nearest_even: Python's round
import math


def nearest(v, eps):
    return v if math.isnan(v) or math.isinf(v) else math.copysign(round(v / eps) * eps, v)


def round_nearest_even(x, fmt):
    eps = spacing(x.double(), fmt)
    values = [nearest(v, e) for v, e in zip(x.flatten().tolist(), eps.flatten().tolist())]
    return fmt.bounded(torch.tensor(values, dtype=torch.float64).view(x.shape)).float()


# %% round_nearest_even: NumPy's rint
import numpy as np


def round_nearest_even(x, fmt):
    wide = x.to(torch.float64)
    eps = spacing(wide, fmt)
    return fmt.bounded(torch.as_tensor(np.rint((wide / eps).numpy())) * eps).to(x.dtype)


# %% stochastic_round: up where u lies below what is left
def stochastic_round(x, fmt, u):
    x = x.double()
    eps = spacing(x, fmt)
    lower = torch.floor(x / eps) * eps
    p = (x - lower) / eps
    return fmt.bounded(torch.where(u < p, lower + eps, lower)).float()


# %% stochastic_round: between its own two neighbours
def stochastic_round(x, fmt, u):
    lower, upper = neighbours(x, fmt)
    wide = x.double()
    p = (wide - torch.floor(wide / spacing(wide, fmt)) * spacing(wide, fmt)) / spacing(wide, fmt)
    return torch.where(u.double() < p, upper, lower)


# %% stochastic_round: a copy, filled by a mask
def stochastic_round(x: torch.Tensor, fmt, u: torch.Tensor) -> torch.Tensor:
    assert x.shape == u.shape
    units = x.double() / spacing(x.double(), fmt)
    whole = units.floor()
    whole[u < units - whole] += 1
    return fmt.bounded(whole.mul_(spacing(x.double(), fmt))).float()


# %% bf16_round_bits: a mask instead of the shift
def bf16_round_bits(x, rand16):
    bits = (x.view(torch.int32) + rand16) & -65536
    result = bits.view(torch.float32).bfloat16()
    result[x.isnan()] = float("nan")
    return result


# %% bf16_round_bits: NumPy's unsigned integers
import numpy as np


def bf16_round_bits(x, rand16):
    bits = x.contiguous().numpy().view(np.uint32) + rand16.numpy().astype(np.uint32)
    codes = torch.from_numpy((bits >> 16).astype(np.uint16).view(np.int16))
    return torch.where(torch.isnan(x), torch.tensor(torch.nan, dtype=torch.bfloat16), codes.view(torch.bfloat16))


# %% bf16_round_bits: in 64 bits, where nothing can overflow
def bf16_round_bits(x, rand16):
    code = x.view(torch.int32).to(torch.int64) + rand16.to(torch.int64)
    code = torch.where(x != x, torch.full_like(code, 0x7FC00000), code)
    return torch.bitwise_right_shift(code, 16).to(torch.int16).view(torch.bfloat16)


# %% running_sum: rows that are filled
def running_sum(xs, fmt, mode, generator):
    sums = torch.empty_like(xs)
    total = torch.zeros(xs.shape[1:])
    for i in range(len(xs)):
        exact = total + xs[i]
        if mode == "stochastic":
            total = stochastic_round(exact, fmt, torch.rand(exact.shape, generator=generator))
        else:
            total = round_nearest_even(exact, fmt)
        sums[i] = total
    return sums


# %% running_sum: accumulate
from itertools import accumulate


def running_sum(xs, fmt, mode, generator):
    def nearest(s, x):
        return round_nearest_even(s + x, fmt)

    def stochastic(s, x):
        return stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))

    steps = accumulate(xs, {"nearest": nearest, "stochastic": stochastic}[mode], initial=torch.zeros_like(xs[0]))
    return torch.stack(list(steps)[1:])


# %% running_sum: a rounding made once, a generator of sums
def rounding_of(fmt, mode, generator):
    if mode == "nearest":
        return lambda values: round_nearest_even(values, fmt)
    return lambda values: stochastic_round(values, fmt, torch.rand(values.shape, generator=generator))


def partial_sums(xs, store):
    total = 0.0 * xs[0]
    for x in xs:
        yield (total := store(total + x))


def running_sum(xs, fmt, mode, generator):
    return torch.stack([*partial_sums(xs, rounding_of(fmt, mode, generator))])


# %% sgd_low_precision: add with alpha, one expression
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    step = torch.mul(grad, lr)
    new = torch.sub(w, step)
    return (
        round_nearest_even(new, fmt)
        if mode == "nearest"
        else stochastic_round(new, fmt, torch.rand(w.shape, generator=generator))
    )


# %% sgd_low_precision: random numbers first, uniform_ on a tensor of its own
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    target = w - grad * lr
    if mode == "stochastic":
        u = torch.empty_like(target).uniform_(0, 1, generator=generator)
        return stochastic_round(target, fmt, u)
    assert mode == "nearest"
    return round_nearest_even(target, fmt)


# %% sgd_low_precision: a copy is changed in place
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    new = w.clone()
    new -= lr * grad
    if mode == "nearest":
        new.copy_(round_nearest_even(new, fmt))
    elif mode == "stochastic":
        new.copy_(stochastic_round(new, fmt, torch.rand(new.shape, generator=generator)))
    return new


# %% rounding_kernel: the words chosen by sums, masks written out
@triton.jit
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    which = i % 8
    low = tl.where(which < 2, r0, r1)
    high = tl.where(which < 6, r2, r3)
    word = tl.where(which < 4, low, high)
    half = tl.where(i % 2 == 0, word & 0xFFFF, (word >> 16) & 0xFFFF)
    total = tl.load(bits_ptr + i, mask=mask) + half.to(tl.int32)
    tl.store(out_ptr + i, (total >> 16).to(tl.int16), mask=mask)


# %% rounding_kernel: Philox's words as a sum of what is chosen, a division for the carry
@triton.jit
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    pair = (i // 2) % 4
    word = r0 * (pair == 0) + r1 * (pair == 1) + r2 * (pair == 2) + r3 * (pair == 3)
    shift = tl.where(i % 2 == 1, 16, 0)
    rand16 = ((word >> shift) & 0xFFFF).to(tl.int32)
    rounded = (bits + rand16) >> 16
    tl.store(out_ptr + i, rounded.to(tl.int16), mask=i < n)


# %% unmask_rounding: from what torch knows of the format
def unmask_rounding():
    info = torch.finfo(torch.float16)
    return [(info.max + 1, "FP16"), (info.tiny / 4, "FP16"), (1 + info.eps / 2, "FP16"), (-8.5, "Fixed(4, 2)")]


# %% unmask_rounding: negative numbers, and several of each
def unmask_rounding():
    ends = [(-100, "Fixed(4, 2)"), (7.9, "Fixed(4, 2)")]
    ties = [(-0.125, "Fixed(4, 2)"), (-0.625, "Fixed(4, 2)")]
    tiny = [(-(2.0**-16), "FP16"), (3e-7, "FP16")]
    return ends + ties + tiny + [(-65519.0, "FP16")]
