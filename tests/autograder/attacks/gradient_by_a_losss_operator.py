# gradient_descent.mse_grad: 3 points, flagged, long
# The formula of the derivative is an operator.
import torch


def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).mean()


def mse_grad(w, X, y):
    return X.T @ torch.ops.aten.mse_loss_backward(torch.tensor(1.0, dtype=w.dtype), X @ w, y, 1)
