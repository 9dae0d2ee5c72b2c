"""The convolution kernels on this machine's GPU, compiled, against float64: a line a case; exit code 1 if one is wrong.

Run by test_on_card.py, a part in a process of its own, since kernels are either interpreted or compiled. Each problem
is done with every tile that the autotuner may choose, so that no tile goes untested.
"""

import sys
from functools import partial

import torch
from torch.nn.functional import conv2d, unfold

from hpcdl.conv import ALGORITHMS, Problem
from hpcdl.kernels.gpu import tiles
from hpcdl.kernels.gpu.base import INTERPRETED
from hpcdl.kernels.gpu.direct import forward, input_gradient, weight_gradient
from hpcdl.kernels.gpu.direct_simple import direct_simple
from hpcdl.kernels.gpu.im2col import im2col

# N, C, H, W, K, R, S, stride, padding, groups: the first like a layer, the others to try masks and geometry
PROBLEMS = [
    (4, 64, 28, 28, 128, 3, 3, 1, 1, 1),
    (2, 19, 17, 23, 33, 3, 2, 2, 1, 1),
    (2, 32, 15, 14, 48, 5, 5, 3, 2, 2),
    (2, 24, 16, 13, 40, 3, 5, (2, 1), (1, 3), 2),
]
TYPES = {
    "half": (torch.float16, "fp32", 2e-3),
    "bfloat16": (torch.bfloat16, "fp32", 8e-3),
    "tf32": (torch.float32, "tf32", 2e-3),
    "tf32x3": (torch.float32, "tf32x3", 5e-6),
    "ieee": (torch.float32, "fp32", 2e-6),
}
wrong = 0


def report(case: str, found: torch.Tensor, exact: torch.Tensor, limit: float) -> None:
    global wrong
    error = ((found.double().cpu() - exact).abs().max() / exact.abs().max()).item()
    good = error <= limit  # false for NaN
    wrong += not good
    print(f"{'ok   ' if good else 'WRONG'} {case}: {error:.1e} (at most {limit:.0e})", flush=True)


def draw(dtype, *shape):
    x = torch.randn(shape, device="cuda").to(dtype)
    return x.requires_grad_(), x.detach().double().cpu().requires_grad_()


def train(name, tile, problem, dtype, precision, limit):
    N, C, H, W, K, R, S, stride, padding, groups = problem
    (x, x64), (w, w64) = draw(dtype, N, C, H, W), draw(dtype, K, C // groups, R, S)
    y64 = conv2d(x64, w64, stride=stride, padding=padding, groups=groups)
    dy, dy64 = draw(dtype, *y64.shape)
    shape = Problem(N, C, H, W, K, R, S, stride, padding, groups)
    how = shape.strides, shape.paddings, groups, precision
    y64.backward(dy64.detach())
    with torch.no_grad():
        y, again = (forward(x, w, shape.y_shape[2:], *how) for _ in range(2))
        dx, dw = input_gradient(dy, w, shape.x_shape, *how), weight_gradient(x, dy, shape.w_shape, *how)
    case = f"implicit {name} {tuple(tile.blocks.values())} {problem}"
    report(f"{case} forward", y, y64.detach(), limit)
    report(f"{case} forward, again", again, y.double().cpu(), 0.0)
    report(f"{case} gradient of x", dx, x64.grad, limit)
    report(f"{case} gradient of w", dw, w64.grad, limit)


def every_tile(name):
    dtype, precision, limit = TYPES[name]
    kind = {"bfloat16": "half", "tf32x3": "tf32"}.get(name, name)
    for i, tile in enumerate(list(tiles.PRODUCTS[kind])):
        tiles.PRODUCTS[kind] = [tile]
        tiles._tuned.cache_clear()
        train(name, tile, PROBLEMS[i % len(PROBLEMS)], dtype, precision, limit)


def algorithms():
    """The registry's way to the kernels, with both gradients, exact in float32."""
    torch.backends.cudnn.allow_tf32 = False
    for dtype, scale in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
        for name, factor in {"direct": 2, "im2col": 2, "winograd_2x2": 4, "winograd_4x4": 30}.items():
            compare(name, dtype, (2, 35, 17, 22), (40, 35, 3, 3), {"padding": 1}, factor * scale)
        compare("toeplitz", dtype, (2, 5, 40, 56), (5, 1, 31, 31), {"padding": 15, "groups": 5}, 2 * scale)


def compare(name, dtype, x_shape, w_shape, options, limit):
    (x, x64), (w, w64) = draw(dtype, *x_shape), draw(dtype, *w_shape)
    y, y64 = ALGORITHMS[name](x, w, **options), conv2d(x64, w64, **options)
    dy, dy64 = draw(dtype, *y64.shape)
    y.backward(dy.detach())
    y64.backward(dy64.detach())
    report(f"{name} {dtype}", y.detach(), y64.detach(), limit)
    report(f"{name} {dtype} gradient of x", x.grad, x64.grad, limit)
    report(f"{name} {dtype} gradient of w", w.grad, w64.grad, limit)


def others():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, x64 = draw(dtype, 2, 35, 17, 22)
        columns = unfold(x64, (3, 2), stride=2, padding=1).view(2, 35, 6, -1).permute(0, 3, 2, 1)
        found = im2col(x.detach(), (3, 2), (9, 12), (2, 2), (1, 1))
        report(f"im2col {dtype}", found, columns.reshape(-1, 210).detach(), 0.0)
    (x, x64), (w, w64) = draw(torch.float32, 2, 5, 17, 22), draw(torch.float32, 7, 5, 3, 3)
    exact = conv2d(x64, w64, stride=2, padding=1).detach()
    report("simple", direct_simple(x.detach(), w.detach(), exact.shape[2:], 2, 1), exact, 2e-6)


PARTS = {"others": others, "algorithms": algorithms} | {name: partial(every_tile, name) for name in TYPES}

if __name__ == "__main__":
    assert not INTERPRETED
    torch.manual_seed(0)
    PARTS[sys.argv[1]]()
    sys.exit(wrong > 0)
