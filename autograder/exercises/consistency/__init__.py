"""Lab `consistency`: its four exercises.

Oracles: events played one after the other, serial runs in float64, the roots of a recurrence, exact fractions, the
trace of the simulated machine and its virtual seconds. None of them is the library's `hpcdl.consistency`.
"""

from autograder.authoring import Lab
from autograder.exercises.consistency import clocks, delay, gossip, server

lab = Lab(
    "consistency",
    title="How late may a gradient be?",
    exercises=(clocks.exercise, server.exercise, delay.exercise, gossip.exercise),
)
