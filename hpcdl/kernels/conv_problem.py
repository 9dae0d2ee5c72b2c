"""The convolution problem as kernels see it: shapes checked once, output sizes, channels-last tensors.

Cross-correlation as in torch: y[n, k, p, q] = sum over c, r, s of x[n, c, p stride - padding + r, ...] w[k, c, r, s].
"""

import torch


def output_size(
    name: str, x: torch.Tensor, w: torch.Tensor, stride: int = 1, padding: int = 0, groups: int = 1
) -> tuple[int, int]:
    """P, Q of x (N, C, H, W) and w (K, C / groups, R, S); raises ValueError with name, value and rule."""
    for what, tensor in (("x", x), ("w", w)):
        if tensor.dim() != 4:
            raise ValueError(f"{name}: {what} has shape {tuple(tensor.shape)}; it needs 4 dimensions")
    _whole(name, "stride", stride, 1)
    _whole(name, "padding", padding, 0)
    _whole(name, "groups", groups, 1)
    (_, C, H, W), (K, per_group, R, S) = x.shape, w.shape
    if per_group * groups != C:
        filters = f"w {tuple(w.shape)} with groups = {groups} takes {per_group * groups}"
        raise ValueError(f"{name}: x has {C} channels, {filters}; they must be equal")
    if K % groups:
        raise ValueError(f"{name}: w has {K} filters for groups = {groups}; the groups must divide them")
    P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1
    if min(R, S) < 1 or P < 1 or Q < 1:
        raise ValueError(f"{name}: filters of {R} x {S} do not fit into {H} x {W} pixels with padding {padding}")
    return P, Q


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """`x` with its channels side by side in memory and no gaps: the same tensor where it is so already."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def empty_channels_last(x: torch.Tensor, n: int, channels: int, h: int, w: int) -> torch.Tensor:
    """An (n, channels, h, w) tensor of the type and device of `x`, channels side by side in memory."""
    return x.new_empty(n, h, w, channels).permute(0, 3, 1, 2)


def _whole(name: str, what: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: {what} is {value!r}; it must be a whole number >= {least}")
