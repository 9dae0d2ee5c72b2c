"""Wrong answers to `novikoff_bound`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("perceptron.novikoff_bound")


@wrong("always infinite", fails=("value", "infinite_without_a_margin"), says="Here w_star does separate the samples")
def novikoff_bound(X, y, w_star):
    return float("inf")


VALUE, NONE = "value", "infinite_without_a_margin"


@wrong("not squared", fails=VALUE, says="Square it")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return X.norm(dim=1).max().item() / gamma if gamma > 0 else float("inf")


@wrong("upside down", fails=VALUE, says="Upside down")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (gamma / X.norm(dim=1).max().item()) ** 2 if gamma > 0 else float("inf")


@wrong("a promise without a margin", fails=NONE, says="Squaring hides the sign of the margin")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X.norm(dim=1).max().item() / gamma) ** 2


@wrong("R of the whole matrix", fails=VALUE, says="not of the whole matrix")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X.norm().item() / gamma) ** 2 if gamma > 0 else float("inf")


@wrong("margin not divided by |w|", fails=VALUE, says="divide by the length of w_star")
def novikoff_bound(X, y, w_star):
    gamma = (y * (X @ w_star)).min().item()
    return (X.norm(dim=1).max().item() / gamma) ** 2 if gamma > 0 else float("inf")


@wrong("R without x_0", fails=VALUE, says="x_0 = 1 included")
def novikoff_bound(X, y, w_star):
    gamma = ((y * (X @ w_star)).min() / w_star.norm()).item()
    return (X[:, 1:].norm(dim=1).max().item() / gamma) ** 2 if gamma > 0 else float("inf")


slip(
    "a margin of 0 is none",
    'R2 = (X**2).sum(dim=1).max().item()\n    return R2 / gamma**2 if gamma > 0 else float("inf")',
    'return (X.norm(dim=1).max().item() / gamma) ** 2 if gamma >= 0 else float("inf")',
    fails="infinite_without_a_margin",
    says="ZeroDivisionError",
)


for mistake, *change, fails, says in (
    ("R of the shortest sample", "sum(dim=1).max()", "sum(dim=1).min()", VALUE, "not of the shortest"),
    ("|w_star| without w_0", "w_star.norm()", "w_star[1:].norm()", VALUE, "w_0 included"),
    ("the mean for the margin", ".min() / w_star", ".mean() / w_star", f"{VALUE} {NONE}", "take the minimum"),
):
    slip(mistake, *change, fails=fails, says=says)


@wrong("0 where there is a margin", fails=(VALUE, NONE), says="(R / margin)^2 is above 0")
def novikoff_bound(X, y, w_star):
    return 0.0 if (y * (X @ w_star)).min() > 0 else float("inf")


@wrong("one bound for all samples", fails=(VALUE, NONE), says="have the same bound")
def novikoff_bound(X, y, w_star):
    return 1.0 if (y * (X @ w_star)).min() > 0 else float("inf")
