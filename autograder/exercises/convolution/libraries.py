"""What the answers of several exercises may not call."""

from autograder.authoring import Rules
from autograder.exercises.ready_made import DERIVATIVES
from autograder.inside.forbidden import CONVOLUTION

NUMPYS = ("numpy.convolve", "numpy.correlate", "numpy._core.multiarray.correlate", "numpy._core.multiarray.correlate2")
WAVES = ("aten::stft", "aten::istft")  # their frequency 0 is a sum of windows times weights
# Derivatives are forbidden, too: the matrix of a linear function is its Jacobian, and its transpose a backward pass.
SCATTERS = ("aten::im2col", "aten::col2im")
LIBRARIES = (*CONVOLUTION, *NUMPYS, *WAVES, *SCATTERS, "scipy.signal", "scipy.ndimage", "pandas._libs.window")
WINDOWS = ("aten::unfold", "numpy.lib.stride_tricks.sliding_window_view")
OWN: Rules = {
    "forbid": (*LIBRARIES, *DERIVATIVES),
    "instead": "Write yourself what that function does: the formula, a product, a transform.",
}
COLUMNS: Rules = {
    "forbid": (*LIBRARIES, *WINDOWS, *DERIVATIVES),
    "instead": "Write yourself what that function does: copy the pixels that each place of the window sees, R S "
    "slices of x.",
}
ADJOINT: Rules = {  # the derivative of im2col
    "forbid": (*COLUMNS["forbid"], *DERIVATIVES),
    "instead": "Write yourself what that function does, without autograd: copy the pixels that each place of the "
    "window sees, R S slices of x; back, add them there.",
}
MATRIX: Rules = {  # the derivative of the convolution
    "forbid": (*LIBRARIES, *DERIVATIVES),
    "instead": "Write the matrix yourself, without autograd: which weight meets which pixel in each output?",
}
