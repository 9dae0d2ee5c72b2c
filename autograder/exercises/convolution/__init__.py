"""Lab `convolution`: its ten exercises. The oracle of every convolution is torch's own in float64."""

from autograder.authoring import Lab
from autograder.exercises.convolution import (
    conv_cost,
    conv_direct,
    conv_fft,
    conv_im2col,
    conv_kernel,
    conv_winograd,
    im2col,
    toeplitz,
    unmask,
    winograd_matrices,
)

lab = Lab(
    "convolution",
    title="One operation, five algorithms",
    exercises=(
        conv_direct.exercise,
        im2col.exercise,
        conv_im2col.exercise,
        toeplitz.exercise,
        conv_fft.exercise,
        winograd_matrices.exercise,
        conv_winograd.exercise,
        conv_cost.exercise,
        conv_kernel.exercise,
        unmask.exercise,
    ),
)
