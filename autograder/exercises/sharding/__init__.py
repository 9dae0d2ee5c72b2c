"""Lab `sharding`: its seven exercises.

Oracles: a serial run in float64 with torch's own optimizer, the trace of the simulated machine, the memory meter and
virtual seconds; a disk that writes down what was done to it, so that every moment at which a rank may be killed is
tried.
"""

from autograder.authoring import Lab
from autograder.exercises.sharding import (
    checkpointed,
    clip,
    memory,
    offload,
    save_load,
    sharded,
    sharded_adam,
)

lab = Lab(
    "sharding",
    title="Nothing twice",
    exercises=(
        memory.exercise,
        sharded_adam.exercise,
        sharded.exercise,
        clip.exercise,
        checkpointed.exercise,
        save_load.exercise,
        offload.exercise,
    ),
)
