# attention.attention: 0 points, flagged, long
# torch's flexible attention, in its eager form.
import torch
from torch._higher_order_ops.flex_attention import math_attention


def attention(q, k, v, causal=True):
    four = [x.reshape(-1, 1, *x.shape[-2:]) for x in (q, k, v)]
    n, none = four[0].shape[2], torch.zeros(1, 1, 1, dtype=torch.int32)
    mask = (n, n, none + 1, none[..., None], *[None] * 6, n, n, lambda b, h, i, j: (i >= j) | (not causal))
    made = math_attention(*four, lambda x, *_: x, mask, q.shape[-1] ** -0.5, {}, (), ())[0]
    return made.reshape(*q.shape[:-1], v.shape[-1])
