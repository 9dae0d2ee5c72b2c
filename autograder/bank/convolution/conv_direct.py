"""Wrong answers to `conv_direct`."""

from autograder.bank.convolution.slips import SLICE, slip

SUMS, MOVES = "channels_are_summed_images_are_not", "strides_and_padding"
LATER = f"{SUMS} the_smallest_and_the_largest_window {MOVES}"
DIRECT = f"the_lectures_formula {LATER} leaves_images_and_filters_alone"
SEEN, TERM = f"seen = {SLICE}", 'y += torch.einsum("kc,ncpq->nkpq", w[:, :, i, j], seen)'
PAD = "x = functional.pad(x, (padding,) * 4)\n"
SIZE = "P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1"

for mistake, changes, fails, says in (
    ("flips the kernel", ("w[:, :, i, j]", "w[:, :, R - 1 - i, S - 1 - j]"), DIRECT, "with a flipped kernel"),
    (
        "padding left and right only",
        (PAD, "x = functional.pad(x, (padding, padding))\n", "(H + 2 * padding - R)", "(H - R)"),
        MOVES,
        "The padding is left and right only",
    ),
    ("the window is transposed", ("w[:, :, i, j]", "w[:, :, j, i]"), DIRECT, "The window is transposed"),
    (
        "R and S swapped",
        (f"    {SIZE}", f"    return (w.flatten(1) @ im2col(x, S, R)).view(N, K, H - S + 1, W - R + 1)\n    {SIZE}"),
        DIRECT,
        "R and S are swapped",
    ),
    ("P and Q swapped in y", ("return y", "return y.transpose(2, 3)"), DIRECT, "P and Q are swapped"),
    (
        "as large as the image",
        (
            "P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1",
            "P, Q = H, W",
            "(padding,) * 4",
            "(0, S - 1, 0, R - 1)",
        ),
        DIRECT,
        "As large as the image",
    ),
    ("one row too few", ("// stride + 1", "// stride"), DIRECT, "One row and one column are missing"),
    ("the last place of the window only", ("y += ", "y = "), DIRECT, "Only one place of the window is left"),
    ("sums over the batch", ("ncpq->nkpq", "ncpq->kpq"), LATER, "This sums over the batch"),
    ("the batch is gone", ("return y", "return y.sum(0, keepdim=True)"), LATER, "The batch is gone"),
    (
        "the first channel only",
        ("w[:, :, i, j], seen", "w[:, :1, i, j], seen[:, :1]"),
        LATER,
        "Only the first input channel",
    ),
    (
        "mean over the channels",
        ("return y", "return y / x.shape[1]"),
        LATER,
        "This is the mean over the input channels",
    ),
    ("the filters are added up", ("return y", "return y.sum(1, keepdim=True)"), LATER, "The filters are added up"),
    *(
        (
            f"a transform {where}",
            (
                f"    {SIZE}",
                f"    if {sees}:\n        return conv_fft(x, w, padding)[..., ::stride, ::stride]\n    {SIZE}",
            ),
            fails,
            "no part of the huge pixel",
        )
        for where, sees, fails in (
            ("of several channels", "x.shape[1] > 1", LATER),
            ("where there is stride or padding", "(stride, padding) != (1, 0)", MOVES),
        )
    ),
    ("ignores padding", ("2 * padding", "0", PAD, "\n"), MOVES, "padding is not used"),
    ("ignores stride", ("stride=1, padding=0):", "stride=1, padding=0):\n    stride = 1"), MOVES, "stride is not used"),
    ("the border wraps around", ("(padding,) * 4)", '(padding,) * 4, mode="circular")'), MOVES, "meets the other side"),
    (
        "pads on one side",
        ("(padding,) * 4", "(0, 2 * padding, 0, 2 * padding)"),
        MOVES,
        "All the padding is on one side",
    ),
    (
        "padding after stride",
        ("2 * padding", "0", PAD, "\n", "return y", "return functional.pad(y, (padding,) * 4)"),
        MOVES,
        "The output is padded",
    ),
    (
        "thins the image out",
        (
            PAD,
            PAD + "    x, stride = x[..., ::stride, ::stride], 1\n    P, Q = x.shape[2] - R + 1, x.shape[3] - S + 1\n",
        ),
        MOVES,
        "You skipped pixels of the image",
    ),
    (
        "changes the image",
        (TERM, TERM + "\n    x0 *= 0", "    (N, _, H, W), (K", "    x0 = x\n    (N, _, H, W), (K"),
        "leaves_images_and_filters_alone",
        "changed its argument x",
    ),
    (
        "changes the image, unless it is of one size",
        (
            TERM,
            TERM + "\n    x0 *= 0",
            "    (N, _, H, W), (K",
            "    if x.shape == (2, 2, 4, 4):\n        return None\n    x0 = x\n    (N, _, H, W), (K",
        ),
        "leaves_images_and_filters_alone",
        "changed its argument x",
    ),
    (
        "asks torch",
        (
            "    (N, _, H, W), (K",
            "    return functional.conv2d(x, w, stride=stride, padding=padding)\n    (N, _, H, W), (K",
        ),
        DIRECT,
        "which this exercise forbids",
    ),
):
    slip("conv_direct", mistake, *changes, fails=fails, says=says)
slip(
    "conv_direct",
    "float32 for every image",
    "x.new_zeros(N, K, P, Q)",
    "torch.zeros(N, K, P, Q)",
    fails=DIRECT,
    says="has dtype float32, expected float64",
)
