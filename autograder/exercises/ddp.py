"""Lab 07, ddp: exercises and checks.

Oracles: counting, one machine that trains on all samples together (in float64), and the trace of the simulated machine,
which says who sent what to whom, and when.
"""

import torch

from autograder import checks, show
from autograder.authoring import Lab
from autograder.checks.messages import FEW, has_sum, has_sum_everywhere, ones, over, same_bits, sends, takes_rounds
from autograder.exercises import ddp_oracles as oracles
from autograder.exercises.ddp_oracles import LR, batches_for, buckets_of, grouped, weights_of
from hpcdl.nn.awkward import MODELS

lab = Lab("ddp", number=7, title="Many machines, one model")

shard = lab.exercise("shard_indices", points=10, minutes=8)
broadcast = lab.exercise("broadcast_parameters", points=10, minutes=6)
ring = lab.exercise("ring_all_reduce", points=20, minutes=20)
average = lab.exercise("average_gradients", points=10, minutes=10, uses=("ring_all_reduce",))
buckets = lab.exercise("make_buckets", points=10, minutes=10)
step = lab.exercise("train_step", points=20, minutes=15, uses=("average_gradients", "make_buckets"))
overlap = lab.exercise(
    "OverlappedDDP", points=20, minutes=25, uses=("broadcast_parameters", "average_gradients", "make_buckets")
)

SECONDS = 15.0  # a check over ranks makes some hundred messages between processes

# -------------------------------------------------------------------------------------------- shard_indices


def shards(student, n: int, size: int, epoch: int = 0, seed: int = 0) -> list[torch.Tensor]:
    """Every rank's shard, each a tensor of indices."""
    found = []
    for rank in range(size):
        name = f"shard_indices({n}, {rank}, {size}, {epoch}, {seed})"
        got = student.shard_indices(n, rank, size, epoch, seed)
        checks.tensor(got, name=name, dtype=torch.int64)
        checks.that(got.dim() == 1, f"{name} has shape {show.shape(got)}, expected one dimension: a list of indices.")
        outside = got[(got < 0) | (got >= n)]
        checks.that(not len(outside), f"{name} holds {outside[:1].tolist()}; samples are 0 to {n - 1}.", got=got)
        found.append(got)
    return found


SPLITS = ((12, 4), (10, 4), (3, 4), (5, 1), (7, 2), (64, 8))  # n and the number of ranks


@shard.check(points=4)
def every_sample_once(student, rng):
    "All shards together hold every sample exactly once, also where ranks do not divide n."
    for n, size in SPLITS:
        found = shards(student, n, size, epoch=3, seed=5)
        counts = torch.cat(found).bincount(minlength=n)
        if bool((counts == 1).all()):
            continue
        wrong = int((counts != 1).nonzero()[0])
        owners = [rank for rank in range(size) if wrong in found[rank].tolist()]
        raise checks.CheckFailure(
            f"n = {n}, {size} ranks: sample {wrong} is in the shards of "
            f"{'no rank' if not owners else 'rank' + 's' * (len(owners) > 1) + ' ' + ', '.join(map(str, owners))}"
            f"{' (more than once)' if len(owners) == 1 else ''}.",
            got=[shard.tolist() for shard in found].__repr__(),
            expected=f"each of 0 to {n - 1} in one shard",
            mistake=sharding_mistake(found, counts, n),
        )


def sharding_mistake(found: list[torch.Tensor], counts: torch.Tensor, n: int) -> str:
    size, total = len(found), sum(map(len, found))
    if size > 1 and all(len(shard) == n for shard in found):
        return "Every rank has all samples: a shard is its part of the permutation."
    if counts.max() == 1 and int((counts == 0).sum()) == n % size:
        return "The rest is left out: where ranks do not divide n, some shards are one sample longer."
    if counts.min() == 1 and total == size * -(-n // size):
        return "Samples are repeated to make the shards equally long. Here shards may differ by one instead."
    if all(torch.equal(shard.sort()[0], found[0].sort()[0]) for shard in found):
        return "Every rank has the same shard: rank is ignored."
    return (
        "Shards overlap. Does each rank draw a permutation of its own? Seed with seed and epoch, never with the rank."
    )


@shard.check(points=2, needs="every_sample_once")
def equal_lengths(student, rng):
    "The longest shard has at most one sample more than the shortest."
    for n, size in SPLITS:
        lengths = [len(found) for found in shards(student, n, size)]
        checks.that(
            max(lengths) - min(lengths) <= 1,
            f"n = {n}, {size} ranks: the shards have {', '.join(map(str, lengths))} samples. All wait for the rank "
            "with the most: spread what is left over, one sample each.",
            got=lengths,
        )


@shard.check(points=2, needs="every_sample_once")
def new_each_epoch(student, rng):
    "Each epoch deals the samples anew: another order, and other samples for each rank."
    n, size = 64, 4  # that chance gives a rank the same samples twice: 1 in C(64, 16) = 5e14
    first, second = shards(student, n, size, epoch=0), shards(student, n, size, epoch=1)
    dealt = torch.cat(first).sort()[0]
    unshuffled = [torch.arange(rank, n, size) for rank in range(size)], list(dealt.tensor_split(size))
    for rank in range(size):
        name = f"rank {rank}'s shard of {n} samples"
        plain = any(torch.equal(first[rank], some[rank]) for some in unshuffled)
        checks.that(not plain, f"{name} is not shuffled: deal a random permutation.", got=first[rank])
        same = torch.equal(first[rank].sort()[0], second[rank].sort()[0])
        checks.that(
            not same,
            f"{name} holds the same samples in epoch 1 as in epoch 0. Seed the generator with the epoch too, and "
            "permute all n samples before you deal them.",
            got=f"epoch 0: {show.show(first[rank])}, epoch 1: {show.show(second[rank])}",
        )


@shard.check(points=2, needs="every_sample_once")
def same_permutation_again(student, rng):
    "The same seed and epoch give the same shards whenever they are asked for; another seed gives others."
    first, again = (shards(student, 40, 3, epoch=2, seed=7) for _ in range(2))
    other = shards(student, 40, 3, epoch=2, seed=8)
    for rank in range(3):
        checks.equal(
            again[rank], first[rank], name=f"rank {rank}'s shard, asked for again with the same seed and epoch"
        )
        checks.that(
            not torch.equal(other[rank], first[rank]), "seed 7 and seed 8 give the same shards: seed is ignored."
        )


# ------------------------------------------------------------------------------------- broadcast_parameters

SHAPES = ((3, 4), (4,), (2, 3, 2), (1,))


def spread(student, p: int, root: int, rng):
    """A run on ranks with parameters of their own: by rank the tensors given, the list afterwards, the originals."""
    given = [[torch.randn(shape, generator=rng).requires_grad_() for shape in SHAPES] for _ in range(p)]
    before = [[param.detach().clone() for param in params] for params in given]
    run = student.ranks("broadcast_parameters", p, lambda rank: (list(given[rank]),), {"root": root})
    return given, [arguments[0] for arguments in run.arguments], before


def copies_of_root(student, p: int, root: int, rng) -> None:
    _, after, before = spread(student, p, root, rng)
    for rank in range(p):
        for i in range(len(SHAPES)):
            mean = sum(params[i] for params in before) / p
            mistakes = {"These are rank 0's: `root` says whose count.": before[0][i]} if root else {}
            if rank != root:
                mistakes["This rank still has its own parameter: the root's never came."] = before[rank][i]
            if p > 1:
                mistakes["These are the means over the ranks: everyone takes the root's own."] = mean
            name = f"p = {p}, root = {root}: params[{i}] on rank {rank}"
            checks.close(after[rank][i].detach(), before[root][i], name=name, rtol=0, atol=0, mistakes=mistakes)


@broadcast.check(points=4, seconds=SECONDS)
def all_have_rank_0s(student, rng):
    "Ranks that begin with other weights all end with rank 0's, to the bit."
    for p in (2, 3, 1, 5, 8):
        copies_of_root(student, p, 0, rng)


@broadcast.check(points=3, seconds=SECONDS, needs="all_have_rank_0s")
def any_root(student, rng):
    "The same from another root."
    for p, root in ((2, 1), (3, 1), (4, 3)):
        copies_of_root(student, p, root, rng)


@broadcast.check(points=3, seconds=SECONDS, needs="all_have_rank_0s")
def in_place(student, rng):
    "The tensors themselves are overwritten: the model holds them, not your list."
    given, _, before = spread(student, 3, 0, rng)
    for rank in (1, 2):
        for i in range(len(SHAPES)):
            checks.that(
                torch.equal(given[rank][i], before[0][i]),
                f"params[{i}] on rank {rank} was replaced in the list, and the tensor that was there is what it was. "
                "Receive into the parameter itself, so that the model sees it.",
                got=given[rank][i].detach(),
                expected=before[0][i],
            )


# ------------------------------------------------------------------------------------------ ring_all_reduce

RING = "ring_all_reduce"


@ring.check(points=4, seconds=SECONDS)
def whole_chunks(student, rng):
    "The sum on every rank where p divides n: p = 1, 2, 3, 4 and 12 elements."
    for p in (2, 3, 4, 1):
        has_sum_everywhere(student, RING, p, 12, f"p = {p}, n = 12")


@ring.check(points=5, seconds=SECONDS, needs="whole_chunks")
def any_p_and_n(student, rng):
    "The sum for p = 1 to 9, also where p does not divide n, where n < p, and for x of any shape."
    for p in FEW:
        for n in (1, p + 1) if p > 2 else (1, 7):
            has_sum_everywhere(student, RING, p, n, f"p = {p}, n = {n}")
    xs = [torch.full((3, 2), 10.0**rank, dtype=torch.float64) for rank in range(4)]
    run = over(student, RING, xs)
    run.arguments[:] = [(arguments[0].flatten(),) for arguments in run.arguments]
    for rank in range(4):
        has_sum(run, rank, 4, "p = 4, x of shape (3, 2), flattened here")


@ring.check(points=3, seconds=SECONDS, needs="whole_chunks")
def neighbours_only(student, rng):
    "Every rank sends to one neighbour and receives from the other."
    for p in (5, 3, 8):
        directions = set()
        for event in sends(over(student, RING, ones(p, 3 * p))):
            direction = (event.peer - event.rank) % p
            checks.that(
                direction in (1, p - 1),
                f"p = {p}: rank {event.rank} sends to rank {event.peer}, which is not its neighbour on the ring.",
            )
            directions.add(direction)
        checks.that(
            len(directions) == 1,
            f"p = {p}: messages go both ways round. Send to (rank + 1) % p, receive from (rank - 1) % p.",
        )


@ring.check(points=3, seconds=SECONDS, needs="whole_chunks")
def few_bytes(student, rng):
    "Each rank sends 2(p-1)/p times the size of x, as little as an all-reduce can."
    for p in (2, 4, 5, 8):
        n = 4 * 6 * p  # bytes of x
        run, right = over(student, RING, ones(p, 6 * p)), 2 * (p - 1) * n // p
        for rank, sent in enumerate(run.bytes_sent):
            whole = "The whole x goes round: cut it into p chunks, and send one chunk in each step."
            if sent > right:
                raise checks.CheckFailure(
                    f"p = {p}: rank {rank} sends {sent} bytes for an x of {n}.",
                    got=f"{sent} bytes",
                    expected=f"2(p-1)/p n = {right} bytes: p - 1 chunks in each half",
                    mistake=whole if sent in ((p - 1) * n, 2 * (p - 1) * n, p * n) else "",
                )


@ring.check(points=3, seconds=SECONDS, needs="whole_chunks")
def all_at_once(student, rng):
    "It takes 2(p-1) steps: in each of them all ranks send and receive at the same time."
    for p in (2, 4, 7):
        run = over(student, RING, ones(p, 2 * p), alpha=1.0)
        most, cut = (
            2 * (p - 1),
            "Ranks wait for one another: sendrecv sends to the right and receives from the left at once.",
        )
        takes_rounds(run, most, f"p = {p}", f"a ring needs 2(p-1) = {most}", {cut: round(run.seconds)})


@ring.check(points=2, seconds=SECONDS, needs="whole_chunks")
def the_same_bits(student, rng):
    "Every rank ends with the same bits."
    for p in (3, 8):
        same_bits(student, RING, p, rng)


# ---------------------------------------------------------------------------------------- average_gradients


def averaged(student, sizes: tuple[int, ...], rng, empty: bool = False):
    """A run on gradients of their own; by rank the tensors given, and what they were."""
    given = [[torch.randn(shape, generator=rng) * (n > 0) for shape in SHAPES[:3]] for n in sizes]
    before = [[grad.clone() for grad in grads] for grads in given]
    run = student.ranks("average_gradients", len(sizes), lambda rank: (list(given[rank]), sizes[rank]))
    return run, given, before


def are_means(student, sizes: tuple[int, ...], rng) -> None:
    _, given, before = averaged(student, sizes, rng)
    p, total = len(sizes), sum(sizes)
    for rank in range(p):
        for i, own in enumerate(before[rank]):
            grads = [b[i] for b in before]
            weighted = sum(n * grad for n, grad in zip(sizes, grads, strict=True))
            mistakes = {
                "This is still the rank's own gradient. Write the mean into it: grad.copy_(...).": own,
                "This is the sum of the gradients: divide.": sum(grads),
                "This is the mean of the ranks' means. A rank with more samples counts for more: n_r / N.": sum(grads)
                / p,
                "This is the sum of n_r g_r: divide by N, the number of all samples.": weighted,
                "This is divided by p. Weighted with n_r, the sum is over samples: divide by N.": weighted / p,
            }
            name = f"n_r = {', '.join(map(str, sizes))}: grads[{i}] on rank {rank}"
            why = f"It is Σ (n_r / N) g_r over the ranks, N = {total}."
            checks.close(given[rank][i], weighted / total, name=name, why=why, mistakes=mistakes if p > 1 else None)


@average.check(points=3, seconds=SECONDS)
def equal_batches(student, rng):
    "With as many samples on every rank it is the plain mean, in place."
    for sizes in ((4, 4), (2, 2, 2), (5,)):
        are_means(student, sizes, rng)


@average.check(points=3, seconds=SECONDS, needs="equal_batches")
def unequal_batches(student, rng):
    "A rank's gradient counts as much as it has samples: n_r / N."
    for sizes in ((3, 1), (1, 2, 5), (7, 7, 6, 6)):
        are_means(student, sizes, rng)


@average.check(points=2, seconds=SECONDS, needs="equal_batches")
def a_rank_without_samples(student, rng):
    "A rank whose part of the batch is empty counts nothing, and gets the mean like the others."
    for sizes in ((2, 0), (0, 3, 1)):
        are_means(student, sizes, rng)


@average.check(points=2, seconds=SECONDS, needs="equal_batches")
def one_all_reduce(student, rng):
    "All gradients travel in one all-reduce, and n_r with them."
    for p in (2, 4):
        run, given, _ = averaged(student, (2,) * p, rng)
        messages = oracles.per_all_reduce(student, p)
        found = max(oracles.all_reduces(run, rank, messages[rank]) for rank in range(p))
        each = "That is one per tensor, and each pays its latency: put all into one flat tensor first."
        apart = "The number of samples travels alone, at the price of one more all-reduce: append it to the gradients."
        if found > 1:
            raise checks.CheckFailure(
                f"p = {p}: the ranks take part in {found:.3g} all-reduces for {len(given[0])} gradients.",
                got=f"{found:.3g} all-reduces",
                expected="1",
                mistake=apart if found == 2 else each if found >= len(given[0]) else "",
            )


# --------------------------------------------------------------------------------------------- make_buckets


def parameters(numels, rng, dtype=torch.float32) -> list[torch.Tensor]:
    return [torch.randn(n, generator=rng).to(dtype).requires_grad_() for n in numels]


def bucketed(student, params: list, cap: int) -> list[list[int]]:
    """The student's buckets as indices of `params`."""
    call = f"make_buckets(params, {cap})"
    got = student.make_buckets(list(params), cap)
    wanted = "a list of buckets, each a list of the parameters themselves"
    checks.that(type(got) in (list, tuple), f"{call} is {show.an(show.type_name(got))}, expected {wanted}.")
    places = {id(param): i for i, param in enumerate(params)}
    for k, bucket in enumerate(got):
        checks.that(
            type(bucket) in (list, tuple), f"{call}[{k}] is {show.an(show.type_name(bucket))}, expected {wanted}."
        )
        strange = [param for param in bucket if id(param) not in places]
        checks.that(
            not strange,
            f"{call}[{k}] holds {show.show(strange[0]) if strange else ''}, which is none of the parameters.",
            expected=wanted,
        )
    return [[places[id(param)] for param in bucket] for bucket in got]


def are_buckets(student, params: list, cap: int) -> None:
    got, sizes = bucketed(student, params, cap), [param.nbytes for param in params]
    expected = grouped(sizes, cap)
    numels = [param.numel() for param in params]
    mistakes = {
        "cap_bytes counts bytes: a float32 has 4 of them (param.nbytes).": grouped(numels, cap),
        "A bucket that is filled exactly to cap_bytes is not too full: compare with >, not >=.": grouped(
            sizes, cap - 1
        ),
        "There is one bucket too many, an empty one: begin a new bucket only where the last one holds something.": [
            [],
            *expected,
        ],
        "Every parameter has a bucket of its own: let them share one up to cap_bytes.": [
            [i] for [i] in grouped(sizes, 0)
        ],
        "All is in one bucket: cap_bytes is ignored.": [[i for group in expected for i in group]],
    }
    shown = f"parameters of {', '.join(map(str, sizes))} bytes, cap {cap}"
    if got != expected:
        raise checks.CheckFailure(
            f"{shown}: the buckets hold the parameters {got}.",
            got=f"{got} (indices into params)",
            expected=f"{expected}: last parameter first, each bucket as full as the cap allows",
            mistake=next((sentence for sentence, value in mistakes.items() if value == got), ""),
        )


@buckets.check(points=3)
def in_reverse(student, rng):
    "Every parameter is in one bucket, and the last parameter comes first."
    for numels, cap in (((3, 3, 3, 3), 24), (tuple(range(1, 13)), 60)):
        got = [i for group in bucketed(student, parameters(numels, rng), cap) for i in group]
        n = len(numels)
        lost, order = [i for i in range(n) if got.count(i) != 1], list(reversed(range(n)))
        shown = f"{n} parameters, cap {cap}: in the order of the buckets they are {got}."
        if lost:
            checks.fail(f"{shown} Parameter {lost[0]} is there {got.count(lost[0])} times, expected once.")
        if got != order:
            forwards = (
                "This is the order of the forward pass: the last layer's gradients come first, so begin at the end."
            )
            inside = "Buckets come from the end, but within a bucket the parameters stand forwards: reverse them too."
            mistake = forwards if got == order[::-1] else inside if got[0] != n - 1 and n - 1 in got[:6] else ""
            raise checks.CheckFailure(shown, got=str(got), expected=str(order), mistake=mistake)


@buckets.check(points=3, needs="in_reverse")
def full_up_to_the_cap(student, rng):
    "A bucket takes the next parameter as long as it stays within cap_bytes."
    for numels, cap in (((2, 2, 2, 2), 16), ((5, 1, 4, 2, 3), 24), ((6, 5, 4, 3, 2, 1), 40)):
        are_buckets(student, parameters(numels, rng), cap)
    are_buckets(student, parameters((2, 2, 2, 2), rng, torch.float64), 32)
    mixed = parameters((4, 4), rng) + parameters((4, 4), rng, torch.float64) + parameters((4,), rng, torch.bfloat16)
    are_buckets(student, mixed, 40)


@buckets.check(points=2, needs="in_reverse")
def a_parameter_larger_than_the_cap(student, rng):
    "A parameter that is larger than the cap has a bucket of its own, wherever it stands."
    for numels in ((1, 9, 1), (9, 1, 1), (1, 1, 9), (9, 9, 1), (9,)):
        are_buckets(student, parameters(numels, rng), 16)


@buckets.check(points=1, needs="in_reverse")
def extreme_caps(student, rng):
    "A huge cap gives one bucket, a tiny one a bucket for each; no parameters, no buckets."
    for numels, cap in (((3, 5, 2), 10**9), ((3, 5, 2), 1), ((), 100)):
        are_buckets(student, parameters(numels, rng), cap)


@buckets.check(points=1, needs="in_reverse")
def the_same_on_every_rank(student, rng):
    "The buckets depend on sizes alone: ranks whose weights differ get the same ones."
    numels = (7, 3, 8, 2, 6, 4, 5, 1)
    first, *others = (bucketed(student, parameters(numels, rng), 40) for _ in range(4))
    for other in others:
        checks.equal(
            other, first, name="the buckets for other weights", why="Else ranks add what does not belong together."
        )


def how_many_buckets(student, name: str, cap: int) -> int:
    """The student's own number of buckets for a network: whether it is right is for `make_buckets` to say."""
    params = [param.detach() for param in MODELS[name]().parameters() if param.requires_grad]
    return len(bucketed(student, params, cap))


# ----------------------------------------------------------------------------------------------- train_step

PLENTY = 1 << 20  # a cap that no network here reaches


def train(student, name: str, sizes, rng, steps: int = 1, cap: int = PLENTY):
    """A run of the student's step on equal replicas; also the weights at the start and the ranks' batches."""
    weights, batches = weights_of(name, rng), batches_for(sizes, steps, rng)
    parts = lambda rank: (name, weights, batches[rank], LR, cap)  # noqa: E731
    return student.ranks("train_step", len(sizes), parts, stage="steps"), weights, batches


def trains(student, name: str, sizes, rng, steps: int = 1, cap: int = PLENTY) -> None:
    run, weights, batches = train(student, name, sizes, rng, steps, cap)
    kind = MODELS[name].__doc__.partition(":")[0].rstrip(".").lower()
    setting = f"{len(sizes)} rank{'s' * (len(sizes) > 1)} with {', '.join(map(str, sizes))} samples ({kind})"
    oracles.agree(run, name, weights, batches, setting)


@step.check(points=4, seconds=SECONDS)
def as_one_machine(student, rng):
    "After three steps on equal batches every rank has the weights of one machine, all to the same bit."
    for sizes in ((4,), (3, 3), (2, 2, 2)):
        trains(student, "plain", sizes, rng, steps=1)
    trains(student, "plain", (3, 3), rng, steps=3, cap=100)


@step.check(points=1, seconds=SECONDS, needs="as_one_machine")
def returns_its_loss(student, rng):
    "It returns the loss of this rank's samples, before the step."
    run, weights, batches = train(student, "plain", (4, 4), rng)
    for rank, (_, losses) in enumerate(run.results):
        model = oracles.network("plain", weights)
        x, y = batches[rank][0]
        expected = oracles.cross_entropy(model(x), y).item()
        checks.close(losses[0], expected, name=f"train_step(...) on rank {rank}", rtol=1e-4)


@step.check(points=3, seconds=SECONDS, needs="as_one_machine")
def unequal_parts(student, rng):
    "The same where ranks have different numbers of samples, or none."
    for sizes in ((5, 1), (1, 2, 4), (3, 0, 2)):
        trains(student, "plain", sizes, rng)


@step.check(points=4, seconds=SECONDS, needs="as_one_machine")
def tied_and_frozen(student, rng):
    "A layer that is used twice learns from both uses, one with requires_grad=False stays as it is."
    for name in ("tied", "frozen"):
        trains(student, name, (3, 3), rng, steps=2, cap=100)


@step.check(points=4, seconds=SECONDS, needs="as_one_machine")
def unused(student, rng):
    "A parameter without a gradient, on every rank or on some, does not stop the others."
    trains(student, "unused", (3, 3), rng, steps=2, cap=100)
    weights, batches = weights_of("routed", rng), batches_for((4, 4, 4), 1, rng)
    for rank, sign in ((0, -1), (1, 1)):  # rank 0 uses one expert, rank 1 the other, rank 2 both
        batches[rank][0][0][:, 0] = sign * batches[rank][0][0][:, 0].abs()
    run = student.ranks("train_step", 3, lambda rank: ("routed", weights, batches[rank], LR, 90), stage="steps")
    oracles.agree(run, "routed", weights, batches, "3 ranks that use different layers")


@step.check(points=4, seconds=SECONDS, needs="as_one_machine")
def one_message_per_bucket(student, rng):
    "The gradients of a bucket travel in one all-reduce."
    for cap in (PLENTY, 150, 90):
        run, _, _ = train(student, "plain", (2, 2, 2), rng, cap=cap)
        messages, count = oracles.per_all_reduce(student, 3), how_many_buckets(student, "plain", cap)
        oracles.one_per_bucket(run, "plain", cap, count, messages, f"3 ranks, cap_bytes = {cap}")


# -------------------------------------------------------------------------------------------- OverlappedDDP


def overlapped(student, name: str, weights, batches, cap: int, seconds: float = 0.0, **machine):
    """A run of the student's class; `weights` by rank, as ranks may begin with their own."""
    parts = lambda rank: (name, weights[rank], batches[rank], LR, cap, seconds)  # noqa: E731
    return student.ranks("OverlappedDDP", len(batches), parts, stage="hooks", **machine)


def wrapped_trains(student, name: str, sizes, rng, steps: int = 1, cap: int = 100, batches=None) -> None:
    weights, batches = weights_of(name, rng), batches or batches_for(sizes, steps, rng)
    run = overlapped(student, name, [weights] * len(sizes), batches, cap)
    kind = MODELS[name].__doc__.partition(":")[0].rstrip(".").lower()
    setting = f"{len(sizes)} ranks with {', '.join(map(str, sizes))} samples ({kind}), cap_bytes = {cap}"
    oracles.agree(run, name, weights, batches, setting)


@overlap.check(points=2, seconds=SECONDS)
def begins_with_rank_0s(student, rng):
    "Once it is made, every rank's model has rank 0's weights, the frozen ones too."
    for name in ("plain", "frozen"):
        weights = [weights_of(name, rng) for _ in range(3)]
        run = overlapped(student, name, weights, [[], [], []], 100)
        for rank, (got, _) in enumerate(run.results):
            for i, label in enumerate(oracles.names_of(name)):
                own = "This rank still has its own weights: broadcast rank 0's when the object is made."
                mistakes = {own: weights[rank][i]} if rank else {}
                checks.close(got[i], weights[0][i], name=f"{label} on rank {rank}", rtol=0, atol=0, mistakes=mistakes)


@overlap.check(points=5, seconds=SECONDS, needs="begins_with_rank_0s")
def results_unchanged(student, rng):
    "Overlap changes no result: every rank takes the steps of one machine, with equal and unequal batches."
    for sizes, steps in (((3, 3), 1), ((4,), 1), ((3, 3), 3), ((1, 4, 2), 1)):
        wrapped_trains(student, "plain", sizes, rng, steps)


@overlap.check(points=4, seconds=SECONDS, needs="results_unchanged")
def awkward_parameters(student, rng):
    "Shared, frozen and unused parameters are right, also where ranks use different ones."
    for name in ("tied", "frozen", "unused"):
        wrapped_trains(student, name, (3, 3), rng, steps=2)
    batches = batches_for((4, 4), 1, rng)
    for rank, sign in ((0, -1), (1, 1)):
        batches[rank][0][0][:, 0] = sign * batches[rank][0][0][:, 0].abs()
    wrapped_trains(student, "routed", (4, 4), rng, cap=90, batches=batches)


CAP, DEPTH = 2 * 64, 12  # two of `Deep`'s matrices in a bucket, and as many layers as it has


def timed(student, rng, seconds_per_byte: float):
    """A step over two ranks where each layer's backward takes a second and bytes cost time."""
    weights, batches = weights_of("deep", rng), batches_for((2, 2), 1, rng)
    return overlapped(student, "deep", [weights] * 2, batches, CAP, seconds=1.0, beta=seconds_per_byte)


@overlap.check(points=2, seconds=SECONDS, needs="results_unchanged")
def a_message_for_each_bucket(student, rng):
    "The gradients of a bucket travel in one all-reduce."
    run = timed(student, rng, 1e-6)
    first = min(oracles.computing(run, rank)[0].end for rank in range(2))
    count = how_many_buckets(student, "deep", CAP)
    oracles.one_per_bucket(run, "deep", CAP, count, [2, 2], f"2 ranks, cap_bytes = {CAP}", since=first - 1e-6)


@overlap.check(points=4, seconds=SECONDS, needs="results_unchanged")
def sends_before_the_last_gradient(student, rng):
    "The first bucket is under way before the backward pass has come to the first layer."
    run = timed(student, rng, 1e-6)
    for rank in range(2):
        layers = oracles.computing(run, rank)[:DEPTH]
        sent = oracles.transfers(run, rank, since=layers[0].end - 1e-6)
        checks.that(bool(sent), f"Rank {rank} sends nothing once the backward pass has begun.")
        checks.that(
            sent[0].start < layers[-1].start,
            f"{DEPTH} layers, a second of backward pass each: rank {rank} sends its first bucket at "
            f"{sent[0].start:.0f} s, and the last gradient comes at {layers[-1].end:.0f} s. Let the hook start the "
            "all-reduce of a bucket as soon as all its gradients are there; buckets begin with the last layers.",
            got=f"first message at {sent[0].start:.0f} s",
            expected="first message at 2 s: the first bucket holds the last two layers",
        )


@overlap.check(points=3, seconds=SECONDS, needs="sends_before_the_last_gradient")
def communication_is_hidden(student, rng):
    "The step takes clearly less time than the backward pass and then the messages."
    seconds = 0.9 / 66  # a message is half a bucket of 128 bytes and the number of samples: 0.9 s
    run = timed(student, rng, seconds)
    apart = DEPTH + sum(2 * nbytes / 2 * seconds for nbytes in buckets_of("deep", CAP))
    start = min(oracles.computing(run, rank)[0].start for rank in range(2))
    took = run.seconds - start
    checks.that(
        took < 0.85 * apart,
        f"Backward pass {DEPTH} s, messages {apart - DEPTH:.1f} s, and both together take {took:.1f} s: the backward "
        "pass stands still while messages are under way. Begin a message in the hook, and do not wait there for all "
        "of it.",
        got=f"{took:.1f} s",
        expected=f"less than 0.85 · ({DEPTH} + {apart - DEPTH:.1f}) = {0.85 * apart:.1f} s",
    )
