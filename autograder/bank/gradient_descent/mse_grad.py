"""Wrong answers to `mse_loss` and `mse_grad`."""

from autograder.authoring import wrong
from autograder.bank.slips import slip


@wrong(
    "gradient_descent.mse_grad",
    "the loss is a sum",
    fails=("loss_is_the_mean", "data_stay_as_they_were"),
    says="sum over",
)
def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).sum()


GRADIENT = ("gradient_equals_autograd", "one_sample_one_weight", "data_stay_as_they_were")


@wrong("gradient_descent.mse_grad", "the gradient of a sum", fails=GRADIENT, says="gradient of the sum")
def mse_grad(w, X, y):
    return 2 * X.T @ (X @ w - y)


@wrong("gradient_descent.mse_grad", "forgets the 2", fails=GRADIENT, says="factor 2 is missing")
def mse_grad(w, X, y):
    return X.T @ (X @ w - y) / len(y)


@wrong("gradient_descent.mse_grad", "error with the wrong sign", fails=GRADIENT, says="sign is wrong")
def mse_grad(w, X, y):
    return 2 / len(y) * X.T @ (y - X @ w)


@wrong("gradient_descent.mse_grad", "a column instead of a vector", fails=GRADIENT, says="shape (2, 1)")
def mse_grad(w, X, y):
    return (2 / len(y) * X.T @ (X @ w - y))[:, None]


@wrong("gradient_descent.mse_grad", "autograd's", fails=GRADIENT, says="which this exercise forbids")
def mse_grad(w, X, y):
    w = w.clone().requires_grad_()
    mse_loss(w, X, y).backward()
    return w.grad


@wrong("gradient_descent.mse_grad", "X is not transposed", fails=GRADIENT, says="The shapes do not fit")
def mse_grad(w, X, y):
    return 2 / len(y) * X @ (X @ w - y)


slip(
    "gradient_descent.mse_grad",
    "the loss in brackets",
    ".mean()",
    ".mean(0, keepdim=True)",
    fails="loss_is_the_mean data_stay_as_they_were",
    says="has shape (1,), expected ()",
)
slip(
    "gradient_descent.mse_grad",
    "subtracts from y itself",
    "X.T @ (X @ w - y)",
    "X.T @ -y.sub_(X @ w)",
    fails="data_stay_as_they_were",
    says="changed its argument y",
)
slip(
    "gradient_descent.mse_grad",
    "float64 for every w",
    "2 / len(y) * X.T @ (X @ w - y)",
    "(2 / len(y) * X.T @ (X @ w - y)).double()",
    fails="gradient_equals_autograd one_sample_one_weight data_stay_as_they_were",
    says="has dtype float64, expected float32",
)
slip(
    "gradient_descent.mse_grad",
    "squeezes a single weight",
    "2 / len(y) * X.T @ (X @ w - y)",
    "(2 / len(y) * X.T @ (X @ w - y)).squeeze()",
    fails="one_sample_one_weight",
    says="has shape (), expected (1,)",
)
