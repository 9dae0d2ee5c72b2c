"""Lab `backprop`: its ten exercises. The oracle of every gradient is torch's autograd in float64."""

from autograder.authoring import Lab
from autograder.exercises.backprop import (
    backprop,
    backpropagate_error,
    backward,
    feedforward,
    gradients,
    output_error,
    softmax_cross_entropy,
    stop_at,
    train,
    unmask,
)

lab = Lab(
    "backprop",
    title="Errors flow backwards",
    exercises=(
        feedforward.exercise,
        output_error.exercise,
        backpropagate_error.exercise,
        gradients.exercise,
        backprop.exercise,
        backward.exercise,
        softmax_cross_entropy.exercise,
        train.exercise,
        stop_at.exercise,
        unmask.exercise,
    ),
)
