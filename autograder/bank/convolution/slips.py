"""Wrong answers that are the lab's own solutions with a few characters changed."""

from functools import cache

from autograder.authoring import BANK, WrongAnswer
from autograder.authors import build

SLICE = "x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]"


@cache
def solutions() -> list[str]:
    """The code cells of the solved lab."""
    return [cell.source for cell in build.solved("convolution").cells if cell.cell_type == "code"]


def slip(exercise: str, mistake: str, *changes: str, fails: str, says: str, function: str = "") -> None:
    """Put the solution with `changes` (old, new, old, new, ...) into the bank; `fails` are checks, by spaces."""
    code = next(source for source in solutions() if f"def {function or exercise}(" in source)
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if old not in code:
            raise ValueError(f"{exercise}, {mistake}: the solution has no {old!r} to change; mend the slip")
        code = code.replace(old, new)
    BANK.append(WrongAnswer(f"convolution.{exercise}", mistake, tuple(fails.split()), says, code))
