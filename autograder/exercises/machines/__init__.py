"""Lab `machines`: its five exercises.

Oracles: torch's FLOP counter, published figures, exact fractions, and a search over batches.
"""

from autograder.authoring import Lab
from autograder.exercises.machines import hours, profile, roofline, utilization, work

lab = Lab(
    "machines",
    title="What a machine can do, and what is left of it",
    exercises=(work.exercise, utilization.exercise, roofline.exercise, hours.exercise, profile.exercise),
)
