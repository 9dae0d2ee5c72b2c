"""Wrong answers to `best_step`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("calculus.best_step")


@wrong(
    "always float64's step",
    fails=("ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="It would suit float64",
)
def best_step(f, x, dtype):
    return torch.finfo(torch.float64).eps ** (1 / 3) * max(abs(x), 1)


@wrong(
    "the forward difference's step",
    fails=("ordinary_functions_float64", "ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="the central one needs the cube root",
)
def best_step(f, x, dtype):
    return torch.finfo(dtype).eps ** (1 / 2) * max(abs(x), 1)


@wrong(
    "takes the smallest step there is",
    fails=("ordinary_functions_float64", "ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="rounding hides the difference",
)
def best_step(f, x, dtype):
    return torch.finfo(dtype).eps


@wrong("proportional to x, whatever f does", fails=("any_size_of_x", "quick_functions"), says="vanishes at x = 0")
def best_step(f, x, dtype):
    return torch.finfo(dtype).eps ** (1 / 3) * abs(x)


slip(
    "computes the third derivative in dtype",
    "points = torch.tensor([x + 2 * k, x + k, x, x - k, x - 2 * k], dtype=torch.float64)",
    "points = torch.tensor([x + 2 * k, x + k, x, x - k, x - 2 * k], dtype=dtype)",
    fails=("ordinary_functions_float32", "any_size_of_x", "quick_functions"),
    says="find the step in float64",
)
slip(
    "forgets that the ratio may be negative",
    "abs(f_x / third)",
    "(f_x / third)",
    fails="ordinary_functions_float64 ordinary_functions_float32 any_size_of_x",
    says="is a complex, expected a number",
)


@wrong(
    "a compromise, whatever f does",
    fails=("any_size_of_x", "quick_functions"),
    says="This f bends quickly",
)
def best_step(f, x, dtype):
    return 0.4 * torch.finfo(dtype).eps ** (1 / 3) * (abs(x) or 1.0)


@wrong(
    "measures the slope, not the third derivative",
    fails=("any_size_of_x", "quick_functions"),
    says="the step depends on its third derivative",
)
def best_step(f, x, dtype):
    k = 1e-4 * (abs(x) or 1.0)
    a, b = f(torch.tensor([x - k, x + k], dtype=torch.float64)).tolist()
    ratio = abs((a + b) * k / (b - a))
    return (3 * torch.finfo(dtype).eps) ** (1 / 3) * min(abs(x) or 1.0, ratio)


@wrong(
    "a small share of f over its slope",
    fails=("any_size_of_x", "quick_functions"),
    says="the step depends on its third derivative",
)
def best_step(f, x, dtype):
    k = 1e-5 * (abs(x) or 1.0)
    a, b = f(torch.tensor([x, x + k], dtype=torch.float64)).tolist()
    return 0.13 * (3 * torch.finfo(dtype).eps) ** (1 / 3) * k * abs(a / (b - a))


slip(
    "measures the second derivative",
    "third = (a - 2 * b + 2 * c - d) / (2 * k**3)",
    "second = (a - 2 * f_x + d) / (2 * k) ** 2",
    "(3 * torch.finfo(dtype).eps * abs(f_x / third)) ** (1 / 3)",
    "(3 * torch.finfo(dtype).eps) ** (1 / 3) * abs(f_x / second) ** 0.5",
    fails="any_size_of_x quick_functions",
    says="the step depends on its third derivative",
)
slip(
    "a distance of its own for small x, large x and x near 1",
    "1e-3 * (abs(x) or 1.0)",
    "1e-3 * (abs(x) if 0 < abs(x) < 0.01 or abs(x) > 2000 else 1.0)",
    fails="any_size_of_x",
    says="the step depends on its third derivative",
)
