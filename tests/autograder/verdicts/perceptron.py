"""Answers to exercises of lab `perceptron` whose verdict was wrong once: see `test_verdicts`."""


# %% update: returns w itself -> stays_when_right
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    if yhat == y:
        return w
    return w + lr * (y - yhat) * x
