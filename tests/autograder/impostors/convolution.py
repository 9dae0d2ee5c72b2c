"""Lab 05 answered by others."""

RUN = """
from hpcdl.conv import Problem as P_, registry

def {0}(x, w, stride=1, padding=0, m=2, matmul=None):
    return registry.run("{1}", x, w, P_.of(x, w, stride, padding))
"""
LIBRARY = {
    "conv_direct": RUN.format("conv_direct", "direct"),
    "im2col": """
import importlib
columns_of = importlib.import_module("hpcdl.conv.im2col")

def im2col(x, r, s, stride=1, padding=0):
    return columns_of.im2col(x, None)

def col2im(columns, shape, r, s, stride=1, padding=0):
    return columns_of.col2im(columns, None)
""",
    "conv_im2col": RUN.format("conv_im2col", "im2col"),
    "toeplitz": """
import sys
import hpcdl.conv.toeplitz

def toeplitz(w, h, wd):
    return sys.modules["hpcdl.conv.toeplitz"].toeplitz(w[None, None], None)
""",
    "conv_fft": """
import hpcdl.conv.fft

def conv_fft(x, w, padding=0):
    return hpcdl.conv.fft.plain(x, w, None)
""",
    "winograd_matrices": """
import hpcdl.kernels.winograd_transforms as library

def winograd_matrices(m, r):
    import types
    made = [f for f in vars(library).values() if type(f) is types.FunctionType and f.__module__ == library.__name__]
    return made[0](m, r)
""",
    "conv_winograd": """
import hpcdl.conv.winograd

def conv_winograd(x, w, m=2, matmul=None):
    return hpcdl.conv.winograd.plain(m, x, w, None)
""",
    "conv_cost": """
from hpcdl.conv import Problem
from hpcdl.cost import convolution

def conv_cost(algorithm, problem):
    return tuple(convolution.cost(algorithm, problem))
""",
    "conv_kernel": """
def launch_in(memory, x_shape, w_shape, stride, padding):
    from hpcdl.kernels.gpu.direct_simple import direct_simple
    return direct_simple(memory[: x_shape[0]].view(-1, 1, 1, 1), memory[:1].view(1, 1, 1, 1), (1, 1))
""",
}
TORCH = """
from torch.nn import functional

def {0}(x, w, stride=1, padding=0, m=2, matmul=None):
    return functional.conv2d(x, w, stride=stride, padding=padding)
"""
FRAMEWORKS = {
    **{name: TORCH.format(name) for name in ("conv_direct", "conv_im2col", "conv_fft", "conv_winograd")},
    "im2col": """
from torch.nn import functional

def im2col(x, r, s, stride=1, padding=0):
    return functional.unfold(x, (r, s), stride=stride, padding=padding)

def col2im(columns, shape, r, s, stride=1, padding=0):
    return functional.fold(columns, shape[2:], (r, s), stride=stride, padding=padding)
""",
    "toeplitz": """
import torch
from torch.nn import functional

def toeplitz(w, h, wd):
    every = torch.eye(h * wd, dtype=w.dtype).view(h * wd, 1, h, wd)
    return functional.conv2d(every, w[None, None]).flatten(1).T
""",
    "conv_kernel": """
import torch

def launch_in(memory, x_shape, w_shape, stride, padding):
    torch.conv2d(torch.zeros(x_shape), torch.zeros(w_shape), stride=stride, padding=padding)
    return memory
""",
}
NOT_IN_FRAMEWORKS = {
    "unmask_conv": "what to ask eight programs is no function of anybody's",
    "winograd_matrices": "torch's are constants in its C++",
    "conv_cost": "formulas of the course's",
}
NOT_IN_LIBRARY = {
    "unmask_conv": "what to ask eight programs is no function of anybody's",
}
