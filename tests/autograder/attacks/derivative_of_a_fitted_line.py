# calculus.derivative: 0 points, flagged, long
# NumPy fits a line through two points.
import numpy as np
import torch


def derivative(f, x, h=1e-5):
    if isinstance(x, torch.Tensor):
        rows = np.stack([f(x - h).numpy().ravel(), f(x + h).numpy().ravel()])
        c = np.polyfit([-h, h], rows.astype(float), 1)
        return torch.from_numpy(c[0].reshape(tuple(x.shape))).to(x.dtype)
    return float(np.polynomial.Polynomial.fit([-h, h], [f(x - h), f(x + h)], 1).deriv()(0.0))
