"""The all-reduce round a ring: what lab 07 asks."""

from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS
from autograder.exercises.ddp import ring as ddp

exercise = Exercise(
    "ring",
    points=14,
    minutes=15,
    functions=("ring_all_reduce",),
    forbid=ddp.exercise.forbid,
    instead=ddp.exercise.instead,
    meanings=ddp.exercise.meanings,
)

exercise.check(points=3, seconds=SECONDS)(ddp.whole_chunks)
exercise.check(points=3, seconds=SECONDS, needs="whole_chunks")(ddp.any_p_and_n)
exercise.check(points=2, seconds=SECONDS, needs="whole_chunks")(ddp.neighbours_only)
exercise.check(points=2, seconds=SECONDS, needs="whole_chunks")(ddp.few_bytes)
exercise.check(points=2, seconds=SECONDS, needs="whole_chunks")(ddp.all_at_once)
exercise.check(points=2, seconds=SECONDS, needs="whole_chunks")(ddp.the_same_bits)
