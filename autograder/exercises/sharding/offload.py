"""Weights that come over a slow link while earlier layers compute. Oracle: a simulation that goes tick by tick."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import odd_seconds, whole_number

exercise = Exercise("offload", points=5, minutes=8, extra=True)


def ticks(compute: list[int], transfer: list[int], room: int) -> int:
    """Every tick the link brings a tick's worth, if there is room, and the device computes, if its layer is there."""
    n, time = len(compute), 0
    coming, came, working, worked = 0, 0, 0, 0  # layer on the link and its ticks; layer at work and its ticks
    while working < n:
        brings = coming < n and coming - working < room
        works = working < coming
        came, worked = came + brings, worked + works
        time += 1
        if works and worked == compute[working]:
            working, worked = working + 1, 0
        if brings and came == transfer[coming]:
            coming, came = coming + 1, 0
    return time


def offload_is(student, rng, compute: list[int], transfer: list[int], room: int, unit: float = 0.25) -> None:
    link = 2.0**20 * whole_number(rng, 1, 4)  # bytes per second; a tick is of `unit` seconds
    seconds, nbytes = [unit * c for c in compute], [int(link * unit * t) for t in transfer]
    got = student.offload(list(seconds), list(nbytes), link, room)
    call = f"offload({seconds}, {nbytes}, {link:g}, {room})"
    checks.that(checks.is_number(got), f"{call} is {show.an(show.type_name(got))}, expected a number of seconds.")
    expected = unit * ticks(compute, transfer, room)
    mistakes = {
        "You do everything in sequence: the link loads the next layer while this one computes.": sum(seconds)
        + unit * sum(transfer),
        "The larger of both sums is only a lower bound: the device must wait for the first layer.": max(
            sum(seconds), unit * sum(transfer)
        ),
        "That is room for one layer too many.": unit * ticks(compute, transfer, room + 1),
        "That is room for one layer too few.": unit * ticks(compute, transfer, max(1, room - 1)),
        "You assume unlimited room: layer i begins to load when layer i - room is done.": unit
        * ticks(compute, transfer, len(compute)),
        "The link loads one layer at a time.": unit * one_link_each(compute, transfer, room),
    }
    mistakes = {s: v for s, v in mistakes.items() if abs(v - expected) > 1e-9}
    checks.close(got, expected, name=call, mistakes=mistakes, rtol=1e-9, why="Link and device, moment by moment.")


def one_link_each(compute, transfer, room) -> float:
    done: list[float] = []
    for i, (c, t) in enumerate(zip(compute, transfer, strict=True)):
        there = (done[i - room] if i >= room else 0.0) + t
        done.append(max(there, done[-1] if done else 0.0) + c)
    return done[-1]


UNEVEN = ([20, 1, 1, 1, 1, 20, 1, 1, 1, 1], [2, *[5] * 9])  # one layer's room more or less shows


@exercise.check(points=3)
def moment_by_moment(student, rng):
    "Layers of any size, with room for one to four, agree with a simulation."
    offload_is(student, rng, UNEVEN[0], UNEVEN[1], 3)
    for room in (2, 3, 1, 4):
        for n in (9, 5):
            compute, transfer = (torch.randint(1, 9, (n,), generator=rng).tolist() for _ in range(2))
            offload_is(student, rng, compute, transfer, room, unit=0.25 if n == 9 else odd_seconds(rng))


@exercise.check(points=2, needs="moment_by_moment")
def hidden_or_not(student, rng):
    "With room for two and a fast link, only the first layer waits; with room for one, every layer waits."
    for transfer in (3, 4, 7):
        for room in (1, 2):
            offload_is(student, rng, [4] * 6, [transfer] * 6, room)
    offload_is(student, rng, [3], [2], 2)
