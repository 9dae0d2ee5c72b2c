"""A step of data-parallel training. Oracle: one machine that trains on all samples together."""

from torch.nn.functional import cross_entropy

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, and_others, carried
from autograder.exercises.ddp.grouping import bytes_of_buckets
from autograder.exercises.ddp.traffic import one_per_bucket, per_all_reduce
from autograder.exercises.ddp.training import (
    LR,
    a_rate,
    agree,
    batches_for,
    described,
    parts,
    routed_batches,
    weights_of,
)
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import RANKS
from autograder.inside.harnesses import network

exercise = Exercise(
    "train_step",
    points=15,
    minutes=15,
    uses=("average_gradients", "make_buckets"),
    forbid=RANKS,
    instead="Write yourself what torch.distributed does, with `comm`.",
    meanings={
        "a leaf Variable that requires grad": "The step itself needs no gradient: change the parameters inside "
        "`with torch.no_grad():`."
    },
)

PLENTY = 1 << 20  # a cap that no network here reaches


def train(student, name: str, sizes, rng, steps: int = 1, cap: int = PLENTY, lr: float = LR):
    """A run of the student's step on equal replicas; also the weights at the start and the ranks' batches."""
    weights, batches = weights_of(name, rng), batches_for(sizes, steps, rng)
    given = lambda rank: (name, weights, batches[rank], lr, cap)  # noqa: E731
    return student.ranks("train_step", len(sizes), given, harness="steps"), weights, batches


def trains(student, name: str, sizes, rng, steps: int = 1, cap: int = PLENTY, lr: float = LR):
    """Check the weights after a run, and return it."""
    run, weights, batches = train(student, name, sizes, rng, steps, cap, lr)
    setting = f"{len(sizes)} rank{'s' * (len(sizes) > 1)} with {', '.join(map(str, sizes))} samples ({described(name)})"
    agree(run, name, weights, batches, setting, lr)
    return run


@exercise.check(points=3, seconds=SECONDS)
def as_one_machine(student, rng):
    "After three steps on equal batches every rank has the weights of one machine, to the same bit on all ranks."
    for sizes in ((4,), (3, 3), (2, 2, 2)):
        trains(student, "plain", sizes, rng, steps=1)
    trains(student, "plain", (3, 3), rng, steps=3, cap=100, lr=a_rate(rng))
    carried(student, rng, lambda: trains(student, "plain", (3, 3), rng), "2 ranks with 3, 3 samples")


@exercise.check(points=1, seconds=SECONDS, needs="as_one_machine")
def returns_its_loss(student, rng):
    "It returns the loss of this rank's samples, before the step."
    for sizes in ((4, 4), parts(rng, least=1)):
        run, weights, batches = train(student, "plain", sizes, rng)
        for rank, (_, losses) in enumerate(run.results):
            model = network("plain", weights)
            x, y = batches[rank][0]
            expected = cross_entropy(model(x), y).item()
            checks.close(losses[0], expected, name=f"train_step(...) on rank {rank} of {len(sizes)}", rtol=1e-4)


@exercise.check(points=3, seconds=SECONDS, needs="as_one_machine")
def unequal_parts(student, rng):
    "It also works if ranks have different numbers of samples, or none."
    for sizes in ((5, 1), (1, 2, 4), (3, 0, 2), parts(rng), parts(rng)):
        trains(student, "plain", sizes, rng)


@exercise.check(points=2, seconds=SECONDS, needs="as_one_machine")
def tied_and_frozen(student, rng):
    "A layer that is used twice learns from both uses; a layer with requires_grad=False is unchanged."
    for name in ("tied", "frozen"):
        trains(student, name, (3, 3), rng, steps=2, cap=100)


@exercise.check(points=3, seconds=SECONDS, needs="as_one_machine")
def unused(student, rng):
    "A parameter without a gradient, on every rank or on some, does not stop the others."
    trains(student, "unused", (3, 3), rng, steps=2, cap=100)
    weights, batches = weights_of("routed", rng), routed_batches(rng)
    try:
        run = student.ranks("train_step", 3, lambda rank: ("routed", weights, batches[rank], LR, 90), harness="steps")
    except checks.CheckFailure as failure:
        failure.mistake = failure.mistake or (
            "Do all ranks have the same buckets? Choose parameters by requires_grad, which is equal on all ranks, and "
            "send zeros where a gradient is None."
        )
        raise
    agree(run, "routed", weights, batches, "3 ranks that use different layers")


@exercise.check(points=3, seconds=SECONDS, needs="as_one_machine")
def one_message_per_bucket(student, rng):
    "The gradients of a bucket travel in one all-reduce."
    for cap, p in zip((PLENTY, 150, 90), and_others((), rng, most=4, count=3), strict=True):
        n = whole_number(rng, 3, 6)
        run = trains(student, "plain", (n,) * p, rng, cap=cap, lr=a_rate(rng))
        shares, buckets = per_all_reduce(student, p, rng), bytes_of_buckets(student, "plain", cap)
        one_per_bucket(run, "plain", cap, buckets, shares, f"{p} ranks, cap_bytes = {cap}")
