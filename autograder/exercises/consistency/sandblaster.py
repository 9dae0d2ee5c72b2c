"""L-BFGS by shards, and backup tasks. Oracles: the dense inverse Hessian, torch's L-BFGS, minutes on a clock."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.ready_made import OPTIMIZERS, RANKS

exercise = Exercise(
    "sandblaster",
    points=10,
    minutes=20,
    functions=("lbfgs_direction", "finish"),
    forbid=(*RANKS, *OPTIMIZERS, "scipy.optimize"),
    instead="The two loops are what you write here: dot products whose one number travels, and sums of shards.",
)


class History:
    """Differences of weights and gradients of a convex quadratic, and the gradient now, cut into shards."""

    def __init__(self, n: int, m: int, p: int, rng):
        half = torch.randn(n, n, generator=rng).double()
        hessian = half @ half.T / n + torch.eye(n).double()
        self.s = [torch.randn(n, generator=rng).double() for _ in range(m)]
        self.y = [hessian @ s for s in self.s]
        self.g, self.n, self.m, self.p = torch.randn(n, generator=rng).double(), n, m, p
        self.setting = f"p = {p}, n = {n}, {m} pairs"

    def run(self, student):
        return student.ranks("lbfgs_direction", self.p, self.shards, harness="comm_first")

    def shards(self, rank: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
        """A rank's part of s, y and g."""
        *pairs, g = ([x.tensor_split(self.p)[rank].clone() for x in xs] for xs in (self.s, self.y, [self.g]))
        return pairs[0], pairs[1], g[0]

    def dense(self, mistake: str = "") -> torch.Tensor:
        """-H g, H being made pair by pair as BFGS has it: H = (I - rho s y') H (I - rho y s') + rho s s'."""
        h, eye = torch.eye(self.n).double(), torch.eye(self.n).double()
        if self.m and mistake != "no gamma":
            s, y = self.s[-1], self.y[-1]
            h = h * ((y @ y) / (s @ y) if mistake == "upside down" else (s @ y) / (y @ y))
        pairs = list(zip(self.s, self.y, strict=True))
        for s, y in reversed(pairs) if mistake == "order" else pairs:
            rho = 1 / (s @ y)
            left = eye - rho * torch.outer(s, y)
            h = left @ h @ left.T + rho * torch.outer(s, s)
        return h @ self.g if mistake == "uphill" else -h @ self.g

    def alone(self, rank: int) -> torch.Tensor:
        """What a rank finds that knows its own shards only."""
        mine = History.__new__(History)
        mine.s, mine.y = ([x.tensor_split(self.p)[rank] for x in xs] for xs in (self.s, self.y))
        mine.g = self.g.tensor_split(self.p)[rank]
        mine.n, mine.m = len(mine.g), self.m
        return mine.dense()

    def agrees(self, student):
        run, right = self.run(student), self.dense()
        sentences = {
            "no gamma": "Between the loops q is multiplied by (s · y) / (y · y) of the newest pair.",
            "upside down": "It is (s · y) / (y · y), not its inverse.",
            "order": "The first loop goes from the newest pair to the oldest, the second one back.",
            "uphill": "The direction is -r: downhill.",
        }
        whole = {sentence: self.dense(kind) for kind, sentence in sentences.items()}
        for rank, expected in enumerate(right.tensor_split(self.p)):
            named = {s: v.tensor_split(self.p)[rank] for s, v in whole.items()}
            if self.p > 1:
                named["These dot products are of this rank's shards alone: sum them over the ranks."] = self.alone(rank)
            named = {s: v for s, v in named.items() if not torch.allclose(v, expected)}
            name = f"{self.setting}: the direction on rank {rank}"
            checks.close(run.results[rank], expected, name=name, mistakes=named, rtol=1e-8)
        return run


@exercise.check(points=4, seconds=SECONDS)
def two_loops(student, rng):
    "lbfgs_direction: every rank has its shard of what the dense formula gives, for p = 1 to 4."
    for p, m in ((1, 2), (2, 3), (3, 1), (4, 4)):
        History(9, m, p, rng).agrees(student)
    History(5, 0, 2, rng).agrees(student)
    carried(student, rng, lambda: History(9, 3, 2, rng).agrees(student), "p = 2")


@exercise.check(points=2, needs="two_loops", seconds=SECONDS)
def only_numbers_travel(student, rng):
    "lbfgs_direction: what travels does not grow with n; what comes in is not changed."
    sent = []
    for n in (12, 96):
        history = History(n, 3, 4, rng)
        run = history.agrees(student)
        for rank, after in enumerate(run.arguments):
            checks.unchanged(after, history.shards(rank), name="s, y or g")
        moved = [e.nbytes for e in run.trace if e.op not in ("recv", "compute", "accumulate") and e.rank == 1]
        sent.append(sum(moved))
    checks.that(
        sent[0] == sent[1],
        f"Rank 1's messages have {sent[0]} bytes with n = 12 and {sent[1]} with n = 96. Vectors stay where they "
        "are; of a dot product one number travels.",
    )


def on_a_clock(tasks: list[float], speeds: list[float], backups: bool) -> float:
    """A moment after the other: nodes take tasks, then copies; done when every task's first copy is."""
    queue, done = list(enumerate(tasks)), {}
    busy_until = [0.0] * len(speeds)
    looked: set[int] = set()
    while queue or (backups and len(looked) < len(speeds)):
        now = min(until for i, until in enumerate(busy_until) if i not in looked)
        node = next(i for i, until in enumerate(busy_until) if until == now and i not in looked)
        if queue:
            number, work = queue.pop(0)
            busy_until[node] = done[number] = now + work / speeds[node]
        else:
            looked.add(node)
            latest = max(done.values())
            number = next(i for i in sorted(done) if done[i] == latest)
            done[number] = min(latest, now + tasks[number] / speeds[node])
    return max(done.values())


def finishes(student, tasks, speeds, backups: bool) -> float:
    got = student.finish(list(tasks), list(speeds), backups)
    call = f"finish({show.show(tasks)}, {show.show(speeds)}, {backups})"
    checks.that(type(got) in (int, float), f"{call} is {show.an(show.type_name(got))}, expected a number of seconds.")
    right, p = on_a_clock(tasks, speeds, backups), len(speeds)
    by_turns = max(sum(work / speed for work in tasks[i::p]) for i, speed in enumerate(speeds))
    mistakes = {
        "Nobody does a task again here: backups are left out.": on_a_clock(tasks, speeds, False),
        "Tasks are dealt out in turn here: the node that is free first takes the next one.": by_turns,
        "work / speed: a fast node takes fewer seconds.": on_a_clock(tasks, [1 / s for s in speeds], backups),
        "Idle nodes look in the order in which they become free, not in the order of the list.": in_list_order(
            tasks, speeds
        )
        if backups
        else -1.0,
        "That is as if the work could be cut anywhere: tasks are whole.": sum(tasks) / sum(speeds),
        "A task is done when the first of its copies is, not when both are.": slowest_copy(tasks, speeds)
        if backups
        else -1.0,
    }
    mistakes = {s: v for s, v in mistakes.items() if abs(v - right) > 1e-9}
    checks.close(got, right, name=call, mistakes=mistakes, rtol=1e-9, atol=0.0)
    return got


def in_list_order(tasks, speeds) -> float:
    """As if idle nodes looked for a last task in the order of the list."""
    free, ends = [0.0] * len(speeds), []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
        ends.append(free[i])
    for i, now in enumerate(free):
        last = ends.index(max(ends))
        ends[last] = min(ends[last], now + tasks[last] / speeds[i])
    return max(ends)


def slowest_copy(tasks, speeds) -> float:
    """As if a task were done when its last copy is."""
    free, ends = [0.0] * len(speeds), []
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
        ends.append(free[i])
    for i in sorted(range(len(free)), key=free.__getitem__):
        last = max(range(len(ends)), key=ends.__getitem__)
        ends[last] = max(ends[last], free[i] + tasks[last] / speeds[i])
    return max(ends)


@exercise.check(points=2)
def who_is_free_takes_the_next(student, rng):
    "finish: the node that is free first takes the next task."
    finishes(student, [4.0, 4.0, 4.0, 4.0, 4.0], [2.0, 1.0], False)
    for nodes, count in ((3, 8), (1, 4), (4, 3), (2, 11)):
        tasks = (torch.randint(4, 40, (count,), generator=rng) / 4).tolist()
        speeds = (torch.randint(1, 9, (nodes,), generator=rng) / 2).tolist()
        finishes(student, tasks, speeds, False)


@exercise.check(points=2, needs="who_is_free_takes_the_next")
def backup_tasks(student, rng):
    "finish with backups: idle nodes do again what would be done last, and the first copy counts."
    finishes(student, [4.0, 4.0, 4.0], [4.0, 4.0, 1.0], True)
    finishes(student, [8.0, 6.0, 6.0, 5.0, 1.0, 4.0, 7.0], [1.0, 1.0, 4.0, 3.0, 2.0], True)
    for nodes, count in ((3, 8), (1, 4), (4, 6), (5, 11), (3, 2)):
        tasks = (torch.randint(4, 40, (count,), generator=rng) / 4).tolist()
        speeds = (torch.randint(2, 9, (nodes,), generator=rng) / 2).tolist()
        speeds[-1] = 0.25
        got, without = finishes(student, tasks, speeds, True), on_a_clock(tasks, speeds, False)
        checks.that(got <= without, f"With backups it takes {got:g} s and without {without:g}: a copy delays nobody.")
