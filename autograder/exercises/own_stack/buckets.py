"""Tensors in buckets, from the last to the first: what lab 07 asks."""

from autograder.authoring import Exercise
from autograder.exercises.ddp import buckets as ddp

exercise = Exercise(
    "buckets",
    points=10,
    minutes=8,
    functions=("make_buckets",),
    forbid=ddp.exercise.forbid,
    instead=ddp.exercise.instead,
)

exercise.check(points=3)(ddp.in_reverse)
exercise.check(points=3, needs="in_reverse")(ddp.full_up_to_the_cap)
exercise.check(points=2, needs="in_reverse")(ddp.a_parameter_larger_than_the_cap)
exercise.check(points=1, needs="in_reverse")(ddp.extreme_caps)
exercise.check(points=1, needs="in_reverse")(ddp.the_same_on_every_rank)
