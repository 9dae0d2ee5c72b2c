"""Tasks for the node that is free first, and backup tasks. Oracle: a clock that goes from moment to moment."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise

exercise = Exercise(
    "finish",
    points=15,
    minutes=12,
    forbid=("scipy.optimize",),
    instead="Give each task to the node that is free first: you need no solver.",
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
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number of seconds.")
    right, p = on_a_clock(tasks, speeds, backups), len(speeds)
    by_turns = max(sum(work / speed for work in tasks[i::p]) for i, speed in enumerate(speeds))
    mistakes = {
        "No node repeats a task here: your answer ignores backups.": on_a_clock(tasks, speeds, False),
        "You deal out tasks in turn: the node that is free first must take the next one.": by_turns
        if not backups
        else -1.0,
        "work / speed: a fast node takes fewer seconds.": on_a_clock(tasks, [1 / s for s in speeds], backups),
        "Idle nodes look in the order in which they become free, not in the order of the list.": in_list_order(
            tasks, speeds
        )
        if backups
        else -1.0,
        "That is right only if work can be cut anywhere: tasks are indivisible.": sum(tasks) / sum(speeds),
        "A task is done when its first copy is done, not when both are.": slowest_copy(tasks, speeds)
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


@exercise.check(points=7)
def who_is_free_takes_the_next(student, rng):
    "The node that is free first takes the next task."
    finishes(student, [4.0, 4.0, 4.0, 4.0, 4.0], [2.0, 1.0], False)
    finishes(student, [2.0, 4.0], [1.0, 2.0], False)  # both are free: the first in the list begins
    for nodes, count in ((3, 8), (1, 4), (4, 3), (2, 11)):
        tasks = (torch.randint(4, 40, (count,), generator=rng) / 4).tolist()
        speeds = (torch.randint(1, 9, (nodes,), generator=rng) / 2).tolist()
        finishes(student, tasks, speeds, False)


@exercise.check(points=8, needs="who_is_free_takes_the_next")
def backup_tasks(student, rng):
    "With backups: idle nodes repeat the task that would finish last, and the first copy counts."
    finishes(student, [4.0, 4.0, 4.0], [4.0, 4.0, 1.0], True)
    finishes(student, [8.0, 6.0, 6.0, 5.0, 1.0, 4.0, 7.0], [1.0, 1.0, 4.0, 3.0, 2.0], True)
    for nodes, count in ((3, 8), (1, 4), (4, 6), (5, 11), (3, 2)):
        tasks = (torch.randint(4, 40, (count,), generator=rng) / 4).tolist()
        speeds = (torch.randint(2, 9, (nodes,), generator=rng) / 2).tolist()
        speeds[-1] = 0.25
        got, without = finishes(student, tasks, speeds, True), on_a_clock(tasks, speeds, False)
        checks.that(got <= without, f"With backups it takes {got:g} s and without {without:g}: a copy delays no task.")
