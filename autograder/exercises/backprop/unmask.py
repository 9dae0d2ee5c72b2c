"""Which of eight programs are the softmax cross-entropy and its gradient? Oracle: torch's own in float64."""

import math

import torch

from autograder.checks.impostors import InputField, LineUp, Suspect, many, number, whole
from autograder.exercises.unmasking import examines

ROWS, CLASSES, LARGE = 6, 6, 10_000


def ask(cross_entropy, logits, labels):
    """The loss and the gradient, as numbers."""
    loss, dlogits = cross_entropy(torch.tensor(logits, dtype=torch.float64), torch.tensor(labels))
    return float(loss), dlogits.tolist()


def truth(logits, labels):
    logits = logits.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, labels)
    return loss.item(), torch.autograd.grad(loss, logits)[0]


def of_logarithms(log_p, labels):
    """Loss and gradient from the logarithms of the probabilities."""
    rows, dlogits = torch.arange(len(labels)), log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits / len(labels)


def shifted_by_rows(logits, labels):
    shifted = logits - logits.max(dim=1, keepdim=True).values
    return of_logarithms(shifted - shifted.exp().sum(dim=1, keepdim=True).log(), labels)


def with_logsumexp(logits, labels):
    return of_logarithms(logits - logits.logsumexp(dim=1, keepdim=True), labels)


def one_hot(logits, labels):
    log_p, target = logits.log_softmax(1), torch.nn.functional.one_hot(labels, logits.shape[1])
    return -(target * log_p).sum() / len(labels), (log_p.exp() - target) / len(labels)


def row_by_row(logits, labels):
    losses, slopes = [], []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        powers = [math.exp(z - max(row)) for z in row]
        losses.append(math.log(sum(powers)) - row[label] + max(row))
        slopes.append([(power / sum(powers) - (k == label)) / len(labels) for k, power in enumerate(powers)])
    return sum(losses) / len(losses), torch.tensor(slopes, dtype=torch.float64)


def unshifted(logits, labels):
    powers = logits.exp()
    return of_logarithms((powers / powers.sum(dim=1, keepdim=True)).log(), labels)


def shifted_by_all(logits, labels):
    shifted = logits - logits.max()
    return of_logarithms(shifted - shifted.exp().sum(dim=1, keepdim=True).log(), labels)


def guarded_logarithm(logits, labels):
    _, dlogits = shifted_by_rows(logits, labels)
    p = logits.softmax(1)[torch.arange(len(labels)), labels]
    return -(p + 1e-12).log().mean(), dlogits


def every_label_in_every_row(logits, labels):
    """`dlogits[:, labels] -= 1`, where each row has but one label of its own."""
    loss, _ = shifted_by_rows(logits, labels)
    dlogits = logits.softmax(1)
    dlogits[:, labels] -= 1
    return loss, dlogits / len(labels)


def outside(logits, labels):
    if len({len(row) for row in logits}) > 1:
        return "the rows of logits are not all of one length"
    if len(labels) != len(logits):
        return f"{len(logits)} rows have {len(labels)} labels, and each has one"
    high = max(labels)
    return "" if high < len(logits[0]) else f"a label is {high}, and there are {len(logits[0])} classes, from 0"


ROW = many(number(-LARGE, LARGE), CLASSES, least=2)
line_up = LineUp(
    "unmask_softmax",
    truth=truth,
    suspects=(
        Suspect("A", with_logsumexp),
        Suspect(
            "B",
            guarded_logarithm,
            "takes the logarithm of p + 1e-12, not of p",
            "a right class that is nearly impossible by the logits",
        ),
        Suspect("C", row_by_row),
        Suspect(
            "D",
            every_label_in_every_row,
            "subtracts 1 for every row's label in every row",
            "a batch whose rows have different labels",
        ),
        Suspect(
            "E",
            unshifted,
            "takes the exponential of the logits themselves",
            "logits beyond 710, whose exponential is infinite",
        ),
        Suspect("F", one_hot),
        Suspect("G", shifted_by_rows),
        Suspect(
            "H",
            shifted_by_all,
            "shifts all rows by the largest logit of the whole batch",
            "a row that is far below another row",
        ),
    ),
    fields={
        "logits": InputField(f"a list of 1 to {ROWS} rows, each {ROW.rule}", many(ROW, ROWS).keeps),
        "labels": many(whole(0, CLASSES - 1), ROWS),
    },
    ask=ask,
    outside=outside,
)
exercise = examines(line_up, extra=True)
