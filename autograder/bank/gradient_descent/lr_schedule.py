"""Wrong answers to `lr_schedule`."""

import math

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.lr_schedule")

slip(
    "warm-up one step ahead",
    "return peak * step / warmup",
    "return peak * (step + 1) / warmup",
    fails=("warmup_is_linear", "ends_and_stays_at_zero", "up_then_down"),
    says="one step ahead",
)
slip(
    "cosine from step 0",
    "progress = min((step - warmup) / (total - warmup), 1.0)\n    return peak / 2 * (1 + math.cos(math.pi * progress))",
    "return peak / 2 * (1 + math.cos(math.pi * min(step / total, 1.0)))",
    fails=("cosine_after_it", "ends_and_stays_at_zero", "up_then_down"),
    says="You measure from step 0",
)
slip(
    "rises again after the end",
    "progress = min((step - warmup) / (total - warmup), 1.0)\n    return peak / 2 * (1 + math.cos(math.pi * progress))",
    "return peak / 2 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))",
    fails="ends_and_stays_at_zero",
    says="It rises again after step = total",
)


@wrong("divides by warmup = 0", fails="no_warmup", says="ZeroDivisionError")
def lr_schedule(step, warmup, total, peak):
    rising = peak * step / warmup
    progress = min((step - warmup) / (total - warmup), 1.0)
    return rising if step < warmup else peak / 2 * (1 + math.cos(math.pi * progress))


slip(
    "integer division in the warm-up",
    "return peak * step / warmup",
    "return peak * (step // warmup)",
    fails=("warmup_is_linear", "ends_and_stays_at_zero", "up_then_down"),
    says="It is 0 until the warm-up is over",
)
slip(
    "integer division in the cosine",
    "progress = min((step - warmup) / (total - warmup), 1.0)",
    "progress = min((step - warmup) // (total - warmup), 1.0)",
    fails=("cosine_after_it", "ends_and_stays_at_zero", "up_then_down"),
    says="It stays at the peak until the end",
)
slip(
    "a vector of one rate",
    "peak * step / warmup",
    "torch.tensor([peak * step / warmup])",
    fails="warmup_is_linear ends_and_stays_at_zero up_then_down",
    says="has shape (1,), expected ()",
)
slip(
    "never below a thousandth",
    "peak / 2 * (1 + math.cos(math.pi * progress))",
    "peak / 2 * (1 + math.cos(math.pi * progress) if progress == 1 else max(1 + math.cos(math.pi * progress), 0.002))",
    fails="up_then_down",
    says="does not fall at every step",
)
slip(
    "a quarter of a wave",
    "peak / 2 * (1 + math.cos(math.pi * progress))",
    "peak * math.cos(math.pi / 2 * progress)",
    fails="cosine_after_it ends_and_stays_at_zero up_then_down",
    says="This is a quarter of a wave",
)
slip(
    "another peak without a warm-up",
    "peak / 2 * (1 + math.cos(math.pi * progress))",
    "(peak if warmup else 0.4) / 2 * (1 + math.cos(math.pi * progress))",
    fails="no_warmup",
    says="lr at step 0 and total",
)
