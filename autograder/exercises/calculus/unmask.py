"""Which of eight programs are the central difference? Oracle: the formula."""

import torch

from autograder import show
from autograder.checks.impostors import Behaviour, InputField, LineUp, Suspect, choice, is_list, is_number
from autograder.exercises.unmasking import examines


def of_numbers_too(f):
    """A function of tensors that answers a number with a number."""
    return lambda x: f(x) if type(x) is torch.Tensor else f(torch.tensor(x, dtype=torch.float64)).item()


FUNCTIONS = {
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "sin": of_numbers_too(torch.sin),
    "exp": of_numbers_too(torch.exp),
}
MOST, FAR = 8, 10


def is_point(x) -> bool:
    if type(x) is torch.Tensor:
        return x.dim() == 1 and 1 <= len(x) <= MOST and not x.is_complex() and bool((x.double().abs() <= FAR).all())
    return is_number(x, -FAR, FAR) or (is_list(x, 1, MOST) and all(is_number(each, -FAR, FAR) for each in x))


def ask(derivative, f, x, h):
    """The slopes as numbers; or what is in x, where that is no longer what it was."""
    x = torch.as_tensor(x, dtype=torch.float64).detach().clone()
    before = x.clone()
    slopes = derivative(FUNCTIONS[f], x if x.dim() else x.item(), float(h))
    slopes = slopes.tolist() if type(slopes) is torch.Tensor else slopes
    return slopes if torch.equal(x, before) else Behaviour(f"leaves {show.show(x.tolist(), 60)} in x")


def central(f, x, h):
    return (f(x + h) - f(x - h)) / (2 * h)


def two_quotients(f, x, h):
    return f(x + h) / (2 * h) - f(x - h) / (2 * h)


def forwards_and_backwards(f, x, h):
    return ((f(x + h) - f(x)) / h + (f(x) - f(x - h)) / h) / 2


def one_by_one(f, x, h):
    return torch.stack([central(f, each, h) for each in x]) if type(x) is torch.Tensor else central(f, x, h)


def forward(f, x, h):
    return (f(x + h) - f(x)) / h


def own_step(f, x, h):
    return central(f, x, 1e-5)


def in_place(f, x, h):
    x += h
    up = f(x)
    x -= 2 * h
    return (up - f(x)) / (2 * h)


def relative_step(f, x, h):
    return central(f, x, h * (x.abs().clamp(min=1) if type(x) is torch.Tensor else max(abs(x), 1)))


line_up = LineUp(
    "unmask_derivative",
    truth=central,
    suspects=(
        Suspect("A", two_quotients),
        Suspect("B", forward, "takes the forward difference", "the slope of a curve at a step that is not tiny"),
        Suspect("C", one_by_one),
        Suspect("D", own_step, "steps by 1e-5 for every h", "a large h where the slope depends on it: not x²"),
        Suspect("E", relative_step, "steps by h |x| if |x| > 1", "a large h and an x beyond 1, with another f than x²"),
        Suspect("F", central),
        Suspect("G", in_place, "changes the caller's x", "an x that can be moved: a tensor"),
        Suspect("H", forwards_and_backwards),
    ),
    fields={
        "f": choice(*FUNCTIONS),
        "x": InputField(f"a number from -{FAR} to {FAR}, or a tensor of up to {MOST} of them", is_point),
        "h": InputField("a number from -1 to 1, not 0", lambda h: is_number(h, -1, 1) and h != 0),
    },
    ask=ask,
)
exercise = examines(line_up)
