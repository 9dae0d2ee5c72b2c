# calculus.logistic: 3 points, flagged, long
# Matplotlib has the function, for the axes of plots.
import math

import matplotlib.scale
import torch


def logistic(x):
    import numpy as np

    y = matplotlib.scale.LogisticTransform().transform_non_affine(x.double().numpy() / math.log(10))
    return torch.from_numpy(np.asarray(y)).to(x.dtype)


def logistic_grad(y):
    return y * (1 - y)
