"""Lab `model_parallel`: its six exercises.

Oracles: the undivided layer and the serial run in float64, an event simulation and published bubbles, and the trace of
the simulated machine, which says who sent what to whom.
"""

from autograder.authoring import Lab
from autograder.exercises.model_parallel import (
    design,
    one_weird_trick,
    run_stage,
    schedules,
    tensor_parallel,
    zero_bubble,
)

lab = Lab(
    "model_parallel",
    title="The network itself is cut",
    exercises=(
        tensor_parallel.exercise,
        one_weird_trick.exercise,
        schedules.exercise,
        zero_bubble.exercise,
        design.exercise,
        run_stage.exercise,
    ),
)
