"""Checks of exercises whose answers call those of earlier ones, and fail with them."""

ALL_OF_H1 = ("a_schedule", "no_more_memory", "smaller_bubble", "as_printed")


def of(exercise: str, checks: tuple[str, ...]) -> tuple[str, ...]:
    """Checks of another exercise, whose answer calls this one."""
    return tuple(f"{exercise}.{check}" for check in checks)
