"""Attention over a sequence that is cut. Oracle: softmax over all tokens in float64, the trace, the memory meter."""

import math
from collections.abc import Callable

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import ATTENTION, LOADERS, MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "ring_attention",
    points=20,
    minutes=18,
    functions=("ring_attention", "stripes"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS, *ATTENTION, *LOADERS),
    uses=("online_softmax",),
    instead="Write it with messages round a ring, and update the softmax as the blocks arrive.",
)

ITSELF = (
    "A row whose scores are all hidden is nan. Here all positions are equal, and equal positions see each other: hide "
    "a score only where positions[rank] < positions[source]."
)
D = 5  # numbers of a query, a key, a value; not 4, whose root is its half
BLOCKS = ((3, 3), (2, 1, 3), (4,), (2, 2, 2, 2), (1, 2, 1, 1, 2))  # tokens of each rank


class Sequence:
    """q, k and v of each rank's tokens, and where in the sequence they stand."""

    def __init__(self, blocks: tuple[int, ...], rng, positions: list | None = None, scale=1.0, dtype=torch.float64):
        self.p, n = len(blocks), sum(blocks)
        self.q, self.k, self.v = ([torch.randn(c, D, generator=rng).to(dtype) for c in blocks] for _ in range(3))
        self.q = [scale * q for q in self.q]
        self.positions = list(torch.arange(n).split(blocks)) if positions is None else positions

    def run(self, student, **machine):
        def arguments(rank):
            mine = (part[rank].clone() for part in (self.q, self.k, self.v))
            return *mine, [positions.clone() for positions in self.positions]

        return student.ranks("ring_attention", self.p, arguments, **machine)

    def dense(self, rank: int, visible: Callable | None = None, scale: float = math.sqrt(D)) -> torch.Tensor:
        """The rank's rows of softmax(q k^T / sqrt(d)) v over all tokens, the later ones masked."""
        seen = torch.cat([(visible or self.sees)(rank, source) for source in range(self.p)], dim=1)
        scores = self.q[rank] @ torch.cat(self.k).T / scale
        return scores.masked_fill(~seen, -math.inf).softmax(1).nan_to_num() @ torch.cat(self.v)

    def sees(self, rank: int, source: int) -> torch.Tensor:
        return self.positions[rank][:, None] >= self.positions[source]

    def by_block(self, rank: int) -> torch.Tensor:
        """The mean over blocks of the softmax of each."""
        one = lambda keep: self.dense(rank, lambda r, s: self.sees(r, s) & (s == keep))  # noqa: E731
        return torch.stack([one(source) for source in range(self.p)]).mean(0)

    def goes_round(self, run) -> None:
        """Each rank sends to one neighbour alone."""
        for rank in range(self.p):
            peers = {(event.peer - rank) % self.p for event in sends(run) if event.rank == rank}
            checks.that(
                peers in ({1}, {self.p - 1}, set()) and all(event.op != "all_reduce" for event in run.trace),
                f"p = {self.p}: rank {rank} sends to ranks {sorted((rank + d) % self.p for d in peers)}; on a ring it "
                "sends to one neighbour and receives from the other.",
            )

    def undivided(self, rank: int) -> torch.Tensor:
        """The sums of exp(score - largest score) v, which the sum of all weights has not divided."""
        seen = torch.cat([self.sees(rank, source) for source in range(self.p)], dim=1)
        scores = (self.q[rank] @ torch.cat(self.k).T / math.sqrt(D)).masked_fill(~seen, -math.inf)
        return (scores - scores.amax(1, keepdim=True)).exp() @ torch.cat(self.v)

    def attends(self, run) -> None:
        """Each output is the softmax over the tokens that the rank sees; which are hidden, `causal` asks."""
        seen = (self.sees, lambda r, s: self.sees(r, s) | True, self.sees_before, self.sees_in_block)
        for rank, got in enumerate(run.results):
            right = next((x for see in seen if checks.alike(got, x := self.dense(rank, see))), self.dense(rank))
            checks.close(got, right, name=f"p = {self.p}, causal: the output on rank {rank}", rtol=1e-5)

    def sees_before(self, rank: int, source: int) -> torch.Tensor:
        """Hide what a token sees, and show what it does not."""
        return self.positions[rank][:, None] <= self.positions[source]

    def sees_in_block(self, rank: int, source: int) -> torch.Tensor:
        """Hide by the index in a block."""
        return torch.arange(len(self.q[rank]))[:, None] >= torch.arange(len(self.k[source]))

    def agrees(self, student, setting: str, **machine):
        run = self.run(student, **machine)
        for rank in range(self.p):
            size = [len(positions) for positions in self.positions]
            mistakes = {
                "The later tokens are not masked.": self.dense(rank, lambda r, s: self.sees(r, s) | True),
                "You mask by the index in a block. Mask by the position in the sequence: positions[rank] and "
                "positions[source], of the block that is here in this step.": self.dense(rank, self.sees_in_block),
                "You take the mean of one softmax per block: the weights of all blocks together must sum to "
                "1.": self.by_block(rank),
                "Divide the scores by the square root of d.": self.dense(rank, scale=1.0),
                "Divide by the square root of d, not by d.": self.dense(rank, scale=float(D)),
                "Divide by the sum of all weights at the end: return out / total.": self.undivided(rank),
                "The rank sees only its own block: the other blocks come round the ring.": self.dense(
                    rank, lambda r, s: self.sees(r, s) & (r == s)
                ),
            }
            expected = self.dense(rank)
            mistakes = {s: v for s, v in mistakes.items() if (v - expected).abs().max() > 1e-6}
            if len(torch.cat(self.positions).unique()) == 1:
                mistakes[ITSELF] = torch.full_like(expected, math.nan)
            name = f"{setting}, blocks of {', '.join(map(str, size))} tokens: the output on rank {rank}"
            why = "Expected is the softmax over all tokens that it may see, on one machine."
            checks.close(run.results[rank], expected, name=name, why=why, mistakes=mistakes)
        return run


@exercise.check(points=4, seconds=SECONDS)
def all_tokens(student, rng):
    "Every token sees every other one (all positions are 0): the softmax over all blocks, for p = 1 to 5."
    for blocks in BLOCKS:
        zeros = [torch.zeros(c, dtype=torch.int64) for c in blocks]
        Sequence(blocks, rng, zeros).agrees(student, "nothing masked")
    zeros = [torch.zeros(c, dtype=torch.int64) for c in (2, 3)]
    Sequence((2, 3), rng, zeros, dtype=torch.float32).agrees(student, "nothing masked, float32")
    two = [torch.zeros(3, dtype=torch.int64) for _ in range(2)]
    carried(student, rng, lambda: Sequence((3, 3), rng, two).agrees(student, ""), "p = 2")


@exercise.check(points=4, needs="all_tokens", seconds=SECONDS)
def causal(student, rng):
    "A token sees itself and those before it, wherever they are; blocks come from one neighbour."
    for blocks in BLOCKS:
        sequence = Sequence(blocks, rng)
        sequence.goes_round(sequence.agrees(student, "causal"))


@exercise.check(points=1, needs="causal", seconds=SECONDS)
def any_order_of_tokens(student, rng):
    "A token also sees the right ones if tokens are dealt out in stripes, or in any order."
    Sequence((3, 3), rng, [torch.arange(rank, 6, 2) for rank in range(2)]).agrees(student, "in stripes")
    order = torch.randperm(7, generator=rng)
    Sequence((2, 3, 2), rng, list(order.split([2, 3, 2]))).agrees(student, "in any order")


@exercise.check(points=2, needs="all_tokens", seconds=SECONDS)
def large_scores(student, rng):
    "Scores of ten thousand, of either sign, do not overflow."
    Sequence((2, 3), rng, scale=1e4).agrees(student, "scores of 10^4")
    sequence = Sequence((2, 2), rng)
    sequence.q, sequence.k = [-100 * q.abs() for q in sequence.q], [100 * k.abs() for k in sequence.k]
    sequence.agrees(student, "scores of -10^4")


@exercise.check(points=3, needs="all_tokens", seconds=SECONDS)
def two_blocks_a_step(student, rng):
    "Each rank passes on two blocks in each of p - 1 steps, always to one neighbour, and waits; no argument changes."
    for p, c, causal in ((2, 3, True), (4, 2, True), (5, 2, False)):  # the causal ones as in the check `causal`
        sequence = Sequence((c,) * p, rng, None if causal else [torch.zeros(c, dtype=torch.int64) for _ in range(p)])
        run = sequence.run(student) if causal else sequence.agrees(student, "nothing masked")
        sequence.attends(run)
        right = (p - 1) * 2 * c * D * 8
        waited_for(run, f"p = {p}")
        for rank, (*given, positions) in enumerate(run.arguments):
            checks.unchanged(positions, sequence.positions, name="positions")
            for name, now, before in zip("qkv", given, (sequence.q, sequence.k, sequence.v), strict=True):
                checks.unchanged(now, before[rank], name=name)
        sequence.goes_round(run)
        for rank in range(p):
            sent = sum(event.nbytes for event in sends(run) if event.rank == rank)
            checks.that(
                sent == right,
                f"p = {p}: rank {rank} sends {sent} bytes, expected (p - 1) · 2 blocks = {right}.",
                got=f"{sent / (c * D * 8):g} blocks",
                expected=f"{2 * (p - 1)} blocks: in the last step no rank needs another block",
            )


C, WIDE, MANY = 8, 64, 12  # a block of 8 x 64 numbers is much larger than its 8 x 8 scores
MOST = 32  # blocks: all keys and values have 24; the reference holds 16, one that keeps an output per step holds 28

ARRIVED = 21  # blocks once a message has come: all keys and values and the queries have 23, an output per step 18
LEAST = 3  # blocks that any rank holds: its queries, and the keys and values of one rank
ALONE = 8  # blocks that a rank with one token may hold: its outputs are small, and all keys and values have 22


STEP, MESSAGE = 1.0, 0.25  # virtual seconds of a step's two products, and of a message


def measured(student, rng, lone: int = -1):
    """A run over many ranks, rank `lone` with one token, whose matrix products take time; by rank the output, which is
    checked, the peak of memory, and the memory before each product."""
    sizes = [1 if rank == lone else C for rank in range(MANY)]
    parts = [[torch.randn(c, WIDE, generator=rng).double() for _ in range(3)] for c in sizes]
    zeros = lambda: [torch.zeros(c, dtype=torch.int64) for c in sizes]  # noqa: E731
    price = STEP / (2 * C * C * WIDE)
    arguments = lambda rank: (price, *(part.clone() for part in parts[rank]), zeros())  # noqa: E731
    run = student.ranks("ring_attention", MANY, arguments, harness="measured", alpha=MESSAGE)
    _, keys, values = map(torch.cat, zip(*parts, strict=True))
    for rank, (q, *_) in enumerate(parts):
        right = (q @ keys.T / math.sqrt(WIDE)).softmax(1) @ values
        checks.close(run.results[rank][0], right, name=f"{MANY} ranks, nothing masked: the output on rank {rank}")
    waited_for(run, f"{MANY} ranks")
    return run


@exercise.check(points=2, needs="all_tokens", seconds=4 * SECONDS)  # twelve ranks, perhaps a row at a time in Python
def few_blocks_at_a_time(student, rng):
    "A rank never holds the keys and values of all others."
    for lone in (whole_number(rng, 0, MANY - 1), -1):  # equal blocks as where seconds are asked
        holds_few_blocks(measured(student, rng, lone), lone)


def holds_few_blocks(run, lone: int) -> None:
    """No rank of the run, whose rank `lone` has one token, holds the keys and values of all others."""
    block = C * WIDE * 8
    for rank, (_, peak, held) in enumerate(run.results):
        least, most = (2, ALONE) if rank == lone else (LEAST, MOST)
        checks.that(
            type(peak) is not int or peak >= least * block,
            f"{MANY} ranks: rank {rank} holds {show.show(peak)} bytes at a time, and the blocks of q, k and v and the "
            f"ones that arrive have {least * block}. They are torch's tensors, whose memory is measured.",
        )
        for nbytes, bound in ((peak, most), (when_blocks_have_come(run, rank, held), ARRIVED)):
            checks.that(
                type(nbytes) is int and nbytes <= bound * block,
                f"{MANY} ranks: rank {rank} holds {nbytes / block:.1f} blocks at a time. Hold the keys and values of "
                "one rank while those of the next one arrive, and free what you have passed on.",
                got=f"{nbytes / block:.1f} blocks of {block} bytes",
                expected=f"{bound} at most; the keys and values of all ranks have {2 * MANY} alone",
            )


def products(run, rank: int) -> list[float]:
    """The seconds of a rank's matrix products."""
    return [event.end - event.start for event in run.trace if event.rank == rank and event.op == "compute"]


def when_blocks_have_come(run, rank: int, held: list[int]) -> int:
    """The most bytes before the first matrix product after a message: who keeps all blocks has all after the last."""
    mine = [event.op for event in run.trace if event.rank == rank and event.op in ("recv", "compute")]
    checks.that(
        mine.count("compute") == len(held),
        f"{MANY} ranks: rank {rank} calls comm.compute. The check lets time pass for each matrix product; leave "
        "comm.compute to it.",
    )
    after = {mine[:i].count("compute") for i, op in enumerate(mine) if op == "recv"}
    return max((held[i] for i in after if i < len(held)), default=0)


@exercise.check(points=2, needs="all_tokens", seconds=4 * SECONDS)
def messages_are_hidden(student, rng):
    "The next block arrives while this one is worked on."
    run = measured(student, rng)
    work = [sum(products(run, rank)) for rank in range(MANY)]
    # An answer may write one of the two products without a matrix product, whose time is not counted.
    checks.that(
        min(work) >= 0.49 * MANY * STEP,
        f"{MANY} ranks: a rank works {min(work):g} s in {MANY} steps of 1 s. What is timed are matrix products: write "
        "the scores and the output of each step as such, e.g. with @.",
    )
    waits = max(max(e.end for e in run.trace if e.rank == rank) - work[rank] for rank in range(MANY))
    checks.that(
        waits <= 2.2 * MESSAGE and run.seconds <= MANY * STEP + 0.9,  # more work than needed hides messages, too
        f"{MANY} ranks, a step of work takes {STEP:g} s and a message {MESSAGE:g} s: {run.seconds:g} s in all, and a "
        f"rank waits {waits:g} s for messages. Begin to send this block and to receive the next one (isend, irecv), "
        "work, and then wait.",
        got=f"{run.seconds:g} s, {waits:g} s of them without work",
        expected=f"about {max(work):g} s: messages and work at the same time",
    )


def spread(n: int, p: int, step: int) -> int:
    """How many pairs of tokens more than another a rank sees in a step, if tokens are dealt out in stripes."""
    stripes = [torch.arange(rank, n, p) for rank in range(p)]
    work = [int((mine[:, None] >= stripes[(rank - step) % p]).sum()) for rank, mine in enumerate(stripes)]
    return max(work) - min(work)


@exercise.check(points=2)
def stripes_share_the_work(student, rng):
    "stripes: each token is on one rank, and all ranks see about equally much in each step."
    drawn = whole_number(rng, 13, 40), whole_number(rng, 2, 5)
    for n, p in ((8, 2), (12, 3), (10, 4), (5, 1), drawn):
        got, call = student.stripes(n, p), f"stripes({n}, {p})"
        checks.that(
            type(got) in (list, tuple) and len(got) == p,
            f"{call} is {show.show(got, 80)}, expected a list of {p} tensors.",
        )
        for rank, positions in enumerate(got):
            checks.tensor(positions, name=f"{call}[{rank}]", dtype=torch.int64)
            shape = show.shape(positions)
            checks.that(positions.dim() == 1, f"{call}[{rank}] has shape {shape}, expected one dimension.")
        everyone = torch.cat([positions.flatten() for positions in got])
        checks.that(
            len(everyone) <= n,
            f"{call} deals out {len(everyone)} tokens, and there are {n}: each rank gets its own part, not a copy of "
            "all. "
            "(The bug of pytorch/examples #1271: tiles for shards.)",
        )
        checks.equal(everyone.sort().values, torch.arange(n), name=f"the tokens of {call}")
        for step in range(p):
            work = [int((got[r][:, None] >= got[(r - step) % p]).sum()) for r in range(p)]
            checks.that(
                max(work) - min(work) <= max(spread(n, p, step), max(len(positions) for positions in got)) + 1,
                f"{call}: in step {step} the ranks see {work} pairs of tokens; the slowest sets the pace. Give rank r "
                "the "
                "tokens r, r + p, r + 2p, ...",
            )
