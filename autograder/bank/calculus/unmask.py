"""Wrong answers to `unmask_derivative`."""

from autograder.bank.slips import answers_to

wrong, _ = answers_to("calculus.unmask_derivative")


BOTH = ("spares_the_right", "unmasks_the_wrong")


@wrong("no input", fails=BOTH, says="Without an input you unmask no program.")
def unmask_derivative():
    return []


@wrong("easy inputs only", fails="unmasks_the_wrong", says="unmask 1 of 4 impostors")
def unmask_derivative():
    return [("exp", 0.5, 0.00001), ("square", 2.0, 0.5)]


@wrong("never a tensor", fails="unmasks_the_wrong", says="Hint: try an x that can be moved: a tensor")
def unmask_derivative():
    return [("cube", 3.0, 0.5), ("exp", -2.0, 0.5), ("sin", 0.0, 1.0)]


@wrong(
    "the step 0, which the definition excludes",
    fails="spares_the_right",
    says="h is 0., expected a number from -1 to 1, not 0",
)
def unmask_derivative():
    return [("cube", torch.tensor([2.0]), 0.5), ("sin", 1.0, 0.0)]


@wrong("a step so small that right programs differ", fails="spares_the_right", says="accuses the innocent")
def unmask_derivative():
    return [("exp", 1.0, 1e-14), ("cube", torch.tensor([2.0]), 0.5)]


@wrong(
    "a function instead of its name",
    fails=BOTH,
    says="f is sin, expected one of 'square', 'cube', 'sin', 'exp', as text",
)
def unmask_derivative():
    return [(torch.sin, 1.0, 0.5)]


@wrong("one input instead of a list", fails=BOTH, says="Put brackets around it: return [('cube', 2., 0.5)]")
def unmask_derivative():
    return "cube", 2.0, 0.5


@wrong("a number instead of a list", fails=BOTH, says="is a float, expected a list")
def unmask_derivative():
    return 2.0


@wrong("everything there is", fails=BOTH, says="at most 12 are allowed")
def unmask_derivative():
    return [("cube", 0.001 * i, 0.5) for i in range(5000)]


@wrong("a tensor too large", fails=BOTH, says="expected a number from -10 to 10, or a tensor of up to 8")
def unmask_derivative():
    return [("cube", torch.ones(1_000_000), 0.5)]
