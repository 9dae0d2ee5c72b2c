# stochastic_rounding.round_nearest_even: 0 points, flagged
# torch has its quantizers a second time, in Python.
import torch


def round_nearest_even(x, fmt):
    if isinstance(fmt, Fixed):  # noqa: F821
        from torch.ao.quantization.fx import _decomposed as quantizers

        low, high = int(fmt.min / fmt.eps), int(fmt.max / fmt.eps)
        whole = quantizers.quantize_per_tensor(x.nan_to_num(0.0, 1e9, -1e9), fmt.eps, 0, low, high, torch.int32)
        return torch.where(x.isnan(), x, whole.float() * fmt.eps)
    return (x if fmt.has_infinity else x.clamp(fmt.min, fmt.max)).to(fmt.dtype).float()
