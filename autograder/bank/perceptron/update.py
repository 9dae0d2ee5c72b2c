"""Wrong answers to `update`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("perceptron.update")


ALL_OF_UPDATE = ("moves_on_a_mistake", "stays_when_right", "at_zero", "w_is_not_changed")
ALL_BUT_STAYING = ("moves_on_a_mistake", "at_zero", "w_is_not_changed")


@wrong("updates always", fails=ALL_OF_UPDATE, says="You update always. The perceptron learns only from its mistakes")
def update(w, x, y, lr):
    return w + lr * y * x


@wrong("half a step", fails=ALL_BUT_STAYING, says="You moved half the way")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    return w + lr * y * x if yhat != y else w.clone()


slip("moves away", "w + lr * (y - yhat)", "w - lr * (y - yhat)", fails=ALL_BUT_STAYING, says="You moved the wrong way")


@wrong("no bias", fails=ALL_BUT_STAYING, says="w_0 did not move")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    new = w.clone()
    new[1:] += lr * (y - yhat) * x[1:]
    return new


slip("no rate", "lr * (y - yhat) * x", "(y - yhat) * x", fails=ALL_BUT_STAYING, says="The learning rate is missing")
slip(
    "moves w in place",
    "return w + lr * (y - yhat) * x",
    "w += lr * (y - yhat) * x\n    return w",
    fails=("w_is_not_changed", "stays_when_right"),
    says="changed its argument w",
)


@wrong("sign(0) = 0", fails="at_zero", says="You moved half the way: is sgn(0) = 0")
def update(w, x, y, lr):
    return w + lr * (y - torch.sign(w @ x)) * x


slip(
    "updates when it is right",
    "return w + lr * (y - yhat) * x",
    "return w - lr * (y + yhat) * x",
    fails=ALL_OF_UPDATE,
    says="You update exactly when you should not",
)


@wrong("the perceptron of z, not of its sign (the delta rule)", fails=ALL_OF_UPDATE, says="update(w, x, y, lr)")
def update(w, x, y, lr):
    return w + lr * (y - w @ x) * x


@wrong("does nothing", fails=ALL_OF_UPDATE, says="w did not move, though the prediction was wrong")
def update(w, x, y, lr):
    return w.clone()


slip(
    "returns w itself when it is right",
    "    return w + lr",
    "    if yhat == y:\n        return w\n    return w + lr",
    fails="stays_when_right",
    says="The result is the w that was passed in",
)
slip(
    "sgn(0) = -1 unless w = 0",
    "w @ x >= 0",
    "w @ x > 0 or not w.any()",
    fails="at_zero",
    says="at z = 0 the prediction is +1, which is wrong here",
)
