"""Wrong answers to lab 03, each with the checks it must fail and the words that name its mistake."""

import torch

from autograder.authoring import wrong
from hpcdl.nn.perceptron import with_bias

ALL_OF_PREDICT = ("sign_of_z", "zero_counts_as_plus", "one_sample_or_many")


@wrong("perceptron.predict", "the values of z, no sign", fails=ALL_OF_PREDICT, says="These are the values of z")
def predict(w, X):
    return X @ w


@wrong("perceptron.predict", "0 as a label", fails=ALL_OF_PREDICT, says="You answer 0 for the negative side")
def predict(w, X):
    return (X @ w >= 0).float()


@wrong("perceptron.predict", "sign(0) = 0", fails="zero_counts_as_plus", says="as torch.sign does")
def predict(w, X):
    return torch.sign(X @ w)


@wrong("perceptron.predict", "sgn(0) = -1", fails="zero_counts_as_plus", says="compare with >=, not with >")
def predict(w, X):
    return torch.where(X @ w > 0, 1.0, -1.0)


@wrong("perceptron.predict", "no bias", fails=ALL_OF_PREDICT, says="The bias is missing")
def predict(w, X):
    return torch.where(X[..., 1:] @ w[1:] >= 0, 1.0, -1.0)


@wrong("perceptron.predict", "signs turned round", fails=ALL_OF_PREDICT, says="Every sign is turned round")
def predict(w, X):
    return torch.where(X @ w < 0, 1.0, -1.0)


@wrong("perceptron.predict", "True and False for labels", fails=ALL_OF_PREDICT, says="has dtype bool")
def predict(w, X):
    return X @ w >= 0


@wrong("perceptron.predict", "whole numbers", fails=ALL_OF_PREDICT, says="has dtype int64, expected float32")
def predict(w, X):
    return torch.where(X @ w >= 0, 1, -1)


@wrong("perceptron.predict", "batches only", fails="one_sample_or_many", says="for a single sample x")
def predict(w, X):
    return torch.where((X * w).sum(dim=-1, keepdim=X.dim() == 1) >= 0, 1.0, -1.0)


@wrong("perceptron.predict", "forgets to return", fails=ALL_OF_PREDICT, says="Does every path of the function end in")
def predict(w, X):
    torch.where(X @ w >= 0, 1.0, -1.0)


@wrong("perceptron.predict", "w * x without the sum", fails=ALL_OF_PREDICT, says="w^T x is the sum of these products")
def predict(w, X):
    return torch.sign(w * X)


ALL_OF_UPDATE = ("moves_on_a_mistake", "stays_when_right", "at_zero", "w_is_not_changed")
ALL_BUT_STAYING = ("moves_on_a_mistake", "at_zero", "w_is_not_changed")


@wrong(
    "perceptron.update",
    "updates always",
    fails=ALL_OF_UPDATE,
    says="You update always. The perceptron learns from its mistakes only",
)
def update(w, x, y, lr):
    return w + lr * y * x


@wrong("perceptron.update", "half a step", fails=ALL_BUT_STAYING, says="You moved half the way")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    return w + lr * y * x if yhat != y else w.clone()


@wrong("perceptron.update", "moves away", fails=ALL_BUT_STAYING, says="You moved the wrong way")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    return w - lr * (y - yhat) * x


@wrong("perceptron.update", "no bias", fails=ALL_BUT_STAYING, says="w_0 did not move")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    new = w.clone()
    new[1:] += lr * (y - yhat) * x[1:]
    return new


@wrong("perceptron.update", "no rate", fails=ALL_BUT_STAYING, says="The learning rate is missing")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    return w + (y - yhat) * x


@wrong("perceptron.update", "moves w in place", fails="w_is_not_changed", says="changed its argument w")
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    w += lr * (y - yhat) * x
    return w


@wrong("perceptron.update", "sign(0) = 0", fails="at_zero", says="You moved half the way: is sgn(0) = 0")
def update(w, x, y, lr):
    return w + lr * (y - torch.sign(w @ x)) * x


@wrong(
    "perceptron.update",
    "updates when it is right",
    fails=ALL_OF_UPDATE,
    says="You update exactly when you should not",
)
def update(w, x, y, lr):
    yhat = 1.0 if w @ x >= 0 else -1.0
    return w - lr * (y + yhat) * x


@wrong(
    "perceptron.update",
    "the perceptron of z, not of its sign (the delta rule)",
    fails=ALL_OF_UPDATE,
    says="update(w, x, y, lr)",
)
def update(w, x, y, lr):
    return w + lr * (y - w @ x) * x


@wrong("perceptron.fit", "never stops early", fails="stops_when_settled", says="You never stop")
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
    "perceptron.fit",
    "goes on until it settles, whatever max_epochs says",
    fails=("counts", "gives_up_on_xor"),
    says="You went on after max_epochs epochs",
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


@wrong("perceptron.fit", "leaves out the clean epoch", fails="stops_when_settled", says="The last epoch is missing")
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
    "perceptron.fit",
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
    "perceptron.fit",
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
    "perceptron.fit",
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
    "perceptron.fit",
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


@wrong(
    "perceptron.fit",
    "w alone",
    fails=("weights", "counts", "stops_when_settled", "gives_up_on_xor"),
    says="fit returns two things",
)
def fit(X, y, lr, max_epochs):
    return torch.zeros(X.shape[1])


@wrong("perceptron.update", "does nothing", fails=ALL_OF_UPDATE, says="w did not move, though the prediction was wrong")
def update(w, x, y, lr):
    return w.clone()


@wrong(
    "perceptron.novikoff_bound",
    "always infinite",
    fails=("value", "no_run_makes_more_mistakes", "infinite_without_a_margin"),
    says="Here w_star does separate the samples",
)
def novikoff_bound(X, y, w_star):
    return float("inf")


NEAREST, WRONG_SIDE, LENGTH = "the_nearest_sample", "negative_when_wrong", "length_of_w_does_not_matter"


@wrong("perceptron.margin", "not divided by |w|", fails=(NEAREST, WRONG_SIDE, LENGTH), says="You did not divide by |w|")
def margin(w, X, y):
    return (y * (X @ w)).min().item()


@wrong("perceptron.margin", "|w| without w_0", fails=(NEAREST, WRONG_SIDE, LENGTH), says="the whole w, w_0 included")
def margin(w, X, y):
    return ((y * (X @ w)).min() / w[1:].norm()).item()


@wrong("perceptron.margin", "the mean for the minimum", fails=(NEAREST, WRONG_SIDE, LENGTH), says="This is the mean")
def margin(w, X, y):
    return ((y * (X @ w)).mean() / w.norm()).item()


@wrong("perceptron.margin", "no labels", fails=(NEAREST, WRONG_SIDE, LENGTH), says="The labels are missing")
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
    fails=(NEAREST, WRONG_SIDE, LENGTH),
    says="These are the distances of all samples",
)
def margin(w, X, y):
    return y * (X @ w) / w.norm()


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
    "perceptron.lift",
    "the product first",
    fails=("appends_the_product", "x_is_not_changed"),
    says="The product comes last",
)
def lift(X):
    return torch.cat([X[:, :1], X[:, 1:2] * X[:, 2:3], X[:, 1:]], dim=1)


@wrong(
    "perceptron.lift",
    "a sum for the product",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="That is x1 + x2",
)
def lift(X):
    return torch.cat([X, X[:, 1:2] + X[:, 2:3]], dim=1)


@wrong(
    "perceptron.lift",
    "a square",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="That is x1 squared",
)
def lift(X):
    return torch.cat([X, X[:, 1:2] ** 2], dim=1)


@wrong(
    "perceptron.lift",
    "columns counted from 1",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="The columns are counted from 0",
)
def lift(X):
    return torch.cat([X, X[:, 0:1] * X[:, 1:2]], dim=1)


@wrong("perceptron.lift", "changes X", fails="x_is_not_changed", says="changed its argument X")
def lift(X):
    lifted = torch.cat([X, X[:, 1:2] * X[:, 2:3]], dim=1)
    X[:, 2] *= X[:, 1]
    return lifted


@wrong(
    "perceptron.lift",
    "only the product",
    fails=("appends_the_product", "x_is_not_changed"),
    says="This is the new column alone",
)
def lift(X):
    return X[:, 1:2] * X[:, 2:3]


@wrong(
    "perceptron.lift",
    "the products, not as a column",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="Make a column of them",
)
def lift(X):
    return X[:, 1] * X[:, 2]


ALL_OF_XOR = ("four_corners", "any_batch", "hidden_neurons_draw_lines", "output_neuron_draws_a_line")


@wrong("perceptron.mlp_xor", "OR", fails=ALL_OF_XOR, says="This is OR")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return H, H[:, 0]


@wrong("perceptron.mlp_xor", "the opposite", fails=ALL_OF_XOR, says="This is the opposite of XOR")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return H, torch.where(with_bias(H) @ torch.tensor([1.0, -1.0, -1.0]) >= 0, 1.0, -1.0)


@wrong(
    "perceptron.mlp_xor",
    "the product of the inputs for a neuron",
    fails="hidden_neurons_draw_lines",
    says="no products, no ifs",
)
def mlp_xor(X):
    h = torch.where(X[:, 1] * X[:, 2] <= 0, 1.0, -1.0)
    return torch.stack([h, h], dim=1), h


@wrong(
    "perceptron.mlp_xor",
    "an output that looks past the hidden layer",
    fails="output_neuron_draws_a_line",
    says="No perceptron gives these yhat from these H",
)
def mlp_xor(X):
    return torch.where(X[:, 1:] >= 0, 1.0, -1.0), torch.where(X[:, 1] * X[:, 2] <= 0, 1.0, -1.0)


@wrong("perceptron.mlp_xor", "0 and 1 inside", fails=ALL_OF_XOR, says="Labels of 0 belong to another convention")
def mlp_xor(X):
    H = (X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0).float()
    return H, torch.where(H.sum(dim=1) > 1.5, 1.0, -1.0)


@wrong("perceptron.mlp_xor", "smooth neurons", fails=ALL_OF_XOR, says="Each neuron is a step")
def mlp_xor(X):
    H = torch.tanh(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T)
    return H, torch.tanh(H.sum(dim=1) - 1)


@wrong("perceptron.mlp_xor", "the four corners by heart", fails="any_batch", says="for a batch of")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    if len(X) < 100:
        return H, torch.tensor([-1.0, 1.0, 1.0, -1.0]).repeat(25)[: len(X)]
    return H, torch.where(H.sum(dim=1) > 1, 1.0, -1.0)


@wrong("perceptron.mlp_xor", "the answer without the hidden layer", fails=ALL_OF_XOR, says="mlp_xor returns two things")
def mlp_xor(X):
    H = torch.where(X @ torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]]).T >= 0, 1.0, -1.0)
    return torch.where(H.sum(dim=1) > 1, 1.0, -1.0)
