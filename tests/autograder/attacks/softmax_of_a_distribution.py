# backprop.softmax_cross_entropy: 0 points, flagged, long
# torch's distributions know the logarithm of the odds.
import torch


def softmax_cross_entropy(logits, labels):
    odds = torch.distributions.Categorical(logits=logits, validate_args=False)
    p = odds.logits.exp()
    p[range(len(p)), labels] -= 1
    return -odds.log_prob(labels).mean(), p / len(p)
