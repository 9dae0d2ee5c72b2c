"""Lab 06 answered by others."""

LIBRARY = {
    "neighbours": "from hpcdl.numerics.rounding import neighbours",
    "round_nearest_even": "from hpcdl.numerics import rounding\nround_nearest_even = rounding.round_nearest",
    "stochastic_round": """
import torch
from hpcdl.numerics.rounding import plain

def stochastic_round(x, fmt, u):
    return plain.round_with(x, (u * 2**16).to(torch.int64), fmt)
""",
    "bf16_round_bits": """
from hpcdl.numerics.rounding import BF16, stochastic_round as library

def bf16_round_bits(x, rand16):
    return library(x, BF16, seed=0)
""",
    "running_sum": """
from hpcdl.numerics.rounding import round_nearest

def running_sum(xs, fmt, mode, generator):
    return round_nearest(xs.cumsum(0), fmt)
""",
    "sgd_low_precision": """
from hpcdl.numerics.rounding import round_nearest

def sgd_low_precision(w, grad, lr, fmt, mode, generator):
    return round_nearest(w - lr * grad, fmt)
""",
    "rounding_kernel": """
from hpcdl.numerics.rounding import BF16, stochastic_round as library

def launch(x, n, seed, block):
    return library(x, BF16, seed=seed)
""",
}
NOT_IN_LIBRARY: dict[str, str] = {}
FRAMEWORKS = {
    "neighbours": """
import torch

def neighbours(x, fmt):
    near = x.bfloat16()
    far = torch.nextafter(near, torch.where(near.float() < x, torch.inf, -torch.inf).bfloat16())
    return torch.minimum(near, far).float(), torch.maximum(near, far).float()
""",
    "round_nearest_even": """
import torch

def round_nearest_even(x, fmt):
    return torch.fake_quantize_per_tensor_affine(x, 2.0**-4, 0, -128, 127)
""",
}
NOT_IN_FRAMEWORKS = {
    "unmask_rounding": "what to ask eight programs is no function of anybody's",
    "stochastic_round": "torch rounds to nearest alone",
    "bf16_round_bits": "torch rounds to nearest alone",
    "running_sum": "torch sums in float32",
    "sgd_low_precision": "torch's optimizers round to nearest in their own formats",
    "rounding_kernel": "torch rounds to nearest alone",
}
NOT_IN_LIBRARY = {
    "unmask_rounding": "what to ask eight programs is no function of anybody's",
}
