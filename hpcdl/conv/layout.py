"""Where numbers lie in memory: compiled kernels want the channels of a pixel side by side, in whole vectors."""

import torch
from torch.nn.functional import pad


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether torch would call it so: channels side by side, and not as well row by row."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def nhwc(x: torch.Tensor) -> torch.Tensor:
    """x (N, C, H, W) as contiguous (N, H, W, C), without a copy where it lies so already."""
    return x.permute(0, 2, 3, 1).contiguous()


def like_layout(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """y in the memory format of x, as torch's convolution has it."""
    return y.contiguous(memory_format=torch.channels_last if is_channels_last(x) else torch.contiguous_format)


def padded_channels(x: torch.Tensor) -> torch.Tensor:
    """x (N, H, W, C), contiguous, with zero channels up to a whole number of vectors."""
    from hpcdl.kernels.cpu.vectors import lanes

    return pad(x, (0, -x.shape[3] % lanes(x.dtype))).contiguous()
