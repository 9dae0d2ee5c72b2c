"""Which experts a token goes to, and how even a gate is. Oracle: token by token, choice by choice."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise

exercise = Exercise("route", points=12, minutes=10, extra=True, functions=("route", "balance"))


class Gate:
    """The odds of n tokens for e experts, in float64, without ties."""

    def __init__(self, n: int, e: int, rng, favourite: float = 0.0):
        logits = torch.randn(n, e, generator=rng).double()
        logits[:, 0] += favourite
        self.odds = logits.softmax(1)
        self.n, self.e = n, e

    @classmethod
    def of_float32(cls, n: int, e: int, rng):
        """Odds 1, 2, ..., e in any order, over their sum."""
        gate = cls(n, e, rng)
        places = torch.stack([torch.randperm(e, generator=rng) + 1 for _ in range(n)])
        gate.odds = places / places.sum(1, keepdim=True)
        return gate

    def expected(self, k: int, capacity: int, by_token: bool = False, backwards: bool = False, whole: bool = False):
        """Return experts and weights; variants are known mistakes."""
        experts, weights = torch.empty(self.n, k, dtype=torch.int64), torch.zeros(self.n, k, dtype=torch.float64)
        for token, row in enumerate(self.odds.tolist()):
            best = [expert for _, expert in sorted((-odds, expert) for expert, odds in enumerate(row))][:k]
            experts[token] = torch.tensor(best)
            for choice, expert in enumerate(best):
                weights[token, choice] = row[expert] / (1.0 if whole else sum(row[other] for other in best))
        tokens = list(reversed(range(self.n))) if backwards else list(range(self.n))
        turns = [(token, choice) for choice in range(k) for token in tokens]
        taken = [0] * self.e
        for token, choice in sorted(turns) if by_token else turns:
            expert = int(experts[token, choice])
            if taken[expert] >= capacity:
                weights[token, choice] = 0.0
            taken[expert] += 1
        return experts, weights.to(self.odds.dtype)

    def agrees(self, student, k: int, capacity: int) -> None:
        setting = f"{self.n} tokens, {self.e} experts, k = {k}, capacity {capacity}"
        given = self.odds.clone()
        got = student.route(given, k, capacity)
        checks.that(
            type(got) in (tuple, list) and len(got) == 2,
            f"{setting}: route returns {show.an(show.type_name(got))}, expected (experts, weights).",
        )
        experts, weights = self.expected(k, capacity)
        known = {
            "The expert with the best odds comes first.": experts.flip(1),
            "Those are the experts with the worst odds.": (-self.odds).topk(k, 1).indices,
        }
        known = {say: value for say, value in known.items() if not torch.equal(value, experts)}
        checks.close(got[0], experts, name=f"{setting}: experts", mistakes=known)
        mistakes = {
            "Divide by the sum of the k odds: the weights of a token whose experts have room sum to 1.": self.expected(
                k, capacity, whole=True
            )[1],
            "Nothing is dropped: an expert takes no more than `capacity` choices.": self.expected(k, k * self.n)[1],
            "First choices of all tokens come before second choices.": self.expected(k, capacity, by_token=True)[1],
            "Earlier tokens come before later ones.": self.expected(k, capacity, backwards=True)[1],
            "An expert takes `capacity` choices; yours takes one fewer.": self.expected(k, capacity - 1)[1],
            "An expert takes `capacity` choices; yours takes one more.": self.expected(k, capacity + 1)[1],
            "A dropped choice does not change the other weights of its token.": renormed(weights),
        }
        mistakes = {say: value for say, value in mistakes.items() if not torch.allclose(value, weights)}
        checks.close(got[1], weights, name=f"{setting}: weights", mistakes=mistakes)
        checks.unchanged(given, self.odds, name="odds")


def renormed(weights: torch.Tensor) -> torch.Tensor:
    """Return the weights of each token over their sum, where something is left."""
    return (weights / weights.sum(1, keepdim=True)).nan_to_num()


@exercise.check(points=4)
def choices(student, rng):
    "route: the k best experts of each token, and their odds over the sum of these, if no expert is full."
    for n, e, k in ((4, 3, 1), (5, 4, 2), (3, 6, 3), (6, 2, 2)):
        Gate(n, e, rng).agrees(student, k, k * n)
    Gate.of_float32(5, 4, rng).agrees(student, 2, 10)


@exercise.check(points=4, needs="choices")
def full_experts(student, rng):
    "route: if an expert is full, the weight is 0; first choices come before second ones, and earlier tokens first."
    for n, e, k, capacity in ((6, 3, 1, 2), (8, 4, 2, 3), (7, 3, 2, 2), (9, 4, 3, 1)):
        Gate(n, e, rng, favourite=2.0).agrees(student, k, capacity)


@exercise.check(points=4)
def balance_of_a_gate(student, rng):
    "balance: e times the sum of shares of first choices times mean odds; 1 if even, e if one expert gets everything."
    for n, e, favourite in ((6, 3, 0.0), (9, 4, 2.0), (5, 2, 0.0), (7, 6, 1.0)):
        odds = Gate(n, e, rng, favourite).odds
        shares = torch.tensor([(odds.argmax(1) == i).sum() for i in range(e)]).double() / n
        mean = odds.mean(0)
        right = e * float(shares @ mean)
        known = {
            "Multiply by the number of experts: an even gate has 1.": right / e,
            "f is the share of first choices, not the mean odds again.": e * float(mean @ mean),
            "P is the mean of the odds, not the share of first choices again.": e * float(shares @ shares),
            "Take shares and means, not sums: divide by the number of tokens.": right * n,
            "Both are per token: divide both by the number of tokens.": right * n * n,
        }
        known = {say: value for say, value in known.items() if abs(value - right) > 1e-6}
        checks.close(student.balance(odds), right, name=f"balance of {n} tokens and {e} experts", mistakes=known)
    sure = torch.zeros(5, 4, dtype=torch.float64)
    sure[:, 2] = 1.0
    checks.close(student.balance(sure), 4.0, name="balance where expert 2 of 4 gets every token for certain")
