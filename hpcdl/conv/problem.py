"""The shape of a convolution, in the lectures' letters, and whether it makes sense."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn.functional import pad

Pair = int | tuple[int, int]  # one number for rows and columns, or one for each

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SIZES = {"N": 0, "C": 1, "H": 1, "W": 1, "K": 1, "R": 1, "S": 1, "groups": 1}  # least value
STEPS = {"stride": 1, "padding": 0, "dilation": 1}
AXES = (("x", "(N, C, H, W)"), ("w", "(K, C / groups, R, S)"))


@dataclass(frozen=True)
class Problem:
    """Cross-correlation of x (N, C, H, W) with w (K, C / groups, R, S) to y (N, K, P, Q).

    y[n,k,p,q] = sum over c, r, s of w[k,c,r,s] x[n, c, p stride + r dilation - padding, q stride + s dilation - ...]

    with zeros outside the image, P = (H + 2 padding - (R - 1) dilation - 1) // stride + 1 and Q alike. Output channels
    k of group j = k // (K / groups) see the C / groups input channels of that group. `stride`, `padding` and `dilation`
    are one number, or a pair (rows, columns); a pair of equal numbers becomes one. Raises ValueError, with the name,
    the value and the rule, for an impossible problem.
    """

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    stride: Pair = 1
    padding: Pair = 0
    groups: int = 1
    dilation: Pair = 1

    def __post_init__(self):
        for name, least in SIZES.items():
            if not _whole(getattr(self, name), least):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be an integer from {least}")
        for name, least in STEPS.items():
            rows, columns = pair(name, getattr(self, name), least)
            object.__setattr__(self, name, rows if rows == columns else (rows, columns))
        for name in ("C", "K"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be a multiple of groups, {self.groups}")
        sizes = zip(("H", "W"), ("R", "S"), self.paddings, self.dilations, self.reach, strict=True)
        for size, kernel, padding, dilation, reach in sizes:
            padded, taps = getattr(self, size) + 2 * padding, getattr(self, kernel)
            if reach > padded:
                wide = f" and reaches over {reach} pixels with dilation {dilation}" if dilation > 1 else ""
                rule = f"the kernel must fit into the padded image, {size} + 2 padding = {padded}"
                raise ValueError(f"{kernel} is {taps}{wide}; {rule}")

    @classmethod
    def of(
        cls,
        x: torch.Tensor,
        w: torch.Tensor,
        stride: Pair = 1,
        padding: Pair = 0,
        groups: int = 1,
        dilation: Pair = 1,
    ) -> "Problem":
        """The problem of two tensors; raises ValueError for wrong shapes, data types or devices."""
        check_tensors(x, w)
        (N, C, H, W), (K, depth, R, S) = x.shape, w.shape
        problem = cls(N, C, H, W, K, R, S, stride, padding, groups, dilation)
        if depth != C // groups:
            raise ValueError(f"w.shape[1] is {depth}; it must be C / groups, {C} / {groups}")
        return problem

    @cached_property
    def strides(self) -> tuple[int, int]:
        """Pixels from one output to the next one below, and to the next on the right."""
        return _both(self.stride)

    @cached_property
    def paddings(self) -> tuple[int, int]:
        """Rows of zeros above (and below), columns of zeros on the left (and on the right)."""
        return _both(self.padding)

    @cached_property
    def dilations(self) -> tuple[int, int]:
        """Pixels from one tap of the kernel to the next one below, and to the next on the right."""
        return _both(self.dilation)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Rows and columns of pixels from the first to the last tap of the kernel: R and S, where not dilated."""
        down, right = self.dilations
        return (self.R - 1) * down + 1, (self.S - 1) * right + 1

    @cached_property
    def P(self) -> int:
        """Rows of the output."""
        return (self.H + 2 * self.paddings[0] - self.reach[0]) // self.strides[0] + 1

    @cached_property
    def Q(self) -> int:
        """Columns of the output."""
        return (self.W + 2 * self.paddings[1] - self.reach[1]) // self.strides[1] + 1

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates by the formula, products with the padding's zeros included."""
        return self.N * self.K * self.P * self.Q * (self.C // self.groups) * self.R * self.S

    @cached_property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @cached_property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.C // self.groups, self.R, self.S

    @cached_property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.K, self.P, self.Q


def check_tensors(x: torch.Tensor, w: torch.Tensor) -> None:
    """Raise TypeError or ValueError unless these are images and filters of one data type and device."""
    for (name, axes), tensor in zip(AXES, (x, w), strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is of type {type(tensor).__name__}; it must be a torch.Tensor {axes}")
        if tensor.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have four axes, {axes}")
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{name} has dtype {tensor.dtype}; it must be one of {', '.join(map(str, DTYPES))}")
    for what in ("dtype", "device"):
        if getattr(w, what) != getattr(x, what):
            raise ValueError(f"w has {what} {getattr(w, what)}; it must be that of x, {getattr(x, what)}")


def check_bias(bias: torch.Tensor | None, problem: Problem, x: torch.Tensor) -> None:
    """Raise TypeError or ValueError for a bias that is not one number for each output channel, as x has them."""
    if bias is None:
        return
    if not isinstance(bias, torch.Tensor):
        raise TypeError(f"bias is {bias!r}; it must be None or a torch.Tensor (K,); stride is the argument after it")
    if bias.shape != (problem.K,):
        raise ValueError(f"bias has shape {tuple(bias.shape)}; it must be (K,), {(problem.K,)}")
    for what in ("dtype", "device"):
        if getattr(bias, what) != getattr(x, what):
            raise ValueError(f"bias has {what} {getattr(bias, what)}; it must be that of x, {getattr(x, what)}")


def pair(name: str, value: Pair, least: int) -> tuple[int, int]:
    """`value` for rows and for columns; raises ValueError for what is neither an integer nor a pair of them."""
    both = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2 or not all(_whole(number, least) for number in both):
        raise ValueError(f"{name} is {value!r}; it must be an integer from {least}, or a pair of them (rows, columns)")
    return both


def in_numbers(
    x: torch.Tensor, w: torch.Tensor, stride: Pair, padding: Pair | str, dilation: Pair
) -> tuple[torch.Tensor, Pair]:
    """`x` and `padding` where that may also be "valid" (none) or "same" (so much that y has the size of x).

    "same" is for stride 1. If the total is odd, one more row or column of zeros is appended to x.
    """
    if not isinstance(padding, str):
        return x, padding
    if padding not in ("same", "valid"):
        raise ValueError(f'padding is {padding!r}; it must be "same", "valid", an integer from 0, or a pair of them')
    if padding == "valid":
        return x, 0
    if pair("stride", stride, 1) != (1, 1):
        raise ValueError(f'padding is "same" and stride is {stride!r}; "same" is for stride 1: give padding in numbers')
    check_tensors(x, w)
    down, right = ((n - 1) * d for n, d in zip(w.shape[2:], pair("dilation", dilation, 1), strict=True))
    if down % 2 or right % 2:
        x = pad(x, (0, right % 2, 0, down % 2))
    return x, (down // 2, right // 2)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _both(value: Pair) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)
