"""Lab 03: a machine that learns, and its limits. Its eight exercises. Oracle: `hpcdl.nn.perceptron`."""

from autograder.authoring import Lab
from autograder.exercises.perceptron import fit, lift, margin, mlp_xor, novikoff_bound, predict, unmask, update

lab = Lab(
    "perceptron",
    title="A machine that learns, and its limits",
    exercises=(
        predict.exercise,
        update.exercise,
        fit.exercise,
        margin.exercise,
        novikoff_bound.exercise,
        lift.exercise,
        mlp_xor.exercise,
        unmask.exercise,
    ),
)
