"""What the answers of several exercises may not call."""

from autograder.authoring import Rules
from autograder.inside.forbidden import CONVOLUTION

LIBRARIES = (*CONVOLUTION, "scipy.signal", "scipy.ndimage")
OWN: Rules = {
    "forbid": LIBRARIES,
    "instead": "Write yourself what that function does: the formula, a product, a transform.",
}
COLUMNS: Rules = {
    "forbid": (*LIBRARIES, "aten::im2col", "aten::col2im", "aten::unfold"),
    "instead": "Write yourself what that function does: copy the pixels that each place of the window sees, R S "
    "slices of x.",
}
