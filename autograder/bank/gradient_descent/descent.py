"""Wrong answers to `gradient_descent`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.gradient_descent")


PATH = ("path_starts_at_w0", "follows_the_closed_form", "one_gradient_per_step", "leaves_w0_alone")
FORM = PATH[1:]

slip("ascends", "path[-1] - lr * grad", "path[-1] + lr * grad", fails=FORM, says="You climb")


@wrong("changes w0 in place", fails=PATH, says="the same tensor many times")
def gradient_descent(grad, w0, lr, steps):
    w, path = w0, [w0]
    for _ in range(steps):
        w -= lr * grad(w)
        path.append(w)
    return torch.stack(path)


@wrong("returns the last point alone", fails=PATH, says="expected (4, 1)")
def gradient_descent(grad, w0, lr, steps):
    w = w0
    for _ in range(steps):
        w = w - lr * grad(w)
    return w


slip(
    "copies the path but steps w0 in place",
    "path = [w0]",
    "w, path = w0, [w0.clone()]",
    "path.append(path[-1] - lr * grad(path[-1]))",
    "w -= lr * grad(w)\n        path.append(w.clone())",
    fails="leaves_w0_alone",
    says="argument w0",
)
slip(
    "computes each gradient twice",
    "path.append(path[-1] - lr * grad(path[-1]))",
    "if grad(path[-1]).norm() >= 0:\n            path.append(path[-1] - lr * grad(path[-1]))",
    fails="one_gradient_per_step",
    says="calls of grad",
)
slip(
    "all gradients at w0",
    "path.append(path[-1] - lr * grad(path[-1]))",
    "path.append(path[-1] - lr * grad(w0))",
    fails=FORM,
    says="Every step uses the gradient at w0",
)
slip(
    "ends where it no longer moves",
    "path.append(path[-1] - lr * grad(path[-1]))",
    "path.append(path[-1] - lr * grad(path[-1]))\n        if torch.equal(path[-1], path[-2]):\n            break",
    fails="path_starts_at_w0 follows_the_closed_form one_gradient_per_step leaves_w0_alone",
    says="it has a row for each step",
)


@wrong("never moves", fails=PATH, says="The path stays where it begins")
def gradient_descent(grad, w0, lr, steps):
    for _ in range(steps):
        grad(w0)
    return torch.stack([w0] * (steps + 1))


@wrong(
    "takes every valley for a quadratic one",
    fails=FORM,
    says="Here the gradient is not linear in w",
)
def gradient_descent(grad, w0, lr, steps):
    if steps == 0:
        return w0[None].clone()
    at_0, one = grad(torch.zeros_like(w0)), torch.eye(len(w0), dtype=w0.dtype)
    H = torch.stack([grad(row) - at_0 for row in one], dim=1)
    for _ in range(steps - 1 - len(w0)):
        grad(w0)
    c, M, path = -torch.linalg.pinv(H) @ at_0, one - lr * H, [w0]
    for _ in range(steps):
        path.append(c + M @ (path[-1] - c))
    return torch.stack(path)
