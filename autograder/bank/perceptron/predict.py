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


slip("sgn(0) = -1", "X @ w >= 0, 1", "X @ w > 0, 1", fails="zero_counts_as_plus", says="compare with >=, not with >")
slip("no bias", "X @ w >= 0, 1.0", "X[..., 1:] @ w[1:] >= 0, 1.0", fails=ALL_OF_PREDICT, says="The bias is missing")
slip("signs flipped", "X @ w >= 0", "X @ w < 0", fails=ALL_OF_PREDICT, says="Every sign is wrong")


@wrong("True and False for labels", fails=ALL_OF_PREDICT, says="has dtype bool")
def predict(w, X):
    return X @ w >= 0


slip("whole numbers", "0, 1.0, -1.0", "0, 1, -1", fails=ALL_OF_PREDICT, says="has dtype int64, expected float32")


@wrong("batches only", fails="one_sample_or_many", says="for a single sample x")
def predict(w, X):
    return torch.where((X * w).sum(dim=-1, keepdim=X.dim() == 1) >= 0, 1.0, -1.0)


slip("forgets to return", "return torch", "torch", fails=ALL_OF_PREDICT, says="Does every path of the function end in")


@wrong("w * x without the sum", fails=ALL_OF_PREDICT, says="w^T x is the sum of these products")
def predict(w, X):
    return torch.sign(w * X)


@wrong("one line for every w", fails=ALL_OF_PREDICT, says="Rows 1 and 3 of X have z = 0 exactly")
def predict(w, X):
    return torch.where(X[..., -1] <= 1, 1.0, -1.0)
