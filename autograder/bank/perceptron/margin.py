"""Wrong answers to `margin`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("perceptron.margin")


NEAREST, WRONG_SIDE = "the_nearest_sample", "negative_when_wrong"


@wrong("not divided by |w|", fails=(NEAREST, WRONG_SIDE), says="You did not divide by |w|")
def margin(w, X, y):
    return (y * (X @ w)).min().item()


slip("|w| without w_0", "() / w.norm", "() / w[1:].norm", fails=(NEAREST, WRONG_SIDE), says="the whole w, w_0 included")


@wrong("the mean for the minimum", fails=(NEAREST, WRONG_SIDE), says="This is the mean")
def margin(w, X, y):
    return ((y * (X @ w)).mean() / w.norm()).item()


slip("no labels", "(y * (X @ w)).min()", "(X @ w).min()", fails=(NEAREST, WRONG_SIDE), says="The labels are missing")
slip("absolute values", "(y * (X @ w)).min()", "(X @ w).abs().min()", fails=WRONG_SIDE, says="You took absolute values")


@wrong("cut off at 0", fails=WRONG_SIDE, says="You cut it off at 0")
def margin(w, X, y):
    return max(((y * (X @ w)).min() / w.norm()).item(), 0.0)


@wrong("a margin per sample", fails=(NEAREST, WRONG_SIDE), says="These are the distances of all samples")
def margin(w, X, y):
    return y * (X @ w) / w.norm()


@wrong("the cosine", fails=(NEAREST, WRONG_SIDE), says="This is a cosine")
def margin(w, X, y):
    return (y * (X @ w) / (w.norm() * X.norm(dim=1))).min().item()
