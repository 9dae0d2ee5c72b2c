"""A stage that follows its order. Oracle: the undivided network on the whole batch, an event simulation, the trace."""

import itertools
from functools import partial

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends, works
from autograder.exercises.drawing import whole_number
from autograder.exercises.model_parallel.pipelines import held, play
from autograder.exercises.model_parallel.published import one_f_one_b, zb_h1, zb_h2
from autograder.exercises.ready_made import PIPELINES
from autograder.exercises.under_way import waited_for, waits_as_often
from autograder.inside.harnesses import squared_error

exercise = Exercise(
    "run_stage",
    points=25,
    minutes=25,
    forbid=PIPELINES,
    instead="Follow the order yourself, with isend, irecv and the stage's methods.",
)

WIDTHS = (3, 4, 2, 5)  # numbers that stages hand on, in turn


def gpipe(p: int, m: int) -> list:
    return [[(op, k, 0) for op in "FB" for k in range(m)] for _ in range(p)]


class Training:
    """A network of p stages with two layers each, batches in microbatches, and their gradients on one machine."""

    def __init__(self, rows: tuple[int, ...], p: int, rng, batches: int = 1, dtype=torch.float64):
        self.rows, self.p = rows, p
        ends = [WIDTHS[i % len(WIDTHS)] for i in range(p + 1)]
        self.weights = [
            [torch.randn(6, a, generator=rng).to(dtype) / 2, torch.randn(b, 6, generator=rng).to(dtype) / 2]
            for a, b in itertools.pairwise(ends)
        ]
        self.batches = [
            [[torch.randn(n, width, generator=rng).to(dtype) for n in rows] for width in (ends[0], ends[-1])]
            for _ in range(batches)
        ]

    def follows(self, student, orders, setting: str, seconds=(0.0, 0.0, 0.0), **machine):
        """Check loss, gradients, and that each stage has done the ops of its order; return the run."""
        run = self.run(student, orders, seconds, **machine)
        agrees(self, run, setting)
        for rank, (*_, done, _) in enumerate(run.results):
            follows(done, [op[:2] for op in orders[rank]], f"{setting}: stage {rank}")
        return run

    def run(self, student, orders, seconds=(0.0, 0.0, 0.0), **machine):
        f, b, w = seconds

        def arguments(rank):
            inputs = [x if rank == 0 else None for x, _ in self.batches]
            targets = [y if rank == self.p - 1 else None for _, y in self.batches]
            pairs = [list(pair) for pair in zip(inputs, targets, strict=True)]
            return self.weights[rank], pairs, orders[rank], list(self.rows), {"F": f, "B": b, "W": w}

        return student.ranks("run_stage", self.p, arguments, harness="stages", **machine)

    def of_microbatch(self, k: int, batch: int = -1) -> tuple[float, list[list[torch.Tensor]]]:
        """The mean loss of one microbatch, and the gradients of all stages' weights."""
        weights = [[w.clone().requires_grad_() for w in stage] for stage in self.weights]
        y = self.batches[batch][0][k]
        for w in [w for stage in weights for w in stage]:
            y = torch.tanh(y @ w.T)
        loss = squared_error(y, self.batches[batch][1][k])
        flat = iter(torch.autograd.grad(loss, [w for stage in weights for w in stage]))
        return loss.item(), [[next(flat) for _ in stage] for stage in weights]


def agrees(training: Training, run, setting: str) -> None:
    """Loss and gradients are those of the whole batch on one machine."""
    rows, p, m = training.rows, training.p, len(training.rows)
    each = [training.of_microbatch(k) for k in range(m)]
    right = [n / sum(rows) for n in rows]

    def combined(factors, i, j):
        return sum(c * gradients[i][j] for c, (_, gradients) in zip(factors, each, strict=True))

    for i in range(p):
        factors = {
            "This is the mean of the microbatches' means: a larger one has more weight, rows[k] / sum(rows). "
            "(The bug of transformers #34191.)": [1 / m] * m,
            "This is the sum of the microbatches' gradients: the loss is a mean over all rows, so the last stage "
            "begins "
            "the backward pass of microbatch k with rows[k] / sum(rows).": [1.0] * m,
            "Only the last microbatch counts here: set gradients to 0 once, before the first op. (The bug of "
            "NeMo-Automodel PR #3530.)": [0.0] * (m - 1) + right[-1:],
            "You scale the loss on every stage: scale it once, on the last stage.": [c ** (p - i) for c in right],
        }
        for j, got in enumerate(run.results[i][1]):
            mistakes = {s: combined(c, i, j) for s, c in factors.items() if s and c != right}
            if len(training.batches) > 1:
                first = sum(c * training.of_microbatch(k, 0)[1][i][j] for k, c in enumerate(right))
                mistakes["The previous batch is still included: begin with stage.zero_grad()."] = first + combined(
                    right, i, j
                )
            expected = combined(right, i, j)
            nothing = (
                "There is no gradient: if the order has no W, do W with the B. (DeepSpeed #7270 reports none under a "
                "pipeline, too.)"
            )
            mistakes[nothing] = torch.zeros_like(expected)
            name = f"{setting}: gradient of weight {j} on stage {i}"
            checks.that(
                not (isinstance(got, torch.Tensor) and got.is_floating_point() and got.isnan().any()),
                f"{name} is NaN: a tensor was used before its message arrived. Wait for each request before you use "
                "its tensor. (In pytorch #132644 one of several was waited for.)",
            )
            checks.close(
                got, expected, name=name, why="One machine computes this for the whole batch.", mistakes=mistakes
            )
    for i in range(p - 1):
        checks.equal(run.results[i][0], 0.0, name=f"{setting}: what stage {i} returns, which has no loss")
    loss = sum(c * value for c, (value, _) in zip(right, each, strict=True))
    mistakes = {
        "This is the mean of the microbatches' means.": sum(value for value, _ in each) / m,
        "This is the sum over the microbatches.": sum(value for value, _ in each),
        "This is the last microbatch's.": each[-1][0],
    }
    checks.close(run.results[-1][0], loss, name=f"{setting}: what the last stage returns", mistakes=mistakes)


@exercise.check(points=6, seconds=SECONDS)
def as_one_machine(student, rng):
    "GPipe and 1F1B on 1 to 4 stages: loss and gradients of the whole batch, and no stage waits forever."
    for p, m in ((2, 3), (1, 2), (3, 2), (4, 5)):
        training = Training((2,) * m, p, rng)
        for name, schedule in (("GPipe", gpipe), ("1F1B", one_f_one_b)):
            agrees(training, training.run(student, schedule(p, m)), f"{name}, p = {p}, m = {m}")
    training = Training((2, 2), 2, rng, dtype=torch.float32)
    agrees(training, training.run(student, gpipe(2, 2)), "float32, GPipe, p = 2, m = 2")
    two = Training((2, 2), 2, rng)
    carried(student, rng, lambda: agrees(two, two.run(student, gpipe(2, 2)), ""), "GPipe, p = 2, m = 2")


@exercise.check(points=5, needs="as_one_machine", seconds=SECONDS)
def unequal_microbatches(student, rng):
    "Microbatches of unequal size: each row has the same weight."
    for p, rows in ((2, (3, 1, 2)), (3, (1, 4, 1, 2))):
        training = Training(rows, p, rng)
        run = training.run(student, one_f_one_b(p, len(rows)))
        agrees(training, run, f"1F1B, p = {p}, microbatches of {', '.join(map(str, rows))} rows")


@exercise.check(points=4, needs="as_one_machine", seconds=SECONDS)
def b_and_w_apart(student, rng):
    "ZB-H1 and ZB-H2: W when the order says so."
    for p, m in ((2, 3), (3, 5)):
        for name, schedule in (("ZB-H1", zb_h1), ("ZB-H2", zb_h2)):
            Training((2,) * m, p, rng).follows(student, schedule(p, m), f"{name}, p = {p}, m = {m}")


def follows(done: list, order: list, setting: str) -> None:
    """A stage has done the ops of its order; W may come whenever it likes if the order has none."""
    if all(op != "W" for op, _ in order):
        done = [(op, k) for op, k in done if op != "W"]
    wrong = next((n for n, (a, b) in enumerate(zip(done, order, strict=False)) if tuple(a) != tuple(b)), None)
    if wrong is None and len(done) == len(order):
        return
    n = min(len(done), len(order)) if wrong is None else wrong
    shown = ["".join(map(str, ops[n])) if n < len(ops) else "nothing" for ops in (done, order)]
    raise checks.CheckFailure(
        f"{setting} does {shown[0]} as its op number {n}, but its order has {shown[1]}.",
        got=" ".join(f"{op}{k}" for op, k in done),
        expected=" ".join(f"{op}{k}" for op, k in order),
    )


@exercise.check(points=2, needs="as_one_machine", seconds=SECONDS)
def the_next_batch(student, rng):
    "A second batch with the same stage begins with gradients of 0."
    training = Training((2, 1), 2, rng, batches=2)
    agrees(training, training.run(student, one_f_one_b(2, 2)), "the second of two batches, p = 2, m = 2")


COUNTED = 4, 8  # stages and microbatches where messages are counted


def of_counted(rng) -> tuple[Training, list]:
    """A training and its orders where messages are counted."""
    p, m = COUNTED
    return Training((2,) * m, p, rng), one_f_one_b(p, m)


def as_counted(student, rng):
    """A run such as those whose messages are counted."""
    training, orders = of_counted(rng)
    return training.run(student, orders)


@exercise.check(points=5, needs="as_one_machine", seconds=SECONDS)
def as_fast_as_predicted(student, rng):
    "It is as fast as the event simulation: messages overlap with computing, gradients go before weights(k)."
    for name, schedule, p, m in (("GPipe", gpipe, 3, 8), ("1F1B", one_f_one_b, 4, 9), ("ZB-H1", zb_h1, 4, 9)):
        f, b, w = (2 + torch.randint(0, 5, (3,), generator=rng) / 4).tolist()
        rows = (whole_number(rng, 2, 4),) * m
        training, orders, message = Training(rows, p, rng), schedule(p, m), 0.5
        late = play(orders, f, b, w, message).makespan
        apart = orders if name == "ZB-H1" else [w_at_once(order) for order in orders]  # a gradient is sent before its W
        predicted = play(apart, f, b, w, message).makespan + 2 * message  # two that come at once queue at one port
        setting = f"{name} on {p} stages, {m} microbatches"
        run = training.follows(student, orders, setting, (f, b, w), alpha=message)
        works(run, [m * (f + b + w)] * p, setting)
        waits_as_often(run, setting, partial(as_counted, student, rng))
        if run.seconds > predicted + 1e-6:
            raise checks.CheckFailure(
                f"{setting}: {run.seconds:g} s, expected {predicted:g} s at most.",
                got=f"{run.seconds:g} s",
                expected=f"{predicted:g} s where F, B, W and a message take {f:g}, {b:g}, {w:g} and {message:g} s",
                why="A stage waits where it could compute: a message begins when both sides have posted it. Begin each "
                "with isend, post the receives before the first op, and wait for an input only when its op is next.",
                mistake="weights(k) comes before the gradient is sent on, and the stage before waits for both: isend "
                "right after backward(k, dy)."
                if late <= run.seconds <= late + 2 * message
                else "",
            )


def w_at_once(order: list) -> list:
    """Each B of the order as a B and its W."""
    return [part for op, k, chunk in order for part in [(op, k, chunk), ("W", k, chunk)][: 2 if op == "B" else 1]]


@exercise.check(points=3, needs="as_one_machine", seconds=SECONDS)
def no_more_messages_and_memory(student, rng):
    "A stage holds only what its order needs, sends each output and gradient once to its neighbour, and waits for all."
    (p, m), width, (training, orders) = COUNTED, 8, of_counted(rng)
    run = training.run(student, orders)
    waited_for(run, f"1F1B, p = {p}, m = {m}")
    agrees(training, run, f"1F1B, p = {p}, m = {m}")
    for rank, (*_, most) in enumerate(run.results):
        checks.that(
            most == held(orders[rank]),
            f"1F1B, p = {p}, m = {m}: stage {rank} holds {most} microbatches at a time, and its order needs "
            f"{held(orders[rank])}: do its ops in this order, and W with the B.",
        )
        sizes = [(WIDTHS[(rank + 1) % 4], rank + 1)] * (rank < p - 1) + [(WIDTHS[rank % 4], rank - 1)] * (rank > 0)
        expected = sorted((peer, k, 2 * numbers * width) for numbers, peer in sizes for k in range(m))
        found = sorted((event.peer, event.tag, event.nbytes) for event in sends(run) if event.rank == rank)
        if found != expected:
            raise checks.CheckFailure(
                f"1F1B, p = {p}, m = {m}: stage {rank} sends {len(found)} messages, {sum(n for *_, n in found)} bytes.",
                got=f"(to, tag, bytes): {found}",
                expected=f"{len(expected)} messages, {sum(n for *_, n in expected)} bytes: the output of each "
                "microbatch to the stage after, the gradient of its input to the stage before; the tag is the number "
                "of the microbatch",
            )
