"""The shape of a convolution, in the lectures' letters, and whether it makes sense."""

from dataclasses import dataclass

import torch

DTYPES = (torch.float32, torch.float64)
RULES = {"N": 0, "C": 1, "H": 1, "W": 1, "K": 1, "R": 1, "S": 1, "stride": 1, "padding": 0, "groups": 1}  # least value


@dataclass(frozen=True)
class Problem:
    """Cross-correlation of x (N, C, H, W) with w (K, C / groups, R, S) to y (N, K, P, Q).

    y[n,k,p,q] = sum over c, r, s of w[k,c,r,s] x[n, c, p stride + r - padding, q stride + s - padding], with zeros
    outside the image, P = (H + 2 padding - R) // stride + 1 and Q alike. Output channels k of group
    j = k // (K / groups) see the C / groups input channels of that group. `stride` and `padding` are the same for rows
    and columns. Raises ValueError, with the name, the value and the rule, for a problem that is none.
    """

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    def __post_init__(self):
        for name, least in RULES.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} is {value!r}; it must be an integer from {least}")
        for name in ("C", "K"):
            if getattr(self, name) % self.groups:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be a multiple of groups, {self.groups}")
        for size, kernel in (("H", "R"), ("W", "S")):
            padded, taps = getattr(self, size) + 2 * self.padding, getattr(self, kernel)
            if taps > padded:
                raise ValueError(
                    f"{kernel} is {taps}; the kernel must fit into the padded image, {size} + 2 padding = {padded}"
                )

    @classmethod
    def of(cls, x: torch.Tensor, w: torch.Tensor, stride: int = 1, padding: int = 0, groups: int = 1) -> "Problem":
        """The problem of two tensors; raises ValueError for wrong shapes, data types or devices."""
        for name, tensor, axes in (("x", x, "(N, C, H, W)"), ("w", w, "(K, C / groups, R, S)")):
            if tensor.dim() != 4:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have four axes, {axes}")
            if tensor.dtype not in DTYPES:
                raise ValueError(f"{name} has dtype {tensor.dtype}; it must be torch.float32 or torch.float64")
        for what in ("dtype", "device"):
            if getattr(w, what) != getattr(x, what):
                raise ValueError(f"w has {what} {getattr(w, what)}; it must be that of x, {getattr(x, what)}")
        problem = cls(*x.shape, w.shape[0], *w.shape[2:], stride, padding, groups)
        if w.shape[1] != problem.C // groups:
            raise ValueError(f"w.shape[1] is {w.shape[1]}; it must be C / groups, {problem.C} / {groups}")
        return problem

    @property
    def P(self) -> int:
        """Rows of the output."""
        return (self.H + 2 * self.padding - self.R) // self.stride + 1

    @property
    def Q(self) -> int:
        """Columns of the output."""
        return (self.W + 2 * self.padding - self.S) // self.stride + 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates by the formula, products with the padding's zeros included."""
        return self.N * self.K * self.P * self.Q * (self.C // self.groups) * self.R * self.S

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.C // self.groups, self.R, self.S

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.K, self.P, self.Q
