"""Wrong answers to `softmax_cross_entropy`."""

import torch

from autograder.authoring import wrong
from autograder.bank.backprop.later import TRAIN
from autograder.bank.slips import slip


@wrong(
    "backprop.softmax_cross_entropy",
    "unstable softmax",
    fails="huge_logits",
    says="Subtract each row's maximum first",
)
def softmax_cross_entropy(logits, labels):
    rows = torch.arange(len(labels))
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    loss = -p[rows, labels].log().mean()
    p[rows, labels] -= 1
    return loss, p / len(labels)


@wrong(
    "backprop.softmax_cross_entropy",
    "sum for mean",
    fails=("mean_loss", "gradient_of_the_loss", "huge_logits", *TRAIN, "rows_sum_to_zero"),
    says="The loss is a mean: divide by the 4 samples",
)
def softmax_cross_entropy(logits, labels):
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].sum(), dlogits


@wrong(
    "backprop.softmax_cross_entropy",
    "gradient not divided by N",
    fails=("gradient_of_the_loss", "huge_logits", *TRAIN, "rows_sum_to_zero"),
    says="The loss is a mean: divide",
)
def softmax_cross_entropy(logits, labels):
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits


@wrong(
    "backprop.softmax_cross_entropy",
    "one-hot forgotten",
    fails=("gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="one-hot vector of the label is missing",
)
def softmax_cross_entropy(logits, labels):
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    rows = torch.arange(len(labels))
    return -log_p[rows, labels].mean(), log_p.exp() / len(labels)


@wrong(
    "backprop.softmax_cross_entropy",
    "softmax over the samples",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="use dim=1",
)
def softmax_cross_entropy(logits, labels):
    shifted = logits - logits.max(dim=0, keepdim=True).values
    log_p = shifted - shifted.exp().sum(dim=0, keepdim=True).log()
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits / len(labels)


@wrong(
    "backprop.softmax_cross_entropy",
    "torch's log_softmax",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits"),
    says="which this exercise forbids",
)
def softmax_cross_entropy(logits, labels):
    log_p = torch.log_softmax(logits, dim=1)
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits / len(labels)


slip(
    "backprop.softmax_cross_entropy",
    "shifts the logits in place",
    "logits - logits.max(dim=1, keepdim=True).values",
    "logits.sub_(logits.max(dim=1, keepdim=True).values)",
    fails="rows_sum_to_zero",
    says="changed its argument logits",
)
