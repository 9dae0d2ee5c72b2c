"""Lab `ddp`: its eight exercises.

Oracles: counting, one machine that trains on all samples together (in float64), and the trace of the simulated machine,
which says who sent what to whom, and when.
"""

from autograder.authoring import Lab
from autograder.exercises.ddp import average, broadcast, buckets, overlap, ring, shard, step, unmask

lab = Lab(
    "ddp",
    title="Many machines, one model",
    exercises=(
        shard.exercise,
        broadcast.exercise,
        ring.exercise,
        average.exercise,
        buckets.exercise,
        step.exercise,
        overlap.exercise,
        unmask.exercise,
    ),
)
