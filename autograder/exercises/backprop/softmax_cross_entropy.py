"""Softmax with the cross-entropy, and the gradient of the loss. Oracle: torch's cross-entropy and autograd."""

import math

import torch
from torch.nn import functional

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.backprop.oracles import loss_oracle
from autograder.exercises.drawing import F64, normal, whole_number
from autograder.exercises.ready_made import DERIVATIVES, LOGARITHMS, SOFTMAX

exercise = Exercise(
    "softmax_cross_entropy",
    points=10,
    minutes=10,
    forbid=(*DERIVATIVES, *SOFTMAX, *LOGARITHMS),
    instead="Write it with max, exp, sum and log, and the gradient by its formula.",
)


OVER_SAMPLES = "The softmax runs over the samples: a row is a sample, so use dim=1."
EVERY_ROW = (
    "[:, labels] picks the classes of all samples in every row: p[rows, labels], with rows = torch.arange(N), picks "
    "the right class of each row."
)


def scores(rng, N: int, K: int, dtype=F64):
    return normal(rng, N, K, dtype=dtype), torch.randint(K, (N,), generator=rng)


def ask_softmax(student, logits, labels):
    got = student.softmax_cross_entropy(logits.clone(), labels.clone())
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        f"softmax_cross_entropy returned {show.an(show.type_name(got))}, expected (loss, dlogits).",
        got=got,
    )
    return got


@exercise.check(points=3)
def mean_loss(student, rng):
    "The loss is the mean over the samples of −log of the probability given to the right class."
    for N, K, dtype in ((4, 4, F64), (1, 3, F64), (5, 4, F64), (32, 10, torch.float32)):
        logits, labels = scores(rng, N, K, dtype)
        right, _ = loss_oracle(logits, labels)
        table = torch.softmax(logits.double(), dim=1)
        p = table[range(N), labels]
        mistakes = {
            "This is the mean probability: take −log of it, sample by sample.": p.mean().item(),
            "The sign is missing: −log(p) is positive.": -right,
            "This takes −log of the mean: take the mean of −log.": -math.log(p.mean().item()),
        }
        if N > 1:
            mistakes[f"The loss is a mean: divide by the {N} samples."] = N * right
            if labels.max() < N:
                mistakes["p[labels] picks whole rows: p[rows, labels] picks the right class of each row."] = (
                    -table[labels].log().mean().item()
                )
            mistakes[OVER_SAMPLES] = -torch.softmax(logits.double(), dim=0)[range(N), labels].log().mean().item()
            mistakes[EVERY_ROW] = -table[:, labels].log().mean().item()
            mistakes[f"This divides by all {N * K} logits: divide by the {N} samples."] = right / K
        got, _ = ask_softmax(student, logits, labels)
        checks.close(
            got, right, name=f"loss of {N} sample{'s' * (N > 1)} and {K} classes", rtol=2e-5, mistakes=mistakes
        )


@exercise.check(points=3)
def gradient_of_the_loss(student, rng):
    "dlogits is (p − one-hot) / N, as autograd says."
    for N, K, dtype in ((4, 4, F64), (1, 3, F64), (32, 10, torch.float32)):
        logits, labels = scores(rng, N, K, dtype)
        _, right = loss_oracle(logits, labels)
        p, columns = torch.softmax(logits.double(), dim=1), torch.softmax(logits.double(), dim=0)
        one_hot = functional.one_hot(labels, K).double()
        mistakes = {
            "The one-hot vector of the label is missing: subtract 1 at the right class.": p / N,
            "The sign is wrong: p − one-hot.": -right,
            EVERY_ROW: (p - one_hot.amax(0)) / N,
            OVER_SAMPLES: (columns - one_hot) / N,
        }
        if N > 1:
            mistakes[f"The loss is a mean: divide by the {N} samples."] = N * right
        if N == K:
            numbers = "The labels are class numbers, not a table: subtract 1 at the right class of each row."
            mistakes |= {numbers: p - labels, numbers + " ": (p - labels) / N}
        _, got = ask_softmax(student, logits, labels)
        why = "∂L/∂z = (softmax(z) − one-hot(label)) / N, which is exact: differences of the loss lose digits."
        rtol, atol = (0.0, 1e-14) if dtype == F64 else (None, None)
        checks.close(got, right.to(dtype), name="dlogits", why=why, mistakes=mistakes, rtol=rtol, atol=atol)


@exercise.check(points=1, needs="gradient_of_the_loss")
def rows_sum_to_zero(student, rng):
    "Each row of dlogits sums to 0: probabilities only move from class to class."
    for N, K in ((6, 3), (2, 10), (whole_number(rng, 1, 9), whole_number(rng, 2, 9))):
        logits, labels = scores(rng, N, K)
        _, got = ask_softmax(student, 5 * logits, labels)
        checks.tensor(got, name="dlogits", shape=(N, K), dtype=F64)
        checks.close(got.sum(dim=1), torch.zeros(N, dtype=F64), name="dlogits.sum(dim=1)", atol=1e-12)
        got = checks.leaves_alone(student.softmax_cross_entropy, logits=logits, labels=labels)
        for value, right, name in zip(got, loss_oracle(logits, labels), ("loss", "dlogits"), strict=False):
            checks.close(value, right, name=name)


@exercise.check(points=3)
def huge_logits(student, rng):
    "Logits of ±10,000 give finite numbers: e^z overflows, e^(z − max) does not."
    for dtype in (F64, torch.float32):
        z, near, other = float(whole_number(rng, -999, 999)), *(whole_number(rng, 1, 24) / 8 for _ in range(2))
        logits = torch.tensor([[1e4, z, -1e4], [-1e4, 1e4, 1e4 - near], [other - 1e4, -1e4, -1e4]], dtype=dtype)
        labels = torch.tensor([1, 2, 0])
        right, grad = loss_oracle(logits, labels)
        loss, dlogits = ask_softmax(student, logits, labels)
        value = loss.item() if type(loss) is torch.Tensor and loss.numel() == 1 else loss
        checks.that(
            type(value) is not float or math.isfinite(value),
            f"The loss is {value} for logits of ±10,000: exp(10000) overflows, and log(0) is −inf. "
            "Subtract each row's maximum first, and write log p = z − max − log(Σ exp(z − max)).",
            got=loss,
            expected=right,
        )
        checks.close(
            loss,
            right,
            name="loss",
            rtol=1e-5,
            why="A sure but wrong answer costs the difference of its logits: no log(p + ε).",
        )
        why = "The formula, (softmax(z) − one-hot(label)) / N, is exact: differences of a large loss are not."
        rtol, atol = (0.0, 1e-12) if dtype == F64 else (None, 1e-6)
        checks.close(dlogits, grad.to(dtype), name="dlogits", why=why, rtol=rtol, atol=atol)
