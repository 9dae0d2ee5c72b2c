"""Noise that is the same on every machine, and rounding with it. Oracles: Python's integers; lab 06's checks."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number
from autograder.exercises.stochastic_rounding import bf16_round_bits as bits

exercise = Exercise("rounding", points=14, minutes=15, functions=("random16", "bf16_round_bits"))

WORD = 0xFFFFFFFF
NAME = "random16(seed, n)"


def mix(x):
    """The hash of a word, in integers that never run over; or of many, in NumPy's of 64 bits."""
    x ^= x >> 16
    x = x * 0x7FEB352D & WORD
    x ^= x >> 15
    x = x * 0x846CA68B & WORD
    return x ^ x >> 16


def noise(seed: int, n: int, *, first=mix, counter=lambda s, i: s ^ i, cut=lambda x: x >> 16) -> torch.Tensor:
    """The numbers of the noise; the options replace its parts in wrong answers."""
    return torch.tensor([cut(mix(counter(first(seed), i))) for i in range(n)], dtype=torch.int32)


def wrong_noise(seed: int, n: int) -> dict:
    """The noise of known mistakes, by what to say of them."""
    return {
        "The seed was not mixed: noise_i = mix(mix(seed) ^ i) >> 16.": noise(seed, n, first=lambda x: x),
        "The lower half was kept: the last step is >> 16.": noise(seed, n, cut=lambda x: x & 0xFFFF),
        "Seed and i are added here: noise_i = mix(mix(seed) ^ i) >> 16, with ^ for ⊕.": noise(
            seed, n, counter=lambda s, i: (s + i) & WORD
        ),
        "i counts from 0 to n-1, not from 1.": noise(seed, n + 1)[1:],
    }


@exercise.check(points=3)
def the_noise(student, rng):
    "Number i is mix(mix(seed) ^ i) >> 16, in words of 32 bits."
    drawn = int(torch.randint(2**31, (), generator=rng))
    for seed, n in ((1, 100), (7, 100), (drawn, 100), (WORD, 100), (drawn, whole_number(rng, 2000, 3000))):
        expected = noise(seed, n)
        got = student.random16(seed, n)
        checks.tensor(got, name=NAME, shape=(n,))
        numbers, found = got.to(torch.int64), {k: v.to(torch.int64) for k, v in wrong_noise(seed, n).items()}
        checks.that(
            int(numbers.min()) >= 0 and int(numbers.max()) < 2**16,
            f"{NAME} with seed = {seed} has {int(numbers.min())} to {int(numbers.max())}; it is 0 to 65535. Cut each "
            "product to 32 bits: & 0xFFFFFFFF.",
        )
        mistake = next((sentence for sentence, value in found.items() if bool((numbers == value).all())), "")
        wrong = int((numbers != expected).sum())
        if wrong:
            raise checks.CheckFailure(
                f"{NAME} with seed = {seed}: {wrong} of {n} numbers differ.",
                got=f"{got[:5].tolist()}, ...",
                expected=f"{expected[:5].tolist()}, ...",
                why="A product has its lower 32 bits kept; >> 15 stands between the two products, >> 16 around them.",
                mistake=mistake,
            )


@exercise.check(points=1, needs="the_noise")
def as_int32(student, rng):
    "It is int32 of shape (n,), also for n = 1: what bf16_round_bits takes."
    for n in (1, 3):
        checks.equal(student.random16(5, n), noise(5, n), name=f"random16(5, {n})", why="Cut first, then .to(int32).")


@exercise.check(points=2, needs="the_noise")
def the_same_every_time(student, rng):
    "A longer call begins with what a shorter one gives, and torch's global generator is left alone."
    short, long = student.random16(11, 10), student.random16(11, 50)
    checks.tensor(long, name="random16(11, 50)", shape=(50,))
    again = student.random16(11, 10)
    checks.that(
        checks.same(short, again) and checks.same(short, long[:10]),
        "The same seed and i gave another number: keep no state between calls, and do not use n.",
    )
    (left_alone,) = student.ranks("random16", 1, lambda _: (11, 10), harness="leaves_chance_alone").results
    checks.that(left_alone, "This draws from torch's global generator, or seeds it: only seed and i count here.")


exercise.check(points=3)(bits.add_and_cut)
exercise.check(points=1, needs="add_and_cut")(bits.carry_into_the_exponent)
exercise.check(points=2, needs="add_and_cut")(bits.all_random_numbers)
exercise.check(points=1, needs="add_and_cut")(bits.every_bf16_stays)
exercise.check(points=1, needs="add_and_cut")(bits.not_a_number)
