"""Wrong answers to lab 04, each with the checks it must fail and the words that name its mistake.

`backprop` and `train` call the student's own earlier functions, so a mistake in one of those fails their checks too:
`fails` names these as `exercise.check`.
"""

from autograder.bank.backprop import (
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
