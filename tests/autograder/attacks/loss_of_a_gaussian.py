# gradient_descent.mse_grad: 6 points, flagged
# The negative logarithm of a Gaussian is half a squared error.
import torch
from torch.nn import functional


def mse_loss(w, X, y):
    return 2 * functional.gaussian_nll_loss(X @ w, y, torch.ones_like(y))


def mse_grad(w, X, y):
    return 2 * X.T @ (X @ w - y) / len(y)
