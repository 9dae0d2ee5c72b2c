"""What a transformer block costs. Oracles: torch's FLOP counter, and its hooks for what autograd saves."""

import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from torch.utils.flop_counter import FlopCounterMode

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.ready_made import COUNTERS, DERIVATIVES
from hpcdl.memory import saved

exercise = Exercise(
    "block_work",
    points=10,
    minutes=10,
    forbid=(*COUNTERS, *DERIVATIVES),  # also graphs, whose nodes list what they keep
    instead="Count by hand: how often is each weight used, and which factors does each product keep?",
)

ITEMSIZE = 4
NUMBERS_OF_A_NORM = 2  # mean and variance of each token, which torch saves beside a norm's input


def block(x: Tensor, w: list[Tensor], heads: int) -> Tensor:
    """Return a block's output for x (b, n, h); a block whose saved tensors are those of the text, each once."""
    b, n, h = x.shape
    qkv, out, up, down = w

    def norm(x):
        return layer_norm(x, (h,))

    def cut(part):
        return part.view(b, n, heads, h // heads).transpose(1, 2).reshape(b * heads, n, h // heads)

    q, k, v = map(cut, (norm(x) @ qkv).chunk(3, -1))
    weights = (q @ k.transpose(1, 2) / (h // heads) ** 0.5).softmax(-1)
    merged = (weights @ v).view(b, heads, n, h // heads).transpose(1, 2).reshape(b, n, h)
    x = x + merged @ out
    return x + torch.relu(norm(x) @ up) @ down


def counted(b: int, n: int, h: int, heads: int) -> tuple[int, int, int]:
    """Return weights, operations and saved numbers, as torch counts them while a block runs."""
    shapes = ((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))
    w = [torch.zeros(*shape, requires_grad=True) for shape in shapes]
    x = torch.zeros(b, n, h, requires_grad=True)
    with FlopCounterMode(display=False) as operations, saved(*w) as kept:
        block(x, w, heads)
    norms = 2 * NUMBERS_OF_A_NORM * b * n
    return sum(each.numel() for each in w), operations.get_total_flops(), kept.bytes // ITEMSIZE - norms


NAMES = ("weights", "FLOPs", "activations")


def is_counted(student, b: int, n: int, h: int, heads: int, which: int) -> None:
    """Number `which` of the three is what torch counts."""
    call = f"block_work({b}, {n}, {h}, {heads})"
    got = student.block_work(b, n, h, heads)
    checks.that(
        type(got) in (tuple, list) and len(got) == 3,
        f"{call} is {show.show(got, 80)}, expected a tuple of three numbers: weights, FLOPs, activations.",
    )
    right = counted(b, n, h, heads)
    pairs, tokens = b * n * n, b * n
    known = (
        {
            "Queries, keys and values have one matrix each: 3 h² weights.": 10 * h * h,
            "`up` and `down` have 4 h² weights each.": 6 * h * h,
            "The weights serve every token: they do not grow with n.": tokens * 12 * h * h,
            "`out` is missing: h² weights.": 11 * h * h,
        },
        {
            "A multiplication and an addition are two operations.": right[1] // 2,
            "Each weight takes two operations for a token, a multiplication and an addition: 2 r c s.": right[1]
            - 12 * tokens * h * h,
            "The scores and their product with the values are missing.": 24 * tokens * h * h,
            "Two products have n² pairs: the scores, and the weights times the values. A mask makes neither of them "
            "smaller.": right[1] - 2 * pairs * h,
            "Each head has d = h / a numbers, so the heads together do not multiply the work.": 24 * tokens * h * h
            + 4 * pairs * h * heads,
            "That is forward and backward: count only the forward pass.": 3 * right[1],
            "That is for one sequence: the batch has b of them.": right[1] // b,
        },
        {
            "Each head keeps n² numbers of its own.": right[2] - (heads - 1) * pairs,
            "The output of the softmax is missing: n² numbers in each head.": right[2] - heads * pairs,
            "The scores before the softmax are not needed again.": right[2] + heads * pairs,
            "ReLU's output is the input of `down`: it counts once.": right[2] + 4 * tokens * h,
            "2 b n h numbers are missing. Count inputs and outputs of both norms, and each of q, k and v.": right[2]
            - 2 * tokens * h,
            "3 b n h numbers are missing: q, k and v have as many, and ReLU returns 4 h for each token.": right[2]
            - 3 * tokens * h,
            "b n h numbers are missing, as many as the merged heads, which enter a product.": right[2] - tokens * h,
            "Those are bytes: count numbers.": ITEMSIZE * right[2],
            "That is for one sequence: the batch has b of them.": right[2] // b,
        },
    )[which]
    checks.that(
        checks.is_number(got[which]),
        f"{call}: {NAMES[which]} are {show.an(show.type_name(got[which]))}, expected a number.",
    )
    wrong = {say: value for say, value in known.items() if value != right[which]}
    checks.close(got[which], right[which], name=f"{call}: {NAMES[which]}", mistakes=wrong, rtol=1e-12, atol=0.0)


def sizes(rng) -> list[tuple[int, int, int, int]]:
    """Return three blocks (b, n, h, heads), different for each student; b > 2, since a MAC counts two operations."""
    found = []
    for heads in (1, 2, 5):
        b, n, d = (int(torch.randint(low, high, (), generator=rng)) for low, high in ((3, 6), (3, 30), (2, 9)))
        found.append((b, n, heads * d, heads))
    return found


@exercise.check(points=2)
def weights(student, rng):
    "The weights of the four matrices."
    for size in sizes(rng):
        is_counted(student, *size, 0)


@exercise.check(points=4)
def operations(student, rng):
    "The operations of a forward pass, as torch's FLOP counter counts them."
    for size in sizes(rng):
        is_counted(student, *size, 1)


@exercise.check(points=4)
def activations(student, rng):
    "The numbers kept for the backward pass, as torch's autograd keeps them."
    for size in sizes(rng):
        is_counted(student, *size, 2)
