"""Wrong answers to `novikoff_bound`."""

from autograder.authoring import wrong


@wrong(
    "perceptron.novikoff_bound",
    "always infinite",
    fails=("value", "no_run_makes_more_mistakes", "infinite_without_a_margin"),
    says="Here w_star does separate the samples",
)
def novikoff_bound(X, y, w_star):
    return float("inf")


VALUE, HOLDS, NONE = "value", "no_run_makes_more_mistakes", "infinite_without_a_margin"


@wrong("perceptron.novikoff_bound", "not squared", fails=(VALUE, HOLDS), says="Square it")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return X.norm(dim=1).max().item() / gamma if gamma > 0 else float("inf")


@wrong("perceptron.novikoff_bound", "upside down", fails=(VALUE, HOLDS), says="Upside down")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (gamma / X.norm(dim=1).max().item()) ** 2 if gamma > 0 else float("inf")


@wrong(
    "perceptron.novikoff_bound", "a promise without a margin", fails=NONE, says="Squaring hides the sign of the margin"
)
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X.norm(dim=1).max().item() / gamma) ** 2


@wrong("perceptron.novikoff_bound", "R of the whole matrix", fails=(VALUE, HOLDS), says="not of the whole matrix")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X.norm().item() / gamma) ** 2 if gamma > 0 else float("inf")


@wrong(
    "perceptron.novikoff_bound",
    "margin not divided by |w|",
    fails=(VALUE, HOLDS),
    says="divide by the length of w_star",
)
def novikoff_bound(X, y, w_star):
    gamma = (y * (X @ w_star)).min().item()
    return (X.norm(dim=1).max().item() / gamma) ** 2 if gamma > 0 else float("inf")


@wrong("perceptron.novikoff_bound", "R without x_0", fails=(VALUE, HOLDS), says="x_0 = 1 included")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X[:, 1:].norm(dim=1).max().item() / gamma) ** 2 if gamma > 0 else float("inf")


@wrong(
    "perceptron.novikoff_bound",
    "a margin of 0 is none",
    fails="infinite_without_a_margin",
    says="ZeroDivisionError",
)
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X.norm(dim=1).max().item() / gamma) ** 2 if gamma >= 0 else float("inf")
