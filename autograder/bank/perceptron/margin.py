"""Wrong answers to `margin`."""

from autograder.authoring import wrong

NEAREST, WRONG_SIDE = "the_nearest_sample", "negative_when_wrong"


@wrong("perceptron.margin", "not divided by |w|", fails=(NEAREST, WRONG_SIDE), says="You did not divide by |w|")
def margin(w, X, y):
    return (y * (X @ w)).min().item()


@wrong("perceptron.margin", "|w| without w_0", fails=(NEAREST, WRONG_SIDE), says="the whole w, w_0 included")
def margin(w, X, y):
    return ((y * (X @ w)).min() / w[1:].norm()).item()


@wrong("perceptron.margin", "the mean for the minimum", fails=(NEAREST, WRONG_SIDE), says="This is the mean")
def margin(w, X, y):
    return ((y * (X @ w)).mean() / w.norm()).item()


@wrong("perceptron.margin", "no labels", fails=(NEAREST, WRONG_SIDE), says="The labels are missing")
def margin(w, X, y):
    return ((X @ w).min() / w.norm()).item()


@wrong("perceptron.margin", "absolute values", fails=WRONG_SIDE, says="You took absolute values")
def margin(w, X, y):
    return ((X @ w).abs().min() / w.norm()).item()


@wrong("perceptron.margin", "cut off at 0", fails=WRONG_SIDE, says="You cut it off at 0")
def margin(w, X, y):
    return max(((y * (X @ w)).min() / w.norm()).item(), 0.0)


@wrong(
    "perceptron.margin",
    "a margin per sample",
    fails=(NEAREST, WRONG_SIDE),
    says="These are the distances of all samples",
)
def margin(w, X, y):
    return y * (X @ w) / w.norm()


@wrong("perceptron.margin", "the cosine", fails=(NEAREST, WRONG_SIDE), says="This is a cosine")
def margin(w, X, y):
    return (y * (X @ w) / (w.norm() * X.norm(dim=1))).min().item()
