"""Wrong answers to `unmask_rounding`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("stochastic_rounding.unmask_rounding")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_rounding():
    return []


@wrong("easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_rounding():
    return [(0.3, "FP16"), (99.0, "Fixed(4, 2)"), (-0.7, "Fixed(4, 2)")]


@wrong("no tie", fails="unmasks_the_wrong", says="Hint: try a number in the middle between two")
def unmask_rounding():
    return [(9.0, "Fixed(4, 2)"), (2.0**-20, "FP16"), (65510.0, "FP16")]


@wrong("infinity", fails="spares_the_right", says="x is inf, expected a number from -1e+06 to 1e+06")
def unmask_rounding():
    return [(0.125, "Fixed(4, 2)"), (9.0, "Fixed(4, 2)"), (2.0**-20, "FP16"), (65510.0, "FP16"), (float("inf"), "FP16")]


@wrong("a format instead of its name", fails=BOTH, says="expected one of 'Fixed(4, 2)', 'FP16', as text")
def unmask_rounding():
    return [(0.3, Fixed(4, 2))]


@wrong("a tensor of a million numbers", fails=BOTH, says="expected a number from -1e+06 to 1e+06")
def unmask_rounding():
    return [(torch.randn(1_000_000), "FP16")]


@wrong("a million inputs", fails=BOTH, says="cannot be checked")
def unmask_rounding():
    return [(i / 1e6, "FP16") for i in range(1_000_000)]
