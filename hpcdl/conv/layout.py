"""Memory layouts: compiled kernels need the channels of a pixel adjacent, in whole vectors."""

import torch
from torch.nn.functional import pad


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether x is channels-last for torch, and not also contiguous."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def nhwc(x: torch.Tensor) -> torch.Tensor:
    """Return x (N, C, H, W) as contiguous (N, H, W, C), without a copy if it already is."""
    return x.permute(0, 2, 3, 1).contiguous()


def like_layout(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return y in the memory format of x, like torch's convolution."""
    return y.contiguous(memory_format=torch.channels_last if is_channels_last(x) else torch.contiguous_format)


def padded_channels(x: torch.Tensor) -> torch.Tensor:
    """Pad x (N, H, W, C), contiguous, with zero channels to a whole number of vectors."""
    from hpcdl.kernels.cpu.vectors import lanes

    return pad(x, (0, -x.shape[3] % lanes(x.dtype))).contiguous()
