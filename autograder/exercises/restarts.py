"""A check of restarts that several exercises share: what another process finds is on the disk, in no variable."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograder import checks
from autograder.checks import CheckFailure
from autograder.exercises.drawing import F64, whole_number
from autograder.sessions.errors import StudentError

LONG = 64  # letters or bytes that may be a state in another form
NEAR = 1e-9  # how far the same number may be from that of one process

ORDERS = (True, False), (False, True), (True, False, True)


def other_numbers(content: Any, rng: torch.Generator) -> Any:
    """Return what files hold with other floating numbers; whole numbers and short texts stay, long texts end early."""
    if isinstance(content, dict):
        return {name: other_numbers(value, rng) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(other_numbers(value, rng) for value in content)
    if isinstance(content, torch.Tensor) and content.is_floating_point():
        return torch.randn(content.shape, generator=rng, dtype=torch.float64).to(content.dtype)
    if isinstance(content, torch.Tensor) and content.numel() > 1:
        return content.roll(1)
    if isinstance(content, float):
        return float(torch.rand((), generator=rng))
    return content[:-LONG] if isinstance(content, str | bytes) and len(content) > LONG else content


def another_momentum(content: Any, momentum: torch.Tensor) -> Any:
    """Return what files hold with other numbers than those of this momentum, wherever they are."""
    if isinstance(content, dict):
        return {name: another_momentum(value, momentum) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(another_momentum(value, momentum) for value in content)
    if isinstance(content, torch.Tensor) and content.is_floating_point():
        return torch.where(is_one_of(content, momentum), 1 - content, content)
    is_float = isinstance(content, float)
    return 1 - content if is_float and is_one_of(torch.tensor(content, dtype=F64), momentum) else content


def is_one_of(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Which elements of x are one of these numbers."""
    return ((x.double()[..., None] - numbers).abs() < NEAR).any(-1)


def floats_in(content: Any) -> torch.Tensor:
    """All floating numbers that files hold."""
    if isinstance(content, dict | list | tuple):
        parts = content.values() if isinstance(content, dict) else content
        return torch.cat([torch.zeros(0), *map(floats_in, parts)])
    if isinstance(content, float):
        return torch.tensor([content], dtype=F64)
    is_tensor = isinstance(content, torch.Tensor) and content.is_floating_point()
    return content.flatten().double() if is_tensor else torch.zeros(0)


def momentum_of(before: list[torch.Tensor], after: list[torch.Tensor], lr: float) -> torch.Tensor:
    """The momentum after a step, by what the step has made of the weights, without zeros, which are in many files."""
    moved = torch.cat([(b - a).flatten() for b, a in zip(before, after, strict=True)]) / lr
    return moved[moved.abs() > 1000 * NEAR]


def comes_from_files(
    files: dict,
    rng: torch.Generator,
    ask: Callable[[], Any],
    still: Callable[[dict], Any],
    setting: str,
    momenta: Sequence[torch.Tensor] = (),
) -> None:
    """Check `ask()`, and that `still`, which raises if a restart is wrong, raises if the files have other numbers.

    Other numbers come before, afterwards, or both, so that no answer knows which files these are. Where files should
    have one of `momenta`, its numbers are also changed alone: an answer may know by the others which files these are.
    """
    kept = [m for m in momenta if is_one_of(m, floats_in(files)).all()]
    turns: list[Callable[[], dict] | None] = [
        (lambda: other_numbers(files, rng)) if other else None
        for other in ORDERS[int(torch.randint(len(ORDERS), (), generator=rng))]
    ]
    if kept:
        turns.insert(whole_number(rng, 0, len(turns)), lambda: another_momentum(files, torch.cat(kept)))
    for others in turns:
        if others is None:
            ask()
            continue
        try:
            still(others())
        except (CheckFailure, StudentError):
            continue
        checks.fail(
            f"{setting}: the restart is right even if the files have other numbers than were written, so it does not "
            "come from the disk. A process that starts again has no variable of the old one: write all that is "
            "needed, and read it."
        )
    checks.that(
        bool(kept) or not momenta,
        f"{setting}: the restart is right, and the files do not have the momentum's numbers, so it does not come from "
        "the disk. A process that starts again has no variable of the old one: write the optimizer's state, too.",
    )
