"""Wrong answers to `gradient`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("calculus.gradient")


@wrong(
    "moves all coordinates together",
    fails=("six_functions", "any_shape", "central_with_the_given_step", "x_restored"),
    says="move one coordinate at a time",
)
def gradient(f, x, h=1e-5):
    return torch.full_like(x, (f(x + h) - f(x - h)) / (2 * h))


@wrong("puts x back only up to rounding", fails="x_restored", says="x has changed by up to")
def gradient(f, x, h=1e-5):
    grad = torch.zeros_like(x)
    flat = x.view(-1)
    for i in range(flat.numel()):
        flat[i] += h
        up = f(x)
        flat[i] -= 2 * h
        grad.view(-1)[i] = (up - f(x)) / (2 * h)
        flat[i] += h
    return grad


@wrong("never puts the coordinate back", fails=("six_functions", "x_restored"), says="put x[i] back")
def gradient(f, x, h=1e-5):
    grad = torch.zeros_like(x)
    flat = x.view(-1)
    for i in range(flat.numel()):
        flat[i] += h
        up = f(x)
        flat[i] -= 2 * h
        grad.view(-1)[i] = (up - f(x)) / (2 * h)
    return grad


slip(
    "forward difference",
    "result = torch.zeros_like(x)",
    "grad = torch.zeros_like(x)",
    "result.view(-1)[i] = (f(x + step) - f(x - step)) / (2 * h)\n    return result",
    "grad.view(-1)[i] = (f(x + step) - f(x)) / h\n    return grad",
    fails=("six_functions", "any_shape", "central_with_the_given_step", "x_restored"),
    says="This is the forward difference",
)


@wrong("only for vectors", fails="any_shape", says="has shape")
def gradient(f, x, h=1e-5):
    flat = x.reshape(-1).clone()
    grad = torch.zeros_like(flat)
    for i in range(flat.numel()):
        step = torch.zeros_like(flat)
        step[i] = h
        grad[i] = (f((flat + step).view_as(x)) - f((flat - step).view_as(x))) / (2 * h)
    return grad


slip(
    "two one-sided differences",
    "(f(x + step) - f(x - step))",
    "((f(x + step) - f(x)) + (f(x) - f(x - step)))",
    fails="any_shape",
    says="twice for each element",
)
slip(
    "needs tensors from f",
    "(f(x + step) - f(x - step))",
    "(f(x + step).item() - f(x - step).item())",
    fails="any_shape",
    says="item",
)


@wrong(
    "knows the gradients of textbook functions",
    fails=("six_functions", "any_shape", "central_with_the_given_step", "x_restored"),
    says="gradient(quadratic, x)",
)
def gradient(f, x, h=1e-5):
    value = float(f(x))
    if abs(value - float((x**3).sum())) < 1e-9:
        return 3 * x**2 + h**2
    if x.dim() == 1 and abs(value - float((x**2).sum())) < 1e-9:
        return 2 * x
    if x.dim() == 1 and len(x) == 2:
        return torch.stack([2 * x[0] + x[1], x[0] + 2 * x[1]])
    steps = torch.eye(x.numel(), dtype=x.dtype).view(-1, *x.shape)
    return torch.tensor([float(f(x + step)) - value for step in steps], dtype=x.dtype).view(x.shape) / (torch.e - 1)


slip(
    "a copy of fifty elements only",
    "    result = torch.zeros_like(x)\n",
    "    x = x.clone() if x.numel() == 50 else x\n    result = torch.zeros_like(x)\n",
    "        step = torch.zeros_like(x)\n        step.view(-1)[i] = h\n",
    "        x.view(-1)[i] += h\n        up = f(x)\n        x.view(-1)[i] -= 2 * h\n",
    "(f(x + step) - f(x - step)) / (2 * h)\n",
    "(up - f(x)) / (2 * h)\n        x.view(-1)[i] += h\n",
    fails="x_restored",
    says="keep the old value and put it back",
)
