"""Lab `scaling`: its five exercises.

Oracles: all ways to put gradients into buckets, the update rules in float64, a replay of what loss scaling did on the
simulated machine, simulations that go tick by tick, and published efficiencies.
"""

from autograder.authoring import Lab
from autograder.exercises.scaling import fusion, large_batch, loading, loss_scaler, prediction

lab = Lab(
    "scaling",
    title="To 1,024 GPUs and 2,048",
    exercises=(
        fusion.exercise,
        large_batch.exercise,
        loss_scaler.exercise,
        loading.exercise,
        prediction.exercise,
    ),
)
