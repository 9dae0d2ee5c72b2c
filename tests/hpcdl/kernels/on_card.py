"""The convolution kernels on this machine's GPU, compiled, against float64: a line a case; exit code 1 if one is wrong.

Run by test_on_card.py in a process of its own, since kernels are either interpreted or compiled. Each problem is done
with every tile that the autotuner may choose, so that no tile goes untested.
"""

import sys

import torch
from torch.nn.functional import conv2d, unfold

from hpcdl import kernels
from hpcdl.kernels import conv_configs
from hpcdl.kernels.gpu import INTERPRETED

# N, C, H, W, K, R, S, stride, padding, groups: the first like a layer, the others to try masks and geometry
PROBLEMS = [
    (4, 64, 28, 28, 128, 3, 3, 1, 1, 1),
    (2, 19, 17, 23, 33, 3, 2, 2, 1, 1),
    (2, 32, 15, 14, 48, 5, 5, 3, 2, 2),
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
    y = kernels.conv2d_implicit(x, w, stride, padding, groups, precision)
    y.backward(dy.detach())
    y64.backward(dy64.detach())
    again = kernels.conv2d_implicit(x, w, stride, padding, groups, precision)
    case = f"implicit {name} {tuple(tile.blocks.values())} {problem}"
    report(f"{case} forward", y.detach(), y64.detach(), limit)
    report(f"{case} forward, again", again.detach(), y.detach().double().cpu(), 0.0)
    report(f"{case} gradient of x", x.grad, x64.grad, limit)
    report(f"{case} gradient of w", w.grad, w64.grad, limit)


def every_tile():
    everything = {kind: list(tiles) for kind, tiles in conv_configs.PRODUCTS.items()}
    for name, (dtype, precision, limit) in TYPES.items():
        kind = {"bfloat16": "half", "tf32x3": "tf32"}.get(name, name)
        for i, tile in enumerate(everything[kind]):
            conv_configs.PRODUCTS[kind] = [tile]
            conv_configs._tuned.cache_clear()
            train(name, tile, PROBLEMS[i % len(PROBLEMS)], dtype, precision, limit)
        conv_configs.PRODUCTS[kind] = everything[kind]
    conv_configs._tuned.cache_clear()


def others():
    for dtype, scale in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
        (x, x64), (w, w64) = draw(dtype, 2, 35, 17, 22), draw(dtype, 40, 35, 3, 3)
        exact = conv2d(x64, w64, padding=1).detach()
        report(f"winograd 2x2 {dtype}", kernels.conv2d_winograd(x, w, 1, 2).detach(), exact, 4 * scale)
        report(f"winograd 4x4 {dtype}", kernels.conv2d_winograd(x, w, 1, 4).detach(), exact, 30 * scale)
        (d, d64), (f, f64) = draw(dtype, 2, 5, 40, 56), draw(dtype, 5, 1, 31, 31)
        exact = conv2d(d64, f64, padding=15, groups=5).detach()
        report(f"depthwise {dtype}", kernels.conv2d_depthwise(d, f, 15).detach(), exact, 2 * scale)
        columns = unfold(x64, (3, 2), stride=2, padding=1).view(2, 35, 6, -1).permute(0, 3, 2, 1)
        report(f"im2col {dtype}", kernels.im2col(x, 3, 2, 2, 1), columns.reshape(-1, 210).detach(), 0.0)
    (x, x64), (w, w64) = draw(torch.float32, 2, 5, 17, 22), draw(torch.float32, 7, 5, 3, 3)
    report("simple", kernels.conv2d_simple(x, w, 2, 1).detach(), conv2d(x64, w64, stride=2, padding=1).detach(), 2e-6)


if __name__ == "__main__":
    assert not INTERPRETED
    torch.manual_seed(0)
    others()
    every_tile()
    sys.exit(wrong > 0)
