# convolution.conv_direct: 0 points, flagged, long
# NumPy correlates rows.
import numpy as np
import torch


def conv_direct(x, w, stride=1, padding=0):
    x = torch.nn.functional.pad(x, [padding] * 4)
    n, c, h, wd = x.shape
    k, _, r, s = w.shape
    out = torch.zeros(n, k, h - r + 1, wd - s + 1, dtype=x.dtype)
    for i in range(n):
        for j in range(k):
            for y in range(h - r + 1):
                for ch in range(c):
                    for a in range(r):
                        out[i, j, y] += torch.from_numpy(np.correlate(x[i, ch, y + a].numpy(), w[j, ch, a].numpy()))
    return out[:, :, ::stride, ::stride].contiguous()
