"""Data-parallel training whose messages travel during the backward pass. Oracle: one machine's training."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.ddp.grouping import bytes_of_buckets, grouped
from autograder.exercises.ddp.traffic import one_per_bucket, ring_shares
from autograder.exercises.ddp.training import (
    LR,
    agree,
    batches_for,
    described,
    names_of,
    parts,
    routed_batches,
    weights_of,
)
from autograder.exercises.ready_made import RANKS
from hpcdl.nn.awkward import MODELS

exercise = Exercise(
    "OverlappedDDP",
    points=25,
    minutes=25,
    uses=("broadcast_parameters", "average_gradients", "make_buckets"),
    forbid=RANKS,
    instead="Write yourself what torch.distributed does, with `comm`.",
)


def overlapped(student, name: str, weights, batches, cap: int, seconds: float = 0.0, **machine):
    """A run of the student's class; `weights` by rank, as ranks may begin with their own."""
    given = lambda rank: (name, weights[rank], batches[rank], LR, cap, seconds)  # noqa: E731
    return student.ranks("OverlappedDDP", len(batches), given, harness="hooks", **machine)


OTHER_ORDERS = (
    " The ranks' gradients are ready in different orders here: launch the buckets in their own order, and advance the "
    "first unfinished all-reduce only."
)


def wrapped_trains(student, name: str, sizes, rng, steps: int = 1, cap: int = 100, batches=None) -> None:
    weights, batches = weights_of(name, rng), batches or batches_for(sizes, steps, rng)
    run = overlapped(student, name, [weights] * len(sizes), batches, cap)
    setting = f"{len(sizes)} ranks with {', '.join(map(str, sizes))} samples ({described(name)}), cap_bytes = {cap}"
    agree(run, name, weights, batches, setting, advice=OTHER_ORDERS if name == "routed" else "")


@exercise.check(points=2, seconds=SECONDS)
def begins_with_rank_0s(student, rng):
    "After it is made, every rank's model has rank 0's weights, including the frozen ones."
    for name in ("plain", "frozen"):
        weights = [weights_of(name, rng) for _ in range(3)]
        run = overlapped(student, name, weights, [[], [], []], 100)
        for rank, (got, _) in enumerate(run.results):
            for i, label in enumerate(names_of(name)):
                own = "This rank still has its own weights: broadcast rank 0's when the object is made."
                mistakes = {own: weights[rank][i]} if rank else {}
                checks.close(got[i], weights[0][i], name=f"{label} on rank {rank}", rtol=0, atol=0, mistakes=mistakes)


@exercise.check(points=6, seconds=SECONDS, needs="begins_with_rank_0s")
def results_unchanged(student, rng):
    "Overlap changes no result: every rank takes the steps of one machine, with equal and unequal batches."
    for sizes, steps in (((3, 3), 1), ((4,), 1), ((3, 3), 3), ((1, 4, 2), 1), (parts(rng, least=1), 2)):
        wrapped_trains(student, "plain", sizes, rng, steps)
    first, second = batches_for((1, 4), 1, rng), batches_for((3, 2), 1, rng)
    both = [a + b for a, b in zip(first, second, strict=True)]
    wrapped_trains(student, "plain", ("1 then 3", "4 then 2"), rng, batches=both)
    carried(student, rng, lambda: wrapped_trains(student, "plain", (3, 3), rng), "2 ranks with 3, 3 samples")


@exercise.check(points=5, seconds=SECONDS, needs="results_unchanged")
def awkward_parameters(student, rng):
    "Shared, frozen and unused parameters are right, even if ranks use different ones."
    for name in ("tied", "frozen", "unused"):
        wrapped_trains(student, name, (3, 3), rng, steps=2)
    for cap in (90, 72):
        wrapped_trains(student, "routed", (4, 4, 4), rng, cap=cap, batches=routed_batches(rng))


CAP, DEPTH = 2 * 64, 12  # two of `Deep`'s matrices in a bucket, and as many layers as it has


def timed(student, rng, seconds_per_byte: float):
    """A step over two ranks where each layer's backward takes a second and bytes cost time."""
    weights, batches = weights_of("deep", rng), batches_for((2, 2), 1, rng)
    run = overlapped(student, "deep", [weights] * 2, batches, CAP, seconds=1.0, beta=seconds_per_byte)
    agree(run, "deep", weights, batches, "2 ranks, 12 layers")
    for rank in range(2):
        work = [event.end - event.start for event in computing(run, rank)]
        checks.that(
            len(work) == DEPTH and all(abs(seconds - 1.0) < 1e-9 for seconds in work),
            f"Rank {rank} works {len(work)} times, {sum(work):g} s in all. The backward pass through {DEPTH} layers "
            f"takes {DEPTH} times 1 s: only the check may call comm.compute, to let time pass for each layer.",
        )
    return run


@exercise.check(points=3, seconds=SECONDS, needs="results_unchanged")
def a_message_for_each_bucket(student, rng):
    "The gradients of a bucket travel in one all-reduce."
    run = timed(student, rng, 1e-6)
    first = min(computing(run, rank)[0].end for rank in range(2))
    buckets = bytes_of_buckets(student, "deep", CAP)
    one_per_bucket(run, "deep", CAP, buckets, [ring_shares(2)] * 2, f"2 ranks, cap_bytes = {CAP}", since=first - 1e-6)


@exercise.check(points=5, seconds=SECONDS, needs="results_unchanged")
def sends_before_the_last_gradient(student, rng):
    "The first bucket is under way before the backward pass has reached the first layer."
    run = timed(student, rng, 1e-6)
    for rank in range(2):
        layers = computing(run, rank)[:DEPTH]
        sent = transfers(run, rank, since=layers[0].end - 1e-6)
        checks.that(bool(sent), f"Rank {rank} sends nothing once the backward pass has begun.")
        early = sum(event.nbytes for event in sent if event.start < layers[-1].start)
        spare = sum(event.nbytes for event in sent) - sum(buckets_of("deep", CAP))  # these may say nothing
        checks.that(
            early - max(0, spare) >= CAP // 2,  # a bucket's half
            f"{DEPTH} layers, a second of backward pass each: rank {rank} sends its first bucket at "
            f"{sent[0].start:.0f} s, and the last gradient comes at {layers[-1].end:.0f} s. Let the hook start the "
            "all-reduce of a bucket as soon as all its gradients are ready; buckets begin with the last layers.",
            got=f"first message at {sent[0].start:.0f} s",
            expected="first message at 2 s: the first bucket holds the last two layers",
        )
        *complete, _ = buckets_of("deep", CAP)
        smaller = len(sent) > 2 * (len(complete) + 1)  # of messages of a part of a bucket another check speaks
        checks.that(
            smaller or early - max(0, spare) > sum(complete[:-2]),
            f"Rank {rank} has sent {early} bytes when the backward pass reaches the first layer, and by then the "
            f"gradients of {len(complete)} buckets, {sum(complete)} bytes, are ready. Launch every bucket in the hook "
            "that completes it, not only the first ones.",
            got=f"{early} bytes before the last gradient",
            expected=f"more than {sum(complete[:-2])} bytes",
        )
    first_bucket_leaves(student, "plain", weights_of("plain", rng), batches_for(parts(rng, least=1), 1, rng))
    for name in ("tied", "frozen", "routed"):
        sizes = tuple(torch.randint(2, 6, (3,), generator=rng).tolist())
        batches = batches_for(sizes, 1, rng)
        if name == "routed":
            for ((x, _),) in batches:
                x[:, 0] = x[:, 0].abs() * torch.tensor((1, -1)).repeat(3)[: len(x)]  # both experts on every rank
        first_bucket_leaves(student, name, weights_of(name, rng), batches)


def first_bucket_leaves(student, name: str, weights, batches, cap: int = 72) -> None:
    """Check that with these samples, too, each rank begins with the first bucket before the first layer's backward."""
    p, sizes = len(batches), [len(y) for ((_, y),) in batches]
    run = overlapped(student, name, [weights] * p, batches, cap, seconds=1.0, beta=1e-6)
    setting = f"{p} ranks with {', '.join(map(str, sizes))} samples ({described(name)}), cap_bytes = {cap}"
    agree(run, name, weights, batches, setting)
    first, *others = buckets_of(name, cap)
    for rank in range(p):
        layers = computing(run, rank)
        sent = transfers(run, rank, since=layers[0].end - 1e-6)
        early = sum(event.nbytes for event in sent if event.start < layers[-1].start)
        usual = 2 * (p - 1) / p * sum(nbytes + 8 for nbytes in (first, *others))  # 8: a number of samples
        spare = sum(event.nbytes for event in sent) - usual  # these may say nothing
        checks.that(
            early - max(0.0, spare) >= first / p / 2 - 4,
            f"{setting}: rank {rank} sends {early} bytes before the backward pass reaches the first layer, though the "
            "first bucket is ready after the last layer. Launch it in the hook, on any number of ranks and layers.",
            got=f"{early} bytes before the last gradient",
            expected=f"about {first} / {p} bytes or more: a rank's part of the first bucket",
        )


@exercise.check(points=4, seconds=SECONDS, needs="sends_before_the_last_gradient")
def communication_is_hidden(student, rng):
    "The step takes clearly less time than the backward pass followed by the messages."
    seconds = 0.9 / 66  # a message is half a bucket of 128 bytes and the number of samples: 0.9 s
    run = timed(student, rng, seconds)
    apart = DEPTH + sum(2 * nbytes / 2 * seconds for nbytes in buckets_of("deep", CAP))
    starts, whole = [computing(run, rank)[0].start for rank in range(2)], sum(buckets_of("deep", CAP))
    for rank, begin in enumerate(starts):
        sent = sum(event.nbytes for event in transfers(run, rank, since=begin))
        checks.that(
            sent >= whole,
            f"Rank {rank} sends {sent} bytes in a step, and an all-reduce of the gradients between 2 ranks sends "
            f"{whole}: send them in their own dtype.",
        )
    start = min(starts)
    took = run.seconds - start
    checks.that(
        took < 0.85 * apart,
        f"Backward pass {DEPTH} s, messages {apart - DEPTH:.1f} s, and both together take {took:.1f} s: the backward "
        "pass stops while messages are under way. Begin a message in the hook, and do not wait there for its end.",
        got=f"{took:.1f} s",
        expected=f"less than 0.85 · ({DEPTH} + {apart - DEPTH:.1f}) = {0.85 * apart:.1f} s",
    )


def buckets_of(name: str, cap: int) -> list[int]:
    """The bytes of each bucket of a network."""
    sizes = [param.nbytes for param in MODELS[name]().parameters() if param.requires_grad]
    return [sum(sizes[i] for i in group) for group in grouped(sizes, cap)]


def computing(run, rank: int) -> list:
    """The work of a rank's backward pass, in order: one event for each layer."""
    return [event for event in run.trace if event.rank == rank and event.op == "compute"]


def transfers(run, rank: int, since: float) -> list:
    """What a rank sends from `since` on, point to point or in the machine's own all-reduce."""
    events = (event for event in run.trace if event.rank == rank and event.op in ("send", "all_reduce"))
    return sorted((event for event in events if event.start >= since), key=lambda event: event.start)
