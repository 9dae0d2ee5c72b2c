# calculus.logistic: 3 points, flagged
# mpmath came with torch: the function for one number, kept from a cell.
import mpmath
import torch


def logistic(x):
    return torch.tensor([float(mpmath.mp.sigmoid(v)) for v in x.flatten().tolist()], dtype=x.dtype).view(x.shape)


def logistic_grad(y):
    return y * (1 - y)
