"""The bits of float32 and bfloat16 as whole numbers."""

import torch

from autograder.exercises.drawing import F32


def code(x: torch.Tensor) -> torch.Tensor:
    """The 32 bits of float32 numbers, as whole numbers from 0 to 2³² − 1."""
    return x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def from_code(codes: torch.Tensor) -> torch.Tensor:
    """The bfloat16 of 16-bit codes given as whole numbers."""
    return (codes & 0xFFFF).to(torch.uint16).view(torch.bfloat16)


def random_floats(rng, n: int) -> torch.Tensor:
    """Finite float32 of random bits, so of every size, sign and last digit; none so large that it overflows bf16."""
    x = torch.randint(-(2**31), 2**31, (2 * n,), generator=rng).to(torch.int32).view(F32)
    ends_in_a_power_of_two = (code(x) >> 16) % 128 == 127  # a check of its own goes there
    return x[(x.abs() < 3e38) & ~ends_in_a_power_of_two][:n]
