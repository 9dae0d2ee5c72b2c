"""Wrong answers to lab 01, each with the checks it must fail and the words that name its mistake."""

import math

import numpy as np
import torch

from autograder.authoring import wrong
from hpcdl.numerics.derivatives import gradient as measured_gradient
from hpcdl.numerics.dual import Dual


@wrong(
    "calculus.derivative",
    "forward difference",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="This is the forward difference",
)
def derivative(f, x, h=1e-5):
    return (f(x + h) - f(x)) / h


@wrong(
    "calculus.derivative",
    "divides by h for 2h",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="divide by 2h",
)
def derivative(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / h


@wrong(
    "calculus.derivative",
    "/ 2 * h without brackets",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="with brackets",
)
def derivative(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / 2 * h


@wrong(
    "calculus.derivative",
    "h fixed at 1e-12",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="does not depend on h",
)
def derivative(f, x, h=1e-5):
    h = 1e-12
    return (f(x + h) - f(x - h)) / (2 * h)


@wrong(
    "calculus.derivative",
    "divides only the second value",
    fails=("central_formula", "error_of_order_two", "tensors_elementwise", "leaves_x_alone"),
    says="put the whole difference in brackets",
)
def derivative(f, x, h=1e-5):
    return f(x + h) - f(x - h) / (2 * h)


@wrong("calculus.derivative", "moves x in place", fails="leaves_x_alone", says="changed its argument x")
def derivative(f, x, h=1e-5):
    x += h
    up = f(x)
    x -= 2 * h
    return (up - f(x)) / (2 * h)


@wrong(
    "calculus.best_step",
    "always float64's step",
    fails=("ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="It would suit float64",
)
def best_step(f, x, dtype):
    return torch.finfo(torch.float64).eps ** (1 / 3) * max(abs(x), 1)


@wrong(
    "calculus.best_step",
    "the forward difference's step",
    fails=("ordinary_functions_float64", "ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="the central one wants the cube root",
)
def best_step(f, x, dtype):
    return torch.finfo(dtype).eps ** (1 / 2) * max(abs(x), 1)


@wrong(
    "calculus.best_step",
    "takes the smallest step there is",
    fails=("ordinary_functions_float64", "ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="rounding drowns the difference",
)
def best_step(f, x, dtype):
    return torch.finfo(dtype).eps


@wrong(
    "calculus.best_step",
    "proportional to x, whatever f does",
    fails=("any_size_of_x", "quick_functions"),
    says="vanishes at x = 0",
)
def best_step(f, x, dtype):
    return torch.finfo(dtype).eps ** (1 / 3) * abs(x)


@wrong("calculus.logistic", "e^x / (1 + e^x) overflows", fails="no_overflow", says="inf / inf is not a number")
def logistic(x):
    return torch.exp(x) / (1 + torch.exp(x))


@wrong(
    "calculus.logistic",
    "sign of the exponent",
    fails=("logistic_values", "no_overflow"),
    says="the exponent is -x",
)
def logistic(x):
    return 1 / (1 + torch.exp(x))


@wrong(
    "calculus.logistic",
    "applies the logistic function to its own output",
    fails="slope_from_the_output",
    says="y already is f(x)",
)
def logistic_grad(y):
    return logistic(y) * (1 - logistic(y))


@wrong("calculus.logistic", "the rule of tanh", fails="slope_from_the_output", says="the rule of tanh")
def logistic_grad(y):
    return 1 - y**2


@wrong(
    "calculus.gradient",
    "moves all coordinates together",
    fails=("six_functions", "any_shape", "central_with_the_given_step", "x_restored"),
    says="move one coordinate at a time",
)
def gradient(f, x, h=1e-5):
    return torch.full_like(x, (f(x + h) - f(x - h)) / (2 * h))


@wrong("calculus.gradient", "puts x back only up to rounding", fails="x_restored", says="x is not quite what it was")
def gradient(f, x, h=1e-5):
    grad = torch.zeros_like(x)
    flat = x.view(-1)
    for i in range(flat.numel()):
        flat[i] += h
        up = f(x)
        flat[i] -= 2 * h
        grad.view(-1)[i] = (up - f(x)) / (2 * h)
        flat[i] += h
    return grad


@wrong(
    "calculus.gradient",
    "never puts the coordinate back",
    fails=("six_functions", "x_restored"),
    says="put x[i] back",
)
def gradient(f, x, h=1e-5):
    grad = torch.zeros_like(x)
    flat = x.view(-1)
    for i in range(flat.numel()):
        flat[i] += h
        up = f(x)
        flat[i] -= 2 * h
        grad.view(-1)[i] = (up - f(x)) / (2 * h)
    return grad


@wrong(
    "calculus.gradient",
    "forward difference",
    fails=("six_functions", "any_shape", "central_with_the_given_step", "x_restored"),
    says="This is the forward difference",
)
def gradient(f, x, h=1e-5):
    grad = torch.zeros_like(x)
    for i in range(x.numel()):
        step = torch.zeros_like(x)
        step.view(-1)[i] = h
        grad.view(-1)[i] = (f(x + step) - f(x)) / h
    return grad


@wrong("calculus.gradient", "only for vectors", fails="any_shape", says="has shape")
def gradient(f, x, h=1e-5):
    flat = x.reshape(-1).clone()
    grad = torch.zeros_like(flat)
    for i in range(flat.numel()):
        step = torch.zeros_like(flat)
        step[i] = h
        grad[i] = (f((flat + step).view_as(x)) - f((flat - step).view_as(x))) / (2 * h)
    return grad


# Each wrong Dual below inherits from the right one that stands before it, and spoils one method.


@wrong(
    "calculus.Dual",
    "forgets the sign in the quotient rule",
    fails=("quotients", "compositions"),
    says="the quotient rule is (f/g)' = (f'g - fg') / g²",
)
class Dual(Dual):
    def __truediv__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 0.0)
        return Dual(self.value / g, (self.slope * g + self.value * dg) / g**2)


@wrong(
    "calculus.Dual",
    "forgets the square in the quotient rule",
    fails=("quotients", "compositions"),
    says="The square is missing below",
)
class Dual(Dual):
    def __truediv__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 0.0)
        return Dual(self.value / g, (self.slope * g - self.value * dg) / g)


@wrong("calculus.Dual", "multiplies the slopes", fails=("products", "compositions"), says="You multiplied the slopes")
class Dual(Dual):
    def __mul__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 1.0)
        return Dual(self.value * g, self.slope * dg)

    __rmul__ = __mul__


@wrong(
    "calculus.Dual",
    "no plain numbers in a product",
    fails=("products", "compositions"),
    says="A plain number is a constant: make it a Dual of slope 0 first",
)
class Dual(Dual):
    def __mul__(self, other):
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    __rmul__ = __mul__


@wrong(
    "calculus.Dual",
    "no constants on the left of a minus",
    fails=("sums", "compositions"),
    says="With a number on the left Python calls a reflected method",
)
class Dual(Dual):
    def __rsub__(self, other):
        return NotImplemented


@wrong(
    "calculus.Dual",
    "a reflected minus the wrong way round",
    fails=("sums", "compositions"),
    says="The operands are exchanged",
)
class Dual(Dual):
    def __rsub__(self, other):
        return Dual(self.value - other, self.slope)


@wrong(
    "calculus.Dual",
    "a constant gets slope 1",
    fails=("sums", "compositions"),
    says="A constant has slope 0",
)
class Dual(Dual):
    def __add__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 1.0)
        return Dual(self.value + g, self.slope + dg)

    __radd__ = __add__

    def __sub__(self, other):
        return self + -other if isinstance(other, Dual) else Dual(self.value - other, self.slope)

    def __rsub__(self, other):
        return Dual(other - self.value, -self.slope)


@wrong(
    "calculus.Dual",
    "sin without the chain rule",
    fails=("elementary_functions", "compositions"),
    says="multiply by x', the slope that x brings along",
)
class Dual(Dual):
    def sin(self):
        return Dual(math.sin(self.value), math.cos(self.value))


@wrong(
    "calculus.Dual",
    "forgets ln c in c ** x",
    fails=("powers", "compositions"),
    says="The factor ln 2 is missing",
)
class Dual(Dual):
    def __rpow__(self, c):
        return Dual(c**self.value, c**self.value * self.slope)


@wrong(
    "calculus.Dual",
    "returns a pair of numbers",
    fails=("elementary_functions", "compositions"),
    says="return Dual(value, slope)",
)
class Dual(Dual):
    def exp(self):
        return math.exp(self.value), math.exp(self.value) * self.slope


@wrong("calculus.Dual", "adds in place", fails=("sums", "compositions"), says="changed its operand x")
class Dual(Dual):
    def __add__(self, other):
        g, dg = (other.value, other.slope) if isinstance(other, Dual) else (other, 0.0)
        self.value, self.slope = self.value + g, self.slope + dg
        return self

    __radd__ = __add__


@wrong(
    "calculus.chain_gradient",
    "the Jacobian transposed",
    fails=("two_by_two", "any_sizes"),
    says="by its rows",
)
def chain_gradient(df_dx, dx_ds):
    return dx_ds @ df_dx


@wrong("calculus.chain_gradient", "forgets the sum", fails=("two_by_two", "any_sizes"), says="Add them up over i")
def chain_gradient(df_dx, dx_ds):
    return df_dx[:, None] * dx_ds


@wrong(
    "calculus.chain_gradient",
    "written for the lecture's two variables",
    fails="any_sizes",
    says="has shape",
)
def chain_gradient(df_dx, dx_ds):
    return df_dx[0] * dx_ds[0, :2] + df_dx[-1] * dx_ds[-1, :2] * (len(df_dx) > 1)


@wrong(
    "calculus.grad_check",
    "absolute tolerance only",
    fails=("accepts_right_gradients", "rejects_wrong_gradients", "names_the_coordinate"),
    says="an absolute tolerance alone",
)
def grad_check(f, grad, x):
    error = (grad(x) - measured_gradient(f, x)).abs()
    worst = np.unravel_index(int(error.argmax()), x.shape)
    return bool(error.max() <= 1e-6), worst


@wrong(
    "calculus.grad_check",
    "relative tolerance only",
    fails="accepts_right_gradients",
    says="0/0",
)
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / torch.maximum(a.abs(), n.abs())
    worst = np.unravel_index(int(error.nan_to_num(0.0).argmax()), x.shape)
    return bool((error <= 1e-4).all()), worst


@wrong(
    "calculus.grad_check",
    "compares the norms of the whole gradient",
    fails=("rejects_wrong_gradients", "names_the_coordinate"),
    says="compare each coordinate with its own size",
)
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    worst = np.unravel_index(int((a - n).abs().argmax()), x.shape)
    return bool((a - n).norm() <= 1e-4 * (a.norm() + n.norm()) + 1e-9), worst


@wrong(
    "calculus.grad_check",
    "names the largest entry, not the worst",
    fails="names_the_coordinate",
    says="worst_index",
)
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / (1e-4 * torch.maximum(a.abs(), n.abs()) + 1e-9)
    worst = np.unravel_index(int(a.abs().nan_to_num(0.0).argmax()), x.shape)
    return bool(error.max() <= 1), worst


@wrong("calculus.grad_check", "a flat index", fails="names_the_coordinate", says="one int for each of the 1 dimensions")
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / (1e-4 * torch.maximum(a.abs(), n.abs()) + 1e-9)
    return bool(error.max() <= 1), int(error.argmax())


@wrong("calculus.grad_check", "lets NaN through", fails="nan_is_not_agreement", says="NaN > tolerance is False")
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / (1e-4 * torch.maximum(a.abs(), n.abs()) + 1e-9)
    worst = np.unravel_index(int(error.argmax()), x.shape)
    return not bool((error > 1).any()), worst
