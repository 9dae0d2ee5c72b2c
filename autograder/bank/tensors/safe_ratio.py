"""Wrong answers to `safe_ratio`."""

import torch

from autograder.bank.slips import answers_to

wrong, _ = answers_to("tensors.safe_ratio")


@wrong(
    "divides by zero",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="1/0 is inf and 0/0 is nan",
)
def safe_ratio(a, b):
    return a / b


@wrong(
    "adds a little to b",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="to b: where b is 0 the ratio is huge",
)
def safe_ratio(a, b):
    return a / (b + 1e-9)


@wrong(
    "nan_to_num for a choice",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="replaces inf by the largest number",
)
def safe_ratio(a, b):
    return torch.nan_to_num(a / b)


@wrong(
    "multiplies by the mask",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="a product with a mask does not remove it",
)
def safe_ratio(a, b):
    return (b != 0) * a / b


@wrong(
    "whole-number division",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="rounds down",
)
def safe_ratio(a, b):
    return torch.where(b == 0, 0, a // torch.where(b == 0, 1, b))


@wrong(
    "asks with if",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="has an answer for each element",
)
def safe_ratio(a, b):
    if b == 0:
        return torch.zeros_like(a)
    return a / b


@wrong("mends b itself", fails="leaves_its_arguments_alone", says="changed its argument b")
def safe_ratio(a, b):
    zero = b == 0
    b[zero] = 1
    return torch.where(zero, 0, a / b)


@wrong("every inf and nan replaced", fails="any_tensor", says="an inf of a is lost. Choose by b")
def safe_ratio(a, b):
    return torch.nan_to_num(a / b, nan=0.0, posinf=0.0, neginf=0.0)


@wrong("a product with the mask", fails="any_tensor", says="a product with a mask does not remove it")
def safe_ratio(a, b):
    return a * (b != 0) / (b + (b == 0))


@wrong(
    "a negative b taken for 0",
    fails=("zero_where_b_is_zero", "any_tensor", "leaves_its_arguments_alone"),
    says="A negative b divides as well",
)
def safe_ratio(a, b):
    return torch.where(b > 0, a / b, 0)


@wrong(
    "a tiny b taken for 0",
    fails=("zero_where_b_is_zero", "leaves_its_arguments_alone"),
    says="safe_ratio(a, b)[1, 3] is 0",
)
def safe_ratio(a, b):
    return torch.where(b.abs() < 1e-10, 0, a / b)


@wrong("an infinite b taken for 0", fails="any_tensor", says="[1] is 0, expected nan")
def safe_ratio(a, b):
    return torch.where((b == 0) | b.isinf(), 0, a / b)


@wrong("a nan of b taken for 0", fails="any_tensor", says="[0] is 0, expected nan")
def safe_ratio(a, b):
    return torch.where((b > 0) | (b < 0), a / b, 0)
