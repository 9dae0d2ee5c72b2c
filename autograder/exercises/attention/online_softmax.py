"""A running softmax over blocks. Oracle: all scores at once in float64, and the memory meter."""

import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS
from autograder.exercises.attention.attention import drawn, mistakes, row_by_row
from autograder.exercises.ready_made import ATTENTION, TRANSFORMERS

exercise = Exercise(
    "online_softmax",
    points=16,
    minutes=14,
    functions=("absorb", "flash"),
    forbid=(*ATTENTION, *TRANSFORMERS),
    instead="Keep the largest score, the sum and the output, and take in one block after another.",
)

ORDER = "That is the sum. Return the largest score first, then the sum, then the output: (top, total, out)."
OLD = "Subtract the new largest score from the block's scores, not the previous one."
SIZES = ((4,), (3, 2), (1, 4, 2), (2, 1, 1, 3))  # of the blocks


class Blocks:
    """Scores and values in blocks, and the expected state after each block."""

    def __init__(self, sizes: tuple[int, ...], rng, n: int = 3, d: int = 2, scale: float = 1.0, hidden: bool = False):
        self.scores = [scale * torch.randn(n, c, generator=rng).double() for c in sizes]
        self.values = [torch.randn(c, d, generator=rng).double() for c in sizes]
        self.first = (
            torch.full((n, 1), -math.inf, dtype=torch.float64),
            torch.zeros(n, 1, dtype=torch.float64),
            torch.zeros(n, d, dtype=torch.float64),
        )
        if hidden:  # in a later block the first row sees nothing, and the second one token
            self.scores[-1][0] = self.scores[-1][1, 1:] = -math.inf
        self.setting = f"blocks of {', '.join(map(str, sizes))} keys"

    def kept(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the largest score, the sum and the output over the first `count` blocks."""
        scores, values = torch.cat(self.scores[:count], 1), torch.cat(self.values[:count])
        top = scores.amax(1, keepdim=True)
        weights = (scores - top).exp()
        return top, weights.sum(1, keepdim=True), weights @ values

    def agrees(self, student) -> None:
        state = self.first
        for i, (scores, values) in enumerate(zip(self.scores, self.values, strict=True)):
            given = [x.clone() for x in (*state, scores, values)]
            got = student.absorb(*given)
            where = f"{self.setting}, after block {i}"
            checks.that(
                type(got) in (tuple, list) and len(got) == 3,
                f"{where}: absorb returns {show.an(show.type_name(got))}, expected (top, total, out).",
            )
            for name, now, before in zip(
                ("top", "total", "out", "scores", "v"), given, (*state, scores, values), strict=True
            ):
                checks.unchanged(now, before, name=name)
            self._values(i, got, where)
            state = self.kept(i + 1)  # a mistake is reported where it happens

    def _values(self, i: int, got, where: str) -> None:
        top, total, out = self.kept(i + 1)
        scores, values = self.scores[i], self.values[i]
        before = self.kept(i) if i else self.first
        own = scores.amax(1, keepdim=True)
        weights, shrink = (scores - top).exp(), (before[0] - top).exp()
        here = (weights.sum(1, keepdim=True), weights @ values)
        known = {
            "top": {
                "That is the block's own largest score: take the maximum of it and the previous one.": own,
                "That is the previous largest score: the block has larger ones.": before[0],
                ORDER: total,
            },
            "total": {
                "The earlier sums are not scaled down: multiply by exp(top before - top now).": before[1] + here[0],
                "The earlier sums are lost: add the block to them.": here[0],
                OLD: before[1] * shrink + (scores - before[0]).exp().sum(1, keepdim=True),
                "Scale the earlier sums by exp(top before - top now), not by its inverse.": before[1] / shrink
                + here[0],
            },
            "out": {
                "The earlier sums are not scaled down: multiply by exp(top before - top now).": before[2] + here[1],
                "The earlier sums are lost: add the block to them.": here[1],
                "Do not divide out by the sum here, only after the last block.": out / total,
            },
        }
        for name, value, right in zip(("top", "total", "out"), got, (top, total, out), strict=True):
            other = {
                say: wrong for say, wrong in known[name].items() if not torch.allclose(wrong, right, equal_nan=True)
            }
            checks.close(value, right, name=f"{where}: {name}", mistakes=other)


@exercise.check(points=3)
def first_block(student, rng):
    "absorb: the first block gives its largest scores, sums and outputs."
    for n, c, d in ((1, 3, 2), (4, 2, 3), (2, 1, 5)):
        Blocks((c,), rng, n, d).agrees(student)


@exercise.check(points=4, needs="first_block")
def later_blocks(student, rng):
    "absorb: later blocks scale down the earlier sums; a row that sees nothing in a block is unchanged."
    for sizes in SIZES:
        Blocks(sizes, rng).agrees(student)
    Blocks((2, 3), rng, hidden=True).agrees(student)


@exercise.check(points=2, needs="later_blocks")
def large_scores(student, rng):
    "absorb: scores of ten thousand, of either sign, do not overflow."
    Blocks((2, 3, 2), rng, scale=1e4).agrees(student)
    low = Blocks((2, 2), rng)
    low.scores = [score - 1e4 for score in low.scores]
    low.agrees(student)


@exercise.check(points=4, needs="first_block")
def by_blocks(student, rng):
    "flash: causal attention for any block size, whether it divides n or not."
    for n, d, block in ((4, 3, 4), (6, 3, 2), (7, 2, 3), (5, 4, 1), (3, 2, 8)):
        q, k, v = drawn(rng, n, n, d, d)
        mine = [x.clone() for x in (q, k, v)]
        name = f"flash of {n} tokens in blocks of {block}"
        known = mistakes(q, k, v, True)
        local = torch.arange(n)[:, None] < torch.arange(n) % block
        known["You mask by the index in a block: key j of the block that begins at `start` is token start + j."] = (
            q @ k.T / math.sqrt(d)
        ).masked_fill(local, -math.inf).softmax(1) @ v
        cut = n - n % block
        if 0 < cut < n:
            left = (q @ k[:cut].T / math.sqrt(d)).masked_fill(torch.arange(n)[:, None] < torch.arange(cut), -math.inf)
            known["You skip the last block, which is shorter."] = left.softmax(1) @ v[:cut]
        scores = (q @ k.T / math.sqrt(d)).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        known["Divide by the sum of all weights at the end: return out / total."] = (
            scores - scores.amax(1, keepdim=True)
        ).exp() @ v
        expected = row_by_row(q, k, v, True)
        known = {say: wrong for say, wrong in known.items() if not torch.allclose(wrong, expected)}
        checks.close(student.flash(*mine, block), expected, name=name, mistakes=known)
        for letter, now, before in zip("qkv", mine, (q, k, v), strict=True):
            checks.unchanged(now, before, name=letter)


N, D, BLOCK, LARGE = 96, 2, 4, 48


@exercise.check(points=3, needs="by_blocks", seconds=SECONDS)
def no_square(student, rng):
    "flash: never holds the scores of all tokens at once, and takes fewer steps in larger blocks."
    counts = {}
    for block in (LARGE, BLOCK):
        q, k, v = (torch.randn(N, D, generator=rng) for _ in range(3))
        expected = row_by_row(q.double(), k.double(), v.double(), True).float()
        arguments = q.clone(), k.clone(), v.clone(), block
        run = student.ranks("flash", 1, lambda _, arguments=arguments: arguments, harness="peak")
        got, peak, counts[block] = run.results[0]
        checks.close(got, expected, name=f"flash of {N} tokens in blocks of {block}")
    least, most = 4 * 4 * N * D, 4 * N * N // 2
    checks.that(
        type(peak) is int and peak >= least,
        f"{N} tokens: flash holds {show.show(peak)} bytes at its peak, and q, k, v and the output alone have {least}. "
        "They are torch's tensors, whose memory is measured.",
    )
    checks.that(
        peak <= most,
        f"{N} tokens in blocks of {BLOCK}: flash holds {peak:,} bytes at its peak. Hold the scores of one block at a "
        "time, and free them.",
        got=f"{peak:,} bytes",
        expected=f"at most {most:,} bytes; all scores have {4 * N * N:,}, those of a block {4 * N * BLOCK:,}",
    )
    checks.that(
        counts[BLOCK] > counts[LARGE],
        f"{N} tokens: flash calls {counts[BLOCK]:,} of torch's operators in blocks of {BLOCK} keys, and "
        f"{counts[LARGE]:,} in blocks of {LARGE}. Larger blocks are fewer: take `block` keys at a time.",
    )
