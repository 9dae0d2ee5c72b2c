"""Clipping a gradient that the ranks share out. Oracle: torch's clip_grad_norm_ on the whole, and the trace."""

import itertools
import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends_one_number
from autograder.exercises.ready_made import CLIPPING, SHARDING

exercise = Exercise(
    "clip",
    points=10,
    minutes=10,
    extra=True,
    forbid=(*CLIPPING, *SHARDING),
    instead="Write the norm over all ranks yourself: squares, and one all_reduce.",
)

WHY = "Every element times max_norm / norm, where the norm is larger."
PIECES = ((3, 4), (5, 4, 3), (4,), (2, 0, 3))  # elements of each rank's shares


class Gradient:
    """The shares of all ranks, and what torch makes of the whole."""

    def __init__(self, pieces, rng, scale: float = 1.0, dtype: torch.dtype = torch.float64):
        self.p = len(pieces)
        self.shares = [[(scale * torch.randn(n, generator=rng)).to(dtype) for n in sizes] for sizes in pieces]
        self.setting = f"p = {self.p}, shares of {', '.join(str(sum(sizes)) for sizes in pieces)} elements"
        self.setting += "" if dtype == torch.float64 else f" in {show.dtype(torch.zeros(0, dtype=dtype))}"
        self.rtol = max(1e-6, 2 * torch.finfo(dtype).eps)

    def run(self, student, max_norm: float):
        return student.ranks(
            "clip", self.p, lambda rank: ([x.clone() for x in self.shares[rank]],), {"max_norm": max_norm}
        )

    @property
    def norm(self) -> float:
        return math.sqrt(sum(float(x.double().square().sum()) for mine in self.shares for x in mine))

    def clipped(self, max_norm: float) -> list[list[torch.Tensor]]:
        whole = [x.double() for x in itertools.chain(*self.shares)]
        total = torch.nn.utils.get_total_norm(whole, foreach=False).item()
        return [[(x.double() * min(1.0, max_norm / total)).to(x.dtype) for x in mine] for mine in self.shares]

    def has_norm(self, run, max_norm: float) -> None:
        everything = list(itertools.chain(*self.shares))
        for rank, got in enumerate(run.results):
            own = math.sqrt(sum(float((x * x).sum()) for x in self.shares[rank]))
            norms = [math.sqrt(sum(float((x * x).sum()) for x in mine)) for mine in self.shares]
            mistakes = {
                "This is the norm of the rank's own shares: sum the squares over the ranks. (The bug of pytorch "
                "#72548.)": own,
                "You add the ranks' norms: add their squares.": sum(norms),
                "You add norms under the root: add their squares.": math.sqrt(sum(float(x.norm()) for x in everything)),
                "The root is missing.": self.norm**2,
                "The norm is a root of a sum, not of a mean over the ranks.": self.norm / math.sqrt(self.p),
                "This is the norm after clipping: return the one before.": min(self.norm, max_norm),
            }
            mistakes = {s: v for s, v in mistakes.items() if abs(v - self.norm) > 1e-4 * self.norm}
            checks.that(
                type(got) is float, f"{self.setting}: clip returns {show.an(show.type_name(got))}, expected a float."
            )
            name = f"{self.setting}: the norm on rank {rank}"
            checks.close(got, self.norm, name=name, mistakes=mistakes, rtol=max(1e-5, self.rtol))


@exercise.check(points=4, seconds=SECONDS)
def the_norm_of_all(student, rng):
    "The norm of the whole gradient, the same on every rank, for p = 1 to 4."
    for p in (2, 1, 3, 4):
        gradient = Gradient(PIECES[:p], rng)
        run = gradient.run(student, 0.5)
        gradient.has_norm(run, 0.5)
        checks.that(len(set(run.results)) == 1, f"{gradient.setting}: the ranks return different numbers.")
    gradient = Gradient(PIECES[:3], rng)
    carried(student, rng, lambda: gradient.has_norm(gradient.run(student, 0.5), 0.5), gradient.setting)


@exercise.check(points=3, needs="the_norm_of_all", seconds=SECONDS)
def scaled_by_the_same(student, rng):
    "A norm above the limit is scaled down to it, in place, on every rank; a smaller one does not change."
    for pieces, scale in ((PIECES[:2], 1.0), (PIECES, 1.0), (PIECES[:3], 1e-5)):
        gradient = Gradient(pieces, rng, scale)
        for share in (0.25, 0.99, 1 + 1e-9, 4, 2.0**-30):
            is_clipped(student, gradient, share * gradient.norm)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        gradient = Gradient(PIECES[:3], rng, dtype=dtype)
        is_clipped(student, gradient, 0.25 * gradient.norm)
    run = Gradient(PIECES[:3], rng, 0.0).run(student, 1.0)
    for rank, got in enumerate(run.results):
        stays = all(not bool(x.any()) for x in run.arguments[rank][0])
        checks.that(
            type(got) is float and got == 0.0 and stays,
            f"All gradients are 0: on rank {rank} of 3 clip returns {show.show(got)}, and the shares "
            f"{'stay 0' if stays else 'change'}, expected 0.0 and no change.",
        )


def is_clipped(student, gradient: Gradient, max_norm: float) -> None:
    """Every share on every rank is scaled in place by max_norm / norm, or left as it was; the norm is returned."""
    run, right = gradient.run(student, max_norm), gradient.clipped(max_norm)
    for rank, (mine, *_) in enumerate(run.arguments):
        for i, got in enumerate(mine):
            before, name = gradient.shares[rank][i], f"{gradient.setting}: share {i} on rank {rank}"
            own = math.sqrt(sum(float((x * x).sum()) for x in gradient.shares[rank]))
            mistakes = {
                "It is not changed: scale each share in place, x.mul_(...).": before,
                "Do not change a norm below max_norm: only scale down.": max_norm / gradient.norm * before,
                "torch's clip_grad_norm_ adds 1e-6 to the norm: here the factor is max_norm / norm, or none.": (
                    before * min(1.0, max_norm / (gradient.norm + 1e-6))
                ),
                "Each rank scales by its own norm: use the norm of the whole gradient.": before
                * min(1.0, max_norm / own),
                "This is times norm / max_norm: it is the other way round.": before * (gradient.norm / max_norm),
            }
            if max_norm > gradient.norm:
                mistakes.pop(next(iter(mistakes)))
            else:
                mistakes.pop(list(mistakes)[1])
            checks.close(got, right[rank][i], name=name, mistakes=mistakes, rtol=gradient.rtol, why=WHY)
    gradient.has_norm(run, max_norm)


@exercise.check(points=1, needs="the_norm_of_all", seconds=SECONDS)
def a_rank_that_owns_nothing(student, rng):
    "A rank without shares takes part, and returns the norm."
    for pieces in (((3,), ()), ((), (2, 2), ())):
        gradient = Gradient(pieces, rng)
        gradient.has_norm(gradient.run(student, 1.0), 1.0)


@exercise.check(points=1, needs="the_norm_of_all", seconds=SECONDS)
def all_see_a_bad_number(student, rng):
    "If one rank has infinity or NaN, so is every rank's norm; a number with a huge square is neither."
    for bad, holds, word in ((math.inf, math.isinf, "infinite"), (math.nan, math.isnan, "NaN")):
        gradient = Gradient(PIECES[:3], rng)
        gradient.shares[1][0][0] = bad
        for rank, got in enumerate(gradient.run(student, 1.0).results):
            checks.that(
                type(got) is float and holds(got),
                f"A gradient on rank 1 of 3 is {word}, and clip returns {show.show(got)} on rank {rank}, expected "
                f"{bad}: otherwise some ranks take the step and others do not.",
            )
    for dtype, scale in ((torch.float16, 300.0), (torch.float32, 1e25), (torch.bfloat16, 1e25), (torch.float16, 2e-5)):
        gradient = Gradient(PIECES[:3], rng)
        gradient.shares = [[(scale * (1 + x.abs())).to(dtype) for x in mine] for mine in gradient.shares]
        right = math.sqrt(sum(float((x.double() ** 2).sum()) for mine in gradient.shares for x in mine))
        for rank, got in enumerate(gradient.run(student, 2 * right).results):
            name = f"shares of {show.dtype(gradient.shares[0][0])} of about {scale:g}: the norm on rank {rank}"
            checks.that(type(got) is float, f"{name} is {show.an(show.type_name(got))}, expected a float.")
            why = "In 16 or 32 bits a square overflows, vanishes or is rounded: square and add in float64."
            checks.that(abs(got - right) <= 1e-12 * right, f"{name} is {got:.14g}, expected {right:.14g}.", why=why)


@exercise.check(points=1, needs="the_norm_of_all", seconds=SECONDS)
def one_number_travels(student, rng):
    "Ranks send one number, not the gradient."
    for pieces in (*(PIECES[:p] for p in (2, 3, 4)), ((50,), (60,), (40,), (50,))):
        gradient = Gradient(pieces, rng)
        run = gradient.run(student, 1.0)
        gradient.has_norm(run, 1.0)
        for rank in range(gradient.p):
            said = f"{gradient.setting}: rank {rank}'s messages have {{sent}} bytes. The sum of its squares is one "
            sends_one_number(run, rank, 1, 64, said + "number of 8 bytes.")
