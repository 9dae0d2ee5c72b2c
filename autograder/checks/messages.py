"""Shared checks of exercises on p ranks: which ranks' numbers are in a sum, which rank sent what, the number of
rounds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograder import checks, show
from autograder.checks.ladder import Mistakes

FEW = range(1, 10)  # numbers of ranks to try every sum on; `tally` can distinguish that many
NUMBER = 8  # bytes at most
SECONDS = 15.0  # of a check on ranks: it sends some hundred messages between processes


def over(student: Any, name: str, xs: list[torch.Tensor], kwargs: dict | None = None, **machine: Any):
    """Run `name(x, comm, **kwargs)` with `xs[rank]` as x; raise CheckFailure if it did not use only messages."""
    run = student.ranks(name, len(xs), lambda rank: (xs[rank].clone(),), kwargs, **machine)
    own = next((event.op for event in run.trace if event.op in ("all_reduce", "broadcast")), None)
    checks.that(
        own is None, f"Your function calls comm.{own}, the machine's own. Write it with send, recv and sendrecv."
    )
    return run


def numbers(p: int, shape: int | tuple[int, ...], rng: torch.Generator) -> list[torch.Tensor]:
    """Return, by rank, an x of random integers: sums are exact in any order, and unknown without messages."""
    return [torch.randint(1, 10**6, _tuple(shape), generator=rng).double() for _ in range(p)]


def small_numbers(p: int, shape: int | tuple[int, ...], rng: torch.Generator) -> list[torch.Tensor]:
    """Return such numbers in float32, for exercises that count bytes."""
    return [x.float() for x in numbers(p, shape, rng)]  # sums on 16 ranks are exact, and fit into no two bytes


def either_numbers(p: int, shape: int | tuple[int, ...], rng: torch.Generator) -> list[torch.Tensor]:
    """Return such numbers in float32 or in float64: no dtype tells which runs are counted."""
    return one_of((numbers, small_numbers), rng)(p, shape, rng)


def one_of(choices: Sequence[Any], rng: torch.Generator) -> Any:
    """Return one of `choices`, different for each student."""
    return choices[int(torch.randint(len(choices), (), generator=rng))]


def and_others(fixed: Sequence[int], rng: torch.Generator, most: int, count: int = 2) -> list[int]:
    """Return the `fixed` numbers of ranks, and `count` others from 2 to `most`, different for each student."""
    others = [p for p in range(2, most + 1) if p not in fixed]
    chosen = torch.randperm(len(others), generator=rng)[:count]
    return [*fixed, *(others[i] for i in chosen.tolist())]


def _tuple(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else shape


def has_sum(run: Any, rank: int, setting: str, mistakes: Mistakes = None) -> None:
    """Check that rank `rank`'s x is the sum of all ranks' x; the sentence names x that are missing or counted twice."""
    got, xs = run.arguments[rank][0], [arguments[0] for arguments in run.given]
    total, own = torch.stack(xs).sum(0), xs[rank]
    name = f"{setting}: x on rank {rank}"
    checks.tensor(got, name=name, shape=total.shape, dtype=total.dtype)
    wrong = (got != total).nonzero()
    if not len(wrong):
        return
    _is_in_place(run, rank, total, name)
    index = tuple(wrong[0].tolist())
    mistake = used_too_early(run.careless).capitalize()
    mistake = mistake or next((sentence for sentence, condition in (mistakes or {}).items() if condition()), "")
    if not mistake and torch.equal(got, own):
        mistake = _unchanged(run)
    values, where = [x[index].item() for x in xs], f"x[{', '.join(map(str, index))}]"
    listed = ", ".join(f"{x:,.0f} on rank {r}" for r, x in enumerate(values))
    raise checks.CheckFailure(
        f"{name} is not the sum: in {where} {tally(got[index].item(), values)}.",
        got=show.show(got),
        expected=show.show(total),
        why=f"{where} is {listed}: {sum(values):,.0f} in all.",
        mistake=mistake,
    )


def used_too_early(careless: list[str]) -> str:
    """Name a message whose tensor is used before a wait. A send that is only never waited for spoils no sum."""
    forgotten = [said for said in careless if said.endswith("is never waited for")]
    received = [said for said in forgotten if "'s irecv " in said]
    late = next(iter(received + [said for said in careless if said not in forgotten]), "")
    return f"{late}: call its `wait()` before you use the tensor." if late else ""


def _unchanged(run: Any) -> str:
    """Say why one rank's x has not changed: no other rank's has, or the sum does not reach this one."""
    changed = [r for r, x in enumerate(run.arguments) if not torch.equal(x[0], run.given[r][0])]
    if changed:
        return f"This x is the same as before the call, and rank {changed[0]}'s has changed: send this rank the sum."
    return "This x is the same as before the call. Does `x = x + y` make a new tensor? `x += y` adds in place."


def _is_in_place(run, rank: int, total: torch.Tensor, name: str) -> None:
    result = run.results[rank]
    if type(result) is torch.Tensor and result.dtype == total.dtype and torch.equal(result, total):
        checks.fail(f"{name} is not the sum, but the returned value is. Leave the sum in x itself, e.g. x.copy_(...).")


MOST_TRIED = 100_000  # ways of counting the ranks' numbers


def tally(value: float, values: list[float]) -> str:
    """Find which ranks' `values` are missing in `value`, and which count more than once."""
    p = len(values)
    most = max(m for m in range(1, 13) if m == 1 or (m + 1) ** p <= MOST_TRIED)
    counts = torch.cartesian_prod(*[torch.arange(most + 1.0, dtype=torch.float64)] * p).view(-1, p)
    found = counts[counts @ torch.tensor(values, dtype=torch.float64) == value]
    if not len(found):
        return f"{show.number(value)} is no sum of the ranks' numbers"
    count = [int(n) for n in found[(found - 1).abs().sum(1).argmin()]]
    missing = [str(rank) for rank in range(p) if count[rank] == 0]
    double = [f"rank {rank}'s counts {count[rank]} times" for rank in range(p) if count[rank] > 1]
    lost = [f"the x of rank{'s' * (len(missing) > 1)} {', '.join(missing)} is missing"] if missing else []
    return " and ".join(lost + double)


def has_sum_everywhere(
    student: Any, name: str, xs: list[torch.Tensor], setting: str, kwargs: dict | None = None, **machine: Any
):
    """Run `name` on `xs`, by rank; check that every x becomes their sum. Return that run, with its counts."""
    run = over(student, name, xs, kwargs, **machine)
    for rank in range(len(xs)):
        has_sum(run, rank, setting)
    return run


def carried(student: Any, rng: torch.Generator, ask: Callable[[], Any], setting: str) -> None:
    """Check that `ask`'s answer depends on messages: it must be wrong if other numbers arrive than were sent."""
    if student.is_right_when_garbled(rng, ask):
        late = used_too_early(student.careless())  # what is not waited for arrives without being changed
        checks.fail(
            f"{setting}: the result is right even if other numbers arrive than were sent, so it does not come from the "
            "messages. What a rank needs from the others must reach it through comm."
            if not late
            else f"{setting}: {late}"
        )


def sum_of_unequal(student: Any, name: str, p: int, rng: torch.Generator, kwargs: dict | None = None):
    """Run `name` on numbers of very different size: another order of adding shows in the last bits. Return that run, on
    a machine with only alpha = 1, so that rounds and bytes can be asked of such numbers, too."""
    xs = [torch.randn(65, generator=rng) * 10.0 ** (rank % 4) for rank in range(p)]
    run = over(student, name, xs, kwargs, alpha=1.0)
    expected = torch.stack(xs).double().sum(0).float()
    checks.close(run.arguments[0][0], expected, name=f"p = {p}: x on rank 0", atol=1e-2)
    return run


def same_bits(student: Any, name: str, p: int, rng: torch.Generator, kwargs: dict | None = None) -> None:
    """Check that every rank has the same bits."""
    run = sum_of_unequal(student, name, p, rng, kwargs)
    for rank in range(1, p):
        differing = int((run.arguments[rank][0] != run.arguments[0][0]).sum())
        checks.that(
            differing == 0,
            f"p = {p}: {differing} of 65 elements on rank {rank} differ in their last bits from rank 0's. "
            "Replicas would drift apart: add in one order, or let one rank add and send the sum.",
        )


def works(run: Any, seconds: Sequence[float], setting: str) -> None:
    """Check that each rank has worked this long in virtual time: a step that skips the work is fast."""
    for rank, right in enumerate(seconds):
        got = sum(event.end - event.start for event in run.trace if event.rank == rank and event.op == "compute")
        checks.that(
            abs(got - right) <= 1e-6 * max(1.0, right),
            f"{setting}: rank {rank} works {got:g} s, and its work takes {right:g} s. The check lets time pass for the "
            "work that it hands out, once for each; leave comm.compute to it.",
        )


def sends(run: Any) -> list:
    return [event for event in run.trace if event.op == "send"]


def carrying(run: Any) -> list:
    """Events that carry bytes away: sends, and the machine's own collectives as the messages that they stand for."""
    p = len(run.results)
    weights = {"send": 1.0, "broadcast": p - 1.0, "all_reduce": 2.0 * (p - 1) / p}
    return [
        event._replace(nbytes=round(event.nbytes * weights[event.op]))
        for event in run.trace
        if event.op in weights and (event.op != "broadcast" or event.rank == event.peer)
    ]


def sends_one_number(run: Any, rank: int, times: int, most: int, sentence: str) -> None:
    """Check that no message of this rank has more than a number, nor all of them more than one of each of `times`.

    An answer that adds up by messages needs several: all together may have `most` bytes. `sentence` has a {sent}.
    """
    ours = [event for event in run.trace if event.rank == rank and event.op not in ("recv", "compute", "accumulate")]
    most = NUMBER * times if any(event.op == "all_reduce" for event in ours) else most
    sent = sum(event.nbytes for event in ours)
    longest = max((event.nbytes for event in ours), default=0)
    checks.that(longest <= NUMBER and times <= sent <= most, sentence.format(sent=sent))


def takes_rounds(run: Any, most: int, setting: str, rule: str, mistakes: Mistakes = None) -> None:
    """Check the number of rounds, on a machine with only alpha = 1: virtual seconds are rounds."""
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
