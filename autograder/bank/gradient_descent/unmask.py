"""Wrong answers to `unmask_lr_schedule`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("gradient_descent.unmask_lr_schedule")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_lr_schedule():
    return []


@wrong("easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_lr_schedule():
    return [(s, 10, 100, 1.0) for s in (0, 2, 5)]


@wrong(
    "never without a warm-up", fails="unmasks_the_wrong", says="Hint: try the first step of a schedule without warm-up"
)
def unmask_lr_schedule():
    return [(3, 10, 100, 1.0), (50, 10, 100, 1.0), (130, 10, 100, 1.0)]


@wrong(
    "a warm-up as long as the schedule",
    fails="spares_the_right",
    says="warmup is 10 and total 10, and warmup is less than total",
)
def unmask_lr_schedule():
    return [(3, 10, 100, 1.0), (0, 0, 9, 1.0), (50, 10, 100, 1.0), (130, 10, 100, 1.0), (5, 10, 10, 1.0)]


@wrong("a step before the first", fails=BOTH, says="step is -1, expected an int from 0 to 10000")
def unmask_lr_schedule():
    return [(-1, 10, 100, 1.0)]


@wrong("a step that is huge", fails=BOTH, says="step is an int of 10001 bits")
def unmask_lr_schedule():
    return [(2**10000, 10, 100, 1.0)]


@wrong("a dict instead of a list", fails=BOTH, says="is a dict, expected a list of inputs")
def unmask_lr_schedule():
    return {"step": 3, "warmup": 10, "total": 100, "peak": 1.0}


@wrong("every step", fails=BOTH, says="at most 12 are allowed")
def unmask_lr_schedule():
    return [(s, 10, 100, 1.0) for s in range(200)]
