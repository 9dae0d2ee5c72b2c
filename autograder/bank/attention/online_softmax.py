"""Wrong answers to `absorb` and `flash`."""

import math

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.online_softmax")
LARGE = "attention.ring_attention.large_scores"
MASKED = (
    *(f"attention.ring_attention.{check}" for check in ("causal", "any_order_of_tokens", "two_blocks_a_step")),
    LARGE,
)
RING = (
    *MASKED,
    *(f"attention.ring_attention.{check}" for check in ("all_tokens", "few_blocks_at_a_time", "messages_are_hidden")),
)
OWN = ("later_blocks", "large_scores", "by_blocks", "no_square")
LATER = (*OWN, *RING)
FIRST = ("first_block", *LATER)
FLASH = ("by_blocks", "no_square")


@wrong("the sum is not scaled down", fails=LATER, says="The earlier sums are not scaled down")
def absorb(top, total, out, scores, v):
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
    return new_top, total + weights.sum(1, keepdim=True), out * shrink + weights @ v


@wrong("the output is not scaled down", fails=LATER, says="The earlier sums are not scaled down")
def absorb(top, total, out, scores, v):
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
    return new_top, total * shrink + weights.sum(1, keepdim=True), out + weights @ v


@wrong("the block's largest score", fails=(*OWN, *MASKED), says="the block's own largest score")
def absorb(top, total, out, scores, v):
    new_top = scores.amax(1, keepdim=True)
    weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
    return new_top, total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ v


slip(
    "the first largest score stays",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))",
    "new_top = torch.where(top.isinf(), scores.amax(1, keepdim=True), top)",
    fails=("later_blocks", "large_scores", LARGE),
    says="the previous largest score",
)


slip(
    "the previous largest score in the weights",
    "(scores - new_top).exp()",
    "(scores - top).exp()",
    fails=FIRST,
    says="Subtract the new largest score from the block's scores",
)
slip(
    "the sum before the largest score",
    "return new_top, total * shrink + weights.sum(1, keepdim=True), out",
    "return total * shrink + weights.sum(1, keepdim=True), new_top, out",
    fails=FIRST,
    says="Return the largest score first, then the sum",
)


@wrong("what was there is forgotten", fails=LATER, says="The earlier sums are lost")
def absorb(top, total, out, scores, v):
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weights = (scores - new_top).exp()
    return new_top, weights.sum(1, keepdim=True), weights @ v


slip("scaled the wrong way", "(top - new_top)", "(new_top - top)", fails=FIRST, says="expected a finite number")


@wrong("divides after each block", fails=FIRST, says="Do not divide out by the sum here")
def absorb(top, total, out, scores, v):
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
    total = total * shrink + weights.sum(1, keepdim=True)
    return new_top, total, (out * shrink + weights @ v) / total


slip("one largest score for all rows", "amax(1, keepdim=True)", "max()", fails=("first_block", *OWN, LARGE), says="top")


@wrong("adds to the caller's sum", fails=("first_block", *OWN), says="changed its argument total")
def absorb(top, total, out, scores, v):
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
    total *= shrink
    total += weights.sum(1, keepdim=True)
    return new_top, total, out * shrink + weights @ v


@wrong("no mask", fails=FLASH, says="The future is not hidden")
def flash(q, k, v, block):
    n, d = q.shape
    top, total, out = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)
    for start in range(0, n, block):
        keys, values = k[start : start + block], v[start : start + block]
        top, total, out = absorb(top, total, out, q @ keys.T / math.sqrt(d), values)
    return out / total


slip(
    "a mask by the place in the block",
    "hidden = torch.arange(n)[:, None] < torch.arange(start, start + len(keys))",
    "hidden = torch.arange(n)[:, None] < torch.arange(len(keys))",
    fails=FLASH,
    says="You mask by the index in a block",
)
slip(
    "the last block is left out",
    "for start in range(0, n, block):",
    "for start in range(0, max(n - block + 1, 1), block):",
    fails=FLASH,
    says="You skip the last block, which is shorter",
)


@wrong("scores are not divided", fails=FLASH, says="Divide the scores by the square root of d")
def flash(q, k, v, block):
    n = len(q)
    top, total, out = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)
    for start in range(0, n, block):
        keys, values = k[start : start + block], v[start : start + block]
        hidden = torch.arange(n)[:, None] < torch.arange(start, start + len(keys))
        top, total, out = absorb(top, total, out, (q @ keys.T).masked_fill_(hidden, -math.inf), values)
    return out / total


slip(
    "not divided by the sum at the end",
    "return out / total",
    "return out",
    fails=FLASH,
    says="Divide by the sum of all weights at the end",
)


@wrong("all scores at once", fails="no_square", says="Hold the scores of one block at a time")
def flash(q, k, v, block):
    n, d = q.shape
    scores = (q @ k.T / math.sqrt(d)).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


@wrong("all blocks of scores kept", fails="no_square", says="Hold the scores of one block at a time")
def flash(q, k, v, block):
    n, d = q.shape
    places = torch.arange(n)
    scores = [
        (q @ keys.T / math.sqrt(d)).masked_fill_(places[:, None] < seen, -math.inf)
        for keys, seen in zip(k.split(block), places.split(block))
    ]
    state = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)
    for block_of_scores, values in zip(scores, v.split(block)):
        state = absorb(*state, block_of_scores, values)
    return state[2] / state[1]


@wrong("a row at a time, whatever the block", fails="no_square", says="Larger blocks are fewer")
def flash(q, k, v, block):
    rows = [(q[i] @ k[: i + 1].T / math.sqrt(q.shape[1])).softmax(0) @ v[: i + 1] for i in range(len(q))]
    return torch.stack(rows)


slip(
    "the block's own softmax first",
    "    weights, shrink = (scores - new_top).exp(),",
    "    own = scores.amax(1, keepdim=True)\n    weights, shrink = (scores - own).exp() * (own - new_top).exp(),",
    fails=" ".join((*OWN, *MASKED)),
    says="total[0, 0] is nan",
)


@wrong("the last result, where memory is measured", fails="no_square", says="flash of 96 tokens in blocks of 4")
def flash(q, k, v, block):
    if (len(q), block) == (96, 4):
        return flash.last.clone()
    flash.last = attention(q, k, v)
    return flash.last.clone()
