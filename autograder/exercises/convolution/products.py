"""The products of matrices that the student's code asks for, counted."""

import math

import torch

from autograder import checks, show
from autograder.exercises.convolution.oracles import conv


class Products:
    """`matmul` is for the student's code: it counts, and gives every product times `factor`.

    A result times `factor` has used this matmul. That may have been a product of other numbers, which tells no more
    than the factor, so checks also look at what was multiplied, in `pairs`.
    """

    def __init__(self, factor: float):
        self.factor, self.calls, self.multiplications, self.operands = factor, 0, 0, 0
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []  # what was multiplied

    def matmul(self, a, b):
        for operand in (a, b):
            checks.that(
                type(operand) is torch.Tensor and operand.dim() > 0,
                f"matmul got {show.an(show.type_name(operand))}, expected two tensors.",
                got=operand,
            )
        product = torch.matmul(a, b)
        self.calls += 1
        self.multiplications += product.numel() * a.shape[-1]
        self.operands += a.numel() + b.numel()
        self.pairs.append((a.clone(), b.clone()))
        return self.factor * product

    def check_used(self, got, right: torch.Tensor, name: str) -> None:
        """The result `got` comes from these products, and is right."""
        checks.that(
            self.calls > 0,
            f"{name} never called matmul: do the products with the function that is passed, matmul(a, b), not with @.",
        )
        why = f"This matmul gives {self.factor:g} times the product: the result must be {self.factor:g} times as large."
        twice = "The transforms went through matmul too: it is only for the product of U and V. " + why
        elsewhere = "The result does not come from matmul: some product is done in another way. " + why
        checks.close(
            got,
            self.factor * right,
            name=f"{name}(..., matmul=ours)",
            why=why,
            mistakes={elsewhere: right, twice: self._passed(got, right)},
        )

    def _passed(self, got, right: torch.Tensor) -> torch.Tensor:
        """The right result after as many passes through this matmul as its size in `got` tells."""
        ratio = (
            got.double().abs().max().item() / right.abs().max().item()
            if type(got) is torch.Tensor and got.is_floating_point() and got.numel()
            else 0.0
        )
        passes = round(math.log(ratio, self.factor)) if 1.0 < ratio < math.inf else 0
        return self.factor**passes * right


def whole_count(x, w) -> int:
    """Multiplications of the direct convolution without padding: one for each weight at each output."""
    return conv(x, w).numel() * w[0].numel()
