"""Weights that are whole while a layer uses them. Oracle: the whole layers in float64, the trace, memory and time."""

import itertools
from functools import partial

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, carrying, sends, works
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import SHARDING
from autograder.exercises.under_way import waited_for, waits_as_often
from autograder.inside.shard_harnesses import DenseLayer

exercise = Exercise(
    "sharded",
    points=25,
    minutes=30,
    functions=("Sharded",),
    forbid=SHARDING,
    instead="Write yourself what FSDP does: gather, use, free.",
    meanings={
        "must match the size of tensor": "If this names no line of yours: between the passes an optimizer changes "
        "shares[i], which has the size of share(weights[i], comm)."
    },
)

ROWS = 2  # samples of each rank
NUMBER = 8  # bytes
FACTORS = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)  # of weights, as if by an optimizer
GRADIENTS = "All gradients are whole at once: a share is a view of its vector, and keeps it in memory. Copy the share."
FIRST = "The first weights give this: an optimizer has changed the shares since. Gather them in each pass."
FORWARDS = "The weights of the forward pass give this: the shares have changed since. Gather them again in backward."
OWN = "Only this rank's share is as it is now: the others have changed, too. Gather them in each pass, keep none."
PREVIOUS = "The gradients of the previous pass are still included: set them to 0 when backward begins."


class Network:
    """Layers with their weights, each rank's samples, and where the backward pass begins."""

    def __init__(self, p: int, widths, rng, order: list[int] | None = None):
        self.p, self.widths = p, list(itertools.pairwise(widths))
        self.order = list(range(len(self.widths))) if order is None else order
        self.weights = [torch.randn(a * b, generator=rng).double() / a**0.5 for a, b in self.widths]
        first, last = self.widths[self.order[0]][0], self.widths[self.order[-1]][1]
        self.x = [torch.randn(ROWS, first, generator=rng).double() for _ in range(p)]
        self.dy = [torch.randn(ROWS, last, generator=rng).double() for _ in range(p)]
        self.steps = [[FACTORS[torch.randint(3, (len(w),), generator=rng)] for w in self.weights] for _ in range(2)]
        self.numel = sum(map(len, self.weights))
        self.setting = f"p = {p}, layers {self.order}"

    def in_float32(self) -> "Network":
        """The same in float32, which the lab's own programs use."""
        self.weights, self.x, self.dy = ([t.float() for t in ts] for ts in (self.weights, self.x, self.dy))
        self.setting += " in float32"
        return self

    def run(self, student, seconds: float = 0.0, measured: bool = False, again: bool = False, **machine):
        def arguments(rank):
            weights = [w.clone() for w in self.weights]
            steps = [[each.tensor_split(self.p)[rank].clone() for each in step] for step in self.steps]
            given = self.widths, weights, self.x[rank], self.dy[rank], list(self.order), steps
            return *given, seconds, measured, again

        return student.ranks("Sharded", self.p, arguments, harness="gathered", **machine)

    def then(self, passes: int, alone: int | None = None) -> list[torch.Tensor]:
        """The weights before the first pass, in forward or in backward; or what becomes of them where only the share of
        the rank `alone` has changed."""
        found = [w.clone() for w in self.weights]
        for i, w in enumerate(found):
            for step in self.steps[:passes]:
                parts = zip(w.tensor_split(self.p), step[i].tensor_split(self.p), strict=True)
                for rank, (part, factor) in enumerate(parts):
                    part *= factor if alone in (None, rank) else 1.0
        return found

    def whole(self, rank: int, order: list[int] | None = None, passes=(1, 2), alone: int | None = None):
        """y, dx and the gradients of one rank's samples, with whole weights; `order` counts those uses alone."""
        layers = [DenseLayer(*widths) for widths in self.widths]
        x, dy = self.x[rank], self.dy[rank]
        forwards, backwards = (self.then(each, alone) for each in passes)
        for i in self.order:
            x = layers[i].forward(forwards[i], x)
        grads = [torch.zeros_like(w) for w in self.weights]
        for use in reversed(range(len(self.order))):
            i = self.order[use]
            dy, dw = layers[i].backward(backwards[i], dy)
            if order is None or use in order:
                grads[i] += dw
        return x, dy, grads

    def is_of_now(self, rank: int, got, which: int, name: str) -> None:
        """The output or the gradient of x is that of the weights as they are in each pass."""
        right = self.whole(rank)[which]
        mistakes = {
            FIRST: self.whole(rank, passes=(0, 0))[which],
            FORWARDS: self.whole(rank, passes=(1, 1))[which],
            OWN: self.whole(rank, alone=rank)[which],
        }
        mistakes = {sentence: value for sentence, value in mistakes.items() if (value - right).abs().max() > 1e-12}
        checks.close(got, right, name=name, why="Whole layers give this for the rank's samples.", mistakes=mistakes)

    def agrees(self, student, again: bool = False, **options):
        run = self.run(student, again=again, **options)
        each = [self.whole(rank) for rank in range(self.p)]
        last = [self.order.index(i) if i in self.order else 0 for i in range(len(self.weights))]  # backward's last use
        lone = [self.whole(rank, last)[2] for rank in range(self.p)]
        for rank, (y, dx, grads, shares, *_) in enumerate(run.results):
            where = f"{self.setting}: %s on rank {rank}"
            self.is_of_now(rank, y, 0, where % "forward(x)")
            self.is_of_now(rank, dx, 1, where % "backward(dy)")
            checks.that(
                type(grads) in (list, tuple) and len(grads) == len(self.weights),
                f"{where % 'grads'} has to be a list with a tensor for each layer.",
            )
            for i, grad in enumerate(grads):

                def mine(values):
                    return values.tensor_split(self.p)[rank]  # noqa: B023 - called in this turn

                total = sum(one[2][i] for one in each)
                mistakes = {
                    "This is the sum over the ranks: take the mean, with weight 1 / comm.size.": mine(total),
                    "The mean is taken twice: 1/p once is enough.": mine(total) / self.p**2,
                    "These are the gradients of the rank's own samples: sum them over the ranks.": mine(
                        each[rank][2][i]
                    ),
                    "The layer is used twice, but this is the gradient of one use: add both.": mine(
                        sum(one[i] for one in lone)
                    )
                    / self.p,
                }
                if again:
                    mistakes[PREVIOUS] = 2 * mine(total) / self.p
                expected = mine(total) / self.p
                mistakes = {s: v for s, v in mistakes.items() if v.numel() and (v - expected).abs().max() > 1e-12}
                name = where % f"grads[{i}]"
                whole = type(grad) is torch.Tensor and len(grad) == len(total) > len(expected)
                checks.that(not whole, f"{name} has all {len(total)} elements: a rank keeps only its share.")
                checks.close(grad, expected, name=name, why="The mean of all ranks' gradients.", mistakes=mistakes)
                checks.close(shares[i], mine(self.then(2)[i]), name=where % f"shares[{i}]")
        return run


@exercise.check(points=6, seconds=SECONDS)
def as_with_whole_layers(student, rng):
    "Forward and backward as with whole layers, with the mean gradient in shares, for p = 1 to 4, in float32 too."
    for p, widths in ((2, (3, 4, 2)), (1, (3, 2)), (3, (2, 5, 3, 2)), (4, (3, 1, 2))):
        Network(p, widths, rng).agrees(student)
    Network(2, (3, 4, 2), rng).in_float32().agrees(student)
    carried(student, rng, lambda: Network(2, (3, 2), rng).agrees(student), "p = 2")


@exercise.check(points=1, needs="as_with_whole_layers", seconds=SECONDS)
def the_next_pass(student, rng):
    "A second step has only the gradients of its own passes."
    Network(3, (2, 3, 2), rng).agrees(student, again=True)


@exercise.check(points=3, needs="as_with_whole_layers", seconds=SECONDS)
def tied_layers(student, rng):
    "A layer that is used twice has one share, is gathered for each use, and sums both uses' gradients."
    for network in (Network(2, (3, 3, 3, 3), rng, [0, 1, 2, 1]), Network(3, (4, 4), rng, [0, 0])):
        are_gathered_for_each_use(network, network.agrees(student, seconds=1.0))


def are_gathered_for_each_use(network: Network, run) -> None:
    """Both passes carry the weights once for each use, and backward the gradients of each layer, too."""
    events, last = carrying(run), len(network.order) - 1
    works(run, [2.0 * len(network.order)] * network.p, network.setting)
    begins = [[e.start for e in run.trace if e.rank == r and e.op == "compute"][last] for r in range(network.p)]
    forward = sum(event.nbytes for event in events if event.start <= begins[event.rank])
    backward = sum(event.nbytes for event in events) - forward
    uses = sum(len(network.weights[i]) for i in network.order)
    for name, sent, numbers in (("forward", forward, uses), ("backward", backward, uses + network.numel)):
        least = (network.p - 1) * numbers * NUMBER
        checks.that(
            sent >= least,
            f"{network.setting}: all ranks together send {sent} bytes in the pass {name}. Gathering the weights for "
            f"each use takes {least}{', with the gradients' * (name == 'backward')}. Gather a layer that is used "
            "twice for each use: between them it is not whole.",
        )


COUNTED, MANY = (4, 4, 8, 4), 4
LAYERS, WIDE = 8, 32  # a layer of 32 x 32 weights is much larger than 2 x 32 activations


@exercise.check(points=4, needs="as_with_whole_layers", seconds=SECONDS)
def three_times_the_weights(student, rng):
    "Each rank sends 3 (p - 1)/p of the weights' bytes in a step: two gathers, a reduce-scatter; all are waited for."
    for p, widths in ((2, COUNTED), (MANY, COUNTED), (MANY, (WIDE,) * (LAYERS + 1))):
        network = Network(p, widths, rng)
        run = network.agrees(student)
        waited_for(run, network.setting)
        once = (p - 1) * network.numel * NUMBER // p
        whole = next((e.op for e in run.trace if e.op in ("all_reduce", "broadcast")), "")
        for rank in range(p):
            sent = sum(event.nbytes for event in sends(run) if event.rank == rank)
            if whole or sent != 3 * once:
                mistake = (
                    "You send the gradients to every rank: each needs only the sum of its own share."
                    if whole
                    else "A layer is not gathered in each pass: keep no copy of the whole weights."
                    if sent < 3 * once
                    else ""
                )
                raise checks.CheckFailure(
                    f"{network.setting}: rank {rank} sends {sent} bytes"
                    + (f" and calls comm.{whole}." if whole else "."),
                    got=f"{sent} bytes",
                    expected=f"3 · {once} = {3 * once} bytes",
                    mistake=mistake,
                )


def are_gathered(network: Network, run) -> None:
    """Each layer is gathered in both passes: a copy elsewhere has no bytes that the meter sees, and takes no time."""
    least = 3 * (network.p - 1) * network.numel * NUMBER // network.p
    for rank in range(network.p):
        sent = sum(event.nbytes for event in run.trace if event.rank == rank and event.op in ("send", "all_reduce"))
        checks.that(
            sent >= least,
            f"{network.setting}: rank {rank} sends {sent} bytes, and to gather each layer in both passes takes "
            f"{least}. Keep no copy of the whole weights.",
        )


def as_counted(student, rng):
    """A run such as the one whose messages are counted."""
    return Network(MANY, COUNTED, rng).run(student)


def one_is_ahead(network: Network, run) -> None:
    """When a layer begins a rank has asked for the weights up to the next one only, besides gradients of those before.

    The peak cannot tell: frugal gradients leave room for another whole layer."""
    count = len(network.widths)
    gather = (network.p - 1) * network.numel * NUMBER // network.p // count
    for rank in range(network.p):
        mine = [event for event in run.trace if event.rank == rank]
        begins = [event.start for event in mine if event.op == "compute" and event.end > event.start]
        for (name, first), n in itertools.product((("forward", 0), ("backward", count)), range(count)):
            start = begins[first + n]
            asked = sum(event.nbytes for event in mine if event.op == "recv" and event.start <= start)
            most = first + min(n + 2, count) + (n if name == "backward" else 0)
            checks.that(
                asked <= most * gather,
                f"{network.setting}: when layer {n + 1} of the pass {name} begins, rank {rank} has already asked for "
                f"{asked} bytes, {asked / gather:g} gathers. Two layers are whole at a time, the one that computes and "
                "the next: begin no gather before.",
                got=f"{asked} bytes",
                expected=f"{most * gather} bytes at most, {most} gathers (a reduce-scatter receives as much as one)",
            )


class Timed:
    """Large layers that work on a machine with slow messages: memory and seconds are those of one run, so that no
    answer holds all layers in some and waits for each in others."""

    def __init__(self, student, rng):
        self.layers, self.work, self.alpha = LAYERS, 1.0, whole_number(rng, 4, 8) / 32
        self.network = Network(MANY, (WIDE,) * (LAYERS + 1), rng)
        self.run = self.network.agrees(student, seconds=self.work, measured=True, alpha=self.alpha)
        works(self.run, [2 * LAYERS * self.work] * MANY, self.network.setting)
        are_gathered(self.network, self.run)
        waits_as_often(self.run, self.network.setting, partial(as_counted, student, rng))


@exercise.check(points=6, needs="as_with_whole_layers", seconds=SECONDS)
def two_layers_at_a_time(student, rng):
    "At rest and between the passes a rank keeps only its share; it never holds more than two whole layers."
    timed, layer = Timed(student, rng), WIDE * WIDE * NUMBER
    network, run = timed.network, timed.run
    shares = LAYERS * layer // MANY
    for rank, (*_, (kept, forward, backward, between, end, *_)) in enumerate(run.results):
        at_rest = f"{LAYERS} layers of {layer} bytes over {MANY} ranks: rank {rank} "
        checks.that(
            type(kept) is int and kept <= 2 * shares + 1024,
            f"{at_rest}keeps {kept} bytes when it is made; its shares have {shares}, and their gradients as many. "
            + (
                "A part of a vector is a view, and keeps the whole vector in memory: .clone() it."
                if kept >= LAYERS * layer
                else "Keep only your share."
            ),
            got=f"{kept} bytes",
            expected=f"{2 * shares} bytes at most",
        )
        for when, held in {"its making": kept, "forward": forward, "backward": backward, "both passes": end}.items():
            checks.that(
                type(held) is not int or held >= shares,
                f"{at_rest}holds {held} bytes in or after {when}, and its shares alone have {shares}. They are torch's "
                "tensors, whose memory is measured.",
            )
        # Two whole layers, their message on its way, and what a layer's products need; backward also the gradient, its
        # product before it is flat, and the shares of all gradients.
        for name, peak, room in (("forward", forward, 4.0), ("backward", backward, 6.0 + LAYERS / MANY)):
            most = (kept if name == "forward" else shares) + room * layer
            if type(peak) is not int or peak > most:
                raise checks.CheckFailure(
                    f"{at_rest}holds {peak / layer:.1f} layers' bytes at a time in {name}, its shares included.",
                    got=f"{peak} bytes",
                    expected=f"{most:.0f} at most: its shares, and two layers whole, with what they need",
                    why="While a layer computes and the next one arrives, the layer before must be free: no name may "
                    "refer to it.",
                    mistake=GRADIENTS
                    if name == "backward" and type(end) is int and end >= LAYERS * layer
                    else "All layers are whole at once: gather each one when it is next, and free it."
                    if peak >= LAYERS * layer
                    else "",
                )
        for when, left, most in (("forward", between, kept), ("backward", end, 2 * shares)):
            checks.that(
                type(left) is int and left <= most + 0.75 * layer,
                f"{at_rest}keeps {left} bytes after {when}, next to its shares of {shares}. A layer is still whole: a "
                "vector is freed when no name and no attribute refers to it.",
                got=f"{left} bytes",
                expected=f"{most + 0.75 * layer:.0f} bytes at most",
            )
    one_is_ahead(network, run)
    small = Network(MANY, (2 * whole_number(rng, 2, 5),) * (LAYERS + 1), rng)
    one_is_ahead(small, small.agrees(student, seconds=timed.work, alpha=timed.alpha))


@exercise.check(points=5, needs="as_with_whole_layers", seconds=SECONDS)
def gathers_are_hidden(student, rng):
    "The next layer's weights arrive while this one computes, forward and backward."
    timed = Timed(student, rng)
    run, layers, work, gather = timed.run, timed.layers, timed.work, timed.alpha * (MANY - 1)
    right = {
        "forward": layers * work + gather,
        "backward": layers * (work + gather) + gather,  # nothing hides the reduce-scatter
    }
    hint = {
        "forward": "Begin the next gather before this layer's forward pass, and wait for it in the next turn.",
        "backward": "Begin the next gather before this layer's backward pass: the next layer is the one before.",
    }
    for rank, (*_, measured) in enumerate(run.results):
        for way, seconds in zip(right, measured[-2:], strict=True):
            late = type(seconds) is not float or seconds > right[way] + gather + 1e-6
            if late:
                raise checks.CheckFailure(
                    f"{way} takes {seconds:g} s on rank {rank} of {MANY}: {layers} layers of {work:g} s each, and "
                    f"gathers of {gather:g} s that it waits for.",
                    got=f"{seconds:g} s",
                    expected=f"about {right[way]:g} s: only the first gather is waited for"
                    + (", and the reduce-scatters" if way == "backward" else ""),
                    why=hint[way],
                )
    # The ranks' own clocks are believed as far as the machine's agrees.
    checks.that(
        run.seconds <= sum(right.values()) + 2 * gather + 1e-6,
        f"A step takes {run.seconds:g} s, expected about {sum(right.values()):g} s: gathers are waited for.",
    )
