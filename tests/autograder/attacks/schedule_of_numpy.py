# gradient_descent.lr_schedule: 7 points, flagged, long
# NumPy has half a cosine.
import numpy as np


def lr_schedule(step, warmup, total, peak):
    if step < warmup:
        return peak * step / warmup
    L = total - warmup
    return float(peak * np.hanning(2 * L + 1)[min(L + step - warmup, 2 * L)])
