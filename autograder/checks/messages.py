"""What checks of exercises over p ranks share: whose numbers are in a sum, who sent what, how many rounds it took."""

import math
from typing import Any

import torch

from autograder import checks, show
from autograder.checks.ladder import Mistakes

FEW = range(1, 10)  # numbers of ranks that every sum is tried on; `decimals` can tell that many apart
SECONDS = 15.0  # of a check over ranks: it makes some hundred messages between processes


def over(student: Any, name: str, xs: list[torch.Tensor], kwargs: dict | None = None, **machine: Any):
    """Run `name(x, comm, **kwargs)` with `xs[rank]` as x; CheckFailure where it did not use messages alone."""
    run = student.ranks(name, len(xs), lambda rank: (xs[rank].clone(),), kwargs, **machine)
    own = next((event.op for event in run.trace if event.op in ("all_reduce", "broadcast")), None)
    checks.that(
        own is None, f"Your function calls comm.{own}, the machine's own. Write it with send, recv and sendrecv."
    )
    return run


def decimals(p: int, n: int) -> list[torch.Tensor]:
    """Rank r's x is 10^r everywhere: each digit of a sum then tells how often that rank's x is in it."""
    return [torch.full((n,), 10.0**rank, dtype=torch.float64) for rank in range(p)]


def ones(p: int, n: int) -> list[torch.Tensor]:
    return [torch.ones(n) for _ in range(p)]


def has_sum(run: Any, rank: int, p: int, setting: str, mistakes: Mistakes = None) -> None:
    """Rank `rank`'s x is the sum of `decimals`; the sentence tells whose x is missing or counted twice."""
    got, total = run.arguments[rank][0], (10**p - 1) // 9
    name = f"{setting}: x on rank {rank}"
    checks.tensor(got, name=name, dtype=torch.float64)
    wrong = (got != total).nonzero()
    if not len(wrong):
        return
    _is_in_place(run, rank, total, name)
    index = wrong[0, 0].item()
    mistake = next((sentence for sentence, condition in (mistakes or {}).items() if condition()), "")
    if not mistake and bool((got == 10.0**rank).all()):
        mistake = "This x is what it was before the call. Does `x = x + y` make a new tensor? `x += y` adds in place."
    raise checks.CheckFailure(
        f"{name} is not the sum: in x[{index}] {tally(got[index].item(), p)}.",
        got=show.show(got),
        expected=f"{total} everywhere",
        why="Here rank r's x is 10^r, so each digit of a sum tells how often that rank's x is in it.",
        mistake=mistake,
    )


def _is_in_place(run, rank: int, total, name: str) -> None:
    result = run.results[rank]
    if type(result) is torch.Tensor and result.dtype == torch.float64 and bool((result == total).all()):
        checks.fail(f"{name} is not the sum, but the returned value is. Leave the sum in x itself, e.g. x.copy_(...).")


def tally(value: float, p: int) -> str:
    """Whose x is missing in `value`, and whose counts more than once."""
    if not (math.isfinite(value) and value == int(value) and 0 <= value < 10**p):
        return f"{show.number(value)} is no sum of the ranks' numbers"
    counts = [int(value) // 10**rank % 10 for rank in range(p)]
    missing = [str(rank) for rank in range(p) if counts[rank] == 0]
    double = [f"rank {rank}'s counts {counts[rank]} times" for rank in range(p) if counts[rank] > 1]
    lost = [f"the x of rank{'s' * (len(missing) > 1)} {', '.join(missing)} is missing"] if missing else []
    return " and ".join(lost + double)


def has_sum_everywhere(student: Any, name: str, p: int, n: int, setting: str, kwargs: dict | None = None) -> None:
    run = over(student, name, decimals(p, n), kwargs)
    for rank in range(p):
        has_sum(run, rank, p, setting)


def same_bits(student: Any, name: str, p: int, rng: torch.Generator, kwargs: dict | None = None) -> None:
    """Numbers of very different size: another order of adding shows in the last bits."""
    xs = [torch.randn(65, generator=rng) * 10.0 ** (rank % 4) for rank in range(p)]
    run = over(student, name, xs, kwargs)
    expected = torch.stack(xs).double().sum(0).float()
    checks.close(run.arguments[0][0], expected, name=f"p = {p}: x on rank 0", atol=1e-2)
    for rank in range(1, p):
        differing = int((run.arguments[rank][0] != run.arguments[0][0]).sum())
        checks.that(
            differing == 0,
            f"p = {p}: {differing} of 65 elements on rank {rank} differ in their last bits from rank 0's. "
            "Replicas would drift apart: add in one order, or let one rank add and send the sum.",
        )


def sends(run: Any) -> list:
    return [event for event in run.trace if event.op == "send"]


def takes_rounds(run: Any, most: int, setting: str, rule: str, mistakes: Mistakes = None) -> None:
    """A machine with alpha = 1 and nothing else: virtual seconds are rounds."""
    rounds = round(run.seconds)
    if rounds <= most:
        return
    mistake = next((sentence for sentence, value in (mistakes or {}).items() if value == rounds), "")
    raise checks.CheckFailure(
        f"{setting}: {rounds} messages follow one another; {rule}.",
        got=f"{rounds} rounds",
        expected=f"{most} rounds",
        mistake=mistake,
    )
