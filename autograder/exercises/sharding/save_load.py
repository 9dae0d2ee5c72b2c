"""Checkpoints of shards. Oracle: the state itself, to the bit, and a disk at each moment of a kill."""

import copy
from typing import Any

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks import CheckFailure
from autograder.checks.messages import SECONDS
from autograder.exercises.ready_made import SHARDING
from autograder.exercises.restarts import comes_from_files
from autograder.sessions.errors import StudentError

exercise = Exercise(
    "save_load",
    points=15,
    minutes=25,
    functions=("save", "load"),
    forbid=SHARDING,
    instead="Write yourself which rank writes what, and when it counts.",
)

NAMES = {"weights": torch.float32, "momentum": torch.float64, "variance": torch.float32}
Files = dict[str, dict | None]  # None: half a file


class State:
    """Vectors of n elements, shared out among the ranks, at some step."""

    def __init__(self, n: int, step: int, rng):
        self.n, self.step = n, step
        self.vectors = {name: torch.randn(n, generator=rng, dtype=dtype) for name, dtype in NAMES.items()}

    def share(self, rank: int, p: int) -> dict[str, torch.Tensor]:
        return {name: x.tensor_split(p)[rank].clone() for name, x in self.vectors.items()}

    def save(self, student, p: int, files: Files):
        """What each rank does to the disk, in which `files` are; later ranks take longer to write."""

        def arguments(rank):
            return copy.deepcopy(files), self.step, self.share(rank, p), self.n, 1.0 + 3.0 * rank

        run = student.ranks("save", p, arguments, harness="saving")
        for rank, log in enumerate(run.results):
            _takes_time(run, rank, log, p)
        return run

    def by_file_names(self, name: str, rank: int, p: int, old: int) -> torch.Tensor:
        """The rank's share, its pieces in the order of their old ranks' names: "10" comes before "2"."""
        owner = torch.cat([torch.full_like(part, r) for r, part in enumerate(torch.arange(self.n).tensor_split(old))])
        mine, owners = self.vectors[name].tensor_split(p)[rank], owner.tensor_split(p)[rank]
        return torch.cat([mine[owners == r] for r in sorted(range(old), key=str)])

    def is_loaded(self, found, files: Files, p: int, setting: str, other: "State | None" = None, old: int = 1) -> None:
        """Each rank has read its share of this state from `files`, to the bit; it was saved on `old` ranks."""
        for rank, (result, names) in enumerate(found):
            step, state = in_form(result, rank, setting)
            checks.equal(
                step,
                self.step,
                name=f"{setting}: the step on rank {rank}",
                mistakes={"That is the old state: the new one was complete.": other.step} if other else None,
            )
            checks.equal(sorted(state), sorted(NAMES), name=f"{setting}: the names on rank {rank}")
            for name, expected in self.share(rank, p).items():
                checks.tensor(state[name], name=f"{setting}: {name} on rank {rank}", dtype=NAMES[name])
                whole = state[name].shape == self.vectors[name].shape != expected.shape
                checks.that(not whole, f"{setting}: {name} on rank {rank} is the whole vector, not the rank's share.")
                mistakes = {
                    "The pieces are in the order of the files' names, where rank 10 comes before rank 2. Sort by "
                    "number.": self.by_file_names(name, rank, p, old)
                }
                checks.close(
                    state[name],
                    expected,
                    name=f"{setting}: {name} on rank {rank}",
                    rtol=0.0,
                    atol=0.0,
                    mistakes=mistakes if old > 10 else None,
                )
            self.is_from(files, names, self.share(rank, p), f"{setting}: rank {rank}")

    def comes_back(self, student, p: int, files: Files, rng, setting: str, **known) -> None:
        """Each rank loads its share, and another one where the files have other numbers."""

        def still(other: Files):
            for rank, (result, _) in enumerate(load(student, p, other)):
                share, (_, state) = self.share(rank, p), in_form(result, rank, setting)
                checks.that(any(x.numel() and checks.same(state.get(name), x) for name, x in share.items()), "")

        def ask():
            self.is_loaded(load(student, p, files), files, p, setting, **known)

        comes_from_files(files, rng, ask, still, setting)

    def is_from(self, files: Files, names: list[str], share: dict[str, torch.Tensor], setting: str) -> None:
        """The files with these `names` have the numbers of `share`, or as many bytes in another form."""
        numbers, others = numbers_in([files.get(name) for name in names])
        absent = [name for name, x in share.items() if not torch.isin(x.double(), numbers).all()]
        checks.that(
            not absent or others >= sum(x.nbytes for x in share.values()),
            f"{setting} returns {' and '.join(absent)}, and the files that it reads do not have these numbers. Another "
            "process must be able to load them: save writes the whole state to the disk, and load reads it from there.",
        )


def numbers_in(content) -> tuple[torch.Tensor, int]:
    """The floating numbers in what files hold, as float64, and the bytes of what holds none."""
    found, others = [torch.zeros(0, dtype=torch.float64)], 0
    for value in parts_of(content):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            found.append(value.flatten().double())
        elif isinstance(value, float):
            found.append(torch.tensor([value], dtype=torch.float64))
        else:
            others += (
                value.nbytes if isinstance(value, torch.Tensor) else len(value) if hasattr(value, "__len__") else 0
            )
    return torch.cat(found), others


def parts_of(content) -> list:
    """What a file holds, however deep in dicts and lists; what is there twice comes once."""
    values, found, seen = [content], [], set[int]()
    for value in values:
        if not isinstance(value, dict | list | tuple):
            found.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            values += value.values() if isinstance(value, dict) else value
    return found


def _takes_time(run, rank: int, log: list, p: int) -> None:
    """Every write of a rank's log took time on the machine, and nothing else did."""
    passed = [(e.start, e.end) for e in run.trace if e.rank == rank and e.op == "compute"]
    written = [(begin, end) for op, _, _, begin, end in log if op == "write"]
    checks.that(
        written == passed and all(end >= 0 for *_, end in log),
        f"p = {p}: rank {rank}'s disk has written {len(written)} files, and the machine has seen {len(passed)} writes: "
        "use only disk.write and disk.rename.",
    )


def after(run, files: Files, moment: float = float("inf")) -> Files:
    """The disk at a moment of virtual time, if all ranks are killed then: what was being written is half a file."""
    events = [(event[-1], rank, i, event) for rank, log in enumerate(run.results) for i, event in enumerate(log)]
    files = dict(files)
    for end, _, _, (op, name, what, begin, _) in sorted(events, key=lambda event: event[:3]):
        if op == "write" and begin < moment:
            files[name] = what if end <= moment else None
        elif op == "rename" and end <= moment and name in files:
            files[what] = files.pop(name)
    return files


def moments(run) -> list[float]:
    """One in the middle of every write, one after every event."""
    times = {time for log in run.results for *_, begin, end in log for time in ((begin + end) / 2, end)}
    return sorted(times)


def in_form(result, rank: int, setting: str) -> tuple[Any, dict]:
    """Return the step and the state that load returns, if they have that form."""
    checks.that(
        type(result) in (tuple, list) and len(result) == 2 and type(result[1]) is dict,
        f"{setting}: load returns {show.show(result, 80)} on rank {rank}, expected (step, a dict of tensors).",
    )
    step, state = result
    return step, state


def load(student, p: int, files: Files) -> list:
    return [(result, names) for result, _, names in loaded(student, p, files)]


def loaded(student, p: int, files: Files) -> list:
    """By rank: what load returns, the bytes of memory in which its tensors lie, and the files that it reads."""
    run = student.ranks("load", p, lambda rank: (copy.deepcopy(files),), harness="loading")
    return [(result, nbytes, names) for (result, nbytes), names in run.results]


@exercise.check(points=4, seconds=SECONDS)
def there_and_back(student, rng):
    "p ranks load exactly what p ranks have saved, with its step; the last save counts."
    for p, n in ((4, 10), (1, 3), (5, 5)):
        first, second = State(n, 3, rng), State(n, 7, rng)
        files = after(first.save(student, p, {}), {})
        first.is_loaded(load(student, p, files), files, p, f"p = {p}, n = {n}")
        files = after(second.save(student, p, files), files)
        setting = f"p = {p}, n = {n}, saved for the second time"
        second.comes_back(student, p, files, rng, setting, other=first)


@exercise.check(points=3, needs="there_and_back", seconds=SECONDS)
def onto_other_numbers(student, rng):
    "Saved on 4 ranks, loaded on 3, on 5, on 1; from 12 ranks on 2; and from 5 ranks, if two own nothing."
    for n, old, numbers in ((11, 4, (3, 5, 1)), (30, 12, (2,)), (3, 5, (2,))):
        state = State(n, 4, rng)
        files = after(state.save(student, old, {}), {})
        for p in numbers:
            setting = f"saved on {old} ranks, loaded on {p}, n = {n}"
            state.comes_back(student, p, files, rng, setting, old=old)


@exercise.check(points=5, needs="there_and_back", seconds=SECONDS)
def killed_at_any_moment(student, rng):
    "Whenever the ranks are killed, load finds a complete state: the old one, or the new one once a rank has returned."
    for before, now in ((5, 6), (6, 8), (8, 18)):
        old, new = State(9, before, rng), State(9, now, rng)
        files = killed(student, 4, old, new)
        new.comes_back(student, 1, files, rng, f"step {now} saved on 4 ranks over step {before}, loaded on 1")


def killed(student, p: int, before: State, now: State) -> Files:
    """At each moment of saving `now` over `before`; return the files at the end."""
    files = after(before.save(student, p, {}), {})
    run = now.save(student, p, files)
    returns = [log[-1][-1] for log in run.results]
    for moment in moments(run):
        left = after(run, files, moment)
        torn = [name for name, content in left.items() if content is None]
        where = f"All ranks are killed {moment:g} s into save (step {now.step} over step {before.step})"
        where += f", in the middle of {' and '.join(map(repr, torn))}" if torn else ""
        try:
            found = load(student, 1, left)
            step = found[0][0][0] if type(found[0][0]) is tuple else None
            (now if step == now.step else before).is_loaded(found, left, 1, where)
        except (StudentError, CheckFailure) as error:
            if isinstance(error, StudentError) and error.kind != "exception":
                raise
            raise CheckFailure(
                f"{where}: load finds no complete state.",
                got=str(error).splitlines()[0],
                expected=f"step {before.step} or step {now.step}, whole",
                why="Write the new state next to the old one; when every rank's file is there, rename the manifest.",
                mistake="You overwrite a file that the old state needs. Use new names; write the manifest under "
                "another name, and then rename it."
                if any(
                    left.get(name) is not content for name, content in files.items() if name in torn or _shares(content)
                )
                else "The manifest names the new state before all ranks' files are there: comm.barrier() before it.",
            ) from None
        checks.that(
            step == now.step or moment < min(returns),
            f"{where}, when save has returned on rank {returns.index(min(returns))}: load finds step {before.step}. No "
            "rank returns before the new state counts: comm.barrier() at the end.",
        )
    return after(run, files)


@exercise.check(points=2, needs="there_and_back", seconds=SECONDS)
def nobody_has_the_whole(student, rng):
    "Ranks send no state, each file has one writer, and a loading rank opens only files with its own elements."
    p, state = 8, State(2048, 2, rng)
    run = state.save(student, p, {})
    sent = sum(event.nbytes for event in run.trace if event.op not in ("recv", "compute", "barrier"))
    own = sum(x.nbytes for x in state.share(0, p).values())
    most, rank = max((bytes_of(log), rank) for rank, log in enumerate(run.results))
    checks.that(
        sent <= own and most <= own,
        f"p = {p}: {sent} bytes are sent between the ranks in save, and rank {rank} writes {most}; its share has "
        f"{own}. Each rank writes its own file, and sends nothing.",
    )
    authors: dict[str, int] = {}
    for rank, log in enumerate(run.results):
        for name in {name for op, name, *_ in log if op == "write"}:
            other = authors.setdefault(name, rank)
            checks.that(
                other == rank,
                f"Ranks {other} and {rank} both write {name!r}, at the same time, and the file is neither's. Give each "
                "rank's share its own name, and let one rank write the manifest.",
            )
    writers = {name: rank for rank, log in enumerate(run.results) for name in shares_in(log)}
    files = after(run, {})
    for new in (8, 4, 16):
        found = loaded(student, new, files)
        setting = f"saved on {p} ranks, loaded on {new}"
        state.is_loaded([(result, names) for result, _, names in found], files, new, setting)
        for rank, (_, nbytes, names) in enumerate(found):
            opened = sorted({writers[name] for name in names if name in writers})
            needed = [old for old in range(p) if max(old * new, rank * p) < min((old + 1) * new, (rank + 1) * p)]
            checks.that(
                opened == needed,
                f"Saved on {p} ranks, loaded on {new}: rank {rank} opens the files of ranks {opened}, and has elements "
                f"only in those of {needed}.",
            )
            own = sum(x.nbytes for x in state.share(rank, new).values())
            checks.that(
                nbytes == own,
                f"Saved on {p} ranks, loaded on {new}: rank {rank} has {own} bytes, in {nbytes} bytes of memory. A "
                "part of a tensor is a view, and keeps the whole file in memory: copy it (.clone()).",
            )


FLOATS, BYTES = 16, 256  # that no manifest has, and a share of the whole state's has, in another form than a tensor


def tensors_in(content) -> list[torch.Tensor]:
    return [part for part in parts_of(content) if isinstance(part, torch.Tensor)]


def _shares(content: dict | None) -> bool:
    """Whether a file holds a share: numbers in tensors, or many in another form."""
    numbers, others = numbers_in(content)
    return any(x.numel() for x in tensors_in(content)) or len(numbers) >= FLOATS or others >= BYTES


def shares_in(log) -> list[str]:
    """The files with tensors that a rank has written, by the names that they have at the end."""
    names: list[str] = []
    for op, name, what, *_ in log:
        if op == "write" and _shares(what):
            names.append(name)
        elif op == "rename":
            names = [what if name == old else old for old in names]
    return list(dict.fromkeys(names))


def bytes_of(log) -> int:
    """Bytes of tensors that are written."""
    return sum(x.nbytes for op, _, what, *_ in log if op == "write" for x in tensors_in(what))


@exercise.check(points=1, needs="there_and_back", seconds=SECONDS)
def a_missing_file(student, rng):
    "If a rank's file or the manifest is missing, load raises FileNotFoundError instead of inventing a state."
    state = State(8, 2, rng)
    run = state.save(student, 4, {})
    shares = shares_in(run.results[0])
    checks.that(shares != [], "save on 4 ranks: rank 0 writes no file with its share of the tensors.")
    gone, files = shares[0], after(run, {})
    state.is_loaded(load(student, 4, files), files, 4, "saved on 4 ranks, n = 8")
    is_missed(student, {name: content for name, content in files.items() if name != gone}, gone)
    is_missed(student, {}, "")


def is_missed(student, files: Files, gone: str) -> None:
    """Loading from `files` raises FileNotFoundError, which names the file `gone`; an empty disk has no file at all."""
    try:
        found = load(student, 1, files)
    except StudentError as error:
        if error.is_a(FileNotFoundError) and gone in error.text:
            return
        raise
    checks.fail(
        (f"The file {gone!r} is missing" if gone else "Nothing was saved, so there is no manifest")
        + f", and load returns {show.show(found[0][0], 80)}. disk.read raises FileNotFoundError, which names the file: "
        "let it."
    )
