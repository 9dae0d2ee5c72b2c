"""All-reduces in the trace of a run."""

from collections import Counter

from autograder.checks import CheckFailure
from autograder.checks.messages import has_sum_everywhere, sends, small_numbers
from autograder.exercises.ddp.training import names_of
from autograder.sessions.errors import StudentError


def per_all_reduce(student, p: int, rng) -> list[int]:
    """How many messages each rank sends in one of the student's all-reduces: 2(p-1) in a ring.

    A function that adds wrongly, or sends more, is not the measure: more messages here would allow more all-reduces.
    """
    most = 2 * (p - 1)
    try:
        run = has_sum_everywhere(student, "ring_all_reduce", small_numbers(p, 4 * p, rng), f"p = {p}")
    except (CheckFailure, StudentError):
        return [most] * p
    counts = Counter(event.rank for event in sends(run))
    return [min(counts[rank] or most, most) for rank in range(p)]


CARRYING = ("send", "all_reduce")
NUMBERS = 16  # bytes of a message with the number of samples, at most


def all_reduces(run, rank: int, messages: int, since: float = 0.0) -> float:
    """How many all-reduces of so many messages this rank took part in; a call of the machine's own is one."""
    events = [event for event in run.trace if event.rank == rank and event.start >= since]
    counts = Counter(event.op for event in events)
    return counts["all_reduce"] + counts["send"] / messages


def one_per_bucket(run, name: str, cap: int, buckets: int, messages: list[int], setting: str, since=0.0) -> None:
    """As many all-reduces in a step as buckets; one more, for the number of samples, is let pass."""
    tensors = len(names_of(name))
    mistakes = {
        "There is one message per tensor: put the gradients of a bucket into one flat tensor.": tensors,
        "Everything goes in one message: you ignore cap_bytes.": 1,
    }
    for rank in range(len(run.results)):
        found = all_reduces(run, rank, messages[rank], since)
        sizes = sorted(event.nbytes for event in run.trace if event.rank == rank and event.op in CARRYING)
        is_number = found <= buckets or max(sizes[: messages[rank]], default=0) <= NUMBERS
        if not (buckets <= found <= buckets + 1 and is_number):
            raise CheckFailure(
                f"{setting}: rank {rank} takes part in {found:.3g} all-reduces in a step, for {buckets} buckets of at "
                f"most {cap} bytes.",
                got=f"{found:.3g} all-reduces",
                expected=f"{buckets}, one for each bucket",
                mistake=next((sentence for sentence, n in mistakes.items() if found in (n, n + 1)), ""),
            )
