"""Wrong answers to `softmax_cross_entropy`."""

import torch

from autograder.bank.backprop.later import TRAIN
from autograder.bank.slips import answers_to

wrong, slip = answers_to("backprop.softmax_cross_entropy")


@wrong("unstable softmax", fails="huge_logits", says="Subtract each row's maximum first")
def softmax_cross_entropy(logits, labels):
    rows = torch.arange(len(labels))
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    loss = -p[rows, labels].log().mean()
    p[rows, labels] -= 1
    return loss, p / len(labels)


slip(
    "every row's class in every row",
    "dlogits[rows, labels] -= 1",
    "dlogits[:, labels] -= 1",
    "-log_p[rows, labels].mean()",
    "-log_p[:, labels].mean()",
    fails=("mean_loss", "gradient_of_the_loss", "huge_logits", *TRAIN, "rows_sum_to_zero"),
    says="[:, labels] picks the classes of all samples in every row",
)
slip(
    "sum for mean",
    "return -log_p[rows, labels].mean(), dlogits / len(labels)",
    "return -log_p[rows, labels].sum(), dlogits",
    fails=("mean_loss", "gradient_of_the_loss", "huge_logits", *TRAIN, "rows_sum_to_zero"),
    says="The loss is a mean: divide by the 4 samples",
)
slip(
    "gradient not divided by N",
    "return -log_p[rows, labels].mean(), dlogits / len(labels)",
    "return -log_p[rows, labels].mean(), dlogits",
    fails=("gradient_of_the_loss", "huge_logits", *TRAIN, "rows_sum_to_zero"),
    says="The loss is a mean: divide",
)
slip(
    "one-hot forgotten",
    "dlogits = log_p.exp()\n"
    "    dlogits[rows, labels] -= 1\n"
    "    return -log_p[rows, labels].mean(), dlogits / len(labels)",
    "return -log_p[rows, labels].mean(), log_p.exp() / len(labels)",
    fails=("gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="one-hot vector of the label is missing",
)
slip(
    "softmax over the samples",
    "shifted = logits - logits.max(dim=1, keepdim=True).values\n"
    "    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()",
    "shifted = logits - logits.max(dim=0, keepdim=True).values\n"
    "    log_p = shifted - shifted.exp().sum(dim=0, keepdim=True).log()",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="use dim=1",
)
slip(
    "torch's log_softmax",
    "shifted = logits - logits.max(dim=1, keepdim=True).values\n"
    "    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()",
    "log_p = torch.log_softmax(logits, dim=1)",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits"),
    says="which this exercise forbids",
)
slip(
    "shifts the logits in place",
    "logits - logits.max(dim=1, keepdim=True).values",
    "logits.sub_(logits.max(dim=1, keepdim=True).values)",
    fails="rows_sum_to_zero",
    says="changed its argument logits",
)


@wrong(
    "all of it to the largest logits",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="loss of 4 samples and 4 classes",
)
def softmax_cross_entropy(logits, labels):
    high, rows = logits.max(dim=1, keepdim=True).values, torch.arange(len(labels))
    p = (logits == high).to(logits.dtype)
    count = p.sum(dim=1, keepdim=True)
    loss = (high + count.log())[:, 0] - logits[rows, labels]
    p /= count
    p[rows, labels] -= 1
    return loss.mean(), p / len(labels)


@wrong(
    "differences of the loss",
    fails=("gradient_of_the_loss", "rows_sum_to_zero", "huge_logits"),
    says="differences of the loss lose digits",
)
def softmax_cross_entropy(logits, labels):
    def losses(z):
        z = z.double() - z.max(dim=1, keepdim=True).values
        return z.exp().sum(dim=1).log() - z[torch.arange(len(labels)), labels]

    dlogits = torch.zeros_like(logits)
    for k, step in enumerate(1e-5 * torch.eye(logits.shape[1], dtype=torch.float64)):
        dlogits[:, k] = (losses(logits + step) - losses(logits - step)) / 2e-5 / len(labels)
    return losses(logits).mean(), dlogits


slip(
    "torch's logsumexp",
    "shifted = logits - logits.max(dim=1, keepdim=True).values\n"
    "    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()",
    "log_p = logits - torch.logsumexp(logits, dim=1, keepdim=True)",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits"),
    says="which this exercise forbids",
)
