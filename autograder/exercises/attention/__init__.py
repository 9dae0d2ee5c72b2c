"""Lab `attention`: its seven exercises.

Oracles: softmax written out row by row, torch's encoder layer, torch's counters of operations and of saved tensors, a
loop over tokens, the trace of the simulated machine, and the memory meter.
"""

from autograder.authoring import Lab
from autograder.exercises.attention import (
    attention,
    block_work,
    heads,
    moe,
    online_softmax,
    ring_attention,
    route,
)

lab = Lab(
    "attention",
    title="Attention",
    exercises=(
        attention.exercise,
        online_softmax.exercise,
        heads.exercise,
        block_work.exercise,
        ring_attention.exercise,
        route.exercise,
        moe.exercise,
    ),
)
