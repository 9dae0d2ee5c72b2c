"""Early stopping and choice of a network. Oracle: random curves, and a record of what was trained, read and tested."""

from typing import Any

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F64, normal
from autograder.exercises.ready_made import OPTIMIZERS

exercise = Exercise(
    "stop_at",
    points=10,
    minutes=9,
    forbid=OPTIMIZERS,
    instead="Write yourself how the lowest loss is kept, and how the epochs since then are counted.",
)

LATER = 3  # epochs after the last one allowed: training too long is counted, not an error of ours
# How stopping goes wrong: when an epoch counts as bad, and when its count returns to 0.
STOP: dict[str, dict[str, Any]] = {
    "You stop one epoch too late: after `patience` epochs in a row without a new lowest loss.": {"extra": 1},
    "You stop one epoch too early: after `patience` epochs in a row without a new lowest loss.": {"extra": -1},
    "You compare each loss with the one before it: compare it with the lowest so far.": {"with_last": True},
    "You count all epochs without a new lowest loss: count those since the last one that had it.": {"in_sum": True},
    "An equal loss counts as lower: only a lower one starts the count again.": {"ties": True},
}


def run(
    curve, patience: int, most: int, extra=0, with_last=False, in_sum=False, ties=False, zero=False
) -> tuple[int, int]:
    """The epochs trained and the best one for the losses `curve` of epochs 1, 2, ...; options are mistakes."""
    best, waited = 0, 0
    for epoch, loss in enumerate(curve[:most]):
        lower = loss < curve[best] or epoch == 0 or (ties and loss == curve[best]) or (zero and not curve[best])
        good = lower or (with_last and loss < curve[epoch - 1])
        best = epoch if lower else best
        waited = (0 if not in_sum else waited) if good else waited + 1
        if not good and waited >= patience + extra:
            return epoch + 1, best + 1
    return most, best + 1


def drawn(rng, patience: int, most: int, lowest: float | None = None) -> list[float]:
    """A random curve with ties, for which every mistake of `STOP` trains for another number of epochs below `most`.

    About one curve in a hundred does; a draw takes 60 microseconds. With `lowest` it is shifted to that lowest loss; if
    that is 0, an answer that takes 0 for no loss trains for another number of epochs, too.
    """
    while True:
        steps = torch.randint(-2, 3, (most + LATER,), generator=rng).tolist()
        curve = [8.0]
        for step in steps[1:]:
            curve.append(curve[-1] + step / 4)
        right, best = run(curve, patience, most)
        if lowest is not None:
            curve = [loss - curve[best - 1] + lowest for loss in curve]
        ends = [
            most,
            right,
            *([run(curve, patience, most, zero=True)[0]] if lowest == 0 else []),
            *(run(curve, patience, most, **mistake)[0] for mistake in STOP.values()),
        ]
        if len(set(ends)) == len(ends):
            return curve


class Records:
    """Three functions for an answer, and what it did with them.

    A network is a vector of random numbers; `curves[c][e - 1]` is the validation loss of candidate c after epoch e,
    and its result on the test set is another random number.
    """

    def __init__(self, rng, curves: list[list[float]]):
        self.curves = curves
        self.networks = [normal(rng, len(curve) + 1, 3) for curve in curves]
        self.results = [normal(rng, len(curve) + 1).tolist() for curve in curves]
        self.did: list[tuple[str, int, int]] = []  # name of the function, candidate, epochs that it was trained

    def ask(self, student, patience: int, most: int):
        """What the answer returns: its network, epoch and result, of the right types."""
        candidates = [networks[0].clone() for networks in self.networks]
        got = student.stop_at(candidates, self.train_once, self.validate, self.test, patience, most)
        checks.that(
            type(got) in (tuple, list) and len(got) == 3,
            "stop_at returns three values: the network, its epoch, and its result on the test set.",
            got=got,
        )
        checks.tensor(got[0], name="the network that stop_at returned", shape=(3,), dtype=F64)
        checks.that(type(got[1]) is int, "The second value that stop_at returns is an epoch, an int.", got=got[1])
        self.which(got[0], "the caller")
        tested = [self.results[c][epoch] for name, c, epoch in self.did if name == "test"]
        checks.that(
            not tested or any(checks.same(got[2], result) for result in tested),
            "The third value that stop_at returns is the result on the test set: what test returned.",
            got=got[2],
            expected=f"one of {tested}" if len(tested) > 1 else tested,
        )
        return got

    def which(self, network, name: str) -> tuple[int, int]:
        """The candidate and the epochs of a network that was passed to `name`."""
        checks.tensor(network, name=f"the network that you pass to {name}", shape=(3,), dtype=F64)
        for c, networks in enumerate(self.networks):
            if found := (networks == network).all(dim=1).nonzero().flatten().tolist():
                return c, found[0]
        checks.fail(f"You pass {name} a network that is no candidate and that train_once never returned.")
        raise AssertionError("unreachable")

    def noted(self, name: str, network) -> tuple[int, int]:
        self.did.append((name, *self.which(network, name)))
        return self.did[-1][1:]

    def train_once(self, network):
        c, epoch = self.noted("train_once", network)
        checks.that(
            epoch < len(self.curves[c]),
            f"You train a candidate for {epoch + 1} epochs, which is more than most_epochs allows.",
        )
        return self.networks[c][epoch + 1].clone()

    def validate(self, network):
        c, epoch = self.noted("validate", network)
        checks.that(epoch > 0, "You validate a candidate before its first epoch: validate after each epoch.")
        return self.curves[c][epoch - 1]

    def test(self, network):
        c, epoch = self.noted("test", network)
        return self.results[c][epoch]

    def epochs(self, c: int) -> int:
        """How many epochs candidate c was trained; each network was trained once, and validated once after that."""
        trained = [epoch for name, which, epoch in self.did if (name, which) == ("train_once", c)]
        checks.that(
            trained == list(range(len(trained))),
            "You train from the same network twice: train_once returns a new network; pass that one the next time.",
            got=f"train_once after {', '.join(map(str, trained[:8]))} epochs",
            expected="after 0, 1, 2, ... epochs",
        )
        read = [epoch for name, which, epoch in self.did if (name, which) == ("validate", c)]
        checks.equal(
            read,
            list(range(1, len(trained) + 1)),
            name="the epochs after which you read the validation loss",
            why="Each new network is validated once: reading the whole set takes time.",
        )
        return len(trained)

    def best(self, patience: int, most: int) -> tuple[int, int]:
        """The candidate and the epoch with the lowest loss of all, the earlier one of equals."""
        ends = [run(curve, patience, most)[1] for curve in self.curves]
        c = min(range(len(ends)), key=lambda c: self.curves[c][ends[c] - 1])
        return c, ends[c]


def stops_after(records: Records, c: int, patience: int, most: int) -> None:
    """Candidate c was trained for as many epochs as patience allows."""
    curve, got = records.curves[c], records.epochs(c)
    expected = run(curve, patience, most)[0]
    named = {sentence: run(curve, patience, most, **mistake)[0] for sentence, mistake in STOP.items()}
    named["You never stop: after `patience` epochs in a row without a new lowest loss, leave the loop."] = most
    named["A lowest loss of 0 is a loss: ask whether it `is None`."] = run(curve, patience, most, zero=True)[0]
    losses = ", ".join(f"{loss:g}" for loss in curve[: expected + 1])
    checks.equal(
        got,
        expected,
        name=f"the number of epochs that you train, patience = {patience}, most_epochs = {most}",
        why=f"The validation losses are {losses}, ...",
        mistakes={sentence: value for sentence, value in named.items() if value != expected},
    )


@exercise.check(points=3)
def stops_by_patience(student, rng):
    "One candidate is trained until `patience` epochs in a row brought no new lowest validation loss."
    for patience, most, lowest in ((3, 24, 2.0), (2, 20, 0.0), (4, 30, -1.5)):
        records = Records(rng, [drawn(rng, patience, most, lowest)])
        records.ask(student, patience, most)
        stops_after(records, 0, patience, most)


@exercise.check(points=2, needs="stops_by_patience")
def keeps_the_best(student, rng):
    "The result is the network of the lowest validation loss, not the last one; of equals, the earlier one."
    for patience, most in ((3, 24), (4, 30)):
        curve = drawn(rng, patience, most)
        end, best = run(curve, patience, most)
        curve[end - 1] = curve[best - 1]  # as low again in the epoch that ends it
        records = Records(rng, [curve])
        network, epoch, _ = records.ask(student, patience, most)
        late = "Of equal losses the earlier epoch counts: replace the best network only by a lower loss."
        mistakes = {late: end, "Epochs count from 1.": best - 1}
        checks.equal(epoch, best, name="the epoch that you return", mistakes=mistakes)
        checks.that(
            records.which(network, "the caller")[1] == best,
            f"You return the network of epoch {records.which(network, 'the caller')[1]}, but the lowest validation "
            f"loss was that of epoch {best}: keep that network when you see its loss.",
        )


@exercise.check(points=2, needs="stops_by_patience")
def chooses_the_candidate(student, rng):
    "Each candidate has its own patience, and the one with the lowest validation loss of all is chosen."
    patience, most = 3, 24
    curves = [drawn(rng, patience, most) for _ in range(4)]
    lows = [curve[run(curve, patience, most)[1] - 1] for curve in curves]
    for c, low in enumerate((3.0, 1.0, 2.0, 1.0)):  # the second is best; the fourth is as good, and later
        curves[c] = [loss - lows[c] + low for loss in curves[c]]
    records = Records(rng, curves)
    for c, offset in enumerate((-10.0, 0.0, 10.0, -20.0)):  # neither the least nor the largest result is the best's
        records.results[c] = [offset + result for result in records.results[c]]
    network, epoch, result = records.ask(student, patience, most)
    for c in range(len(curves)):
        checks.that(records.epochs(c) > 0, f"You never train candidates[{c}].")
        stops_after(records, c, patience, most)
    best = records.best(patience, most)
    got = records.which(network, "the caller")
    checks.that(
        got == best,
        f"You return candidates[{got[0]}] after {got[1]} epochs, expected candidates[{best[0]}] after {best[1]}.",
        why="The lowest validation losses are 3, 1, 2 and 1; of equals the earlier candidate counts.",
    )
    checks.equal(epoch, best[1], name="the epoch that you return")
    checks.equal(result, records.results[best[0]][best[1]], name="the result on the test set")


@exercise.check(points=2, needs="stops_by_patience")
def tests_once(student, rng):
    "The test set is read exactly once: at the end, for the chosen network."
    for count in (1, 3):
        records = Records(rng, [drawn(rng, 2, 20) for _ in range(count)])
        network, *_ = records.ask(student, 2, 20)
        tests = [i for i, (name, *_) in enumerate(records.did) if name == "test"]
        checks.that(
            len(tests) == 1,
            f"You read the test set {len(tests)} times, expected once: what chooses or stops is the validation set.",
        )
        checks.that(
            tests[0] == len(records.did) - 1,
            "You read the test set before the end: after it, nothing may be trained or chosen.",
            got=f"then {len(records.did) - 1 - tests[0]} more calls of train_once and validate",
        )
        tested, returned = records.did[-1][1:], records.which(network, "the caller")
        checks.that(
            tested == returned,
            f"You test candidates[{tested[0]}] after {tested[1]} epochs, but return candidates[{returned[0]}] after "
            f"{returned[1]}: test the network that you chose.",
        )


@exercise.check(points=1, needs="stops_by_patience")
def ends_at_most_epochs(student, rng):
    "Training ends after most_epochs, even if the validation loss still falls."
    for patience, most in ((2, 5), (6, 4), (1, 1), (3, int(torch.randint(31, 91, (), generator=rng)))):
        start = 1 + float(normal(rng, 1).abs())
        records = Records(rng, [[start / (1 + e) for e in range(most + LATER)]])
        _, epoch, _ = records.ask(student, patience, most)
        checks.equal(records.epochs(0), most, name=f"the number of epochs that you train, most_epochs = {most}")
        checks.equal(epoch, most, name="the epoch that you return", why="The loss fell in every epoch.")
