# backprop.softmax_cross_entropy: 0 points, flagged
# The reduction of a function of NumPy's is the logarithm of a sum of exponentials.
import numpy as np
import torch

log_sum = np.logaddexp.reduce


def softmax_cross_entropy(logits, labels):
    z = logits.double().numpy()
    log_p = torch.from_numpy(-log_sum(z[:, :, None] - z[:, None, :], axis=1)).to(logits.dtype)
    rows = torch.arange(len(labels))
    d = log_p.exp()
    d[rows, labels] -= 1
    return -log_p[rows, labels].mean(), d / len(labels)
