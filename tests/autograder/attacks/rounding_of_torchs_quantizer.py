# stochastic_rounding.round_nearest_even: 0 points, flagged, long
# Torch's quantizer in Python.
import torch

from hpcdl.numerics.rounding import Fixed


def round_nearest_even(x, fmt):
    if isinstance(fmt, Fixed):
        from torch.ao.quantization.fx import _decomposed as d

        lo, hi = int(fmt.min / fmt.eps), int(fmt.max / fmt.eps)
        q = d.quantize_per_tensor(x.nan_to_num(0.0, 1e9, -1e9), fmt.eps, 0, lo, hi, torch.int32)
        y = q.float() * fmt.eps
        return torch.where(x.isnan(), x, y)
    y = x.clamp(fmt.min, fmt.max) if not fmt.has_infinity else x
    return y.to(fmt.dtype).float()
