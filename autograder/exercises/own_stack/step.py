"""A step of the whole training on ranks. Oracle: one machine's step in float64 on all samples, rounded by integers."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, has_sum_everywhere, sends, small_numbers
from autograder.exercises.ddp.grouping import grouped
from autograder.exercises.ddp.traffic import all_reduces, per_all_reduce
from autograder.exercises.drawing import whole_number
from autograder.exercises.own_stack.serial import (
    gradients,
    images_for,
    logits_of,
    loss_of,
    rounded,
    stepped,
    weights_of,
)
from autograder.exercises.ready_made import DERIVATIVES, MACHINES_COLLECTIVES, OPTIMIZERS, RANKS, SOFTMAX
from autograder.exercises.under_way import waited_for
from autograder.inside.forbidden import CONVOLUTION
from autograder.sessions.errors import StudentError
from autograder.sessions.handle import Handle

exercise = Exercise(
    "step",
    points=12,
    minutes=20,
    functions=("network", "train_step"),
    uses=("momentum", "buckets", "rounding", "ring", "tape", "convolution"),
    forbid=(*DERIVATIVES, *OPTIMIZERS, *RANKS, *MACHINES_COLLECTIVES, *SOFTMAX, *CONVOLUTION),
    instead="Call your own bricks.",
)

PLENTY = 1 << 20  # a cap that the network does not reach
FEW = 3  # weights in which float32 may be rounded otherwise than float64: where the noise falls between the two
NAMES = ("w1", "w2", "w3", "b3")


def steps(student, sizes: tuple[int, ...], rng, count: int = 1, cap: int = PLENTY):
    """The student's steps on equal replicas: the run of each, the weights at the start, images, lr, and seeds."""
    weights, images, lr = weights_of(rng), images_for(sizes, count, rng), whole_number(rng, 2, 6) / 64
    seeds = [whole_number(rng, 0, 10**6) for _ in range(count)]
    ranks = [([w.clone() for w in weights], [torch.zeros_like(w) for w in weights]) for _ in sizes]
    runs = []
    for t in range(count):
        args = lambda rank, t=t, ranks=ranks: (*ranks[rank], *(z.clone() for z in images[rank][t]), lr, seeds[t])  # noqa: E731
        runs.append(student.ranks("train_step", len(sizes), args, {"cap_bytes": cap}))
        ranks = [arguments[:2] for arguments in runs[-1].arguments]
    return runs, weights, images, lr, seeds


def setting(sizes: tuple[int, ...], count: int) -> str:
    ranks = f"{len(sizes)} rank{'s' * (len(sizes) > 1)} with {', '.join(map(str, sizes))} images"
    return f"{ranks}, after {count} step{'s' * (count > 1)}"


def trains(student, sizes: tuple[int, ...], rng, count: int = 1, cap: int = PLENTY):
    """Check that velocities and weights on every rank are those of one machine, to the same bits; return the run and
    the weights at the start."""
    runs, weights, images, lr, seeds = steps(student, sizes, rng, count, cap)
    run = runs[-1]
    w, v = weights, [torch.zeros_like(x) for x in weights]
    for t in range(count):
        before = w, v
        parts = [rank[t] for rank in images]
        w, v = stepped(w, v, gradients(w, parts), lr, seeds[t])
    where = setting(sizes, count)
    for rank, (got_w, got_v, *_) in enumerate(run.arguments):
        for i, name in enumerate(NAMES):
            label = f"{where}: the velocity of {name} on rank {rank}"
            try:
                checks.close(got_v[i], v[i].float(), name=label, rtol=1e-3)
            except checks.CheckFailure:
                named = {said: values[i].float() for said, values in wrong_velocities(*before, parts, rank).items()}
                checks.close(got_v[i], v[i].float(), name=label, rtol=1e-3, mistakes=named)
                raise
        have(got_w, w, wrong_weights(before[0], v, lr, seeds[-1]), f"{where}, rank {rank}")
        same_bits(got_w, run.arguments[0][0], where, rank)
    for step in runs:
        has_losses(step, f"train_step(...) on %s of {setting(sizes, count)}")
    return run, weights


def has_losses(run, where: str) -> None:
    """What each rank returns is the loss of its images before the step."""
    for rank, (weights, _, x, y, *_) in enumerate(run.given):
        mistakes = {"This is the sum over the images: return the mean.": loss_of(weights, x, y, "sum").item()}
        name = where % f"rank {rank}"
        checks.close(run.results[rank], loss_of(weights, x, y).item(), name=name, rtol=1e-4, mistakes=mistakes)


def wrong_velocities(weights, velocities, parts, rank: int) -> dict[str, list]:
    """The velocities of known mistakes, by what to say of them."""
    right, p = gradients(weights, parts), len(parts)
    found = {
        "It did not change: change velocities in place, v.copy_(...).": velocities,
        "The previous velocity is missing: v ← 0.9 v + g.": right,
    }
    if p > 1:
        own = gradients(weights, parts[rank : rank + 1])
        found |= {
            "This is this rank's own gradient: sum over the ranks first.": mixed(velocities, own),
            "This is the sum over the ranks: divide by the number of samples.": mixed(velocities, right, p),
            "You divide once too often: the weighted sum over N is the mean.": mixed(velocities, right, 1 / p),
        }
    if len({len(y) for _, y in parts}) > 1:
        found["This is the mean of the ranks' means: a rank with more images has more weight, n_r / N."] = mixed(
            velocities, gradients(weights, parts, mean=False)
        )
    return found


def mixed(velocities, grads, factor: float = 1.0) -> list:
    return [0.9 * v.double() + factor * g for v, g in zip(velocities, grads, strict=True)]


def wrong_weights(weights, velocities, lr: float, seed: int) -> dict[str, list]:
    """The weights of known mistakes, by what to say of them."""
    exact = [w.double() - lr * v for w, v in zip(weights, velocities, strict=True)]
    up = [w.double() + lr * v for w, v in zip(weights, velocities, strict=True)]
    return {
        "They did not change: change weights in place, w.copy_(...).": weights,
        "They are rounded to nearest: use bf16_round_bits with the noise of seed + i.": [w.bfloat16() for w in exact],
        "Every tensor has the noise of `seed`: tensor i takes that of seed + i.": [rounded(w, seed) for w in exact],
        "The step goes uphill: subtract lr v.": [rounded(w, seed + i) for i, w in enumerate(up)],
    }


def have(got, expected, named: dict[str, list], where: str) -> None:
    """The weights are those expected, except a few that the noise decides otherwise in float32; `named` mistakes."""
    for i, name in enumerate(NAMES):
        checks.tensor(got[i], name=f"{where}: {name}", shape=expected[i].shape, dtype=torch.float32)
        is_bf16 = checks.same(got[i].bfloat16().float(), got[i])
        checks.that(is_bf16, f"{where}: {name} holds numbers that bfloat16 does not have. Round them: bf16_round_bits.")
        off = int((got[i] != expected[i]).sum())
        if off > FEW:
            fits = (said for said, values in named.items() if int((got[i] != values[i].float()).sum()) <= FEW)
            raise checks.CheckFailure(
                f"{where}: {off} of {got[i].numel()} numbers in {name} are not those of one machine.",
                why="One machine takes the mean gradient of all images, a step with momentum, and the same noise.",
                mistake=next(fits, ""),
            )


def same_bits(got, first, where: str, rank: int) -> None:
    for name, own, other in zip(NAMES, got, first, strict=True):
        checks.that(
            torch.equal(own, other),
            f"{where}: {name} on rank {rank} has other bits than on rank 0. Noise and sums must be equal on all ranks.",
        )


@exercise.check(points=2, seconds=SECONDS)
def the_loss(student, rng):
    "It returns the loss of this rank's images before the step: the network is right, forwards."
    for sizes in ((5,), (3, 2)):
        (run,), *_ = steps(student, sizes, rng)
        has_losses(run, f"train_step(...) on %s of {len(sizes)}")


def gives_logits(student, rng) -> None:
    """`network` is what the lab's training calls on held-out images: its node holds the logits."""
    weights, ((x, _),) = weights_of(rng), images_for((7,), 1, rng)[0]
    node = student.handle("network", student.Node(x.clone()), [student.Node(w.clone()) for w in weights])
    checks.that(type(node) is Handle, f"network(x, weights) is {show.an(show.type_name(node))}, expected a Node.")
    why = "The logits are what network returns, before the softmax and the loss."
    checks.close(node.data, logits_of(weights, x), name="network(x, weights).data", why=why, rtol=1e-4)


@exercise.check(points=4, seconds=SECONDS, needs="the_loss")
def as_one_machine(student, rng):
    "After a step every rank has the weights and velocities of one machine, to the same bit on all ranks."
    for sizes in ((6,), (4, 4), (3, 3, 3)):
        trains(student, sizes, rng)
    carried(student, rng, lambda: trains(student, (2, 2), rng), "2 ranks with 2, 2 images")


@exercise.check(points=2, seconds=SECONDS, needs="as_one_machine")
def step_after_step(student, rng):
    "The same after three steps: velocities stay, each step has its own noise, and `network` gives logits."
    trains(student, (3, 3), rng, count=3, cap=2000)
    gives_logits(student, rng)


@exercise.check(points=2, seconds=SECONDS, needs="as_one_machine")
def unequal_parts(student, rng):
    "The same where ranks have different numbers of images."
    for sizes in ((5, 1), (2, 3, 6)):
        trains(student, sizes, rng)


@exercise.check(points=2, seconds=SECONDS, needs="as_one_machine")
def one_message_a_bucket(student, rng):
    "The gradients of a bucket are sent in one all-reduce, and waited for."
    for cap in (PLENTY, 5000, 1):
        run, weights = trains(student, (2, 2, 2), rng, cap=cap)
        waited_for(run, f"cap_bytes = {cap}")
        messages = [len(shares) for shares in per_all_reduce(student, 3, rng)]
        groups = grouped([w.nbytes for w in weights], cap)
        buckets, part = len(groups), largest_part(student, 3, rng)
        each = "There is one message per tensor: put the gradients of a bucket into one flat tensor."
        whole = "You send all gradients together: cut them with your make_buckets."
        for rank in range(3):
            found = all_reduces(run, rank, messages[rank])
            if not buckets <= found <= buckets + 1:
                raise checks.CheckFailure(
                    f"cap_bytes = {cap}: rank {rank} takes part in {found:.3g} all-reduces, for {buckets} buckets.",
                    got=f"{found:.3g} all-reduces",
                    expected=f"{buckets}, one for each bucket",
                    mistake=each if found > buckets else whole,
                )
            most = round(part * max(sum(weights[i].nbytes for i in group) for group in groups)) + ELEMENTS
            longest = max((event.nbytes for event in sends(run) if event.rank == rank), default=0)
            if longest > most:
                raise checks.CheckFailure(
                    f"cap_bytes = {cap}: rank {rank} sends a message of {longest} bytes.",
                    got=f"{longest} bytes",
                    expected=f"{most} bytes at most: no all-reduce is of more than the largest bucket",
                    mistake=whole,
                )


ELEMENTS = 16  # bytes by which chunks may differ


def largest_part(student, p: int, rng) -> float:
    """The largest message of the student's all-reduce, as a share of what it adds up: a p-th in a ring."""
    xs = small_numbers(p, 40 * p, rng)
    try:
        run = has_sum_everywhere(student, "ring_all_reduce", xs, f"p = {p}")
    except (checks.CheckFailure, StudentError):
        return 1 / p
    return max((event.nbytes / xs[0].nbytes for event in sends(run)), default=1 / p)
