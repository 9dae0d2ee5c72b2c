"""Checks of later exercises, which call the functions of earlier ones and fail with them."""

BACKPROP = tuple(
    f"backprop.{check}" for check in ("one_row", "the_mean_of_a_batch", "any_depth_and_width", "no_loop_over_samples")
)
TRAIN = tuple(
    f"train.{check}"
    for check in (
        "one_step",
        "the_short_last_batch",
        "a_new_order_each_epoch",
        "leaves_the_start_alone",
        "reads_digits",
    )
)
