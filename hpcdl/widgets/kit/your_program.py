"""Questions on a student's own program, after full points: each answer comes from a run of that program.

    with when_solved():
        your_program("ddp.ring_all_reduce", lambda comm: ring_all_reduce(torch.ones(9), comm), p=7, on="9 numbers")

Up to three of: how many bytes a rank sends, with how many ranks the program fails, on which line the ranks wait for a
late one, how many wait forever if a rank never starts, how long the run takes. A question that has no single answer for
this program is left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcdl import points
from hpcdl.guesses import OWN, Answer, Guess
from hpcdl.saying import sentences
from hpcdl.widgets.kit import guessing, units
from hpcdl.widgets.kit.waiting import TooLong, Waiting, is_waiting_allowed

if TYPE_CHECKING:
    from hpcdl.comm.location import SourceLine
    from hpcdl.comm.tracing import Trace
    from hpcdl.widgets.kit.own_runs import Lines, Program

MOST = 3  # questions about one program
CLEARLY = 1.05  # times as many seconds as the next line: a smaller difference is a tie
LINES = 5  # lines to choose from, at most
ABSENT = 1  # the rank that never starts
FEW = 4  # ranks from which on the named sets of smaller numbers differ


@dataclass(frozen=True)
class Asked:
    """A question about a program, its only answer, and a note: a row for each line of code that shows it."""

    what: str
    text: str
    truth: Answer
    unit: str = ""
    choices: tuple[str, ...] = ()
    note: str = ""


def your_program(exercise: str, program: "Program", p: int, on: str) -> list["OwnQuestion"]:
    """Show the questions on `program(comm)`, the student's solution of `exercise` ("slug.name"), on `p` ranks.

    `on` says what it works on. Before full points, and if the program fails or does not end, one sentence says so.
    """
    name = exercise.partition(".")[2]
    if not points.is_solved(exercise):
        return _say(Waiting(f"Waiting for your {name}: with full points, questions about your own program come here."))
    try:
        asked = questions(program, p)
    except (Exception, TooLong) as error:  # whatever a student's program does
        sentences(f"No questions about your {name}: on {p} ranks with {on}, {error}")
        return []
    contexts = [f"Your {name}, p = {p}, {on}", *["The same program"] * MOST]
    shown = [
        OwnQuestion(f"{OWN}{exercise}.{each.what}", each, context)
        for each, context in zip(asked, contexts, strict=False)
    ]
    for question in shown:
        guessing.display_or_print(question)
    return shown


def _say(waiting: Waiting) -> list:
    """Tell `when_solved` what to wait for, or print it."""
    if is_waiting_allowed():
        raise waiting
    sentences(waiting)
    return []


def questions(program: "Program", p: int) -> list[Asked]:
    """Return the first `MOST` questions that have one answer for `program` on `p` ranks."""
    from hpcdl.widgets.kit import own_runs  # on first use: it imports torch

    lines, ran = own_runs.run(program, p)
    possible: list[Callable[[], Asked | None]] = [
        lambda: bytes_sent(lines, ran.trace, ran.bytes_sent),
        lambda: fails(own_runs.failures(program, p), p),
        lambda: longest_wait(own_runs.run(program, p, late=True)[0]),
        lambda: stuck(program, p),
        lambda: virtual_time(ran.seconds, lines),
    ]
    return list(_first(MOST, possible))


def _first(most: int, possible: list[Callable[[], Asked | None]]) -> Iterator[Asked]:
    """Ask one after another: a question that is not needed costs no run."""
    for ask in possible:
        if most and (asked := ask()):
            most -= 1
            yield asked


# -- the questions ----------------------------------------------------------------------------------------------------


def bytes_sent(lines: "Lines", trace: "Trace", sent: list[int]) -> Asked | None:
    """Ask for the bytes of a busiest rank; None if no rank sends any, or if the machine's own collectives move them."""
    ranks = [*range(len(sent) - 2, 0, -1), len(sent) - 1, 0]
    rank = max(ranks, key=lambda rank: sent[rank])
    if not sent[rank] or any(event.op in ("broadcast", "all_reduce") for event in trace):
        return None
    where = sorted((line, nbytes) for (of, line), nbytes in lines.sent.items() if of == rank)
    note = "\n".join(f"{nbytes:,} bytes by {_shown(line)}" for line, nbytes in where)
    return Asked("bytes", f"how many bytes does rank {rank} send?", float(sent[rank]), "bytes", note=note)


def fails(failures: dict[int, str], p: int) -> Asked | None:
    """Ask with how many ranks below `p` the program fails; None if it never does, or if their numbers have no name."""
    named = _named(p) if p >= FEW else {}
    truth = named.get(frozenset(failures))
    if truth is None:
        return None
    note = f"p = {min(failures)}: {failures[min(failures)]}"
    text = f"with which smaller numbers of ranks, 1 to {p - 1}, does it fail?"
    return Asked("fails", text, truth, choices=tuple(named.values()), note=note)


def _named(p: int) -> dict[frozenset[int], str]:
    """Return the names of sets of numbers of ranks below `p`: its choices."""
    below = range(1, p)
    named = {
        "only 1": {1},
        "1 and 2": {1, 2},
        "all odd numbers": {q for q in below if q % 2},
        "all that are not powers of two": {q for q in below if q & (q - 1)},
        "all of them": set(below),
    }
    return {frozenset(numbers): name for name, numbers in named.items()}


def longest_wait(lines: "Lines") -> Asked | None:
    """Ask on which line the ranks wait for a late one; None if one line or two of them have the longest wait."""
    ordered = sorted(lines.seconds, key=lambda line: -lines.seconds[line])[:LINES]
    choices = {line: _shown(line) for line in sorted(ordered)}
    if len(set(choices.values())) < 2 or len(set(choices.values())) < len(choices):
        return None
    if lines.seconds[ordered[0]] < CLEARLY * lines.seconds[ordered[1]]:
        return None
    spent = (f"{units.seconds(lines.seconds[line])} on line {line.line}" for line in ordered)
    note = f"All ranks together: {'; '.join(spent)}"
    text = "rank 1 starts 1 ms late. On which line of your code do the ranks spend the most time?"
    return Asked("line", text, choices[ordered[0]], choices=tuple(choices.values()), note=note)


def stuck(program: "Program", p: int) -> Asked | None:
    """Ask who waits forever if a rank never starts; None if the others fail in another way."""
    from hpcdl.widgets.kit import own_runs

    try:
        waiting = own_runs.stuck_without(program, p, ABSENT)
    except (Exception, TooLong):
        return None
    by_line = defaultdict(list)
    for rank, line in waiting.items():
        by_line[_shown(line) if line else ""].append(rank)
    note = "\n".join(f"{_waits(ranks)} on {line}" for line, ranks in by_line.items() if line)
    if len(waiting) == p - 1 and len(by_line) > 1 and "" not in by_line:
        return _where(by_line, max(waiting), note)
    text = f"rank {ABSENT} never starts. How many of the other {p - 1} ranks wait forever?"
    return Asked("absent", text, str(len(waiting)), choices=tuple(map(str, range(p))), note=note)


def _where(by_line: dict[str, list[int]], rank: int, note: str) -> Asked:
    """Ask on which line `rank` waits, if all do, on several lines."""
    text = f"rank {ABSENT} never starts, and all others wait forever. On which line does rank {rank} wait?"
    truth = next(line for line, ranks in by_line.items() if rank in ranks)
    return Asked("where", text, truth, choices=tuple(sorted(by_line, key=_number)), note=note)


def _number(line: str) -> int:
    """Return the number in `line 7: comm.send(x, right)`."""
    return int(line.partition(":")[0].removeprefix("line "))


def virtual_time(seconds: float, lines: "Lines") -> Asked | None:
    """Ask how long the run takes; None if it takes no time."""
    if not seconds:
        return None
    most = max(lines.seconds, key=lambda line: lines.seconds[line], default=None)
    note = f"The ranks spend most of it on {_shown(most)}" if most else ""
    text = "a message of n bytes takes 10 µs + n ns. How long does the run take?"
    return Asked("seconds", text, round(seconds * 1e6, 6), "µs", note=note)


def _shown(line: "SourceLine") -> str:
    from hpcdl.widgets.kit import own_runs

    return own_runs.shown(line)


def _waits(ranks: list[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"Ranks {numbers} wait" if len(ranks) > 1 else f"Rank {numbers} waits"


# -- on the page ------------------------------------------------------------------------------------------------------


class OwnQuestion(guessing.Question):
    """The control that asks `asked`; `context` says about which run. A changed program is asked again."""

    def __init__(self, name: str, asked: Asked, context: str):
        self.asked = asked
        super().__init__(name, f"{context}: {asked.text}", asked.unit, asked.choices, lambda: asked.truth)

    def show(self) -> None:
        """Show the kept answer with its note, or the form if it was about another version of the program."""
        super().show()
        kept = guessing.ledger().answers.get(self.name)
        with self.hold_sync():
            if kept and kept.truth != self.asked.truth:
                self.said, self.seen = "", False
            elif kept and self.asked.note:
                self.said = f"{self.said}\n{self.asked.note}"

    def __repr__(self) -> str:
        if guessing.is_interactive():  # a saved page must not show the answer
            return super().__repr__()
        truth = guessing.sentence(Guess(self.name, None, unit=self.unit).seen(self.asked.truth))
        return f"{self.question} {truth}\n{self.asked.note}".rstrip()
