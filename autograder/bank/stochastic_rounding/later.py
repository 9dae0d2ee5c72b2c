"""Checks of later exercises, which call the functions of earlier ones and fail with them."""

SUM = ("rounded_after_every_addition", "nearest_stalls", "stochastic_does_not_stall", "its_own_generator")
LATER = ("weights_stay_in_the_format", "each_weight_its_own", "small_updates_count", "no_global_generator")
STEP = ("a_step_to_nearest", *LATER, "leaves_its_inputs_alone")
AFTER_A_STEP = tuple(f"sgd_low_precision.{check}" for check in STEP)
AFTER = (*(f"running_sum.{check}" for check in SUM), *AFTER_A_STEP)
