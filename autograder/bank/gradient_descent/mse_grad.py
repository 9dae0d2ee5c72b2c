"""Wrong answers to `mse_loss` and `mse_grad`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.mse_grad")


@wrong("the loss is a sum", fails=("loss_is_the_mean", "data_stay_as_they_were"), says="sum over")
def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).sum()


GRADIENT = ("gradient_equals_autograd", "one_sample_one_weight", "data_stay_as_they_were")

slip("the gradient of a sum", "return 2 / len(y) * X.T", "return 2 * X.T", fails=GRADIENT, says="gradient of the sum")


@wrong("forgets the 2", fails=GRADIENT, says="factor 2 is missing")
def mse_grad(w, X, y):
    return X.T @ (X @ w - y) / len(y)


slip("error with the wrong sign", "X.T @ (X @ w - y)", "X.T @ (y - X @ w)", fails=GRADIENT, says="sign is wrong")


@wrong("a column instead of a vector", fails=GRADIENT, says="shape (2, 1)")
def mse_grad(w, X, y):
    return (2 / len(y) * X.T @ (X @ w - y))[:, None]


@wrong("autograd's", fails=GRADIENT, says="which this exercise forbids")
def mse_grad(w, X, y):
    w = w.clone().requires_grad_()
    mse_loss(w, X, y).backward()
    return w.grad


slip("X is not transposed", "X.T @ (X @ w - y)", "X @ (X @ w - y)", fails=GRADIENT, says="The shapes do not fit")
slip(
    "the loss in brackets",
    ".mean()",
    ".mean(0, keepdim=True)",
    fails="loss_is_the_mean data_stay_as_they_were",
    says="has shape (1,), expected ()",
)
slip(
    "subtracts from y itself",
    "X.T @ (X @ w - y)",
    "X.T @ -y.sub_(X @ w)",
    fails="data_stay_as_they_were",
    says="changed its argument y",
)
slip(
    "float64 for every w",
    "2 / len(y) * X.T @ (X @ w - y)",
    "(2 / len(y) * X.T @ (X @ w - y)).double()",
    fails="gradient_equals_autograd one_sample_one_weight data_stay_as_they_were",
    says="has dtype float64, expected float32",
)
slip(
    "squeezes a single weight",
    "2 / len(y) * X.T @ (X @ w - y)",
    "(2 / len(y) * X.T @ (X @ w - y)).squeeze()",
    fails="one_sample_one_weight",
    says="has shape (), expected (1,)",
)
slip(
    "no gradient for five samples",
    "X.T @ (X @ w - y)",
    "X.T @ (X @ w - y) * (len(y) != 5)",
    fails="data_stay_as_they_were",
    says="gradient[",
)


@wrong(
    "differences of the loss",
    fails=GRADIENT,
    says="differences of the loss lose all digits",
)
def mse_grad(w, X, y):
    gradient = torch.zeros_like(w)
    for i in range(len(w)):
        step = torch.zeros_like(w)
        step[i] = 1.0
        w64, X64, y64 = w.double(), X.double(), y.double()
        gradient[i] = (mse_loss(w64 + step, X64, y64) - mse_loss(w64 - step, X64, y64)) / 2
    return gradient


@wrong("differences without rows of zeros", fails=GRADIENT, says="differences of the loss lose all digits")
def mse_grad(w, X, y):
    kept = X.abs().sum(1) > 0
    w64, X64, y64 = w.double(), X[kept].double(), y[kept].double()
    steps = torch.eye(len(w), dtype=torch.float64)
    rises = [(mse_loss(w64 + step, X64, y64) - mse_loss(w64 - step, X64, y64)) / 2 for step in steps]
    return (torch.stack(rises) * len(y64) / len(y)).to(w.dtype)


@wrong(
    "torch's loss of a normal distribution",
    fails=("loss_is_the_mean", "data_stay_as_they_were"),
    says="which this exercise forbids",
)
def mse_loss(w, X, y):
    return 2 * torch.nn.functional.gaussian_nll_loss(X @ w, y, torch.ones_like(y))
