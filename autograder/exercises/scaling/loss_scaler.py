"""A loss scale on which all ranks agree. Oracle: a replay of every step, the trace, virtual seconds."""

import math

import torch
from torch import Tensor

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.elements import items
from autograder.checks.messages import SECONDS, carried, sends_one_number
from autograder.exercises.drawing import whole_number
from hpcdl.comm import simulate

exercise = Exercise(
    "loss_scaler",
    points=20,
    minutes=20,
    functions=("LossScaler",),
    forbid=("torch.amp", "torch.cuda.amp"),
    instead="Write the scaler yourself: divide, look, ask all ranks, and adapt.",
)

Step = list[Tensor]  # a rank's scaled gradients, float16
SIZES = (3, 4, 6, 5)  # of tensors, as many as there are


class Script:
    """What p ranks meet, step by step: where a gradient overflows, and what the scale has to be before and after it."""

    def __init__(
        self, p: int, rng, bad: dict[int, dict[int, float]], steps: int, large: bool = False, tensors: int = 2,
        **options: float,
    ):  # fmt: skip
        scale = 1024.0 * 2 ** whole_number(rng, 0, 2)
        self.p, self.options = p, {"scale": scale, "growth": 2.0, "backoff": 0.5, "interval": 3} | options
        self.gradients = [[[self.tensor(rng, n) for n in SIZES[:tensors]] for _ in range(steps)] for _ in range(p)]
        if large:  # two of them are more than FP16 has
            self.gradients = [[[torch.full_like(x, 6e4) for x in xs] for xs in mine] for mine in self.gradients]
        self.bad = [bool(bad.get(step)) for step in range(steps)]
        first, plants = whole_number(rng, 0, 1), [(step, *plant) for step in bad for plant in bad[step].items()]
        for n, (step, rank, value) in enumerate(plants, start=first):  # in all tensors in turn, anywhere in them
            x = self.gradients[rank][step][n % tensors]
            x[whole_number(rng, 0, len(x) - 1)] = value
        told = "; ".join(f"step {step} on rank {next(iter(ranks))}" for step, ranks in bad.items())
        self.setting = f"p = {p}, scale {self.options['scale']:g}, interval {self.options['interval']}" + (
            f", a gradient that is not finite in {told}" if told else ""
        )

    @staticmethod
    def tensor(rng, n: int) -> Tensor:
        """Whole numbers times 2^-12: some of them, divided by 1024, are below the least number of FP16."""
        return (torch.randint(1, 60, (n,), generator=rng) * 2.0**-12).half()

    def run(self, student, measured: bool, **machine: float):
        return student.ranks(
            "LossScaler",
            self.p,
            lambda rank: ([[x.clone() for x in step] for step in self.gradients[rank]], dict(self.options), measured),
            harness="loss_scaling",
            **machine,
        )

    def scales(
        self, bad: list[bool] | None = None, *, since_ever=False, never_reset=False, every=False, down=True, up=True
    ) -> list[float]:
        """The scale before each step and after the last; the switches are known mistakes."""
        scale, good, result = self.options["scale"], 0, [self.options["scale"]]
        for overflow in self.bad if bad is None else bad:
            if overflow:
                scale *= self.options["backoff"] if down else 1.0
                good = good if since_ever else 0
            else:
                good += 1
                if every or good == self.options["interval"] or (never_reset and good > self.options["interval"]):
                    scale *= self.options["growth"] if up else 1.0
                    good = good if never_reset else 0
            result.append(scale)
        return result

    def known(self, rank: int) -> dict[str, list[float]]:
        own = [any(not bool(x.isfinite().all()) for x in step) for step in self.gradients[rank]]
        infinite = [
            any(bool(x.isinf().any()) for r in range(self.p) for x in self.gradients[r][step])
            for step in range(len(self.bad))
        ]
        return {
            "Each rank looks only at its own gradients: all ranks must know if one overflows anywhere.": (
                self.scales(own)
            ),
            "NaN is not finite, either: torch.isfinite sees both.": self.scales(infinite),
            "The scale grows after each good step: count `interval` of them first.": self.scales(every=True),
            "Reset the count after the scale has grown.": self.scales(never_reset=True),
            "A skipped step resets the count of good steps.": self.scales(since_ever=True),
            "After a skipped step the scale is multiplied by backoff.": self.scales(down=False),
            "After `interval` good steps in a row the scale is multiplied by growth.": self.scales(up=False),
        }

    def agrees(self, student, measured: bool = False, **machine: float):
        """Scales, verdicts and updates on all ranks, step by step."""
        run, right = self.run(student, measured, **machine), self.scales()
        for rank, log in enumerate(run.results):
            for step, (done, given, _) in enumerate(log):
                name = f"{self.setting}: rank {rank}, step {step}"
                self._verdict(done, given, step, rank, name)
                if given:
                    self._unscaled(given[0], rank, step, right[step], name)
        return run

    def _verdict(self, done, given, step: int, rank: int, name: str) -> None:
        bad = self.bad[step]
        own = any(not bool(x.isfinite().all()) for x in self.gradients[rank][step])
        checks.that(type(done) is bool, f"{name}: step returns {show.show(done, 40)}, expected True or False.")
        if bad and (done or given):
            elsewhere = (
                "" if own else " It is on another rank: all must skip the step, or their weights differ from then on."
            )
            checks.fail(
                f"{name}: a gradient is not finite, and {'update is called' if given else 'step returns True'}: skip "
                f"such a step.{elsewhere}",
                got=f"update called {items(len(given), 'time')}, step returns {done}",
                expected="update not called, step returns False",
            )
        if not bad and (not done or len(given) != 1):
            checks.fail(
                f"{name}: all ranks' gradients are finite; update is called {items(len(given), 'time')} and step "
                f"returns {done}, expected once and True.",
                why="Each number is looked at by itself: a sum or a norm of finite numbers overflows, too.",
            )

    def _unscaled(self, given: list[Tensor], rank: int, step: int, scale: float, name: str) -> None:
        scaled = self.gradients[rank][step]
        checks.that(
            len(given) == len(scaled), f"{name}: update gets {len(given)} tensors, expected {len(scaled)}, all of them."
        )
        for i, (got, x) in enumerate(zip(given, scaled, strict=True)):
            if type(got) is torch.Tensor and got.dtype == torch.float16:
                checks.fail(
                    f"{name}: update's gradient {i} has dtype float16. Divided by the scale, small gradients are 0 "
                    "there again: x.float() first, then divide."
                )
            variants = {
                "That is the scaled gradient: update needs it divided by the scale.": x.float(),
                "It is multiplied by the scale: the loss was already, so divide.": x.float() * scale,
                "It was divided in FP16, where small numbers vanish: x.float() first, then divide.": (
                    x / scale
                ).float(),
                "This is divided by the scale of the next step: divide first, then adapt.": x.float()
                / self.scales()[step + 1],
                **{sentence: x.float() / scales[step] for sentence, scales in self.known(rank).items()},
            }
            right = x.float() / scale
            mistakes = {s: v for s, v in variants.items() if not torch.equal(v, right)}
            checks.close(
                got,
                right,
                name=f"{name}: update's gradient {i}, by a scale of {scale:g}",
                mistakes=mistakes,
                rtol=0.0,
                atol=0.0,
            )


@exercise.check(points=5, seconds=SECONDS)
def divided_and_grown(student, rng):
    "Gradients come to the update divided by the scale, in float32; the scale doubles after `interval` good steps."
    Script(1, rng, {}, 8).agrees(student)
    Script(2, rng, {}, 5, interval=2, tensors=whole_number(rng, 3, 4)).agrees(student)
    Script(2, rng, {}, 4, interval=1, growth=4.0, tensors=1).agrees(student)


@exercise.check(points=4, needs="divided_and_grown", seconds=SECONDS)
def left_out(student, rng):
    "Only a step with infinity or NaN is skipped; the scale is halved, and the count of good steps begins again."
    Script(1, rng, {2: {0: math.inf}}, 7).agrees(student)
    Script(1, rng, {0: {0: math.nan}, 3: {0: -math.inf}}, 8, backoff=0.25).agrees(student)
    Script(1, rng, {}, 2, large=True).agrees(student)


@exercise.check(points=5, needs="left_out", seconds=SECONDS)
def all_ranks_agree(student, rng):
    "If one rank overflows, all skip the step, and all have the same scale afterwards."
    for p, found in (
        (2, [{1: math.inf}]),
        (3, [{2: math.nan}, {0: math.inf}]),
        (4, [{0: math.inf, 3: -math.inf}, {1: math.nan}]),
    ):
        steps = sorted(torch.randperm(7, generator=rng)[: len(found)].tolist())  # a step after them shows the scale
        script = Script(p, rng, dict(zip(steps, found, strict=True)), 8)
        script.agrees(student)
    carried(student, rng, lambda: script.agrees(student), script.setting)


def one_bad(p: int, steps: int, rng) -> Script:
    """A script of p ranks in which one rank overflows once; rank and step are drawn."""
    return Script(p, rng, {whole_number(rng, 0, steps - 2): {whole_number(rng, 0, p - 1): math.inf}}, steps)


STEPS = 6


@exercise.check(points=3, needs="all_ranks_agree", seconds=SECONDS)
def one_number_travels(student, rng):
    "Ranks send one number in a step, not the gradient."
    for p in (4, 3, 2):
        script = one_bad(p, STEPS, rng)
        run = script.agrees(student)
        for rank in range(p):
            said = f"{script.setting}: rank {rank}'s messages have {{sent}} bytes in {STEPS} steps. Send one number: "
            said += "does any rank have a gradient that is not finite?"
            sends_one_number(run, rank, STEPS, STEPS * 16, said)


@exercise.check(points=3, needs="all_ranks_agree", seconds=SECONDS)
def one_round(student, rng):
    "A step waits for one all-reduce, for any number of tensors."

    def once(comm):
        comm.all_reduce(torch.zeros(1))

    for p in (2, 3, 4):
        right = simulate(once, p, alpha=1.0).seconds
        script = one_bad(p, STEPS, rng)
        took = [seconds for log in script.agrees(student, True, alpha=1.0).results for *_, seconds in log]
        checks.that(
            max(took) <= 1.5 * right,
            f"{script.setting}: with a second for each message a step takes {max(took):g} s, an all-reduce {right:g} "
            "s: ask once for all tensors together.",
        )
