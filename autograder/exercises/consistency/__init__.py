"""Lab `consistency`: its seven exercises.

Oracles: events played one after the other, serial runs in float64, the roots of a recurrence, every pair of edges, the
trace of the simulated machine and its virtual seconds. None of them is the library's `hpcdl.consistency`.
"""

from autograder.authoring import Lab
from autograder.exercises.consistency import adam, clocks, delay, downpour, hogwild, sandblaster, server

lab = Lab(
    "consistency",
    title="How late may a gradient be?",
    exercises=(
        clocks.exercise,
        server.exercise,
        delay.exercise,
        hogwild.exercise,
        downpour.exercise,
        sandblaster.exercise,
        adam.exercise,
    ),
)
