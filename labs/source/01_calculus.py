# %% [markdown]
# # Lab 01 · Calculus
# ## The derivative, measured
#
# A network learns by asking, for each of its weights: *if I turn this one a little, how does the loss change?* The
# answer is a derivative. In this lab you measure derivatives, compute them exactly and check them. Then you use them to
# read handwriting, and to fool the program that reads it.
#
# **After this lab you can**
# - turn the limit in the definition into a program, and say why the smallest step is not the best one;
# - compute gradients of functions of any number of variables, by measuring and by the chain rule;
# - build *forward-mode automatic differentiation* in one small class;
# - find a bug in another person's gradient, down to the coordinate.
#
# **100 points, 8 exercises, about 100 minutes: 16 reading + 76 exercises + 8 runs.** You need Python functions and classes and PyTorch's tensors, but not
# its autograd, no GPU and no download. Run each cell with Shift+Enter. The cell below an exercise checks it, as often
# as you like.
#
# Definitions and rules follow the review of calculus in HKUST COMP 4901Q, lecture 12, *A Case Study on Large-Scale
# Machine Learning in HPC*.

# %%
import math
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from autograder import check
from hpcdl.data import digits
from hpcdl.numerics.common_functions import TABLE
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import secant, step_error, surface

torch.set_num_threads(1)  # these problems are small: a second thread costs more than it brings
style.use()

# %% [markdown]
# ## 1 · A slope, as a limit
#
# Take two points of a curve and draw the straight line through them: a *secant*. Move **h** to the left: the second
# point slides towards the first. Then tick the microscope, which magnifies by $1/h$, and move **h** again.

# %%
secant.explorable()

# %% [markdown]
# Try to answer each question before you open it:
#
# <details><summary>What does the microscope show for <code>sin x</code> as h shrinks from 1 to 0.01?</summary>
#
# The curve becomes straight. This is what *differentiable* at $x$ means: under a strong enough microscope the curve
# looks like a line. The slope of that line is the derivative.
# </details>
# <details><summary>And for <code>|x|</code> at x = 0?</summary>
#
# The corner is still a corner at every magnification, so there is no line and no derivative. The central secant has
# slope 0 even so. It is a number without a meaning.
# </details>
# <details><summary>What happens below h = 10⁻¹⁵ ?</summary>
#
# The curve under the microscope turns into a staircase, because float64 has no numbers in between. The slope jumps, and
# below about 10⁻¹⁶ the point $x + h$ *is* $x$. A computer cannot take the limit in the definition.
# </details>

# %% [markdown]
# The derivative of $f$ at $x$ is
#
# $$f'(x) = \frac{df}{dx} = \lim_{h \rightarrow 0} \frac{f(x + h) - f(x)}{h}.$$
#
# The quotient with a finite $h$ is the **forward difference**. By Taylor's expansion of $f(x+h)$ it equals $f'(x) +
# \frac{h}{2} f''(x) + \dots$, so its error falls like $h$. A step to both sides cancels that term:
#
# $$\frac{f(x + h) - f(x - h)}{2h} = f'(x) + \frac{h^2}{6} f'''(x) + \dots$$
#
# This is the **central difference**. Half the step gives a quarter of the error: it is of *order 2*.

# %% [markdown]
# {{exercise derivative}}
#
# Write the central difference. If `x` is a tensor, return the tensor of the slopes at its elements, and do not change
# `x`.
#
# <details><summary>Hint 1: tensors</summary>
#
# `x + h` works for a float and for a tensor, and makes a new object each time. No loop, no `if`.
# </details>
# <details><summary>Hint 2: brackets</summary>
#
# `a / 2 * h` is `(a / 2) * h` in Python.
# </details>


# %%
def derivative(f, x, h=1e-5):
    """The slope of f at x by the central difference (f(x + h) - f(x - h)) / 2h.

    f: function of a float or of a tensor, elementwise. x: float or tensor, not changed.
    Returns what f returns.

    >>> derivative(lambda x: x**3, 2.0, h=0.25)  # 3x² + h²
    12.0625
    """
    # BEGIN SOLUTION
    return (f(x + h) - f(x - h)) / (2 * h)
    # END SOLUTION


# %%
check("calculus.derivative")

# %% [markdown]
# ## 2 · How small is small enough?
#
# By the definition, a smaller step is always better. On a computer it is not. The picture shows the error of the
# quotient for *every* h at once, in float32 (24 bits of precision) and float64 (53 bits).

# %%
step_error.explorable()

# %% [markdown]
# <details><summary>The errors form a V. Which side comes from mathematics, and which from the computer?</summary>
#
# The right side is **truncation**, the Taylor terms that the quotient omits. It rises like $h$ (forward) or $h^2$
# (central). The left side is **rounding**. $f(x+h)$ and $f(x-h)$ are rounded to the format's precision, their
# difference keeps that error, and division by a small $h$ magnifies it. So it grows like $1/h$ as $h$ shrinks.
# </details>
# <details><summary>What does the central difference gain at its best step?</summary>
#
# For sin x at 1 in float64 its best error is near $10^{-11}$, and the forward difference's is near $10^{-8}$. You gain
# three digits for the same two evaluations of $f$, and the best step is much *larger*.
# </details>
# <details><summary>What if f is x² and the quotient is central?</summary>
#
# Then $f''' = 0$: there is no truncation error and no right side. The larger h is, the better.
# </details>

# %% [markdown]
# Let $\varepsilon$ be the spacing of the format's numbers near 1: `torch.finfo(dtype).eps`, which is $2^{-52} \approx
# 2.2 \cdot 10^{-16}$ for float64 and $2^{-23} \approx 1.2 \cdot 10^{-7}$ for float32. A value $f$ has an error of about
# $\varepsilon |f|$, so for the central difference
#
# $$\text{error}(h) \approx \underbrace{\frac{h^2}{6} |f'''(x)|}_{\text{truncation}} + \underbrace{\frac{\varepsilon |f(x)|}{h}}_{\text{rounding}},$$
#
# up to a small factor. The error is smallest where its derivative with respect to $h$ is zero, at
#
# $$h^\star = \left( \frac{3\, \varepsilon\, |f(x)|}{|f'''(x)|} \right)^{1/3}.$$

# %% [markdown]
# {{exercise best_step}}
#
# Return a step that suits `f`, `x` and `dtype`. The check measures the error with your step, and compares it with the
# smallest error over all steps. You pass if it is at most ten times as large. A fixed rule such as $\varepsilon^{1/3}$
# earns half the points. For the other half the step must fit the size of $x$ and how quickly $f$ bends.
#
# You may assume that $f(x)$ and $f'''(x)$ are not zero.
#
# <details><summary>Hint 1: the first half</summary>
#
# If $f$, $f'''$ and $x$ are all about 1, then $h^\star$ is about $\varepsilon^{1/3}$, with the $\varepsilon$ of
# `dtype`.
# </details>
# <details><summary>Hint 2: the third derivative, measured</summary>
#
# $$f'''(x) \approx \frac{f(x+2k) - 2f(x+k) + 2f(x-k) - f(x-2k)}{2k^3}$$
#
# for a rather large step $k$. You need only the size of $f'''$, not its digits.
# </details>
# <details><summary>Hint 3: which k?</summary>
#
# A thousandth of $|x|$, or 0.001 if $x$ is 0. Work in float64, whatever `dtype` is: `torch.tensor(x + k,
# dtype=torch.float64)`.
# </details>
# <details><summary>Hint 4: put together</summary>
#
# Put the measured $f'''$ into the formula of $h^\star$ above; `torch.finfo(dtype).eps` is $\varepsilon$. Keep the
# absolute values: in Python the cube root of a negative number, `(-8.0) ** (1 / 3)`, is complex.
# </details>


# %%
def best_step(f, x, dtype):
    """A good step h for the central difference of f at x, computed in dtype.

    f: function of a tensor, elementwise, with f(x) and f'''(x) not zero. x: float, of any
    size and sign.
    dtype: torch.float32 or torch.float64. Returns h > 0, a float.

    >>> best_step(torch.exp, 1.0, torch.float64)  # any number near this one will do
    8.7e-06
    """
    # BEGIN SOLUTION
    k = 1e-3 * (abs(x) or 1.0)
    points = torch.tensor([x + 2 * k, x + k, x, x - k, x - 2 * k], dtype=torch.float64)
    a, b, f_x, c, d = f(points).tolist()
    third = (a - 2 * b + 2 * c - d) / (2 * k**3)
    return (3 * torch.finfo(dtype).eps * abs(f_x / third)) ** (1 / 3)
    # END SOLUTION


# %%
check("calculus.best_step")

# %% [markdown]
# Now use your two functions together. The slope of $\ln$ at $x = 0.001$ is 1000. How many digits of it does each step
# find?

# %%
with when_solved():
    rows = []
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor(0.001, dtype=dtype)
        steps = (1e-5, 1e-12, best_step(torch.log, 0.001, dtype))
        slopes = [derivative(torch.log, x, h).item() for h in steps]
        rows.append(f"{str(dtype)[6:]:<9} " + " ".join(f"{slope:>22.12f}" for slope in slopes))
    print(f"{'format':<9} {'a step of 1e-5':>22} {'a step of 1e-12':>22} {'your step':>22}", *rows, sep="\n")

# %% [markdown]
# <details><summary>What you should see</summary>
#
# In float64 your step finds ten or eleven digits. A step of 10⁻⁵ finds four or five, because it is large compared with
# $x = 0.001$ and $\ln$ bends within it. A step of 10⁻¹² finds seven; rounding destroys the rest. In float32 your step
# finds five digits. There a step of 10⁻¹² does not even change $x$, so the measured slope is 0.
# </details>

# %% [markdown]
# ### The lecture's table, measured
#
# You need not measure a slope that you can look up. The lecture's table has fourteen of them, in Leibniz's notation:
# $\frac{d}{dx} \log_c x = \frac{1}{x \ln c}$, $\frac{d}{dx} |x| = \frac{|x|}{x}$, $\frac{d}{dx} \ln |x| =
# \frac{1}{x}$ and so on. A printed table may have errors. Compare it with your measurements:

# %%
with when_solved():
    print(f"{'f(x), c = 3':<12} {'df/dx':<16} largest relative error on [0.1, 2], or on both sides of 0")
    for row in TABLE:
        x = row.points()
        error = ((derivative(row.f, x) - row.slope(x)).abs() / (1 + row.slope(x).abs())).max()
        print(f"{row.printed:<12} {row.slope_printed:<16} {error:8.0e}  {'both' if row.negative else ''}")

# %% [markdown]
# <details><summary>Which function has a value at 0 but no slope there? Which slope is defined where its function is not?</summary>
#
# $|x|$: its slope is −1 on the left and 1 on the right, and $|x|/x$ has no value at 0. And $1/x$ is defined on both
# sides of 0, but $\ln x$ on one side only. On both sides $1/x$ is the slope of $\ln |x|$: that is why the table has
# both rows.
# </details>

# %% [markdown]
# ## 3 · A function worth knowing
#
# With rules we need not measure. For functions $f$ and $g$ (lecture 12):
#
# | rule | says |
# |---|---|
# | sum | $(\alpha f + \beta g)' = \alpha f' + \beta g'$ |
# | product | $(f g)' = f' g + f g'$ |
# | quotient | $\left( \frac{f}{g} \right)' = \frac{f' g - f g'}{g^2}$ |
# | chain | $f(x) = h(g(x)) \;\Rightarrow\; f'(x) = h'(g(x)) \cdot g'(x)$ |
#
# The **logistic function** maps any number into $(0, 1)$. Artificial neurons have long used it:
#
# $$f(x) = \frac{1}{1 + e^{-x}}, \qquad f'(x) = f(x) \, (1 - f(x)).$$
#
# <details><summary>Prove the second formula with the rules above, then open this</summary>
#
# By the quotient rule, $f' = \frac{0 \cdot (1 + e^{-x}) - 1 \cdot (-e^{-x})}{(1 + e^{-x})^2} = \frac{e^{-x}}{(1 +
# e^{-x})^2} = \frac{1}{1 + e^{-x}} \cdot \frac{e^{-x}}{1 + e^{-x}} = f \, (1 - f)$, since $1 - f =
# \frac{e^{-x}}{1 + e^{-x}}$.
# </details>

# %% [markdown]
# So once you know the output, the slope costs only one multiplication. Backpropagation (lab 04) relies on this, because
# the forward pass has already computed $f(x)$.

# %% [markdown]
# {{exercise logistic}}
#
# Write both formulas for tensors. `logistic` must not return `inf` or `nan` for $x = \pm 1000$, not even in float32.
# `logistic_grad` gets the *output* $y = f(x)$, not $x$. Use `exp`: `torch.sigmoid` is not allowed here.
#
# <details><summary>Hint 1: where is the danger?</summary>
#
# $e^{1000}$ is `inf`, and `inf / inf` is `nan`. But $1 / (1 + \infty)$ is exactly 0.
# </details>
# <details><summary>Hint 2: the careful form</summary>
#
# For $x < 0$ multiply numerator and denominator by $e^x$: $f(x) = e^x / (1 + e^x)$. So let $e = e^{-|x|}$, which is
# never above 1. Choose $1/(1+e)$ or $e/(1+e)$ by the sign of $x$: `torch.where(condition, a, b)`.
# </details>


# %%
def logistic(x):
    """The logistic function 1 / (1 + e^-x), elementwise, for any finite x.

    x: float tensor of any shape, not changed. Returns a tensor of the same shape and dtype.

    >>> logistic(torch.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    # BEGIN SOLUTION
    e = torch.exp(-x.abs())
    return torch.where(x >= 0, 1, e) / (1 + e)
    # END SOLUTION


def logistic_grad(y):
    """The slope of the logistic function where its value is y = logistic(x), elementwise.

    y: float tensor of any shape, not changed. Returns a tensor of the same shape and dtype.

    >>> logistic_grad(torch.tensor([0.0, 0.5, 0.9]))
    tensor([0.0000, 0.2500, 0.0900])
    """
    # BEGIN SOLUTION
    return y * (1 - y)
    # END SOLUTION


# %%
check("calculus.logistic")

# %% [markdown]
# The formula and the measurement should agree:

# %%
with when_solved():
    x = torch.linspace(-8, 8, 33, dtype=torch.float64)
    f, rule, measured = logistic(x), logistic_grad(logistic(x)), derivative(logistic, x)
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    axes.plot(x, f, color=style.INK, label="f(x)")
    axes.plot(x, rule, color=style.BLUE, label="f (1 − f)")
    axes.plot(x, measured, "o", color=style.ORANGE, markersize=5, label="your central difference")
    axes.set(xlabel="x", ylabel="value and slope", title="The logistic function and its slope")
    axes.legend()
    plt.show()

# %% [markdown]
# <details><summary>What is the largest slope, and why will it matter?</summary>
#
# 1/4, at $x = 0$. Ten logistic layers multiply a signal on its way back by at most $(1/4)^{10}$, about one millionth,
# and then by their weights. Lab 04 shows this *vanishing gradient*.
# </details>

# %% [markdown]
# ## 4 · Many variables: the gradient
#
# To get a **partial derivative**, fix all variables except one, and differentiate with respect to that one. For the
# lecture's example $z = x^2 + xy + y^2$ these are $\partial z / \partial x = 2x + y$ and $\partial z / \partial y = x +
# 2y$. Each is the slope of a *slice* of the surface. Together they form the **gradient**,
#
# $$\nabla f = \left( \frac{\partial f}{\partial x_1}, \dots, \frac{\partial f}{\partial x_n} \right).$$

# %%
surface.explorable()

# %% [markdown]
# Blue is the slice along $x$ and its slope, green is the slice along $y$, and vermillion is the gradient. You walk
# along the dotted line.
#
# <details><summary>Walk in all directions. Where is it steepest? Where is it level?</summary>
#
# It is steepest along the gradient, where the slope is the gradient's length. It is level at a right angle to the
# gradient, along the contour line. In any other direction, given by a unit vector $u$, the slope is $\nabla f \cdot u$.
# </details>
# <details><summary>Find the points where the gradient is zero, on each surface.</summary>
#
# The bowl has one, its minimum at (0, 0). The saddle has one at (0, 0), but it is not a minimum: the saddle rises along
# $x$ and falls along $y$. The waves have many. The slope has none.
# </details>

# %% [markdown]
# {{exercise gradient}}
#
# Measure all partial derivatives of a function of a tensor. Use central differences, one element at a time.
#
# <details><summary>Hint 1: the plan</summary>
#
# For each element, copy `x` with that element raised by `h`, and copy `x` with it lowered by `h`. The two values of `f`
# give one element of the result.
# </details>
# <details><summary>Hint 2: any shape</summary>
#
# `step = torch.zeros_like(x)` and then `step.view(-1)[i] = h` sets the i-th element of any shape. `x.numel()` is the
# number of elements.
# </details>
# <details><summary>Hint 3: why not x[i] += h, and back again?</summary>
#
# It works, but in floating point `(x + h) - 2h + h` is not always `x`. Then you have changed the caller's `x`.
# </details>


# %%
def gradient(f, x, h=1e-5):
    """The gradient of f at x by central differences: 2 evaluations of f for each element
    of x.

    f: function of a tensor like x; returns a number or a 0-d tensor. x: float64 tensor of
    any shape, not changed.
    Returns a tensor of the shape of x.

    >>> gradient(lambda x: x[0] ** 2 + x[0] * x[1] + x[1] ** 2,
    ...          torch.tensor([1.0, 0.5]).double())
    tensor([2.5000, 2.0000], dtype=torch.float64)
    """
    # BEGIN SOLUTION
    result = torch.zeros_like(x)
    for i in range(x.numel()):
        step = torch.zeros_like(x)
        step.view(-1)[i] = h
        result.view(-1)[i] = (f(x + step) - f(x - step)) / (2 * h)
    return result
    # END SOLUTION


# %%
check("calculus.gradient")

# %% [markdown]
# Leibniz writes $\frac{df}{dx}$ where $x$ is the only variable, and $\frac{\partial f}{\partial x_i}$ where the other
# variables are fixed. The sum, product and chain rules hold for each partial derivative, so they hold for the gradient:
# $\nabla (f g) = g \nabla f + f \nabla g$ and $\nabla h(f) = h'(f)\, \nabla f$. Measure it:

# %%
with when_solved():
    at = torch.tensor([1.0, 0.5], dtype=torch.float64)
    f, g = (lambda x: x[0] ** 2 + x[0] * x[1] + x[1] ** 2), (lambda x: x[0].sin() * x[1])
    print("product:", gradient(lambda x: f(x) * g(x), at), g(at) * gradient(f, at) + f(at) * gradient(g, at))
    print("chain:  ", gradient(lambda x: f(x).exp(), at), f(at).exp() * gradient(f, at))

# %% [markdown]
# ## 5 · No step at all: dual numbers
#
# A difference quotient needs an $h$, and loses digits with any $h$. You can do without $h$ if each number carries its
# slope along.
#
# A **dual number** is $a + b\,\epsilon$ with $\epsilon^2 = 0$: a value $a$ and a slope $b$. Multiply two of them,
#
# $$(a + b\,\epsilon)(c + d\,\epsilon) = ac + (b c + a d)\,\epsilon,$$
#
# and you get the product rule. If every operation follows its rule, then one evaluation of *any* program on $x +
# 1\,\epsilon$ gives the value of $f$ **and** its exact derivative. There is no $h$ and no truncation. This is
# *forward-mode automatic differentiation* (Wengert, 1964; dual numbers: Clifford, 1873).
#
# In Python, `x * y` calls `x.__mul__(y)`. What about `3 * x`? An `int` does not know your class, so Python calls
# `x.__rmul__(3)`, the *reflected* method.

# %% [markdown]
# {{exercise Dual}}
#
# Fill in the methods. Each is one or two lines; `value` and `slope` are floats. A plain number is a constant, so its
# slope is 0. The methods `exp`, `log` and `sin` have the same names as for torch's tensors, so a formula such as `(2 *
# x).sin()` works for a tensor and for a `Dual`.
#
# | operation | slope |
# |---|---|
# | $f + g$, $f - g$, $-f$ | $f' + g'$, $f' - g'$, $-f'$ |
# | $f g$ | $f' g + f g'$ |
# | $f / g$ | $(f' g - f g') / g^2$ |
# | $f^n$, $n$ a number | $n f^{n-1} f'$ |
# | $c^f$, $c > 0$ a number | $c^f \ln(c) f'$ |
# | $e^f$, $\ln f$, $\sin f$ | $e^f f'$, $f' / f$, $\cos(f) f'$ |
#
# <details><summary>Hint 1: numbers on the right</summary>
#
# Begin each binary operation with `other = as_dual(other)`. Then there is only one case.
# </details>
# <details><summary>Hint 2: numbers on the left</summary>
#
# `__rsub__(self, other)` computes `other - self`. You have already written minus and plus: `-self + other`. And
# `other / self` is `as_dual(other) / self`.
# </details>
# <details><summary>Hint 3: the chain rule</summary>
#
# Every rule ends with a factor $f'$: the operand's slope, `self.slope`.
# </details>


# %%
class Dual:
    """A value and its slope, value + slope ε with ε² = 0, carried through + - * / ** exp
    log sin.

    Operands may be Duals or plain numbers, on either side; every result is a new Dual.

    >>> x = Dual(2.0, 1.0)
    >>> 3 * x**2 + 1
    Dual(13.0, 12.0)
    """

    def __init__(self, value, slope=0.0):
        self.value, self.slope = value, slope

    def __repr__(self):
        return f"Dual({self.value}, {self.slope})"

    def __neg__(self):
        # BEGIN SOLUTION
        return Dual(-self.value, -self.slope)
        # END SOLUTION

    def __add__(self, other):
        # BEGIN SOLUTION
        other = as_dual(other)
        return Dual(self.value + other.value, self.slope + other.slope)
        # END SOLUTION

    def __sub__(self, other):
        # BEGIN SOLUTION
        return self + -as_dual(other)
        # END SOLUTION

    def __mul__(self, other):
        # BEGIN SOLUTION
        other = as_dual(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
        # END SOLUTION

    def __truediv__(self, other):
        # BEGIN SOLUTION
        other = as_dual(other)
        slope = (self.slope * other.value - self.value * other.slope) / other.value**2
        return Dual(self.value / other.value, slope)
        # END SOLUTION

    def __pow__(self, n):  # n is a number
        # BEGIN SOLUTION
        return Dual(self.value**n, n * self.value ** (n - 1) * self.slope)
        # END SOLUTION

    def __rsub__(self, other):  # other - self
        # BEGIN SOLUTION
        return -self + other
        # END SOLUTION

    def __rtruediv__(self, other):  # other / self
        # BEGIN SOLUTION
        return as_dual(other) / self
        # END SOLUTION

    def __rpow__(self, c):  # c ** self, c a number above 0
        # BEGIN SOLUTION
        power = c**self.value
        return Dual(power, power * math.log(c) * self.slope)
        # END SOLUTION

    def exp(self):
        # BEGIN SOLUTION
        return Dual(math.exp(self.value), math.exp(self.value) * self.slope)
        # END SOLUTION

    def log(self):
        # BEGIN SOLUTION
        return Dual(math.log(self.value), self.slope / self.value)
        # END SOLUTION

    def sin(self):
        # BEGIN SOLUTION
        return Dual(math.sin(self.value), math.cos(self.value) * self.slope)
        # END SOLUTION

    __radd__ = __add__  # the order does not matter
    __rmul__ = __mul__


def as_dual(x):
    """Turn a plain number into a Dual of slope 0; return a Dual unchanged."""
    return x if isinstance(x, Dual) else Dual(x)


# %%
check("calculus.Dual")

# %% [markdown]
# Compare exact and measured for $x^x = e^{x \ln x}$. The lecture's table gives its derivative as $x^x (1 + \ln x)$:


# %%
def power(x):
    return (x * x.log()).exp()


with when_solved():
    x = 2.5
    exact = x**x * (1 + math.log(x))
    dual = power(Dual(x, 1.0)).slope
    point = torch.tensor(x, dtype=torch.float64)
    measured = derivative(power, point).item()
    best = derivative(power, point, best_step(power, x, torch.float64)).item()
    for name, slope in (("table", exact), ("Dual", dual), ("central, h = 1e-5", measured), ("central, best h", best)):
        print(f"{name:<18} {slope:.15f}   relative error {abs(slope / exact - 1):.0e}")

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The Dual agrees with the table to the last digit or two; the central difference has about ten correct digits, and the
# best step does not help much. The Dual needs one evaluation, and is more exact than any step.
# </details>

# %% [markdown]
# For $n$ variables you run the program $n$ times, each time with slope 1 in another variable. This is half as often as
# with central differences, and it is exact. Can one pass be enough for *all* variables? Yes, if you go backwards (lab
# 04).

# %% [markdown]
# ## 6 · The chain rule with many variables
#
# Let $f$ depend on $x_1, \dots, x_n$, and each $x_i$ on $s_1, \dots, s_m$. Then each $s_j$ affects $f$ through *every*
# $x_i$, and the effects add up:
#
# $$\frac{\partial f}{\partial s_j} = \sum_{i=1}^{n} \frac{\partial f}{\partial x_i} \frac{\partial x_i}{\partial s_j}.$$
#
# The lecture's example has $n = m = 2$. In a layer of a network, $s$ are the weights, $x$ the outputs, and $f$ is the
# loss.

# %% [markdown]
# {{exercise chain_gradient}}
#
# Write this sum for all $s_j$ at once.
#
# <details><summary>Hint 1: look at the shapes</summary>
#
# `df_dx` has shape $(n,)$, `dx_ds` has $(n, m)$, the result $(m,)$. Sum over the index that is not in the result.
# </details>
# <details><summary>Hint 2: one operator</summary>
#
# A vector times a matrix: `@`. Which of them must be on the left?
# </details>


# %%
def chain_gradient(df_dx, dx_ds):
    """The gradient of f(x(s)) with respect to s, by the chain rule.

    df_dx: (n,), entry i is df/dx_i. dx_ds: (n, m), entry (i, j) is dx_i/ds_j. Neither is
    changed. Returns (m,), entry j is df/ds_j.

    >>> chain_gradient(torch.tensor([1.0, 10.0]),
    ...                torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    tensor([41., 52., 63.])
    """
    # BEGIN SOLUTION
    return df_dx @ dx_ds
    # END SOLUTION


# %%
check("calculus.chain_gradient")

# %% [markdown]
# ## 7 · Trust, and check
#
# A wrong gradient seldom crashes a program. The network just learns badly, and you spend a week looking for the reason.
# So whenever you derive a gradient by hand, compare it once with a measured one, at a random point.
#
# How close is close enough? An absolute limit alone accepts a wrong gradient of size $10^{-6}$, and rejects a right one
# of size $10^{6}$ for its rounding errors. A relative limit alone fails where the gradient is zero. So use both. For
# each coordinate, with $a$ from `grad` and $m$ measured, require
#
# $$|a - m| \le 10^{-4} \max(|a|, |m|) + 10^{-9}.$$

# %% [markdown]
# {{exercise grad_check}}
#
# Measure with the library's `measured_gradient(f, x)`. It does the same as your `gradient`, so a mistake there costs
# you no points here.
#
# Return whether all coordinates agree, and the index of the worst one. The worst has the largest ratio of $|a - m|$ to
# its limit.
#
# <details><summary>Hint 1: one number per coordinate</summary>
#
# `error = (a - m).abs() / allowed`, where `allowed` is the right-hand side above (`torch.maximum` takes two tensors).
# All is well if no entry exceeds 1.
# </details>
# <details><summary>Hint 2: the index</summary>
#
# `error.argmax()` counts through the flattened tensor. `np.unravel_index(int(flat), x.shape)` turns that into one index
# per dimension, and `tuple(map(int, ...))` into plain ints.
# </details>
# <details><summary>Hint 3: NaN</summary>
#
# `nan > 1` is False, and so is `nan <= 1`. Ask the question so that the answer for a NaN is "no".
# </details>


# %%
from hpcdl.numerics.derivatives import gradient as measured_gradient


def grad_check(f, grad, x):
    """Compare grad(x) with the measured gradient of f at x.

    f: function of a tensor like x that returns a number. grad: returns the gradient of f,
    of the shape of x; a NaN in it disagrees.
    x: float64 tensor of any shape. Returns (ok, worst_index): a bool, and a tuple of ints
    such that x[worst_index] is the coordinate that disagrees most.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double()
    >>> grad_check(lambda x: (x**2).sum(),
    ...            lambda x: 2 * x * torch.tensor([[1, 1], [1.1, 1]]), x)
    (False, (1, 0))
    """
    # BEGIN SOLUTION
    a, m = grad(x), measured_gradient(f, x)
    error = (a - m).abs() / (1e-4 * torch.maximum(a.abs(), m.abs()) + 1e-9)
    worst = np.unravel_index(int(error.argmax()), x.shape)
    return bool(error.max() <= 1), tuple(map(int, worst))
    # END SOLUTION


# %%
check("calculus.grad_check")

# %% [markdown]
# ## 8 · For real: a 3 or an 8?
#
# The data are handwritten digits of 8 × 8 pixels. One neuron gets the image $x$ (64 pixels, and $x_0 = 1$ for the bias)
# and answers $p = \text{logistic}(w \cdot x)$. The answer should be near 0 for a 3, and near 1 for an 8. The error over
# $n$ images is the lecture's mean squared error,
#
# $$L(w) = \frac{1}{n} \sum_{i=1}^{n} (p_i - y_i)^2.$$
#
# The chain rule gives its gradient with respect to all 65 weights from the parts that you wrote: $\partial L
# / \partial p_i = 2 (p_i - y_i) / n$, and $\partial p_i / \partial w_j = p_i (1 - p_i)\, x_{ij}$.

# %%
data = digits()


def threes_and_eights(images, labels):
    """Rows (1, 64 pixels), and 1 for an 8, 0 for a 3."""
    chosen = (labels == 3) | (labels == 8)
    pixels = images[chosen].flatten(1).double()
    return torch.cat([torch.ones_like(pixels[:, :1]), pixels], dim=1), (labels[chosen] == 8).double()


X, y = threes_and_eights(data.x, data.y)
X_new, y_new = threes_and_eights(data.x_held_out, data.y_held_out)
print(f"{len(X)} images to learn from, {len(X_new)} held out")


def loss(w):
    return ((logistic(X @ w) - y) ** 2).mean()


def loss_grad(w):
    p = logistic(X @ w)
    return chain_gradient(2 * (p - y) / len(y), logistic_grad(p)[:, None] * X)


def buggy_grad(w):
    """Like loss_grad, but with a mistake in the bias."""
    g = loss_grad(w)
    g[0] = g[0] / 2
    return g


# %%
with when_solved():
    w = 0.1 * torch.randn(65, generator=torch.Generator().manual_seed(1)).double()
    print("loss_grad: ", grad_check(loss, loss_grad, w))
    print("buggy_grad:", grad_check(loss, buggy_grad, w))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# `True` for the first. For the second `False` and the index `(0,)`, which is the bias. Nothing else would have shown
# you: with half the bias gradient the neuron still learns, only worse.
# </details>

# %% [markdown]
# ### The cost
#
# You have three ways to compute the same 65 numbers. How much time does each take, and how exact is it? (We use only 30
# images, since Duals are plain Python.)

# %%
guess(
    "calculus.bill",
    "The chain rule evaluates L once, central differences 130 times. How many times as long do central differences "
    "take?",
    unit="times",
)

# %%
few = slice(0, 30)
rows, labels = X[few].tolist(), y[few].tolist()


def loss_of_few(w):
    """The same loss for a list of weights: floats or Duals."""
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        z = sum(weight * pixel for weight, pixel in zip(w, row, strict=True))
        total = total + (1 / (1 + (-z).exp()) - label) ** 2
    return total / len(rows)


def by_chain_rule(w):
    p = logistic(X[few] @ w)
    return chain_gradient(2 * (p - y[few]) / len(rows), logistic_grad(p)[:, None] * X[few])


def by_duals(w):
    w = w.tolist()
    slopes = [loss_of_few([Dual(v, float(i == j)) for j, v in enumerate(w)]).slope for i in range(len(w))]
    return torch.tensor(slopes, dtype=torch.float64)


def by_differences(w):
    return gradient(lambda w: ((logistic(X[few] @ w) - y[few]) ** 2).mean(), w)


with when_solved():
    guessed("calculus.bill")
    oracle = w.clone().requires_grad_()
    ((torch.sigmoid(X[few] @ oracle) - y[few]) ** 2).mean().backward()  # torch's own automatic differentiation
    bill, least = [f"{'way':<20} {'evaluations of L':>17} {'milliseconds':>13} {'largest error':>14}"], {}
    for way, evaluations in ((by_chain_rule, 1), (by_duals, 65), (by_differences, 130)):
        milliseconds = []
        for _ in range(3):
            begin = time.perf_counter()
            g = way(w)
            milliseconds.append(1000 * (time.perf_counter() - begin))
        error = (g - oracle.grad).abs().max() / oracle.grad.abs().max()
        least[way] = min(milliseconds)
        bill.append(f"{way.__name__:<20} {evaluations:>17} {least[way]:>13.1f} {error:>14.0e}")
    print(*bill, sep="\n")
    reveal("calculus.bill", least[by_differences] / least[by_chain_rule])

# %% [markdown]
# With 65 weights the time hardly matters. What about the lectures' networks, for *one* image? Count each evaluation as
# the multiply-adds of one forward pass (2 operations each), on a V100 with the lectures' 112 TFLOP/s.

# %%
guess(
    "calculus.vgg",
    "VGG-16 has 138 million weights. How long would central differences take for one image?",
    unit="hours",
)

# %%
networks = {"LeNet-5": (60e3, 341e3), "VGG-16": (138e6, 15.5e9), "ResNet-50": (25.5e6, 3.9e9)}  # weights, multiply-adds
with when_solved():
    guessed("calculus.vgg")
    print(f"{'network':<10} {'weights':>12} {'central differences':>22} {'chain rule, backwards':>23}")
    for name, (weights, multiply_adds) in networks.items():
        forward = 2 * multiply_adds / 112e12  # seconds
        measured, backward = 2 * weights * forward, 3 * forward  # forward and backward together: about 3 forward passes
        print(f"{name:<10} {weights:>12,.0f} {measured:>20,.4f} s {1e6 * backward:>20,.2f} µs")
        if name == "VGG-16":
            hours = measured / 3600
    reveal("calculus.vgg", hours)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# One step with one image takes an hour for ResNet-50 and most of a day for VGG-16, at a speed that no real program
# reaches. The chain rule, applied backwards, needs a fraction of a millisecond. Fast computers alone are not enough to
# train networks of millions of weights: it takes backpropagation. Use measured gradients only for checks.
# </details>

# %% [markdown]
# (Weights and multiply-adds: course lectures, table of networks. A backward pass costs about two forward passes: same
# source.)
#
# ### Learn, then look
#
# Take a thousand steps against the gradient, $w \leftarrow w - r \nabla L$ (lab 02 explains why, and how well it
# works). Then use your `gradient` for another question: how does the *answer* change with each pixel of the image?

# %%
three = X_new[y_new == 0][1, 1:].view(8, 8)


def answer(image):
    """How much the neuron believes that an 8 x 8 image is an 8."""
    return logistic(w[0] + (w[1:].view(8, 8) * image).sum())


with when_solved():
    w = torch.zeros(65, dtype=torch.float64)
    for _ in range(1000):
        w = w - 2.0 * loss_grad(w)
    right = ((logistic(X_new @ w) > 0.5) == (y_new == 1)).double().mean().item()
    print(f"loss {loss(w):.4f}; {100 * right:.0f} % of the held-out digits right")

    slopes = gradient(answer, three)
    figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
    axes[0].imshow(three, cmap="gray_r", vmin=0, vmax=1)
    axes[0].set_title(f"a 3; answer {answer(three):.2f}")
    limit = slopes.abs().max()
    shown = axes[1].imshow(slopes, cmap="PuOr_r", vmin=-limit, vmax=limit)
    axes[1].set_title("slope of the answer, by pixel")
    figure.colorbar(shown, ax=axes[1], label="per unit of ink")
    for one in axes:
        one.set_axis_off()
    plt.show()

# %% [markdown]
# Ink in the orange places makes the neuron answer 8: there an 8 closes the two loops that a 3 leaves open on its left.
# Now go uphill: change the image by small steps along that gradient, again and again.

# %%
with when_solved():
    images = [three]
    for _ in range(6):
        slopes = gradient(answer, images[-1])
        images.append(images[-1] + 0.15 * slopes / slopes.norm())
    figure, axes = plt.subplots(1, len(images), figsize=(9.6, 2), layout="constrained")
    for image, one in zip(images, axes, strict=True):
        one.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        one.set_title(f"{answer(image):.2f}")
        one.set_axis_off()
    figure.suptitle(
        "The neuron's belief in an 8, each image one small step up the gradient", x=0.01, ha="left", weight="bold"
    )
    plt.show()

# %% [markdown]
# <details><summary>What do you see, and is it an 8 now?</summary>
#
# After five steps the neuron takes it for an 8, and you still see a 3 with some grey in it. The gradient is the
# direction in which the answer changes *fastest*, so a very small change is enough. Images made like this are called
# *adversarial examples*; deep networks have them too.
# </details>
#
# <details><summary>Think further: why is the step divided by its length?</summary>
#
# If the neuron is sure, $p(1-p)$ is nearly 0, and so is the gradient. A step proportional to it would hardly change the
# image. After division by its norm, only the direction matters, and each step has the same length, 0.15.
# </details>

# %% [markdown]
# ## 9 · Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, claim to be `derivative`, the central difference of exercise 1. Four of them are
# right, each written in its own way. The other four are impostors, which give the right answer on many inputs. You do
# not see their code. You choose the inputs.

# %% [markdown]
# {{exercise unmask_derivative}}
#
# Return a list of at most 12 inputs, each a tuple `(f, x, h)`:
#
# | part | what it may be |
# |---|---|
# | `f` | `"square"`, `"cube"`, `"sin"` or `"exp"`, as text |
# | `x` | a number from -10 to 10, or a tensor of up to 8 of them |
# | `h` | a number from -1 to 1, not 0 |
#
# You unmask a program if its slopes are wrong by more than rounding explains, or if it changes `x`. Each impostor that
# you unmask earns two points. You get two more points if you unmask a program and accuse no right one: an input does
# not count if it breaks the rules above, or if right programs differ on it because they round differently. The check
# shows which programs you have caught, and with which input. Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 1, or nearly made. On which inputs would you not have noticed them?
# </details>
# <details><summary>Hint 2: one input can be better than ten</summary>
#
# For $x^2$ the central difference is exact with *any* step, so `"square"` tells you nothing about the step. Which
# function does, and does it need a large step or a small one?
# </details>
# <details><summary>Hint 3: not only the result counts</summary>
#
# What else does the docstring of `derivative` promise?
# </details>


# %%
def unmask_derivative():
    """Inputs (f, x, h) on which the impostors among the eight programs give wrong answers.

    Returns a list of at most 12 tuples.

    An input that is not yet enough:

        [('square', 2.0, 0.5)]
    """
    # BEGIN SOLUTION
    return [
        ("cube", 3.0, 0.5),  # a slope that depends on a large step, at an x beyond 1
        ("sin", torch.tensor([1.0, 2.0]), 0.1),  # an x that can be moved
    ]
    # END SOLUTION


# %%
check("calculus.unmask_derivative")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **B** takes the forward difference.
# - **D** steps by 1e-5 for every h.
# - **E** steps by h |x| if |x| > 1.
# - **G** changes the caller's x.
#
# One input catches all of them: a cube, at a tensor with an element beyond 1, with a large step. A few good tests are
# enough, if each has a reason.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# Differences lose digits because two nearly equal numbers are subtracted. W. Squire and G. Trapp (1998) subtract
# nothing: $f'(x) \approx \operatorname{Im} f(x + ih) / h$, with the imaginary unit $i$ and $h = 10^{-100}$. Write it in
# one line with Python's `complex` and `cmath`, and use the series of $f(x + ih)$ to explain why it works. *Proof:* draw
# its error for $h$ from 1 to $10^{-100}$ next to the errors of your two differences. For which functions of this lab
# does it give nonsense, and why?

# %% [markdown]
# ## Further reading
#
# - A. G. Baydin, B. A. Pearlmutter, A. A. Radul, J. M. Siskind (2018), *Automatic Differentiation in Machine
#   Learning: a Survey*, Journal of Machine Learning Research 18(153).
# - A. Griewank, A. Walther (2008), *Evaluating Derivatives: Principles and Techniques of Algorithmic
#   Differentiation*, 2nd edition, SIAM.
# - R. E. Wengert (1964), *A simple automatic derivative evaluation program*, Communications of the ACM 7(8): the two
#   pages that started it.
# - D. Goldberg (1991), *What Every Computer Scientist Should Know About Floating-Point Arithmetic*, ACM Computing
#   Surveys 23(1).
# - W. H. Press, S. A. Teukolsky, W. T. Vetterling, B. P. Flannery (2007), *Numerical Recipes*, 3rd edition, section
#   5.7: the best step, and how to do better.
# - M. Nielsen (2015), *Neural Networks and Deep Learning*, neuralnetworksanddeeplearning.com: the lecture recommends it
#   to see the chain rule at work.
# - I. J. Goodfellow, J. Shlens, C. Szegedy (2015), *Explaining and Harnessing Adversarial Examples*, ICLR.
#
# **Next:** lab 02 walks downhill, first on one machine, then on many.
