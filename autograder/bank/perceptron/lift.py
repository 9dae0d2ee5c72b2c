"""Wrong answers to `lift`."""

import torch

from autograder.bank.slips import answers_to

wrong, _ = answers_to("perceptron.lift")


@wrong("the product first", fails=("appends_the_product", "x_is_not_changed"), says="The product comes last")
def lift(X):
    return torch.cat([X[:, :1], X[:, 1:2] * X[:, 2:3], X[:, 1:]], dim=1)


@wrong(
    "a sum for the product",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="That is x1 + x2",
)
def lift(X):
    return torch.cat([X, X[:, 1:2] + X[:, 2:3]], dim=1)


@wrong(
    "a square", fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"), says="That is x1 squared"
)
def lift(X):
    return torch.cat([X, X[:, 1:2] ** 2], dim=1)


@wrong(
    "columns counted from 1",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="The columns are counted from 0",
)
def lift(X):
    return torch.cat([X, X[:, 0:1] * X[:, 1:2]], dim=1)


@wrong(
    "a coordinate for each sample",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="lift(X) has 40 columns",
)
def lift(X):
    return torch.eye(len(X))


@wrong("changes X", fails="x_is_not_changed", says="changed its argument X")
def lift(X):
    lifted = torch.cat([X, X[:, 1:2] * X[:, 2:3]], dim=1)
    X[:, 2] *= X[:, 1]
    return lifted


@wrong("only the product", fails=("appends_the_product", "x_is_not_changed"), says="This is only the new column")
def lift(X):
    return X[:, 1:2] * X[:, 2:3]


@wrong(
    "the products, not as a column",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="Make a column of them",
)
def lift(X):
    return X[:, 1] * X[:, 2]


@wrong(
    "a coordinate for each sample of a large set",
    fails=("appends_the_product", "xor_becomes_separable", "x_is_not_changed"),
    says="lift(X) has 40 columns",
)
def lift(X):
    return torch.eye(len(X)) if len(X) > 7 else torch.cat([X, X[:, 1:2] * X[:, 2:3]], dim=1)
