"""Lab `collectives`: its eight exercises.

Oracles: the sum itself, and what the messages cost on the simulated machine, whose trace says who sent what to whom.
"""

from autograder.authoring import Lab
from autograder.exercises.collectives import (
    best_algorithm,
    cost,
    fit_alpha_beta,
    hierarchical,
    parameter_server,
    recursive_doubling,
    tree,
    unmask,
)

lab = Lab(
    "collectives",
    title="What a message costs",
    exercises=(
        tree.exercise,
        recursive_doubling.exercise,
        parameter_server.exercise,
        hierarchical.exercise,
        cost.exercise,
        fit_alpha_beta.exercise,
        best_algorithm.exercise,
        unmask.exercise,
    ),
)
