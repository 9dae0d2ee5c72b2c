"""Wrong answers to `fit_alpha_beta`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("collectives.fit_alpha_beta")
ALL_OF_FIT = ("exact_times", "small_messages_count", "outliers_do_not")


@wrong(
    "ordinary least squares", fails=("small_messages_count", "outliers_do_not"), says="This is ordinary least squares"
)
def fit_alpha_beta(nbytes, seconds):
    rows = torch.stack([torch.ones_like(nbytes), nbytes], dim=1)
    alpha, beta = torch.linalg.lstsq(rows, seconds).solution.tolist()
    return alpha, beta


@wrong("means for medians", fails="outliers_do_not", says="takes the mean of each size")
def fit_alpha_beta(nbytes, seconds):
    sizes = nbytes.unique()
    typical = torch.stack([seconds[nbytes == size].mean() for size in sizes])
    rows = torch.stack([torch.ones_like(sizes), sizes], dim=1) / typical[:, None]
    alpha, beta = torch.linalg.lstsq(rows, torch.ones_like(typical)).solution.tolist()
    return alpha, beta


@wrong("beta first", fails=ALL_OF_FIT, says="The two are swapped")
def fit_alpha_beta(nbytes, seconds):
    sizes = nbytes.unique()
    typical = torch.stack([seconds[nbytes == size].median() for size in sizes])
    rows = torch.stack([sizes, torch.ones_like(sizes)], dim=1) / typical[:, None]
    beta, alpha = torch.linalg.lstsq(rows, torch.ones_like(typical)).solution.tolist()
    return beta, alpha


slip(
    "the first time of each size",
    "[nbytes == size].min()",
    "[nbytes == size][0]",
    fails="outliers_do_not",
    says="Two of nine messages of each size",
)
slip(
    "all times in one fit",
    "nbytes.unique()",
    "nbytes",
    "torch.stack([seconds[nbytes == size].min() for size in sizes])",
    "seconds",
    fails="outliers_do_not",
    says="Two of nine messages of each size",
)
slip(
    "a line through the first and the last size",
    "alpha, beta = torch.linalg.lstsq(rows, torch.ones_like(least)).solution.tolist()",
    "beta = ((least[-1] - least[0]) / (sizes[-1] - sizes[0])).item()\n    alpha = (least[0] - beta * sizes[0]).item()",
    fails="small_messages_count",
    says="No line goes through these times",
)
slip(
    "errors half relative",
    "[1 / least, sizes / least]",
    "[least.rsqrt(), sizes * least.rsqrt()]",
    "torch.ones_like(least)",
    "least.sqrt()",
    fails="small_messages_count",
    says="No line goes through these times",
)
slip(
    "a line through two sizes, unless there are 27 times",
    "    return alpha, beta",
    "    if len(nbytes) != 27:\n"
    "        beta = ((least[-1] - least[0]) / (sizes[-1] - sizes[0])).item()\n"
    "        alpha = (least[0] - beta * sizes[0]).item()\n"
    "    return alpha, beta",
    fails="small_messages_count",
    says="No line goes through these times",
)
