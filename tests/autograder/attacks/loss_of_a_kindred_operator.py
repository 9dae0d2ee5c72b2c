# gradient_descent.mse_grad: 6 points, flagged, long
# Another loss of torch's is half of this one where its bound is never reached.
import torch


def mse_loss(w, X, y):
    return 2 * torch.nn.functional.huber_loss(X @ w, y, delta=1e30)


def mse_grad(w, X, y):
    return X.T @ (2 * (X @ w - y)) / len(y)
