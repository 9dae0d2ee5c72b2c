"""The L-BFGS direction by shards. Oracle: the dense inverse Hessian, built pair by pair."""

from collections.abc import Callable

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.ready_made import OPTIMIZERS, RANKS
from autograder.exercises.under_way import waited_for
from autograder.sessions.errors import StudentError

exercise = Exercise(
    "two_loop",
    points=15,
    minutes=15,
    functions=("lbfgs_direction",),
    forbid=(*RANKS, *OPTIMIZERS, "scipy.optimize"),
    instead="Write the two loops yourself: dot products that send one number, and sums of shards.",
)


SLIPS = {
    "rho": "rho is 1 / (y · s), not y · s.",
    "s": "The first loop subtracts a_i y_i, not a_i s_i.",
    "y": "The second loop adds (a_i - b) s_i, not (a_i - b) y_i.",
    "sum": "The second loop adds (a_i - b) s_i: subtract b from a_i.",
    "oldest": "The scaling between the loops is that of the newest pair, not of the oldest.",
    "s by s": "The scaling between the loops is (s · y) / (y · y).",
    "back": "The second loop goes from the oldest pair to the newest.",
}


LARGE = 100_000  # a dense matrix of so many rows has 80 GB


def quadratic(n: int, rng: torch.Generator) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product with a Hessian, which is diagonal if n is large."""
    if n == LARGE:
        curvature = torch.rand(n, generator=rng).double() + 0.5
        return lambda x: curvature * x
    half = torch.randn(n, n, generator=rng).double()
    hessian = half @ half.T / n + torch.eye(n).double()
    return lambda x: hessian @ x


class History:
    """Differences of weights and gradients of a convex quadratic, and the gradient now, cut into shards."""

    def __init__(self, n: int, m: int, p: int, rng, dtype=torch.float64):
        curved = quadratic(n, rng)
        s = [torch.randn(n, generator=rng).double() for _ in range(m)]
        self.s, self.y = [x.to(dtype) for x in s], [curved(x).to(dtype) for x in s]
        self.g, self.n, self.m, self.p = torch.randn(n, generator=rng).to(dtype), n, m, p
        self.setting = f"p = {p}, n = {n}, {m} pairs" + ", float32" * (dtype == torch.float32)

    def run(self, student):
        return student.ranks("lbfgs_direction", self.p, self.shards, harness="comm_first")

    def shards(self, rank: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
        """A rank's part of s, y and g."""
        *pairs, g = ([x.tensor_split(self.p)[rank].clone() for x in xs] for xs in (self.s, self.y, [self.g]))
        return pairs[0], pairs[1], g[0]

    def dense(self, mistake: str = "") -> torch.Tensor:
        """-H g, H being made pair by pair as BFGS has it: H = (I - rho s y') H (I - rho y s') + rho s s'."""
        h, eye = torch.eye(self.n).double(), torch.eye(self.n).double()
        if self.m and mistake != "no gamma":
            s, y = self.s[-1].double(), self.y[-1].double()
            h = h * ((y @ y) / (s @ y) if mistake == "upside down" else (s @ y) / (y @ y))
        pairs = [(s.double(), y.double()) for s, y in zip(self.s, self.y, strict=True)]
        for s, y in reversed(pairs) if mistake == "order" else pairs:
            rho = 1 / (s @ y)
            left = eye - rho * torch.outer(s, y)
            h = left @ h @ left.T + rho * torch.outer(s, s)
        found = h @ self.g.double()
        return (found if mistake == "uphill" else -found).to(self.g.dtype)

    def by_loops(self, slip: str) -> torch.Tensor:
        """The two loops with one slip in them."""
        q, kept = self.g, []
        for s, y in reversed(list(zip(self.s, self.y, strict=True))):
            rho = s @ y if slip == "rho" else 1 / (s @ y)
            a = rho * (s @ q)
            q = q - a * (s if slip == "s" else y)
            kept.append((s, y, rho, a))
        if kept:
            s, y, *_ = kept[-1 if slip == "oldest" else 0]
            q = q * ((s @ s) / (s @ y) if slip == "s by s" else (s @ y) / (y @ y))
        for s, y, rho, a in kept if slip == "back" else reversed(kept):
            b = rho * (y @ q)
            q = q + (a + b if slip == "sum" else a - b) * (y if slip == "y" else s)
        return -q

    def alone(self, rank: int) -> torch.Tensor:
        """What a rank finds that knows its own shards only."""
        mine = History.__new__(History)
        mine.s, mine.y = ([x.tensor_split(self.p)[rank] for x in xs] for xs in (self.s, self.y))
        mine.g = self.g.tensor_split(self.p)[rank]
        mine.n, mine.m = len(mine.g), self.m
        return mine.dense()

    def agrees(self, student):
        run, right = self.run(student), self.dense()
        sentences = {
            "no gamma": "Between the loops q is multiplied by (s · y) / (y · y) of the newest pair.",
            "upside down": "The scaling between the loops is (s · y) / (y · y), not its inverse.",
            "order": "The first loop goes from the newest pair to the oldest, the second one back.",
            "uphill": "The direction is -r: downhill.",
        }
        whole = {sentence: self.dense(kind) for kind, sentence in sentences.items()}
        whole |= {sentence: self.by_loops(kind) for kind, sentence in SLIPS.items()}
        for rank, expected in enumerate(right.tensor_split(self.p)):
            named = {s: v.tensor_split(self.p)[rank] for s, v in whole.items()}
            if self.p > 1:
                named["These dot products use only this rank's shards: sum them over the ranks."] = self.alone(rank)
            named = {s: v for s, v in named.items() if not torch.allclose(v, expected)}
            name = f"{self.setting}: the direction on rank {rank}"
            exact = expected.dtype == torch.float64
            checks.close(run.results[rank], expected, name=name, mistakes=named, rtol=1e-8 if exact else 1e-3)
        return run


@exercise.check(points=10, seconds=SECONDS)
def two_loops(student, rng):
    "Every rank returns its shard of the dense formula's direction, for p = 1 to 4, and needs no dense matrix."
    for p, m in ((1, 2), (2, 3), (3, 1), (4, 4)):
        History(9, m, p, rng).agrees(student)
    History(5, 0, 2, rng).agrees(student)
    History(5, 1, 2, rng, torch.float32).agrees(student)
    History(2, 1, 3, rng).agrees(student)  # the last rank's shards are empty
    carried(student, rng, lambda: History(9, 3, 2, rng).agrees(student), "p = 2")
    needs_no_matrix(student, History(LARGE, 1, 2, rng))


def needs_no_matrix(student, history: History) -> None:
    """The direction is right where only vectors fit into memory."""
    try:
        run = history.run(student)
    except StudentError as error:
        if "alloc" not in error.text and not error.is_a(MemoryError):
            raise
        raise checks.CheckFailure(
            f"{history.setting}: your code asks for more memory than it may have.",
            why="The two loops need only dot products and sums of vectors.",
            mistake="A matrix of n x n numbers does not fit into memory.",
        ) from None
    for rank, right in enumerate(history.by_loops("").tensor_split(history.p)):
        checks.close(run.results[rank], right, name=f"{history.setting}: the direction on rank {rank}", rtol=1e-8)


NUMBER = 8  # bytes
UNSENT = ("recv", "compute", "accumulate")  # what a trace has besides messages that are sent


@exercise.check(points=5, needs="two_loops", seconds=SECONDS)
def only_numbers_travel(student, rng):
    "Messages do not grow with n, and are waited for; arguments are not changed."
    sent = []
    for n in (12, 96):
        history = History(n, 3, 4, rng)
        run = history.agrees(student)
        waited_for(run, history.setting)
        for rank, after in enumerate(run.arguments):
            for letter, now, before in zip("syg", after, history.shards(rank), strict=True):
                checks.unchanged(now, before, name=letter)
        moved = [[e.nbytes for e in run.trace if e.op not in UNSENT and e.rank == r] for r in range(history.p)]
        sent.append([(sum(sizes), len(sizes)) for sizes in moved])
    for rank, ((small, few), (large, many)) in enumerate(zip(*sent, strict=True)):
        checks.that(
            (small, few) == (large, many),
            f"Rank {rank} sends {small} bytes in {few} messages with n = 12, and {large} in {many} with n = 96. Send "
            "no vectors: each dot product needs one number from each rank.",
        )
        most = (4 * history.m + 4) * 2 * (history.p - 1) * NUMBER
        checks.that(
            small <= most,
            f"Rank {rank} sends {small} bytes in {few} messages, whatever n is. With {history.m} pairs, {most} are "
            "enough for all dot products: each needs one number from each rank.",
        )
