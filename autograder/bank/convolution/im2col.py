"""Wrong answers to `im2col` and `col2im`."""

from autograder.bank.convolution.later import PRODUCT, checks_of
from autograder.bank.convolution.slips import SLICE, slip

PLACES = "a_column_for_each_window channels_stand_below_each_other windows_with_stride_and_padding"
ALL = f"{PLACES} leaves_image_and_columns_alone {checks_of('conv_im2col', PRODUCT)}"
SHAPE, COLUMN = "columns.view(N, C * r * s, P * Q)", f"columns[:, :, i, j] = {SLICE}"
COUNTS = "overlaps_are_counted col2im_is_the_adjoint"
ADJOINT = f"{COUNTS} leaves_image_and_columns_alone"
BACK = f"{SLICE} += columns[:, :, i, j]"

for mistake, changes, fails, says in (
    (
        "a row for each window",
        (SHAPE, SHAPE + ".mT"),
        ALL,
        "The matrix is transposed",
    ),
    ("columns run down", (SHAPE, "columns.transpose(4, 5).reshape(N, C * r * s, P * Q)"), ALL, "The columns run down"),
    ("r and s swapped", (SHAPE, "columns.transpose(2, 3).reshape(N, C * r * s, P * Q)"), ALL, "read column by column"),
    (
        "the window flipped",
        ("columns[:, :, i, j] = ", "columns[:, :, r - 1 - i, s - 1 - j] = "),
        ALL,
        "Each window is flipped",
    ),
    (
        "channels last",
        (SHAPE, "columns.permute(0, 2, 3, 1, 4, 5).reshape(N, C * r * s, P * Q)"),
        f"channels_stand_below_each_other {checks_of('conv_im2col', PRODUCT)}",
        "The channel comes last",
    ),
    (
        "windows next to each other",
        ("    N, C, H, W = x.shape", "    stride = max(r, s)\n    N, C, H, W = x.shape"),
        ALL,
        "The windows do not overlap here",
    ),
    (
        "the border wraps around",
        ("(padding,) * 4)", '(padding,) * 4, mode="circular")'),
        "windows_with_stride_and_padding conv_im2col.any_stride_and_padding",
        "meets the other side of the image",
    ),
    (
        "asks torch",
        ("    N, C, H, W = x.shape", "    return functional.unfold(x, (r, s), stride=stride, padding=padding)"),
        ALL,
        "which this exercise forbids",
    ),
    ("col2im overwrites", (BACK, BACK.replace("+=", "=")), ADJOINT, "The last window overwrote the others"),
    (
        "col2im starts from ones",
        ("columns.new_zeros", "columns.new_ones"),
        ADJOINT,
        "Pixels that no window sees stay 0",
    ),
    (
        "col2im with channels last",
        ("columns.view(N, C, r, s, P, Q)\n", "columns.view(N, r, s, C, P, Q).permute(0, 3, 1, 2, 4, 5)\n"),
        "col2im_is_the_adjoint",
        "the channel comes last",
    ),
    (
        "col2im averages",
        (
            "    return x[:, :, padding : padding + H, padding : padding + W]",
            "    counts = torch.zeros_like(x)\n"
            "    for i in range(r):\n"
            "        for j in range(s):\n"
            f"            counts{SLICE[1:]} += 1\n"
            "    x = x / counts.clamp(min=1)\n"
            "    return x[:, :, padding : padding + H, padding : padding + W]",
        ),
        ADJOINT,
        "This is the mean of the overlapping values",
    ),
    (
        "padding left and right only",
        (
            "x = functional.pad(x, (padding,) * 4)",
            "x = functional.pad(x, (padding, padding))",
            "x.shape\n    P, Q = (H + 2 * padding - r)",
            "x.shape\n    P, Q = (H - r)",
        ),
        "windows_with_stride_and_padding conv_im2col.any_stride_and_padding",
        "The padding is left and right only",
    ),
    (
        "col2im keeps the padding",
        ("return x[:, :, padding : padding + H, padding : padding + W]", "return x"),
        COUNTS,
        "has shape (2, 1, 9, 8), expected (2, 1, 7, 6)",
    ),
):
    slip("im2col", mistake, *changes, fails=fails, says=says)
slip(
    "im2col",
    "col2im empties the columns",
    "+= columns[:, :, i, j]\n",
    "+= columns[:, :, i, j]\n            columns[:, :, i, j] = 0\n",
    fails="leaves_image_and_columns_alone",
    says="changed its argument columns",
)
slip(
    "im2col",
    "empties the image at the end",
    "    N, C, H, W = x.shape\n",
    "    N, C, H, W = x.shape\n    x0 = x\n",
    "    return columns.view(N, C * r * s, P * Q)",
    "    x0.zero_()\n    return columns.view(N, C * r * s, P * Q)",
    fails="leaves_image_and_columns_alone conv_im2col.leaves_both_alone",
    says="changed its argument x",
)
slip(
    "im2col",
    "zeros for an image of 4 x 4",
    "    return columns.view(N, C * r * s, P * Q)",
    "    return columns.view(N, C * r * s, P * Q) * (H != 4 or W != 4 or N * C > 1)",
    fails="leaves_image_and_columns_alone",
    says="im2col(x (1, 1, 4, 4), 2, 2, stride=1, padding=0)[",
)
slip(
    "im2col",
    "reads one pixel and counts on from it",
    "    N, C, H, W = x.shape\n",
    "    N, C, H, W = x.shape\n    x = x.flatten()[0] + torch.arange(x.numel(), dtype=x.dtype).view(x.shape)\n",
    fails=ALL,
    says="im2col(x (1, 1, 4, 5), 2, 3, stride=1, padding=0)[",
)
slip(
    "im2col",
    "empties an image of several channels at the end",
    "    N, C, H, W = x.shape\n",
    "    N, C, H, W = x.shape\n    x0 = x\n",
    "    return columns.view(N, C * r * s, P * Q)",
    "    x0.mul_(C == 1)\n    return columns.view(N, C * r * s, P * Q)",
    fails="leaves_image_and_columns_alone conv_im2col.leaves_both_alone",
    says="changed its argument x",
)
slip(
    "im2col",
    "always in float64",
    "x.new_empty(N, C, r, s, P, Q)",
    "x.new_empty(N, C, r, s, P, Q, dtype=torch.float64)",
    fails=f"windows_with_stride_and_padding {checks_of('conv_im2col', PRODUCT)}",
    says="float32",
)
