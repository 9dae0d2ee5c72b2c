"""Parameters in buckets, from the last layer to the first. Oracle: the same rule, on their sizes alone."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.ddp.grouping import bucketed, bucketed_giants, grouped
from autograder.exercises.ready_made import BUCKETS

exercise = Exercise(
    "make_buckets", points=10, minutes=10, forbid=BUCKETS, instead="Write yourself where a bucket ends."
)


def parameters(numels, rng, dtype=torch.float32) -> list[torch.Tensor]:
    return [torch.randn(n, generator=rng).to(dtype).requires_grad_() for n in numels]


def large(n: int, rng) -> list[int]:
    """Draw n numbers of elements that no parameter has: 0.3 to 4 TB in float32."""
    return torch.randint(2**36, 2**40, (n,), generator=rng).tolist()


def never_reset(sizes: list[int], cap: int) -> list[list[int]]:
    """Return the buckets if the count of bytes continues from bucket to bucket."""
    order = list(reversed(range(len(sizes))))
    full = next((k for k in range(len(order)) if sum(sizes[i] for i in order[: k + 1]) > cap), len(order))
    return [order[:full]] * (full > 0) + [[i] for i in order[full:]]


def joined(sizes: list[int], cap: int) -> list[list[int]]:
    """Return the buckets if a parameter larger than the cap joins the bucket that is being filled."""
    groups: list[list[int]] = [[]]
    filled = 0
    for i in reversed(range(len(sizes))):
        if filled + sizes[i] > cap >= sizes[i]:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += sizes[i]
    return [group for group in groups if group]


def are_buckets(student, params: list, cap: int) -> None:
    numels, sizes = [param.numel() for param in params], [param.nbytes for param in params]
    judge(bucketed(student, params, cap), numels, sizes, cap)


def are_giants(student, numels: list[int], cap: int) -> None:
    judge(bucketed_giants(student, numels, cap), numels, [4 * n for n in numels], cap)


def judge(got: list[list[int]], numels: list[int], sizes: list[int], cap: int) -> None:
    """Fail unless parameters of these numbers of elements and bytes are in the right buckets."""
    expected = grouped(sizes, cap)
    mistakes = {
        "cap_bytes counts bytes: a float32 has 4 of them (param.nbytes).": grouped(numels, cap),
        "A bucket that is filled exactly to cap_bytes is not too full: compare with >, not >=.": grouped(
            sizes, cap - 1
        ),
        "There is one bucket too many, an empty one: begin a new bucket only if the last one is not empty.": [
            [],
            *expected,
        ],
        "Every parameter has its own bucket: let them share one up to cap_bytes.": [[i] for [i] in grouped(sizes, 0)],
        "Everything is in one bucket: end it where the next parameter would exceed cap_bytes.": [
            [i for group in expected for i in group]
        ],
        "Count the bytes of each bucket on their own: set the count to 0 when you begin one.": never_reset(sizes, cap),
        "A parameter larger than the cap needs its own bucket: do not put it into the one before.": joined(sizes, cap),
    }
    shown = f"parameters of {', '.join(map(str, sizes))} bytes, cap {cap}"
    if got != expected:
        raise checks.CheckFailure(
            f"{shown}: the buckets hold the parameters {got}.",
            got=f"{got} (indices into params)",
            expected=f"{expected}: last parameter first, each bucket as full as the cap allows",
            mistake=show.OR.join(sentence for sentence, value in mistakes.items() if value == got),
        )


def ends_early(got: list[list[int]], expected: list[list[int]]) -> str:
    """Name the mistake if the last bucket is missing, or all that comes after the first parameter."""
    if got == expected[:-1]:
        return "The last bucket is missing: no parameter comes after it to begin another, so keep it after the loop."
    if got == [expected[0][:1]]:
        return "Only the first parameter is there. A `return` inside the loop ends it: move it behind."
    return ""


@exercise.check(points=3)
def in_reverse(student, rng):
    "Every parameter is in one bucket, and the last parameter comes first."
    drawn = large(int(torch.randint(21, 61, (), generator=rng)), rng)
    for numels, cap in (((3, 3, 3, 3), 24), (tuple(range(1, 13)), 60), (drawn, sum(drawn))):
        is_drawn = numels is drawn
        buckets = bucketed_giants(student, drawn, cap) if is_drawn else bucketed(student, parameters(numels, rng), cap)
        got = [i for group in buckets for i in group]
        n = len(numels)
        lost, order = [i for i in range(n) if got.count(i) != 1], list(reversed(range(n)))
        shown = f"{n} parameters, cap {cap}: in the order of the buckets they are {got}."
        if lost:
            said = f"Parameter {lost[0]} is there {got.count(lost[0])} times, expected once."
            mistake = ends_early(buckets, grouped([4 * n for n in numels], cap))
            raise checks.CheckFailure(f"{shown} {said}", mistake=mistake)
        if got != order:
            forwards = (
                "This is the order of the forward pass: the last layer's gradients come first, so begin at the end."
            )
            inside = (
                "Your buckets begin at the end, but within a bucket the parameters are in forward order: reverse "
                "them, too."
            )
            mistake = forwards if got == order[::-1] else inside if got[0] != n - 1 and n - 1 in got[:6] else ""
            raise checks.CheckFailure(shown, got=str(got), expected=str(order), mistake=mistake)


@exercise.check(points=3, needs="in_reverse")
def full_up_to_the_cap(student, rng):
    "A bucket takes the next parameter as long as it stays within cap_bytes."
    few = (((2,) * 20, 32), ((2, 2, 2, 2), 16), ((2, 2, 2, 2), 15))  # in the first, each mistake has its own result
    for numels, cap in (*few, ((5, 1, 4, 2, 3), 24), ((6, 5, 4, 3, 2, 1), 40)):
        are_buckets(student, parameters(numels, rng), cap)
    are_buckets(student, parameters((2, 2, 2, 2), rng, torch.float64), 32)
    mixed = parameters((4, 4), rng) + parameters((4, 4), rng, torch.float64) + parameters((4,), rng, torch.bfloat16)
    are_buckets(student, mixed, 40)
    giants = large(8, rng)
    for cap in (4 * sum(giants[-3:]), 4 * sum(giants[-3:]) - 1):
        are_giants(student, [min(n, cap // 4) for n in giants], cap)


@exercise.check(points=2, needs="in_reverse")
def a_parameter_larger_than_the_cap(student, rng):
    "A parameter that is larger than the cap has its own bucket, at every position."
    for numels in ((1, 9, 1), (9, 1, 1), (1, 1, 9), (9, 9, 1), (9,)):
        are_buckets(student, parameters(numels, rng), 16)
    small, (giant,) = large(4, rng), large(1, rng)
    for i in (0, 2, 4):
        are_giants(student, [*small[:i], 2**43 + giant, *small[i:]], 4 * 2**42)


@exercise.check(points=1, needs="in_reverse")
def extreme_caps(student, rng):
    "A huge cap gives one bucket, a tiny one a bucket for each; no parameters, no buckets; they may come one by one."
    for numels, cap in (((3, 5, 2), 10**9), ((3, 5, 2), 1), ((), 100)):
        are_buckets(student, parameters(numels, rng), cap)
    params = [param.detach() for param in parameters((3, 5, 2), rng)]
    (got,) = student.ranks("make_buckets", 1, lambda _: (params, 10**9), harness="once_alone").results
    call = "make_buckets(iter(params), 10**9)"
    checks.that(
        type(got) in (list, tuple) and all(type(bucket) in (list, tuple) for bucket in got),
        f"{call} is {show.show(got, 80)}, expected a list of buckets, each a list of parameters.",
    )
    for param in (param for bucket in got for param in bucket):
        checks.tensor(param, name=f"what is in {call}")
    checks.equal(
        [[param.numel() for param in bucket] for bucket in got],
        [[2, 5, 3]],
        name=f"the sizes of what is in {call}",
        why="You can read model.parameters() only once: make a list of it first.",
    )
    for param, right in zip(got[0], reversed(params), strict=True):
        checks.close(param, right, name=f"a parameter in {call}")


@exercise.check(points=1, needs="in_reverse")
def the_same_on_every_rank(student, rng):
    "The buckets depend only on sizes: ranks whose weights differ get the same buckets."
    numels = (torch.randperm(8, generator=rng) + 1).tolist()
    first, *others = (bucketed(student, parameters(numels, rng), 40) for _ in range(4))
    for other in others:
        checks.equal(
            other,
            first,
            name="the buckets for other weights",
            why="Otherwise ranks add gradients of different parameters.",
        )
