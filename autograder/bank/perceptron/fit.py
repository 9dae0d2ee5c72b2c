"""Wrong answers to `fit`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("perceptron.fit")


@wrong("never stops early", fails="stops_when_settled", says="You never stop")
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros(X.shape[1]), []
    for _ in range(max_epochs):
        mistakes.append(0)
        for x, label in zip(X, y):
            yhat = 1.0 if w @ x >= 0 else -1.0
            w = w + lr * (label - yhat) * x
            mistakes[-1] += int(yhat != label)
    return w, mistakes


@wrong(
    "trains until it settles, despite max_epochs",
    fails=("weights", "counts", "gives_up_on_xor"),
    says="You continued after max_epochs epochs",
)
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros(X.shape[1]), []
    while not mistakes or mistakes[-1] > 0:
        mistakes.append(0)
        for x, label in zip(X, y):
            yhat = 1.0 if w @ x >= 0 else -1.0
            w = w + lr * (label - yhat) * x
            mistakes[-1] += int(yhat != label)
    return w, mistakes


@wrong("leaves out the clean epoch", fails="stops_when_settled", says="The last epoch is missing")
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros(X.shape[1]), []
    for _ in range(max_epochs):
        count = 0
        for x, label in zip(X, y):
            yhat = 1.0 if w @ x >= 0 else -1.0
            w = w + lr * (label - yhat) * x
            count += int(yhat != label)
        if count == 0:
            break
        mistakes.append(count)
    return w, mistakes


@wrong(
    "running totals for counts",
    fails=("counts", "stops_when_settled", "gives_up_on_xor"),
    says="These are running totals",
)
def fit(X, y, lr, max_epochs):
    w, mistakes, count = torch.zeros(X.shape[1]), [], 0
    for _ in range(max_epochs):
        for x, label in zip(X, y):
            yhat = 1.0 if w @ x >= 0 else -1.0
            w = w + lr * (label - yhat) * x
            count += int(yhat != label)
        mistakes.append(count)
        if count == 0:
            break
    return w, mistakes


@wrong(
    "one move per epoch",
    fails=("weights", "counts", "stops_when_settled", "gives_up_on_xor"),
    says="Use the new w for the very next sample",
)
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros(X.shape[1]), []
    for _ in range(max_epochs):
        yhat = torch.where(X @ w >= 0, 1.0, -1.0)
        mistakes.append(int((yhat != y).sum()))
        if mistakes[-1] == 0:
            break
        w = w + lr * ((y - yhat)[:, None] * X).sum(dim=0)
    return w, mistakes


@wrong(
    "shuffled",
    fails=("weights", "counts", "stops_when_settled", "gives_up_on_xor"),
    says="another order, start or rule led to it",
)
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros(X.shape[1]), []
    generator = torch.Generator().manual_seed(1)
    for _ in range(max_epochs):
        mistakes.append(0)
        for i in torch.randperm(len(y), generator=generator):
            yhat = 1.0 if w @ X[i] >= 0 else -1.0
            w = w + lr * (y[i] - yhat) * X[i]
            mistakes[-1] += int(yhat != y[i])
        if mistakes[-1] == 0:
            break
    return w, mistakes


@wrong(
    "one epoch only",
    fails=("weights", "counts", "stops_when_settled", "gives_up_on_xor"),
    says="This is w after the first epoch",
)
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros(X.shape[1]), [0]
    for x, label in zip(X, y):
        yhat = 1.0 if w @ x >= 0 else -1.0
        w = w + lr * (label - yhat) * x
        mistakes[0] += int(yhat != label)
    return w, mistakes


@wrong("w alone", fails=("weights", "counts", "stops_when_settled", "gives_up_on_xor"), says="fit returns two things")
def fit(X, y, lr, max_epochs):
    return torch.zeros(X.shape[1])


slip(
    "resets w in each epoch",
    "w, mistakes = torch.zeros(X.shape[1]), []\n    for _ in range(max_epochs):",
    "mistakes = []\n    for _ in range(max_epochs):\n        w = torch.zeros(X.shape[1])",
    fails=("weights", "counts", "stops_when_settled", "gives_up_on_xor"),
    says="Every epoch begins again with w = 0",
)
slip(
    "the best w of all epochs",
    "        if mistakes[-1] == 0:",
    "        if mistakes[-1] <= min(mistakes):\n            best = w\n        if mistakes[-1] == 0:",
    "return w, mistakes",
    "return best, mistakes",
    fails="weights",
    says="return the last one",
)
slip(
    "gives up when two epochs have equally many mistakes",
    "if mistakes[-1] == 0:",
    "if mistakes[-1] == 0 or len(mistakes) > 3 and len(set(mistakes[-3:])) == 1:",
    fails="gives_up_on_xor",
    says="25 epochs give 25 counts",
)
slip(
    "two epochs at least",
    "if mistakes[-1] == 0:",
    "if len(mistakes) > 1 and mistakes[-1] == 0:",
    fails="stops_when_settled",
    says="if every label is +1",
)
slip(
    "three weights for any X",
    "torch.zeros(X.shape[1])",
    "torch.zeros(3)",
    fails="stops_when_settled",
    says="one weight for each column of X",
)
slip(
    "one mistake in each epoch of four samples",
    "return w, mistakes",
    "return w, [1] * len(mistakes) if len(y) == 4 else mistakes",
    fails="gives_up_on_xor",
    says="mistakes on XOR",
)
