# collectives.fit_alpha_beta: 0 points, flagged, long
# Pandas finds the least time of each size.
import numpy as np


def fit_alpha_beta(nbytes, seconds):
    import pandas as pd

    least = pd.Series(seconds.numpy()).groupby(nbytes.numpy()).min()
    b, a = np.polyfit(least.index, least.values, 1, w=1 / least.values)
    return float(a), float(b)
