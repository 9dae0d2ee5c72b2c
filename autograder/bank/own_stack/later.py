"""Checks of the last exercise, whose answer calls all others, and fails with them."""

STEPS = tuple(
    f"step.{check}"
    for check in ("the_loss", "as_one_machine", "step_after_step", "unequal_parts", "one_message_a_bucket")
)
AFTER_THE_LOSS = STEPS[1:]
