"""One head of attention. Oracle: each row by itself, over the keys that it may see, in float64."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.ready_made import ATTENTION, TRANSFORMERS

SCORES = "The scores are q kᵀ: exchange the last two dimensions of k, and only these."
MASK = (
    "The mask has a row for each query and a column for each key: their numbers are the last dimensions but one, "
    "q.shape[-2] and k.shape[-2]. Dimensions before them are batches."
)

BELOW = "A hidden score is -inf: no finite number is below every score."
WEIGHS = "A hidden score is -inf. Any finite score, such as 0, still has a weight: exp(0) = 1."

exercise = Exercise(
    "attention",
    points=12,
    minutes=12,
    forbid=(*ATTENTION, *TRANSFORMERS),
    instead="Write it with a product, a mask, a softmax and a product.",
    meanings={
        "must match the size … @ … mask": f"In this line the scores or the mask do not fit. {SCORES} {MASK}",
        "must match the size … mask": MASK,
        "must match the size … inf": MASK,
        "must match the size": SCORES,
    },
)

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def row_by_row(q, k, v, causal: bool, scale: float | None = None) -> torch.Tensor:
    """Return the weighted means of v, each row from its own scores; q, k, v have two dimensions."""
    rows = []
    for i, query in enumerate(q):
        seen = i + 1 if causal else len(k)
        scores = (k[:seen] * query).sum(1) / (scale or math.sqrt(q.shape[1]))
        odds = (scores - scores.max()).exp()
        rows.append((odds[:, None] * v[:seen]).sum(0) / odds.sum())
    return torch.stack(rows)


def drawn(rng, n: int, m: int, d: int, width: int, scale: float = 1.0) -> Triple:
    q, k, v = (torch.randn(*shape, generator=rng).double() for shape in ((n, d), (m, d), (m, width)))
    return scale * q, k, v


def mistakes(q, k, v, causal: bool) -> dict[str, torch.Tensor]:
    """Return what usual mistakes give, where they give something else."""
    d = q.shape[1]
    scores = q @ k.T / math.sqrt(d)
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    hidden = later if causal else torch.zeros_like(later)
    known = {
        "Divide the scores by the square root of d.": row_by_row(q, k, v, causal, 1.0),
        "Divide by the square root of d, not by d.": row_by_row(q, k, v, causal, float(d)),
        "d is the last size of q and k: v may have another one.": row_by_row(q, k, v, causal, math.sqrt(v.shape[1])),
        "d is the last size of q, q.shape[-1], not its number of rows.": row_by_row(q, k, v, causal, math.sqrt(len(q))),
        "The softmax goes along the keys, the last dimension: each row of weights sums to 1.": (
            scores.masked_fill(hidden, -math.inf).softmax(0) @ v
        ),
    }
    odds = scores.masked_fill(hidden, -math.inf).exp()
    known["exp of a large score is inf, and inf / inf is nan: first subtract each row's largest score."] = (
        odds / odds.sum(1, keepdim=True) @ v
    )
    if causal:
        itself = torch.ones_like(later).triu()
        known["A token sees itself, too: hide the later ones alone, triu(1)."] = (
            scores.masked_fill(itself, -math.inf).softmax(1) @ v
        )
        weights = scores.softmax(1).masked_fill(later, 0.0)
        known |= {
            BELOW: scores.masked_fill(later, -1e9).softmax(1) @ v,
            "A hidden score is -inf. A finite number that is added does not hide a score that is much larger.": (
                (scores - 1e9 * later).softmax(1) @ v
            ),
            "The future is not hidden: token i sees tokens 0 to i only.": row_by_row(q, k, v, False),
            WEIGHS: scores.masked_fill(later, 0.0).softmax(1) @ v,
            "You mask after the softmax, so the rest of a row no longer sums to 1: hide the scores before it.": weights
            @ v,
            "You hide the past and show the future.": scores.masked_fill(later.T, -math.inf).softmax(1) @ v,
        }
        if torch.allclose(known[BELOW], known[WEIGHS], rtol=1e-9):  # both hide nothing, and BELOW says why
            del known[WEIGHS]
    elif len(q) == len(k):
        known["With causal=False every token sees every other."] = row_by_row(q, k, v, True)
    expected = row_by_row(q, k, v, causal)
    return {say: value for say, value in known.items() if not torch.allclose(value, expected, rtol=1e-9)}


def is_attention(student, given: Triple, causal: bool, setting: str) -> None:
    q, k, v = (x.clone() for x in given)
    got = student.attention(q, k, v, causal=causal)
    name = f"{setting}: attention(q, k, v, causal={causal})"
    checks.close(got, row_by_row(*given, causal), name=name, mistakes=mistakes(*given, causal))
    for letter, now, before in zip("qkv", (q, k, v), given, strict=True):
        checks.unchanged(now, before, name=letter)


@exercise.check(points=4)
def weighted_mean(student, rng):
    "Without a mask each row is the mean of all values, weighted by a softmax; q may have more or fewer rows."
    for n, m, d, width in ((3, 3, 4, 4), (2, 5, 3, 6), (4, 4, 9, 2), (1, 1, 2, 3)):
        is_attention(student, drawn(rng, n, m, d, width), False, f"{n} queries, {m} keys of {d} numbers")


@exercise.check(points=4)
def causal_mask(student, rng):
    "With causal=True, the default, a row sees itself and the rows before it."
    for n, d in ((2, 3), (5, 4), (7, 2)):
        is_attention(student, drawn(rng, n, n, d, d + 1), True, f"{n} tokens of {d} numbers")
    q, k, v = drawn(rng, 4, 4, 3, 3)
    checks.close(student.attention(q, k, v), row_by_row(q, k, v, True), name="attention(q, k, v)")


@exercise.check(points=2, needs="causal_mask")
def large_scores(student, rng):
    "Scores of ten thousand, of either sign, do not overflow; no finite number hides a score."
    one, (_, _, v) = torch.ones(3, 1).double(), drawn(rng, 3, 3, 1, 2)
    is_attention(student, (one, 2.0**40 * torch.arange(3.0).double()[:, None], v), True, "hidden scores of 10^12")
    is_attention(student, drawn(rng, 4, 4, 3, 3, 1e4), True, "scores of 10^4")
    low = torch.arange(3.0, 0.0, -1.0).double()[:, None]  # the last visible token outweighs the others
    is_attention(student, (-(2.0**40) * one, low, v), True, "scores of -10^12")
    huge = 2.0**505
    is_attention(student, (-huge * one, huge * low, v), True, "scores of -10^304")
    q, k, v = drawn(rng, 3, 3, 2, 2)
    is_attention(student, (-100 * q.abs(), 100 * k.abs(), v), True, "scores of -10^4")


@exercise.check(points=2, needs="causal_mask")
def batches(student, rng):
    "Leading dimensions are batches, each with its own attention; float32 stays float32."
    for shape in ((3,), (2, 3)):
        for m, causal in ((4, True), (6, False)):
            sizes = (4, 5), (m, 5), (m, 3)
            q, k, v = (torch.randn(*shape, *size, generator=rng).double() for size in sizes)
            got = student.attention(q.clone(), k.clone(), v.clone(), causal=causal)
            each = zip(*(x.flatten(0, -3) for x in (q, k, v)), strict=True)
            expected = torch.stack([row_by_row(mine, keys, values, causal) for mine, keys, values in each])
            shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
            name = f"attention of q, k, v of shapes {shapes}, causal={causal}"
            checks.close(got, expected.view(*shape, 4, 3), name=name)
    q, k, v = (torch.randn(3, 2, generator=rng) for _ in range(3))
    expected = row_by_row(q.double(), k.double(), v.double(), True).float()
    checks.close(student.attention(q, k, v), expected, name="attention of float32")
