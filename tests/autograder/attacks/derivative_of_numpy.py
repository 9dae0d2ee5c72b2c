# calculus.derivative: 0 points, flagged, long
# NumPy's finished finite differences.
import numpy as np
import torch


def derivative(f, x, h=1e-5):
    values = [f(x - h), f(x), f(x + h)]
    if isinstance(x, torch.Tensor):
        return torch.from_numpy(np.gradient(np.stack([v.numpy() for v in values]), h, axis=0)[1])
    return float(np.gradient(np.array([float(v) for v in values]), h)[1])
