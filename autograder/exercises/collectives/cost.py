"""The cost of each all-reduce as a formula. Oracle: the course's own algorithms on the simulated machine."""

import math
from collections.abc import Mapping

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.collectives.counts import nodes
from autograder.exercises.collectives.predictions import machine, predicted, terms
from autograder.exercises.drawing import whole_number
from hpcdl.collectives import ALL_REDUCE

exercise = Exercise("cost", points=15, minutes=15)

ROUND_UP = "If you round down, you forget the ranks beyond a power of two: round up."


def costs_what_it_takes(student, algorithm: str, p: int, rng) -> None:
    """The student's formula against the virtual time of the algorithm, on a machine of its own."""
    alpha, beta = machine(rng)
    nbytes = int(torch.randint(5000, 2_500_000, (), generator=rng))
    got = student.cost(algorithm, p, nbytes, alpha, beta)
    checks.that(
        checks.is_number(got) or (type(got) is torch.Tensor and got.dim() == 0),
        f'cost("{algorithm}", ...) is {show.an(show.type_name(got))}, expected a number of seconds.',
    )
    alphas, betas = terms(algorithm, p)
    expected = predicted(algorithm, p, nbytes, alpha, beta)
    why = f'The "{algorithm}" all-reduce of {nbytes:,} bytes over {p} ranks takes this long on the simulated machine.'
    name = f'cost("{algorithm}", {p}, {nbytes}, {alpha}, {beta})'
    checks.close(got, expected, name=name, why=why, mistakes=cost_mistakes(algorithm, p, nbytes, alpha, beta))
    # A number can be right by accident, the two terms cannot: one machine without latency, one without bandwidth.
    checks.close(student.cost(algorithm, p, nbytes, 1.0, 0.0), alphas, name=f"the messages of {algorithm}, p = {p}")
    checks.close(
        student.cost(algorithm, p, nbytes, 0.0, 1.0), betas * nbytes, name=f"the bytes of {algorithm}, p = {p}"
    )


def cost_mistakes(algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> dict:
    """What plausible wrong formulas give, by the sentence that names the mistake."""
    right = predicted(algorithm, p, nbytes, alpha, beta)
    message, log2 = alpha + nbytes * beta, math.log2(p)
    q = 1 << (p.bit_length() - 1)
    found = {
        "beta is in seconds per byte and nbytes in bytes: no factor 4 for floats, 8 for bits.": predicted(
            algorithm, p, 8 * nbytes, alpha, beta
        ),
    }
    if algorithm == "ring":
        found |= {
            "A ring sends chunks: nbytes / p in each message.": 2 * (p - 1) * message,
            "Each of the 2(p-1) messages has its latency.": 2 * alpha + 2 * (p - 1) / p * nbytes * beta,
            "p - 1 steps each way, not p: the last chunk need not go around.": 2 * p * (alpha + nbytes / p * beta),
        }
    if algorithm == "tree":
        found |= {
            "Round log₂ p up: the number of rounds is a whole number.": 2 * log2 * message,
            ROUND_UP: 2 * int(log2) * message,
            "The logarithm is to the base 2: ranks double.": 2 * math.log(p) * message,
            "There are 2(p-1) messages, but most at the same time: count rounds.": 2 * (p - 1) * message,
        }
    if algorithm in ("naive", "parameter_server"):
        found |= {
            "In the lecture's table the latencies of all workers overlap; here the server handles one message after "
            "the other, each with its alpha.": 2 * alpha + 2 * (p - 1) * nbytes * beta,
            "Rank 0 keeps its own x: p - 1 messages come in, not p.": 2 * p * message,
        }
    if algorithm in ("recursive_doubling", "rabenseifner") and p > q:
        found |= {
            "You forget the ranks beyond the power of two: they add two messages of nbytes.": predicted(
                algorithm, q, nbytes, alpha, beta
            ),
            "If p is not a power of two, log₂ p is not a number of rounds: take the largest power of two below p.": (
                log2 * message
                if algorithm == "recursive_doubling"
                else 2 * log2 * alpha + 2 * (p - 1) / p * nbytes * beta
            ),
        }
    if algorithm == "recursive_doubling" and p > q:
        found["⌈log₂ p⌉ rounds are too few: those of q = 2^⌊log₂ p⌋ ranks, and two more messages."] = (
            math.ceil(log2) * message
        )
    if algorithm == "recursive_doubling":
        found |= {"Both partners send and receive at the same time: log₂ p rounds, not twice as many.": 2 * right}
    if algorithm == "rabenseifner":
        found |= {
            "Each round sends only half of the piece: (q-1)/q of nbytes each way in total.": 2
            * (q.bit_length() - 1)
            * message
            + (2 * message if p > q else 0)
        }
    if algorithm == "hierarchical":
        g = nodes(p, 4)
        found |= {
            "The number of nodes is p / 4 rounded up.": predicted("tree", min(p, 4), nbytes, alpha, beta)
            + (predicted("ring", p // 4, nbytes, alpha, beta) if p >= 4 else 0),
            "Only the ring between the nodes: add the trees inside.": predicted("ring", g, nbytes, alpha, beta),
            ROUND_UP: 2 * int(math.log2(min(p, 4))) * message + predicted("ring", g, nbytes, alpha, beta),
        }
    if not any(math.isclose(value, right / 2) for value in found.values()):
        found["Half of it: the sums have to come back to all ranks, too."] = right / 2
    return {sentence: value for sentence, value in found.items() if not math.isclose(value, right, rel_tol=1e-3)}


@exercise.check(points=1)
def alone(student, rng):
    "One rank has nothing to send: every algorithm costs 0."
    alpha, beta = machine(rng)
    for algorithm in ALL_REDUCE:
        got = student.cost(algorithm, 1, 1_000_000, alpha, beta)
        checks.close(got, 0.0, name=f'cost("{algorithm}", 1, ...)', atol=1e-15)
        two, message = student.cost(algorithm, 2, 1_000_000, alpha, beta), alpha + 1_000_000 * beta  # 17: 2 · 8 bits
        checks.that(
            (checks.is_number(two) or (type(two) is torch.Tensor and two.dim() == 0))
            and bool(0.999 < two / message < 17),
            f'cost("{algorithm}", 2, ...) is {show.show(two)}: two ranks must send, and need one or two messages of '
            "alpha + nbytes · beta each way.",
            expected=f"{show.number(message)} to {show.number(2 * message)}",
        )


@exercise.check(points=5)
def naive_ring_and_tree(student, rng):
    "naive, ring and tree take as long as on the simulated machine."
    for algorithm in ("naive", "ring", "tree"):
        for p in (2, 3, 5, 6, 7, 8, 16, whole_number(rng, 9, 15)):  # log₂ of 5 is nearer to 2, of 6 to 3
            costs_what_it_takes(student, algorithm, p, rng)
    p = whole_number(rng, 33, 400)
    steps, up = 2 * (p - 1), 2 * (p - 1).bit_length()
    right = {"naive": (steps, steps), "ring": (steps, steps / p), "tree": (up, up)}
    costs_on_many(student, rng, p, right, "The formula is the same for any number of ranks.")


@exercise.check(points=4)
def doubling_for_powers_of_two(student, rng):
    "recursive_doubling and rabenseifner for p = 2, 4, 8, 16, 32 and more."
    for algorithm in ("recursive_doubling", "rabenseifner"):
        for p in (2, 4, 8, 16, 32):
            costs_what_it_takes(student, algorithm, p, rng)
    k = whole_number(rng, 6, 10)
    right = {"recursive_doubling": (k, k), "rabenseifner": (2 * k, 2 * (1 - 2**-k))}
    costs_on_many(student, rng, 2**k, right, "There is no fold, and a round more each time that p doubles.")


def costs_on_many(student, rng, p: int, right: Mapping[str, tuple[float, float]], why: str) -> None:
    """Check the cost on more ranks than are simulated; `right` has by algorithm the alphas, and the betas per byte."""
    alpha, beta = machine(rng)
    for algorithm, (alphas, betas) in right.items():
        got = student.cost(algorithm, p, 10**6, alpha, beta)
        name = f'cost("{algorithm}", {p}, 1000000, {alpha}, {beta})'
        checks.close(got, alphas * alpha + betas * 1e6 * beta, name=name, why=why)


@exercise.check(points=3, needs="doubling_for_powers_of_two")
def doubling_for_any_p(student, rng):
    "recursive_doubling and rabenseifner if ranks must be folded first."
    for algorithm in ("recursive_doubling", "rabenseifner"):
        for p in (3, 5, 6, 9, 31, whole_number(rng, 10, 15), whole_number(rng, 17, 30)):
            costs_what_it_takes(student, algorithm, p, rng)


@exercise.check(points=2)
def server_and_nodes(student, rng):
    "parameter_server with one server, hierarchical with nodes of four."
    for algorithm in ("parameter_server", "hierarchical"):
        for p in (2, 3, 4, 6, 8, 9, 16, whole_number(rng, 10, 15), whole_number(rng, 17, 24)):
            costs_what_it_takes(student, algorithm, p, rng)
    p = whole_number(rng, 33, 400)
    steps, between = 2 * (p - 1), 2 * (nodes(p, 4) - 1)
    right = {"parameter_server": (steps, steps), "hierarchical": (4 + between, 4 + between / nodes(p, 4))}
    costs_on_many(student, rng, p, right, "The formula is the same for any number of ranks.")
