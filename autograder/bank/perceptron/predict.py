"""Wrong answers to `predict`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("perceptron.predict")


ALL_OF_PREDICT = ("sign_of_z", "zero_counts_as_plus", "one_sample_or_many")


@wrong("the values of z, no sign", fails=ALL_OF_PREDICT, says="These are the values of z")
def predict(w, X):
    return X @ w


@wrong("0 as a label", fails=ALL_OF_PREDICT, says="You answer 0 for the negative side")
def predict(w, X):
    return (X @ w >= 0).float()


@wrong("sign(0) = 0", fails="zero_counts_as_plus", says="as torch.sign does")
def predict(w, X):
    return torch.sign(X @ w)


@wrong("sgn(0) = -1", fails="zero_counts_as_plus", says="compare with >=, not with >")
def predict(w, X):
    return torch.where(X @ w > 0, 1.0, -1.0)


@wrong("no bias", fails=ALL_OF_PREDICT, says="The bias is missing")
def predict(w, X):
    return torch.where(X[..., 1:] @ w[1:] >= 0, 1.0, -1.0)


slip("signs flipped", "X @ w >= 0", "X @ w < 0", fails=ALL_OF_PREDICT, says="Every sign is wrong")


@wrong("True and False for labels", fails=ALL_OF_PREDICT, says="has dtype bool")
def predict(w, X):
    return X @ w >= 0


@wrong("whole numbers", fails=ALL_OF_PREDICT, says="has dtype int64, expected float32")
def predict(w, X):
    return torch.where(X @ w >= 0, 1, -1)


@wrong("batches only", fails="one_sample_or_many", says="for a single sample x")
def predict(w, X):
    return torch.where((X * w).sum(dim=-1, keepdim=X.dim() == 1) >= 0, 1.0, -1.0)


@wrong("forgets to return", fails=ALL_OF_PREDICT, says="Does every path of the function end in")
def predict(w, X):
    torch.where(X @ w >= 0, 1.0, -1.0)


@wrong("w * x without the sum", fails=ALL_OF_PREDICT, says="w^T x is the sum of these products")
def predict(w, X):
    return torch.sign(w * X)
