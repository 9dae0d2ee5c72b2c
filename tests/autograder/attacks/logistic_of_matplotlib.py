# calculus.logistic: 3 points, flagged
# An axis of matplotlib has the function to the base 10.
import math

import torch


def logistic(x):
    from matplotlib.scale import LogisticTransform

    return torch.from_numpy(LogisticTransform().transform_non_affine(x.double().numpy() / math.log(10))).to(x.dtype)
