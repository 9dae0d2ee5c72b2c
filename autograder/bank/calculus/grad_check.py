"""Wrong answers to `grad_check`."""

import numpy as np
import torch

from autograder.bank.slips import answers_to
from hpcdl.numerics.derivatives import gradient as measured_gradient

wrong, slip = answers_to("calculus.grad_check")
WRONG = ("rejects_wrong_gradients", "names_the_coordinate", "nan_is_not_agreement")


@wrong(
    "absolute tolerance only",
    fails=("accepts_right_gradients", *WRONG),
    says="an absolute tolerance alone",
)
def grad_check(f, grad, x):
    error = (grad(x) - measured_gradient(f, x)).abs()
    worst = np.unravel_index(int(error.argmax()), x.shape)
    return bool(error.max() <= 1e-6), worst


@wrong("relative tolerance only", fails="accepts_right_gradients", says="0/0")
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / torch.maximum(a.abs(), n.abs())
    worst = np.unravel_index(int(error.nan_to_num(0.0).argmax()), x.shape)
    return bool((error <= 1e-4).all()), worst


@wrong(
    "compares the norms of the whole gradient",
    fails=WRONG,
    says="compare each coordinate with its own size",
)
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    worst = np.unravel_index(int((a - n).abs().argmax()), x.shape)
    return bool((a - n).norm() <= 1e-4 * (a.norm() + n.norm()) + 1e-9), worst


@wrong("names the largest entry, not the worst", fails="names_the_coordinate", says="worst_index")
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / (1e-4 * torch.maximum(a.abs(), n.abs()) + 1e-9)
    worst = np.unravel_index(int(a.abs().nan_to_num(0.0).argmax()), x.shape)
    return bool(error.max() <= 1), worst


@wrong("a flat index", fails="names_the_coordinate", says="one int for each of the 1 dimensions")
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / (1e-4 * torch.maximum(a.abs(), n.abs()) + 1e-9)
    return bool(error.max() <= 1), int(error.argmax())


@wrong("lets NaN through", fails="nan_is_not_agreement", says="NaN > tolerance is False")
def grad_check(f, grad, x):
    a, n = grad(x), measured_gradient(f, x)
    error = (a - n).abs() / (1e-4 * torch.maximum(a.abs(), n.abs()) + 1e-9)
    worst = np.unravel_index(int(error.argmax()), x.shape)
    return not bool((error > 1).any()), worst


@wrong(
    "accepts whatever is finite",
    fails=("accepts_right_gradients", *WRONG),
    says="grad_check accepts 1.01 times the gradient of quadratic",
)
def grad_check(f, grad, x):
    return bool(grad(x).isfinite().all()), (0,) * x.dim()


@wrong("rejects everything", fails=("accepts_right_gradients", *WRONG), says="rejects the right")
def grad_check(f, grad, x):
    return False, (0,) * x.dim()


slip("a smaller floor", "1e-9", "1e-13", fails="accepts_right_gradients", says="rejects a gradient with 0.7e-9 where")
slip("a larger floor", "1e-9", "1e-8", fails=WRONG, says="accepts")
slip(
    "the worst by its percentage",
    "error.argmax()",
    "((a - m).abs() / torch.maximum(a.abs(), m.abs())).nan_to_num(0.0).argmax()",
    fails="names_the_coordinate",
    says="mostly the 1e-9",
)
