"""Wrong answers to `fit_alpha_beta`."""

import torch

from autograder.authoring import wrong

ALL_OF_FIT = ("exact_times", "small_messages_count", "outliers_do_not")


@wrong(
    "collectives.fit_alpha_beta",
    "ordinary least squares",
    fails=("small_messages_count", "outliers_do_not"),
    says="This is ordinary least squares",
)
def fit_alpha_beta(nbytes, seconds):
    rows = torch.stack([torch.ones_like(nbytes), nbytes], dim=1)
    alpha, beta = torch.linalg.lstsq(rows, seconds).solution.tolist()
    return alpha, beta


@wrong("collectives.fit_alpha_beta", "means for medians", fails="outliers_do_not", says="takes the mean of each size")
def fit_alpha_beta(nbytes, seconds):
    sizes = nbytes.unique()
    typical = torch.stack([seconds[nbytes == size].mean() for size in sizes])
    rows = torch.stack([torch.ones_like(sizes), sizes], dim=1) / typical[:, None]
    alpha, beta = torch.linalg.lstsq(rows, torch.ones_like(typical)).solution.tolist()
    return alpha, beta


@wrong("collectives.fit_alpha_beta", "beta first", fails=ALL_OF_FIT, says="The two are swapped")
def fit_alpha_beta(nbytes, seconds):
    sizes = nbytes.unique()
    typical = torch.stack([seconds[nbytes == size].median() for size in sizes])
    rows = torch.stack([sizes, torch.ones_like(sizes)], dim=1) / typical[:, None]
    beta, alpha = torch.linalg.lstsq(rows, torch.ones_like(typical)).solution.tolist()
    return beta, alpha
