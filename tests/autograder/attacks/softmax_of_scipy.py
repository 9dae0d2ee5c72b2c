# backprop.softmax_cross_entropy: 0 points, flagged, long
# SciPy has the softmax and its logarithm.
import torch
from scipy.special import log_softmax, softmax


def softmax_cross_entropy(logits, labels):
    z = logits.detach().numpy()
    n = len(z)
    loss = -torch.from_numpy(log_softmax(z, axis=1))[range(n), labels].mean()
    p = torch.from_numpy(softmax(z, axis=1))
    p[range(n), labels] -= 1
    return loss, p / n
