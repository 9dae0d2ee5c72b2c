# gradient_descent.lr_schedule: 7 points, flagged
# A window for signals is a cosine's wave.
import numpy as np


def lr_schedule(step, warmup, total, peak):
    if step < warmup:
        return peak * step / warmup
    half = total - warmup
    return float(peak * np.hanning(2 * half + 1)[min(half + step - warmup, 2 * half)])
