"""Wrong answers to `finish`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("hogwild.finish")
FINISH = ("who_is_free_takes_the_next", "backup_tasks")


@wrong("tasks dealt out in turn", fails=FINISH, says="You deal out tasks in turn")
def finish(tasks, speeds, backups=False):
    p = len(speeds)
    return max(sum(work / speed for work in tasks[i::p]) for i, speed in enumerate(speeds))


slip(
    "speed multiplies",
    "free[i] += work / speeds[i]",
    "free[i] += work * speeds[i]",
    "ends[last] = min(ends[last], free[i] + tasks[last] / speeds[i])",
    "ends[last] = min(ends[last], free[i] + tasks[last] * speeds[i])",
    fails=FINISH,
    says="a fast node takes fewer seconds",
)


@wrong("no backups", fails="backup_tasks", says="your answer ignores backups")
def finish(tasks, speeds, backups=False):
    free = [0.0] * len(speeds)
    for work in tasks:
        i = min(range(len(free)), key=free.__getitem__)
        free[i] += work / speeds[i]
    return max(free)


slip(
    "a task is done when both copies are",
    "ends[last] = min(ends[last], free[i] + tasks[last] / speeds[i])",
    "ends[last] = max(ends[last], free[i] + tasks[last] / speeds[i])",
    fails="backup_tasks",
    says="when its first copy is done",
)
slip(
    "idle nodes in the order of the list",
    "for i in sorted(range(len(free)), key=free.__getitem__) if backups else []:",
    "for i in range(len(free)) if backups else []:",
    fails="backup_tasks",
    says="the order in which they become free",
)
slip(
    "of several free nodes the last one",
    "min(range(len(free)), key",
    "min(reversed(range(len(free))), key",
    fails="who_is_free_takes_the_next backup_tasks",
    says="finish(",
)
slip(
    "a copy counts even if it is later",
    "min(ends[last], free[i] + tasks[last] / speeds[i])",
    "free[i] + tasks[last] / speeds[i]",
    fails="backup_tasks",
    says="finish(",
)
