"""A check of restarts that several exercises share: what another process finds is on the disk, in no variable."""

from collections.abc import Callable
from typing import Any

import torch

from autograder import checks
from autograder.checks import CheckFailure
from autograder.sessions.errors import StudentError

LONG = 64  # letters or bytes that may be a state in another form

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


def comes_from_files(
    files: dict, rng: torch.Generator, ask: Callable[[], Any], still: Callable[[dict], Any], setting: str
) -> None:
    """Check `ask()`, and that `still`, which raises if a restart is wrong, raises if the files have other numbers.

    Other numbers come before, afterwards, or both, so that no answer knows which files these are.
    """
    for other in ORDERS[int(torch.randint(len(ORDERS), (), generator=rng))]:
        if not other:
            ask()
            continue
        try:
            still(other_numbers(files, rng))
        except (CheckFailure, StudentError):
            continue
        checks.fail(
            f"{setting}: the restart is right even if the files have other numbers than were written, so it does not "
            "come from the disk. A process that starts again has no variable of the old one: write all that is "
            "needed, and read it."
        )
