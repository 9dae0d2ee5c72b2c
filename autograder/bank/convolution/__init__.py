"""Wrong answers to lab 05: slips of the pen in its solutions, each with the checks it fails and words of its message.

`conv_im2col` calls the student's own `im2col`, and `conv_winograd` their `winograd_matrices`, so a mistake in one of
those fails their checks too: `fails` names these as `exercise.check`.
"""

from autograder.bank.convolution import (
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
