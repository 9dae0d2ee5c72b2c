"""Wrong answers to `attention`."""

import math

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.attention")
ALL = ("weighted_mean", "causal_mask", "large_scores", "batches")
MASK = ("causal_mask", "large_scores", "batches")
BLOCKS = tuple(f"attention.heads.{check}" for check in ("one_head", "many_heads", "batches"))


@wrong("scores are not divided", fails=(*ALL, *BLOCKS), says="Divide the scores by the square root of d")
def attention(q, k, v, causal=True):
    scores = q @ k.transpose(-1, -2)
    if causal:
        n = q.shape[-2]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


slip("scores divided by d", "math.sqrt(q.shape[-1])", "q.shape[-1]", fails=(*ALL, *BLOCKS), says="not by d")


@wrong("a softmax along the queries", fails=(*ALL, *BLOCKS), says="The softmax goes along the keys")
def attention(q, k, v, causal=True):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        n = q.shape[-2]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-2) @ v


@wrong("no mask", fails=(*MASK, *BLOCKS), says="The future is not hidden")
def attention(q, k, v, causal=True):
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


@wrong("always a mask", fails=("weighted_mean", "batches"), says="every token sees every other")
def attention(q, k, v, causal=True):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


slip("the past is hidden", "triu(1), -math", "tril(-1), -math", fails=(*MASK, *BLOCKS), says="You hide the past")
slip("a token does not see itself", "(1), -math", "(0), -math", fails=(*MASK, *BLOCKS), says="A token sees itself, too")
slip("a hidden score is 0", "(1), -math.inf", "(1), 0.0", fails=(*MASK, *BLOCKS), says="A hidden score is -inf")


@wrong("weights hidden after the softmax", fails=(*MASK, *BLOCKS), says="You mask after the softmax")
def attention(q, k, v, causal=True):
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    return (weights.tril() if causal else weights) @ v


@wrong("a softmax that overflows", fails="large_scores", says="exp of a large score is inf")
def attention(q, k, v, causal=True):
    odds = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).exp()
    odds = odds.tril() if causal else odds
    return odds / odds.sum(-1, keepdim=True) @ v


@wrong("all dimensions of k exchanged", fails=("batches", *BLOCKS), says="exchange the last two dimensions of k")
def attention(q, k, v, causal=True):
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        n = q.shape[-2]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


slip(
    "a mask as wide as the batch",
    "n = q.shape[-2]",
    "n = q.shape[0]",
    fails=("batches", *BLOCKS),
    says="The mask has a row for each query",
)
slip(
    "the caller's q is divided in place",
    "scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])",
    "q /= math.sqrt(q.shape[-1])\n    scores = q @ k.transpose(-1, -2)",
    fails=ALL,
    says="changed its argument q",
)
slip(
    "everything in float64",
    "scores.softmax(-1) @ v",
    "scores.double().softmax(-1) @ v.double()",
    fails="batches",
    says="float32",
)
slip("a large number hides", "-math.inf", "-1e9", fails="large_scores", says="no finite number is below every score")
slip(
    "a large number is subtracted",
    *("scores.masked_fill(", "scores - 1e4 * ("),
    *(", -math.inf", ""),
    fails="large_scores",
    says="A finite number that is added",
)
slip("a very large number hides", "-math.inf", "-1e20", fails="large_scores", says="scores of -10^304")
slip("d of v", "math.sqrt(q.shape[-1])", "math.sqrt(v.shape[-1])", fails=ALL, says="v may have another one")
slip(
    "the number of rows",
    "math.sqrt(q.shape[-1])",
    "math.sqrt(q.shape[-2])",
    fails=(*ALL, *BLOCKS),
    says="not its number of rows",
)
