"""Checks of exercises whose answers call those of earlier ones, and fail with them."""

ALL_OF_AVERAGE = ("equal_batches", "unequal_batches", "a_rank_without_samples", "one_all_reduce")
ALL_OF_STEP = (
    "as_one_machine",
    "returns_its_loss",
    "unequal_parts",
    "tied_and_frozen",
    "unused",
    "one_message_per_bucket",
)
TIMED = ("a_message_for_each_bucket", "sends_before_the_last_gradient", "communication_is_hidden")
AFTER_THE_RESULTS = ("results_unchanged", "awkward_parameters", *TIMED)
ALL_OF_OVERLAP = ("begins_with_rank_0s", *AFTER_THE_RESULTS)


def of(exercise: str, checks: tuple[str, ...]) -> tuple[str, ...]:
    """Checks of another exercise, whose answer calls this one."""
    return tuple(f"{exercise}.{check}" for check in checks)


STEPS = of("train_step", ALL_OF_STEP)
