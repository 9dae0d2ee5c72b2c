"""Stochastic rounding in Triton. Oracle: a Philox of our own, which knows each element's random bits."""

import importlib.util

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks import number_formats as formats
from autograder.checks import triton_kernels
from autograder.checks.number_formats import exact
from autograder.exercises.stochastic_rounding.codes import code, from_code, random_floats

exercise = Exercise(
    "rounding_kernel", points=10, minutes=15, functions=("rounding_kernel", "launch"), given=("launch",)
)


def needs_triton() -> None:
    checks.that(
        importlib.util.find_spec("triton") is not None,
        "This exercise needs Linux: there is no Triton on this machine. It is graded on one that has it; you can earn "
        "the other 90 points here.",
    )


def numbered_bits(seed: int, n: int) -> torch.Tensor:
    """The 16 random bits of the elements 0 to n − 1: eight to a call of Philox, low half first."""
    words = formats.philox(seed, range(-(-n // 8))).reshape(-1)
    halves = torch.from_numpy(words.astype("int64"))
    return torch.stack([halves & 0xFFFF, halves >> 16], dim=1).reshape(-1)[:n]


def kernel_mistakes(x, seed: int) -> dict:
    """Results as float32, by the mistake that they show."""
    c, i = code(x), torch.arange(len(x))
    halves, words = numbered_bits(seed, len(x) + 8), formats.philox(seed, range(len(x))).astype("int64")
    wrong: dict[str, int | torch.Tensor] = {
        "This cuts off the low half without adding random bits.": 0,
        "This rounds half up: add the random bits instead of 0x8000.": 0x8000,
        "The halves are swapped: even elements take the low half of their word, odd ones the high half.": halves[i ^ 1],
        "All eight elements of a call take its first word: element i takes word (i % 8) // 2.": (
            halves[i // 8 * 8 + i % 2]
        ),
        "This makes a call of Philox for each element, counter i: one call serves eight elements, counter i // 8.": (
            torch.from_numpy(words[:, 0]) & 0xFFFF
        ),
        "Only the even elements are right: odd ones take the high half of their word, word >> 16.": (
            halves[i // 2 * 2]
        ),
    }
    return {sentence: from_code((c + r) >> 16).float() for sentence, r in wrong.items()}


def at_the_edge(x, seed: int):
    """x with such low halves that the random bits reach the next bfloat16 in every other element, and only just."""
    low = 0x10000 - numbered_bits(seed, len(x)) - torch.arange(len(x)) % 2
    return (x.view(torch.int32) & ~0xFFFF | low.clamp(0, 0xFFFF).to(torch.int32)).view(torch.float32)


def a_seed(rng, bits: int = 31) -> int:
    return int(torch.randint(2 ** (bits - 1), 2**bits, (), generator=rng))


def launched(student, harness: str, *args) -> tuple[torch.Tensor, list]:
    """What `launch` returns for these arguments, in float32, and what else the harness tells."""
    x, *numbers = args
    ((fault, got, *told),) = student.ranks("launch", 1, lambda rank: (x.clone(), *numbers), harness=harness).results
    triton_kernels.compiles(fault, "rounding_kernel", "launch")
    name = f"launch(x, {', '.join(map(str, numbers))})"
    checks.tensor(got, name=name, shape=x.shape, dtype=torch.bfloat16)
    return got.float(), told


def ask_kernel(student, x, n: int, seed: int, block: int) -> torch.Tensor:
    got, _ = launched(student, "launched", x, n, seed, block)
    return got


def check_bits(got, x, seed: int, name: str) -> None:
    expected = from_code((code(x) + numbered_bits(seed, len(x))) >> 16)
    why = "Element i adds the half i % 2 of the word (i % 8) // 2 of Philox(seed, i // 8) to its 32 bits."
    exact(got, expected.double(), x, name=name, why=why, mistakes=kernel_mistakes(x, seed))


@exercise.check(points=5, seconds=20)
def the_same_bits(student, rng):
    "The same bits as on every other machine: element i takes its 16 bits from Philox(seed, i // 8)."
    needs_triton()
    drawn, other = random_floats(rng, 256), a_seed(rng)
    for seed, x in ((7, drawn), (other, drawn), (other, at_the_edge(drawn, other))):
        check_bits(ask_kernel(student, x, 256, seed, 256), x, seed, f"launch(x, 256, {seed}, 256)")


@exercise.check(points=3, needs="the_same_bits", seconds=20)
def any_launch(student, rng):
    "The same bits for every block size; and nothing is read or written beyond the first n."
    needs_triton()
    drawn = int(torch.randint(2, 200, (), generator=rng))
    for n, block in ((1000, 64), (1000, 512), (1000, 1024), (drawn, 32), (8, 16), (1, 16)):
        accesses_its_own(student, rng, n, block, 3)
    accesses_its_own(student, rng, 1000 - drawn, 64, a_seed(rng))


def check_first(got, x, n: int, seed: int, block: int) -> None:
    """The first n numbers have the right bits, and the others are as they were."""
    name = f"launch(x, {n}, {seed}, {block})"
    check_bits(got[:n], x[:n], seed, name)
    checks.that(
        bool((got[n:] == 0).all()),
        f"{name} wrote beyond the end: the last program has lanes with i ≥ n. Mask load and store: mask=i < n.",
        got=got[n:],
    )


def accesses_its_own(student, rng, n: int, block: int, seed: int) -> None:
    """Check that a launch reads and writes the first n numbers only, and a program its block; and the numbers."""
    x = random_floats(rng, n + 24)
    got, (read, written, most) = launched(student, "loads", x, n, seed, block)
    check_first(got, x, n, seed, block)
    checks.that(
        read <= n,
        f"launch(x, {n}, {seed}, {block}) reads x[{read - 1}], beyond the first {n}: on a GPU there is other data, or "
        "nothing. Mask the load as well: mask=i < n, other=0.",
        got=f"the first {read} numbers of x are read",
        expected=f"the first {n}",
    )
    checks.that(
        written <= n,
        f"launch(x, {n}, {seed}, {block}) writes {written} numbers. On a GPU there is other data beyond the first {n}: "
        "mask the store, too, mask=i < n.",
        got=f"{written} numbers are written",
        expected=f"the first {n}",
    )
    checks.that(
        most <= block,
        f"One program of launch(x, {n}, {seed}, {block}) writes {most} numbers. Each has a block of {block}: on a GPU "
        "all programs run at the same time, and share the work.",
        got=f"{most} numbers",
        expected=f"at most {block}",
    )


@exercise.check(points=2, needs="the_same_bits", seconds=20)
def every_seed(student, rng):
    "Every seed has its own bits, even one of 64 bits."
    needs_triton()
    x = random_floats(rng, 64)
    for seed in (0, 1, 2**31 + 5, a_seed(rng, 45)):
        check_bits(ask_kernel(student, x, 64, seed, 64), x, seed, f"launch(x, 64, {seed}, 64)")
