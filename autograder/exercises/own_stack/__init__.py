"""Lab `own_stack`: its seven exercises, each a brick of `hpcdl.training.own_stack`.

Buckets, ring and the rounding of bits are asked as in the labs where they come from, by the same checks. The other
oracles are torch's autograd and convolution in float64, and integers of any size for the noise.
"""

from autograder.authoring import Lab
from autograder.exercises.own_stack import buckets, convolution, momentum, ring, rounding, step, tape

lab = Lab(
    "own_stack",
    title="Your own stack",
    exercises=(
        momentum.exercise,
        buckets.exercise,
        rounding.exercise,
        ring.exercise,
        tape.exercise,
        convolution.exercise,
        step.exercise,
    ),
)
