"""Tokens sent to experts and back. Oracle: a loop over the tokens on one machine, and the trace."""

from collections import Counter

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends
from autograder.exercises.under_way import waited_for

exercise = Exercise("moe", points=15, minutes=18, extra=True)

D, WIDE = 16, 8  # numbers of a token, so many that weights have more than all tokens; where rows are counted
TOKENS = ((4, 4), (5,), (3, 6, 2), (4, 1, 3, 5))  # of each rank


class Layer:
    """Each rank's tokens, the gate that all have, and the weights of each rank's expert."""

    def __init__(self, tokens: tuple[int, ...], capacity: int, rng, d: int = D, dtype=torch.float64):
        self.p, self.capacity = len(tokens), capacity
        self.x = [torch.randn(n, d, generator=rng).to(dtype) for n in tokens]
        self.gate = torch.randn(self.p, d, generator=rng).to(dtype)
        self.w = [torch.randn(d, d, generator=rng).to(dtype) for _ in tokens]
        self.setting = f"p = {self.p}, {', '.join(map(str, tokens))} tokens, capacity {capacity}"

    def run(self, student):
        return student.ranks(
            "moe", self.p, lambda r: (self.x[r].clone(), self.gate.clone(), self.w[r].clone(), self.capacity)
        )

    def expected(
        self, rank: int, weighted: bool = True, dropped: float = 1.0, last: bool = False, ignore: bool = False
    ):
        """Token by token: y, how many were dropped, how many go to each expert; variants are known mistakes."""
        y, taken, lost = torch.empty_like(self.x[rank]), [0] * self.p, 0
        order = range(len(y))
        for t in reversed(order) if last else order:
            odds = (self.gate @ self.x[rank][t]).softmax(0)
            expert = int(odds.argmax())
            if taken[expert] < self.capacity or ignore:
                taken[expert] += 1
                out = torch.relu(self.x[rank][t] @ self.w[expert])
                y[t] = out * odds[expert] if weighted else out
            else:
                y[t], lost = dropped * self.x[rank][t], lost + 1
        return y, lost, taken

    def agrees(self, student):
        run = self.run(student)
        for rank, got in enumerate(run.results):
            checks.that(
                type(got) in (tuple, list) and len(got) == 2,
                f"{self.setting}: moe returns {show.an(show.type_name(got))} on rank {rank}, expected (y, dropped).",
            )
            y, lost, _ = self.expected(rank)
            mistakes = {
                "Multiply the expert's answer by the gate's probability.": self.expected(rank, False)[0],
                "A dropped token is 0 here: it must pass unchanged.": self.expected(rank, dropped=0.0)[0],
                "A full expert keeps the tokens that came first; here it keeps others.": self.expected(rank, last=True)[
                    0
                ],
                "Nothing is dropped: an expert takes at most `capacity` tokens of a rank.": self.expected(
                    rank, ignore=True
                )[0],
            }
            mistakes = {s: v for s, v in mistakes.items() if len(y) and (v - y).abs().max() > 1e-9}
            name = f"{self.setting}: y on rank {rank}"
            why = (
                "Row t is token t's: the probability of its expert times the expert's answer, or x[t] if it was "
                "dropped."
            )
            if type(got[0]) is torch.Tensor and got[0].shape == y.shape and got[0].is_floating_point():
                mine, right = (torch.tensor(sorted(x.tolist()), dtype=torch.float64) for x in (got[0].double(), y))
                checks.that(
                    not checks.alike(mine, right) or checks.alike(got[0], y),
                    f"{name} has the right rows in another order: put each answer back into its token's place.",
                )
            checks.close(got[0], y, name=name, why=why, mistakes=mistakes)
            checks.equal(got[1], lost, name=f"{self.setting}: dropped on rank {rank}")
        return run

    def travels(self, student) -> None:
        """Check the values, and that tokens travel: no rank sends another what an expert's weights have."""
        run, sent = self.agrees(student), Counter[tuple[int, int]]()
        gives_no_rank_the_same(run, self.setting)
        for event in sends(run):
            sent[event.rank, event.peer] += event.nbytes
        for (rank, peer), nbytes in sent.items():
            checks.that(
                nbytes < self.w[0].nbytes,
                f"{self.setting}: rank {rank} sends rank {peer} {nbytes} bytes. The weights of an expert have "
                f"{self.w[0].nbytes}, and these tokens have fewer: send tokens and counts, but no weights.",
            )


def gives_no_rank_the_same(run, setting: str) -> None:
    """The run does without the machine's own collectives."""
    own = next((event.op for event in run.trace if event.op in ("all_reduce", "broadcast")), None)
    checks.that(
        own is None,
        f"{setting}: comm.{own} gives every rank the same. An expert needs the tokens that have chosen it, "
        "and no rank needs another's weights: all_to_all.",
    )


@exercise.check(points=6, seconds=SECONDS)
def every_token_to_its_expert(student, rng):
    "If no expert is full, each token returns from its expert to its own place, for p = 1 to 4."
    for tokens in TOKENS:
        Layer(tokens, max(tokens), rng).travels(student)
    Layer((3, 2), 3, rng, dtype=torch.float32).travels(student)
    carried(student, rng, lambda: Layer((9, 9), 9, rng).agrees(student), "p = 2")


@exercise.check(points=4, needs="every_token_to_its_expert", seconds=SECONDS)
def full_experts(student, rng):
    "An expert takes the first `capacity` tokens of each rank; the others pass through unchanged and are counted."
    for tokens in TOKENS:
        for capacity in (1, 2):
            Layer(tokens, capacity, rng).travels(student)


@exercise.check(points=2, needs="every_token_to_its_expert", seconds=SECONDS)
def a_rank_without_tokens(student, rng):
    "A rank without tokens still has an expert, and answers."
    Layer((3, 0), 2, rng).travels(student)
    Layer((0, 2, 4), 1, rng).travels(student)


@exercise.check(points=3, needs="every_token_to_its_expert", seconds=SECONDS)
def no_more_than_the_tokens(student, rng):
    "Only accepted tokens and a few counts are sent, there and back, and waited for; no argument changes."
    for tokens, capacity in (((6, 6), 4), ((4, 8, 5), 2), ((6, 6, 6, 6), 6)):
        layer = Layer(tokens, capacity, rng, WIDE)
        run = layer.agrees(student)
        waited_for(run, layer.setting)
        gives_no_rank_the_same(run, layer.setting)
        for rank, (x, gate, w, _) in enumerate(run.arguments):
            checks.unchanged(x, layer.x[rank], name="x")
            checks.unchanged(gate, layer.gate, name="gate")
            checks.unchanged(w, layer.w[rank], name="w")
        kept = [layer.expected(rank)[2] for rank in range(layer.p)]
        for rank in range(layer.p):
            others = [other for other in range(layer.p) if other != rank]
            rows = sum(kept[rank][other] + kept[other][rank] for other in others)
            sent = sum(event.nbytes for event in sends(run) if event.rank == rank)
            right, padded = 8 * WIDE * rows, 2 * 8 * WIDE * capacity * len(others)
            mistake = (
                "You send more than the kept rows: no empty rows, no other tokens, no weights. Send their number first."
                if sent >= padded
                else ""
            )
            everything = 8 * WIDE * sum(len(layer.x[rank]) + len(layer.x[other]) for other in others)
            mistake = (
                "You send all tokens to every expert: send each token only to its own."
                if sent >= everything
                else mistake
            )
            if not right <= sent <= right + 24 * len(others):
                raise checks.CheckFailure(
                    f"{layer.setting}: rank {rank} sends {sent} bytes for {rows} rows of {8 * WIDE} bytes.",
                    got=f"{sent} bytes",
                    expected=f"{right} bytes, and up to 24 for numbers of rows to each other rank",
                    mistake=mistake,
                )
