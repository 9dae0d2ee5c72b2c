# %% [markdown]
# # Lab 06 · Stochastic rounding
# ## Less precision, on purpose
#
# With half the bits you need half the memory and half the traffic, and today's hardware computes several times as fast.
# But there is a problem: if you add a small step to a large number, rounding removes the step. Training consists of
# small steps. In this lab you write the solution, which sounds like a joke but is a theorem: **round at random**, with
# the right odds.
#
# **You will be able to**
# - say which numbers a 16-bit or 8-bit format contains, and find the two next to any $x$;
# - round to the nearest one, also for ties, with the same bits as hardware;
# - round at random so that the average is exact, and prove it;
# - do it for bfloat16 with one integer addition, and on a GPU with random numbers that are the same on every machine;
# - train a network with 16-bit weights that does not learn at all with rounding to nearest.
#
# **100 points, 8 exercises, about 112 minutes: 13 reading + 93 exercises + 6 runs.** You need tensors and gradient descent (lab 02), but no GPU and no
# download. The network at the end uses the ideas of lab 04. One exercise is a kernel in Triton, which runs on Linux. On
# other systems run the lab on Binder, or skip that exercise.

# %%
import time

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy

from autograder import check
from hpcdl.data import digits
from hpcdl.kernels.anywhere import DEVICE, run, tl, triton
from hpcdl.nn.lenet import lenet5
from hpcdl.numerics import rounding
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed
from hpcdl.widgets import LiveFigure, guess, guessed, progress, reveal, style, when_solved
from hpcdl.widgets.pictures import low_precision_training, number_line, running_mean, stalling_sum

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# A number format is a finite set of numbers, shown as small ticks below. Any other number must become one of its two
# **neighbours**. Move $x$ to see its two neighbours, which one is nearer, and the odds with which stochastic rounding
# takes each.
#
# Then try these:
# 1. Begin with the fixed-point format of 8 bits. Where is the spacing $\varepsilon$ of its numbers largest?
# 2. Choose **FP8 E4M3** and move $x$ from 0.1 to 4. Where does the spacing change, and by how much?
# 3. Find an $x$ with equal odds for both neighbours. What does rounding to nearest do there?
# 4. In fixed point, go beyond the last number. What happens to $x$?

# %%
number_line.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Nowhere: in fixed point the spacing is the same everywhere, $\varepsilon = 2^{-FL}$.
# 2. It doubles at each power of two. There are as many numbers between 1 and 2 as between 2 and 4.
# 3. Halfway between two numbers neither is nearer. The rule is to take the *even* one, whose last bit is 0, so that
#    ties go up as often as down.
# 4. It **saturates**: it becomes the last number. If it wrapped around to the other end, as integers do, the largest
#    weight would become the smallest.
# </details>

# %% [markdown]
# ## Formats
#
# **Fixed point** $\langle IL, FL\rangle$ has words of $WL = IL + FL$ bits. The word holds a whole number $k$, which
# stands for $k\,\varepsilon$ with $\varepsilon = 2^{-FL}$. One of the $IL$ integer bits is the sign, so the numbers run
# from $-2^{IL-1}$ to $2^{IL-1} - \varepsilon$.
#
# **Floating point** has a sign, an exponent $e$ and mantissa bits. From $2^e$ to $2^{e+1}$ it has $2^{\text{mantissa bits}}$ numbers, evenly spaced:
#
# $$\varepsilon(x) = 2^{e - \text{mantissa bits}}, \qquad e = \lfloor \log_2 |x| \rfloor, \text{ but never less than } e_{\min}.$$
#
# Below $2^{e_{\min}}$ the spacing no longer shrinks. These numbers are called **subnormal**; they fill the gap to 0
# evenly.
#
# In this lab a format is an object with these attributes:
#
# | | | fixed point | floating point |
# |---|---|---|---|
# | `Fixed(il, fl)` | | `fmt.il`, `fmt.fl`, `fmt.eps` | |
# | `BF16`, `FP16`, `FP8_E4M3`, `FP8_E5M2` | | | `fmt.mantissa_bits`, `fmt.min_exponent` |
# | both | the largest and the smallest number | `fmt.max`, `fmt.min` | `fmt.max`, `fmt.min` |
# | both | maps multiples of ε outside the range | `fmt.bounded(v)` saturates | `fmt.bounded(v)`: to ±infinity, or saturates |

# %%
formats = (Fixed(4, 4), Fixed(4, 12), BF16, FP16, FP8_E4M3, FP8_E5M2)
print(f"{'':<20}{'ε at 1':>12}{'smallest > 0':>14}{'largest':>12}")
for fmt in formats:
    at_one = fmt.eps if isinstance(fmt, Fixed) else 2.0**-fmt.mantissa_bits
    least = fmt.eps if isinstance(fmt, Fixed) else 2.0 ** (fmt.min_exponent - fmt.mantissa_bits)
    print(f"{fmt!s:<20}{at_one:>12.5g}{least:>14.3g}{fmt.max:>12.5g}")

# %% [markdown]
# {{exercise neighbours}}
#
# Like the lecture, we write $\lfloor x\rfloor$ for the largest multiple of $\varepsilon$ that is not above $x$. Write
# `spacing` first, then use it in `neighbours`. Compute in float64 (`x.double()`): there, division by a power of two is
# exact.
#
# <details><summary>Hint 1: fixed point</summary>
#
# `torch.floor(x / eps)` counts how many ε fit below x, also for negative x. Multiplied by ε it is ⌊x⌋. `torch.ceil`
# gives the neighbour above. If x / ε is whole, both are x.
# </details>
# <details><summary>Hint 2: the exponent, exactly</summary>
#
# A logarithm is rounded: just below a power of two it becomes the power itself, if x and the logarithm have equally many
# digits. It is right only because x here has fewer than float64. `torch.frexp(x).exponent` is exact for every x: e + 1,
# because frexp writes x as a fraction in [1/2, 1) times a power of two. `.clamp(min=fmt.min_exponent)` keeps the exponent
# from falling below the smallest one.
# </details>
# <details><summary>Hint 3: the spacing</summary>
#
# ```python
# if isinstance(fmt, Fixed):
#     return torch.full_like(x, fmt.eps)
# exponent = torch.frexp(x).exponent - 1
# return torch.exp2((... - fmt.mantissa_bits).double())
# ```
# </details>
# <details><summary>Hint 4: the ends</summary>
#
# `fmt.bounded(torch.floor(x / eps) * eps)` handles numbers outside the range. At the end: `.float()`.
# </details>


# %%
def spacing(x, fmt):
    """ε(x), the distance between the numbers of the format around each x (float64):
    float64,
    of the shape of x."""
    # BEGIN SOLUTION
    if isinstance(fmt, Fixed):
        return torch.full_like(x, fmt.eps)
    exponent = torch.frexp(x).exponent - 1
    return torch.exp2((exponent.clamp(min=fmt.min_exponent) - fmt.mantissa_bits).double())
    # END SOLUTION


def neighbours(x, fmt):
    """The numbers of the format on either side of x.

    x: float32, any shape. fmt: a format. Returns (lower, upper), float32 of the shape of x:
    the largest number of the format that is <= x and the smallest that is >= x. Both are x
    if the format contains x. Beyond the ends of a fixed-point format both are the nearer
    end; for NaN both are NaN. x is not changed.

    >>> neighbours(torch.tensor([0.30, -0.30, 0.25]), Fixed(4, 2))  # ε = 0.25
    (tensor([ 0.2500, -0.5000,  0.2500]), tensor([ 0.5000, -0.2500,  0.2500]))
    """
    # BEGIN SOLUTION
    x = x.double()
    eps = spacing(x, fmt)
    lower, upper = torch.floor(x / eps) * eps, torch.ceil(x / eps) * eps
    return fmt.bounded(lower).float(), fmt.bounded(upper).float()
    # END SOLUTION


# %%
check("stochastic_rounding.neighbours")

# %% [markdown]
# ## To nearest
#
# This is the rule of IEEE 754, and the default of all hardware. Take the nearer neighbour. If both are equally near,
# take the **even** one, whose last bit is 0. In units of $\varepsilon$ the even one is the even whole number.
#
# {{exercise round_nearest_even}}
#
# Write this rule for both kinds of formats.
#
# <details><summary>Hint 1: in units of ε</summary>
#
# Round x / ε to a whole number, a tie to the even one. Then multiply by ε. Use your `spacing`.
# </details>
# <details><summary>Hint 2: which function rounds ties to even?</summary>
#
# `torch.round` does, and so does Python's `round` for a number (but not for a tensor). Both round 2.5 to 2 and 3.5
# to 4.
# </details>


# %%
def round_nearest_even(x, fmt):
    """Each x rounded to the nearest number of the format, ties to the one whose last bit
    is 0.

    x: float32, any shape. Returns float32 of that shape. Fixed point saturates; NaN and the
    infinities of a format stay. A result of zero in floating point keeps the sign of x. x
    itself is not changed.

    >>> # 1.5 ε and 2.5 ε are ties
    >>> round_nearest_even(torch.tensor([0.30, 0.375, 0.625, 99.0]), Fixed(4, 2))
    tensor([0.2500, 0.5000, 0.5000, 7.7500])
    """
    # BEGIN SOLUTION
    x = x.double()
    eps = spacing(x, fmt)
    return fmt.bounded(torch.round(x / eps) * eps).float()
    # END SOLUTION


# %%
check("stochastic_rounding.round_nearest_even")

# %% [markdown]
# ## At random, with the right odds
#
# Rounding to nearest is the best for a single rounding: its error is never more than $\varepsilon/2$. But it makes *the
# same* error each time. The error of stochastic rounding may be up to $\varepsilon$. Its rule is (Gupta et al. 2015)
#
# $$\text{Round}(x) = \begin{cases} \lfloor x\rfloor + \varepsilon & \text{with probability } p = \dfrac{x - \lfloor x\rfloor}{\varepsilon},\\[2mm]
# \lfloor x\rfloor & \text{with probability } 1 - p.\end{cases}$$
#
# Its expectation is exact for every $x$:
#
# $$E[\text{Round}(x)] = (1-p)\lfloor x\rfloor + p\,(\lfloor x\rfloor + \varepsilon) = \lfloor x\rfloor + p\,\varepsilon = x.$$
#
# Below, we round one $x$ again and again, and show the mean of all results so far. Press play.
#
# 1. Which value does each mean approach? How much does rounding to nearest gain from more roundings?
# 2. After how many roundings is the stochastic mean better?
# 3. Move $x$ to a number of the format, then halfway between two.

# %%
running_mean.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The stochastic mean approaches $x$. The shaded band, which contains it 95 times in 100, narrows like $1/\sqrt n$.
#    Rounding to nearest gains nothing: the mean of a thousand equal errors is the same error.
# 2. That depends on $x$. Near a number of the format, rounding to nearest is hard to beat; in the middle, a few
#    roundings are enough.
# 3. On a number of the format both are exact, and nothing is random. In the middle the band is widest, because $p(1-p)$
#    is largest at 1/2.
# </details>

# %% [markdown]
# {{exercise stochastic_round}}
#
# Write this rule. The random numbers are an argument: `u` is uniform in $[0, 1)$, with one number for each element. So
# we can compare your answer to the last bit. Round up where $u < p$.
#
# <details><summary>Hint 1: the fraction</summary>
#
# In units of ε: `whole = torch.floor(x / eps)`, and p is the rest, `x / eps - whole`. Both also hold for negative x.
# </details>
# <details><summary>Hint 2: up or down</summary>
#
# `u < p` is a tensor of True and False, and adding it to `whole` adds 1 or 0.
# </details>
# <details><summary>Hint 3: back to numbers</summary>
#
# Multiply by the spacing again. `fmt.bounded` handles what lies outside the range, and `.float()` goes back to
# float32.
# </details>


# %%
def stochastic_round(x, fmt, u):
    """Each x rounded to a neighbour at random: up where u < p, with p = (x - lower) / ε.

    x: float32, any shape; u: float32 of that shape, uniform in [0, 1). Returns float32 of
    that shape. Fixed point saturates; NaN and the infinities of a format stay. x and u are
    not changed.

    >>> x = torch.tensor([0.3125, 0.3125, -0.3125])  # p is 1/4, 1/4 and 3/4
    >>> stochastic_round(x, Fixed(4, 2), torch.tensor([0.2, 0.3, 0.3]))
    tensor([ 0.5000,  0.2500, -0.2500])
    """
    # BEGIN SOLUTION
    x = x.double()
    eps = spacing(x, fmt)
    whole = torch.floor(x / eps)
    up = u < x / eps - whole
    return fmt.bounded((whole + up) * eps).float()
    # END SOLUTION


# %%
check("stochastic_rounding.stochastic_round")

# %% [markdown]
# ## One addition
#
# For bfloat16 there is a shortcut, which hardware and fast kernels use. A bfloat16 is the *upper half* of a float32:
# the same sign and exponent, but only 7 of the 23 mantissa bits. If you read the bits of float32 numbers of one sign as
# integers (their *codes*), the codes are in the same order as the numbers. So you can round by adding integers:
#
#     x = 1.00390625    0 01111111 0000000 1000000000000000      sign, exponent, 7 bits | 16 bits to be lost
#     + rand16                             0110011101001101      uniform in 0 ... 65535
#                       0 01111111 0000000 1110011101001101      no carry: cut, and it is 1.0
#
# The low half `low` is $p$ in units of $1/65536$. If you add a random number, it carries into the upper half in exactly
# `low` of 65,536 cases. Then cut off the low half. A carry may reach the exponent, and that is right: the code after
# the code of 1.9921875 is the code of 2.
#
# {{exercise bf16_round_bits}}
#
# Write the addition and the cut. Use only integers. Here a *carry* means up (away from 0), so the rule for the random
# number differs from `u` above, but the odds are equal.
#
# <details><summary>Hint 1: looking at the bits</summary>
#
# `x.view(torch.int32)` reads the same 32 bits as an integer, `>> 16` takes the upper half, `.to(torch.int16)` its 16
# bits, and `.view(torch.bfloat16)` reads these bits as a number.
# </details>
# <details><summary>Hint 2: NaN</summary>
#
# In NaN all exponent bits are 1 and the mantissa is not 0. A carry may run through all of them into the sign. And if
# only low bits of the mantissa are 1, cutting them off leaves infinity. So at the end use
# `torch.where(x.isnan(), ..., ...)`.
# </details>
# <details><summary>Hint 3: the way back</summary>
#
# After the addition and the shift the bits are in the low half of an int32. The last two steps of hint 1 read them as
# a bfloat16.
# </details>


# %%
def bf16_round_bits(x, rand16):
    """Stochastic rounding to bfloat16 by one integer addition: add rand16 to the 32 bits
    of x
    and cut off the low 16.

    x: float32, any shape; rand16: int32 of that shape, uniform in 0 ... 65535. Returns
    bfloat16. NaN stays NaN; x and rand16 are not changed.

    >>> bf16_round_bits(torch.tensor([1.00390625, 1.00390625]),
    ...                 torch.tensor([32767, 32768], dtype=torch.int32))
    tensor([1.0000, 1.0078], dtype=torch.bfloat16)
    """
    # BEGIN SOLUTION
    rounded = ((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)
    # END SOLUTION


# %%
check("stochastic_rounding.bf16_round_bits")

# %% [markdown]
# How much faster is it? Round a million numbers in your two ways, and with the library, which also draws the random
# numbers.

# %%
with when_solved():
    x, u = torch.randn(2**20), torch.rand(2**20)
    rand16 = torch.randint(2**16, (2**20,), dtype=torch.int32)
    ways = {
        "stochastic_round(x, BF16, u)": lambda: stochastic_round(x, BF16, u),
        "bf16_round_bits(x, rand16)": lambda: bf16_round_bits(x, rand16),
        "the library, with its own random bits": lambda: rounding.stochastic_round(x, BF16, seed=0),
        "x.clone(), for comparison": lambda: x.clone(),
    }
    for name, way in progress(ways.items(), "way"):
        way()
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - start)
        print(f"{name:<40}{1e3 * min(seconds):8.2f} ms")

# %% [markdown]
# ## A sum that stalls
#
# Weights are sums, because each step adds a little. Here we add the same small number again and again, and round each
# sum to the format. Press play, and then try these:
# 1. In bfloat16, at which step does the sum with rounding to nearest stop growing, and what is $\varepsilon$ there?
# 2. Double the size of the terms. Where does it stop now?
# 3. Take a fixed-point format. Now there are only two kinds of terms. Which?

# %%
stalling_sum.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Once half of $\varepsilon(s)$ is as large as the term, $s + x$ is at most halfway to the next number, and is always
#    rounded back to $s$. In bfloat16 the terms of 0.01 stop at 4, after 350 of them, where $\varepsilon = 2^{-5} =
#    0.031$.
# 2. At twice the sum, 8, after the same number of terms, because there the spacing is twice as wide.
# 3. In fixed point $\varepsilon$ is the same everywhere. A term below $\varepsilon/2$ never counts, not even the first
#    one: in $\langle 6, 4\rangle$ this holds for all of them. A larger term counts as the nearest multiple of
#    $\varepsilon$, with the same error each time: in $\langle 6, 10\rangle$ 0.01 is 2.3 % too little. Rounded at
#    random, both kinds are right on average.
# </details>

# %% [markdown]
# {{exercise running_sum}}
#
# Add in float32, and round only the stored sum, after every addition. For `"stochastic"` draw `torch.rand(s.shape,
# generator=generator)` in each step, and pass it to your `stochastic_round`. `xs` may have columns. Then each column is
# a separate sum with its own random numbers.
#
# <details><summary>Hint 1: the shape of the sum</summary>
#
# `s = torch.zeros_like(xs[0])` is one number, or a row with one number for each column. `for x in xs:` loops over the
# terms.
# </details>
# <details><summary>Hint 2: collect</summary>
#
# Append the sum to a list after each step, and end with `torch.stack(sums)`, which has the shape of xs.
# </details>


# %%
def running_sum(xs, fmt, mode, generator):
    """The partial sums of xs, each rounded to the format before the next term is added.

    xs: float32 (n,) or (n, columns); mode: "nearest" or "stochastic"; generator: a
    torch.Generator for all random numbers. Returns float32 of the shape of xs, which is not
    changed.

    >>> running_sum(torch.tensor([100.0, 100.0, 100.0, 1.0, 1.0]), BF16, "nearest",
    ...             torch.Generator())  # ε(300) = 2
    tensor([100., 200., 300., 300., 300.])
    """
    # BEGIN SOLUTION
    s, sums = torch.zeros_like(xs[0]), []
    for x in xs:
        if mode == "nearest":
            s = round_nearest_even(s + x, fmt)
        else:
            s = stochastic_round(s + x, fmt, torch.rand(s.shape, generator=generator))
        sums.append(s)
    return torch.stack(sums)
    # END SOLUTION


# %%
check("stochastic_rounding.running_sum")

# %% [markdown]
# Use your function to add a thousand hundredths, which should give 10.

# %%
guess(
    "stochastic_rounding.sum",
    "A thousand times 0.01, rounded to nearest in bfloat16 after each addition: what is the sum?",
)

# %%
with when_solved():
    guessed("stochastic_rounding.sum")
    xs = torch.full((1000, 20), 0.01)
    stored = {
        "nearest": running_sum(xs[:, :1], BF16, "nearest", None),
        "stochastic": running_sum(xs, BF16, "stochastic", torch.Generator().manual_seed(0)),
    }
    plt.plot(stored["stochastic"], color=style.BLUE, alpha=0.25, linewidth=1)
    plt.plot(stored["stochastic"].mean(1), color=style.BLUE, label="stochastic: mean of 20 sums")
    plt.plot(stored["nearest"], color=style.ORANGE, label="to nearest")
    plt.plot(xs[:, 0].cumsum(0), color=style.INK, linestyle=":", label="exact")
    plt.xlabel("terms added")
    plt.ylabel("sum in bfloat16")
    plt.legend()
    plt.show()
    print(f"to nearest {stored['nearest'][-1].item():g}, at random {stored['stochastic'][-1].mean():.3f} on average")
    reveal("stochastic_rounding.sum", stored["nearest"][-1])

# %% [markdown]
# ## A step of training
#
# Gradient descent is such a sum: $w \leftarrow w - \eta\, g$. Near the end of training $\eta\,g$ is small, and a 16-bit
# weight that is rounded to nearest no longer moves. If it is rounded at random, it seldom moves, but by a whole
# $\varepsilon$. In expectation it moves exactly as far as it should.
#
# {{exercise sgd_low_precision}}
#
# Write this step for both ways of rounding.
#
# <details><summary>Hint</summary>
#
# Compute `w - lr * grad` in float32. Then use the same two branches as in the running sum.
# </details>


# %%
def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    """The weights after one step of gradient descent, w - lr * grad rounded to the format.

    w: float32, any shape, numbers of the format; grad: float32 of that shape; mode:
    "nearest" or "stochastic"; generator: a torch.Generator for all random
    numbers. Returns float32; w and grad are not changed.

    >>> w, grad = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 2.0])
    >>> # 0.95 and -1.2, with ε = 0.25
    >>> sgd_low_precision(w, grad, 0.1, Fixed(4, 2), "nearest", torch.Generator())
    tensor([ 1.0000, -1.2500])
    """
    # BEGIN SOLUTION
    new = w - lr * grad
    if mode == "nearest":
        return round_nearest_even(new, fmt)
    return stochastic_round(new, fmt, torch.rand(new.shape, generator=generator))
    # END SOLUTION


# %%
check("stochastic_rounding.sgd_low_precision")

# %% [markdown]
# ## Train a network with it
#
# Now train LeNet-5 on the handwritten digits, at 28 × 28 pixels. Its 61,706 weights are stored in 16-bit fixed point,
# and *your* step changes them. All other arithmetic is float32, as in the lecture. There are three runs from the same
# start: float32, rounded to nearest, and rounded at random. They take less than half a minute.

# %%
split = digits(28)
EPOCHS, RATE = 10, 0.1


def float32_step(w, grad, lr, *_):
    return w - lr * grad


def train(fmt, mode, seed=0):
    """Yield the share of held-out digits that LeNet reads correctly, before the first
    epoch and after each."""
    torch.manual_seed(seed)
    net, generator = lenet5(), torch.Generator().manual_seed(seed)
    step = float32_step if mode == "float32" else sgd_low_precision
    yield accuracy(net)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(split.x), generator=generator).split(32):
            net.zero_grad()
            cross_entropy(net(split.x[rows]), split.y[rows]).backward()
            with torch.no_grad():
                for w in net.parameters():
                    w.copy_(step(w, w.grad, RATE, fmt, mode, generator))
        yield accuracy(net)


@torch.no_grad()
def accuracy(net):
    return (net(split.x_held_out).argmax(1) == split.y_held_out).float().mean().item()


# %%
FMT = Fixed(8, 8)  # 16 bits, ε = 1/256
LOOKS = {"float32": (style.INK, ":"), "nearest": (style.ORANGE, "-"), "stochastic": (style.BLUE, "-")}


def draw_curves(state, axes):
    for mode, curve in state.items():
        axes.plot(curve, color=LOOKS[mode][0], linestyle=LOOKS[mode][1], marker="o", markersize=4, label=mode)
    axes.set(xlim=(-0.3, EPOCHS + 0.3), ylim=(0, 1.03), xlabel="epoch", ylabel="held-out digits read")
    axes.legend(loc="center right")
    return ", ".join(f"{mode}: {100 * curve[-1]:.0f} %" for mode, curve in state.items()) + f", weights in {FMT}."


with when_solved():
    curves = {}
    with LiveFigure(draw_curves) as live:
        for mode in LOOKS:
            curves[mode] = []
            for read in train(FMT, mode):
                curves[mode].append(read)
                live.update(curves)

# %% [markdown]
# What happened to the updates? How many of the weights would move in the first step?

# %%
guess(
    "stochastic_rounding.moved",
    "16 bits, 8 of them fractional, rounded to nearest: how many of LeNet's weights move in the first step?",
    unit="%",
)

# %%
with when_solved():
    guessed("stochastic_rounding.moved")
    torch.manual_seed(0)
    net = lenet5()
    cross_entropy(net(split.x[:32]), split.y[:32]).backward()
    w = torch.cat([p.detach().flatten() for p in net.parameters()])
    grad = torch.cat([p.grad.flatten() for p in net.parameters()])
    for fl in (4, 6, 8, 10, 12, 14):
        fmt = Fixed(16 - fl, fl)
        stored = round_nearest_even(w, fmt)
        moved = [
            (sgd_low_precision(stored, grad, RATE, fmt, mode, torch.Generator().manual_seed(0)) != stored)
            .float()
            .mean()
            for mode in ("nearest", "stochastic")
        ]
        small = (RATE * grad.abs() < fmt.eps / 2).float().mean()
        if fl == 4:
            print(f"{'format':<18}{'η|g| < ε/2':>12}{'moved to nearest':>20}{'moved at random':>18}")
        print(f"{fmt!s:<18}{100 * small:>10.1f} %{100 * moved[0]:>18.2f} %{100 * moved[1]:>16.2f} %")
        if fl == 8:
            with_8 = 100 * moved[0]
    reveal("stochastic_rounding.moved", with_8)

# %% [markdown]
# Try three experiments. Each changes one line above:
# 1. `FMT = Fixed(4, 12)`: does rounding to nearest learn now, and as fast?
# 2. `FMT = Fixed(12, 4)`: how few fractional bits does stochastic rounding tolerate?
# 3. `FMT = BF16`, a floating-point format. What do you expect, with 7 mantissa bits?
#
# <details><summary>What did you see?</summary>
#
# 1. It does, and about as fast, because with $\varepsilon = 1/4096$ enough of the updates are larger than
#    $\varepsilon/2$. With 8 fractional bits the accuracy stayed at chance, one digit in ten, from the first epoch to
#    the last.
# 2. With $\varepsilon = 1/16$ it still reads more than nine of ten digits, although most weights begin as 0 or one
#    $\varepsilon$. With $\varepsilon = 1/8$ it reads about nine, and the curve is rough. Each weight that moves makes a
#    large jump, which is right on average, but noisy.
# 3. Both learn, and are as good as float32. In floating point $\varepsilon$ shrinks with the weight: a weight of 0.05
#    has $\varepsilon = 2^{-12}$. Large weights stall first, and so do long runs with small learning rates.
# </details>

# %% [markdown]
# ## The whole map
#
# Gupta et al. rounded not only the weights but also the activations and the gradients to 16 bits. Below are results of
# such runs: LeNet on the digits, with every tensor computed in float32 and then rounded to $\langle IL, FL\rangle$.
# Choose the word length, the fractional length and the mode. Press the button to add a run of your own, in green.
#
# 1. At 16 bits, how many fractional bits does rounding to nearest need? And stochastic rounding?
# 2. What goes wrong with many fractional bits?
# 3. How many bits can you save before stochastic rounding fails, too?

# %%
low_precision_training.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Up to $FL = 9$ nearest stays at chance, with 10 it trains, because a small update needs a small $\varepsilon$.
#    Rounded at random, 4 fractional bits are enough.
# 2. At $FL = 12$ both suffer (0.80 and 0.73 of the digits), and from 13 on both fail. Only 4 or fewer integer bits are
#    left, so the numbers end at ±8 at the latest, and the activations saturate. Range and fraction share the bits of a
#    word. Gupta et al. found the same: with few fractional bits stochastic rounding converges, but rounding to nearest
#    does not.
# 3. With 12 bits ($FL$ from 4 to 7), and even with 10 ($FL$ 4 or 5), stochastic rounding is still as good as float32,
#    while nearest reads a quarter of the digits at best. With 8 bits, at $\langle 4, 4\rangle$, stochastic rounding
#    reads five of six digits.
#
# There is only one run for each setting. Press the button to see how much another seed changes.
# </details>

# %% [markdown]
# ## On a GPU: the same random numbers on every machine
#
# Ten thousand threads cannot use a generator that gives one number after the other. **Philox** (Salmon et al. 2011) has
# no state. It turns a *counter* and a seed into four random words of 32 bits, by ten rounds of multiplying and mixing.
# Element $i$ gets its random numbers without computing the others', in any order, on any machine. So you can repeat a
# run bit by bit, even on a CPU or with another launch shape.
#
# Sixteen bits are enough for one rounding, so one call serves eight elements:
#
# | element $i$ | counter $i // 8$ gives the words $r_0, r_1, r_2, r_3$ |
# |---|---|
# | $i \bmod 8 = 0, 1$ | low half of $r_0$, high half of $r_0$ |
# | $2, 3$ | low half of $r_1$, high half of $r_1$ |
# | $4, 5$ and $6, 7$ | low and high half of $r_2$, and of $r_3$ |
#
# Write the kernel in **Triton**. Each *program* processes BLOCK elements at once: `i` is a block of indices. Without a
# GPU, Triton's interpreter runs it on the CPU, slowly but with the same result.
#
# {{exercise rounding_kernel}}
#
# Write one program of the kernel. The bits of `x` are int32, and the result's bits are int16. `tl.load(ptr + i, mask=i
# < n, other=0)` reads a block, `tl.store(ptr + i, block, mask=i < n)` writes one; the mask keeps the last program from
# going beyond the end. All numbers are finite, so ignore NaN. It must be a kernel that Triton could compile: use its arguments, variables of your own, numbers, `range`, what `tl` has, and functions of yours under `@triton.jit`; no `int(...)`, no NumPy, no torch.
#
# <details><summary>Hint 0: the frame</summary>
#
# ```python
# i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# bits = tl.load(bits_ptr + i, mask=i < n, other=0)
# ...
# tl.store(out_ptr + i, ....to(tl.int16), mask=i < n)
# ```
# </details>
# <details><summary>Hint 1: four words for each element</summary>
#
# `r0, r1, r2, r3 = tl.randint4x(seed, i // 8)`: four blocks like `i`. Eight neighbours make the same call; a fast
# kernel, like the library's, makes it once for all eight.
# </details>
# <details><summary>Hint 2: which word?</summary>
#
# `k = (i % 8) // 2` is 0, 1, 2 or 3. `tl.where(k == 0, r0, tl.where(k == 1, r1, ...))` chooses elementwise.
# </details>
# <details><summary>Hint 3: which half?</summary>
#
# Even elements take the low 16 bits of their word, odd ones the high 16: shift by 0 or 16, and keep 16 bits with `&
# 0xFFFF`. Then add them to `bits` and shift by 16.
# </details>


# %%
@triton.jit
def rounding_kernel(bits_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    """Stochastic rounding to bfloat16: bits of float32 in (int32), bits of bfloat16 out
    (int16), for the elements i < n. Nothing beyond them is read or written.

    seed: up to 64 bits. Element i adds its half word of Philox(seed, i // 8), as in the
    table.
    """
    # BEGIN SOLUTION
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(bits_ptr + i, mask=i < n, other=0)
    r0, r1, r2, r3 = tl.randint4x(seed, i // 8)
    k = (i % 8) // 2
    word = tl.where(k == 0, r0, tl.where(k == 1, r1, tl.where(k == 2, r2, r3)))
    rand16 = (word >> (16 * (i % 2))) & 0xFFFF
    tl.store(out_ptr + i, ((bits + rand16.to(tl.int32)) >> 16).to(tl.int16), mask=i < n)
    # END SOLUTION


def launch(x, n, seed, block):
    """Given: round the first n numbers of x with your kernel, `block` per program; the
    rest of the result is 0."""
    bits = x.to(DEVICE).view(torch.int32)
    out = torch.zeros(x.shape, dtype=torch.int16, device=DEVICE)
    run(rounding_kernel, -(-n // block), bits, out, n, seed, BLOCK=block)
    return out.cpu().view(torch.bfloat16)


# %%
check("stochastic_rounding.rounding_kernel")

# %% [markdown]
# Compare with the library's bits on this CPU. They are equal for any block size: this is what "reproducible" means.

# %%
with when_solved():
    x = torch.randn(4096)
    library = rounding.stochastic_round(x, BF16, seed=2026)
    for block in (128, 1024, 4096):
        same = torch.equal(launch(x, len(x), 2026, block).float(), library)
        print(f"BLOCK = {block:>4}: {'the same bits' if same else 'other bits'}, on {DEVICE}")

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, claim to be `round_nearest_even`, for one number. Four of them are right, each written
# in its own way. The other four are impostors, which give the right answer for almost all numbers. A million random
# numbers between -1 and 1 may unmask none of them, but four well-chosen numbers are enough. You do not see their code.
# You choose the numbers.

# %% [markdown]
# {{exercise unmask_rounding}}
#
# Return a list of at most 12 inputs, each a tuple `(x, fmt)`: a number from -1,000,000 to 1,000,000 (it becomes a float32 first), and `"Fixed(4, 2)"` or
# `"FP16"`, as text.
#
# You unmask a program if its value differs from the right one, even in the last bit. Each impostor that you unmask
# earns two points. You get two more points if you unmask a program and all your inputs follow the rules; an input that
# breaks them does not count. The check shows which programs you have caught, and with which input. Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in that exercise, or nearly made. Which numbers would have hidden them?
# </details>
# <details><summary>Hint 2: the ends and the midpoints</summary>
#
# Fixed(4, 2) goes from -8 to 7.75 in steps of 0.25. FP16 has 10 mantissa bits; its largest number is 65504, and its
# smallest normal number is $2^{-14}$. Which values are next to each of these, and where are the midpoints between them?
# </details>


# %%
def unmask_rounding() -> list[tuple[float, str]]:
    """Inputs (x, fmt) for which the impostors give wrong answers.

    Returns a list of at most 12 tuples.

    An input that unmasks none of them:

        [(0.3, 'Fixed(4, 2)')]
    """
    # BEGIN SOLUTION
    return [
        (0.125, "Fixed(4, 2)"),  # a tie, with the even one below
        (9.0, "Fixed(4, 2)"),  # beyond the end
        (2.0**-20, "FP16"),  # subnormal
        (65510.0, "FP16"),  # above the largest, but still nearest to it
    ]
    # END SOLUTION


# %%
check("stochastic_rounding.unmask_rounding")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **A** keeps the low bits of a fixed-point word.
# - **C** turns every subnormal number into zero.
# - **E** turns numbers above FP16's largest into infinity, before it rounds.
# - **F** rounds ties away from zero.
#
# Random tests find mistakes that occur often. To find a mistake at one number in a million, you must know where to
# look.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# In the *microscaling* formats (B. Rouhani et al. 2023) 32 numbers share one exponent, and each keeps a few bits of its
# own. Write `round_block(x, bits)`. For each 32 numbers take the power of two at or below the largest magnitude. Divide
# the numbers by it, round them to your fixed point, and multiply again. *Proof:* zeros stay zeros; numbers that already
# have this form do not change; no number moves by more than half a spacing of its block. Then train this lab's network
# with it. How few bits are enough, with rounding to nearest and at random?

# %% [markdown]
# ## What you take with you
#
# - A format is a set of numbers; rounding chooses between two neighbours. Rounding to nearest makes the smallest single
#   error, but the same error every time.
# - With the odds $p = (x - \lfloor x\rfloor)/\varepsilon$ the expectation is exactly $x$, and small updates add up instead of vanishing.
# - It needs a random number for each element. With integers it takes an addition and a shift; with Philox the random
#   numbers are the same on every machine.
# - Store in sixteen bits and compute in thirty-two: today's accelerators do this, and some round at random in hardware.
#
# ### Further reading
#
# - S. Gupta, A. Agrawal, K. Gopalakrishnan, P. Narayanan, "Deep learning with limited numerical precision", *ICML* (2015): the experiment of this lab.
# - M. Croci, M. Fasi, N. J. Higham, T. Mary, M. Mikaitis, "Stochastic rounding: implementation, error analysis and applications", *Royal Society Open
#   Science* 9 (2022): what is known, and when errors grow like $\sqrt n$ instead of $n$.
# - J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", *SC* (2011): Philox.
# - P. Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433 (2022), and the *OCP 8-bit Floating Point Specification* (2023): E4M3, E5M2.
# - P. Micikevicius et al., "Mixed precision training", *ICLR* (2018): the other remedy, a float32 copy of the weights.
# - *IEEE Standard for Floating-Point Arithmetic*, IEEE 754-2019.
