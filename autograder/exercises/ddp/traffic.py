"""All-reduces in the trace of a run."""

from collections import Counter

from autograder.checks import CheckFailure
from autograder.checks.messages import has_sum_everywhere, sends, small_numbers
from autograder.exercises.ddp.training import names_of
from autograder.sessions.errors import StudentError


def per_all_reduce(student, p: int, rng) -> list[list[float]]:
    """By rank the messages of one of the student's all-reduces, as shares of x: in a ring 2(p-1) of 1/p.

    A function that adds wrongly, or sends more, is not the measure: more messages here would allow more all-reduces.
    """
    ring = ring_shares(p)
    try:
        run = has_sum_everywhere(student, "ring_all_reduce", small_numbers(p, 4 * p, rng), f"p = {p}")
    except (CheckFailure, StudentError):
        return [ring] * p
    shares = [[event.nbytes / (16 * p) for event in sends(run) if event.rank == rank] for rank in range(p)]
    return [ours if 0 < len(ours) <= len(ring) else ring for ours in shares]


def ring_shares(p: int) -> list[float]:
    return [1 / p] * (2 * (p - 1))


CARRYING = ("send", "all_reduce")
NUMBERS = 16  # bytes of a message with the number of samples, at most
ELEMENT = 4  # bytes by which the pieces of a ring differ


def all_reduces(run, rank: int, messages: int, since: float = 0.0) -> float:
    """How many all-reduces of so many messages this rank took part in; a call of the machine's own is one."""
    events = [event for event in run.trace if event.rank == rank and event.start >= since]
    counts = Counter(event.op for event in events)
    return counts["all_reduce"] + counts["send"] / messages


def one_per_bucket(run, name: str, cap: int, buckets: list[int], shares: list[list[float]], setting: str, since=0.0):
    """As many all-reduces in a step as buckets, of their bytes; one more, for the number of samples, is let pass."""
    tensors = len(names_of(name))
    mistakes = {
        "There is one message per tensor: put the gradients of a bucket into one flat tensor.": tensors,
        "Everything goes in one message: you ignore cap_bytes.": 1,
    }
    for rank in range(len(run.results)):
        found = all_reduces(run, rank, len(shares[rank]), since)
        sizes = sorted(event.nbytes for event in run.trace if event.rank == rank and event.op in CARRYING)
        is_number = found <= len(buckets) or max(sizes[: len(shares[rank])], default=0) <= NUMBERS
        if not (len(buckets) <= found <= len(buckets) + 1 and is_number):
            raise CheckFailure(
                f"{setting}: rank {rank} takes part in {found:.3g} all-reduces in a step, for {len(buckets)} buckets "
                f"of at most {cap} bytes.",
                got=f"{found:.3g} all-reduces",
                expected=f"{len(buckets)}, one for each bucket",
                mistake=next((sentence for sentence, n in mistakes.items() if found in (n, n + 1)), ""),
            )
        carries_buckets(run, rank, buckets, shares[rank], setting, since)


def carries_buckets(run, rank: int, buckets: list[int], shares: list[float], setting: str, since: float) -> None:
    """Check that a rank's messages are as long as all-reduces of these buckets make them, with a number or without."""
    events = [event for event in run.trace if event.rank == rank and event.op in CARRYING and event.start >= since]
    shares = [1.0] if any(event.op == "all_reduce" for event in events) else shares
    expected = sorted((nbytes * share, share) for nbytes in buckets for share in shares)
    sizes = sorted(event.nbytes for event in events)[-len(expected) :]  # others are numbers of samples
    for size, (nbytes, share) in zip(sizes, expected, strict=True):
        if abs(size - nbytes) > share * NUMBERS + ELEMENT:
            raise CheckFailure(
                f"{setting}: there are as many all-reduces as buckets, but rank {rank} sends other numbers in them "
                "than the buckets' gradients. Each bucket's gradients travel in the all-reduce of this bucket.",
                got=f"messages of {', '.join(map(str, sizes))} bytes",
                expected=f"about {', '.join(f'{nbytes:.0f}' for nbytes, _ in expected)} bytes",
            )
