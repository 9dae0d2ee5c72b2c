"""Wrong answers to `conv_kernel`."""

from autograder.bank.convolution.slips import slip

PADDED = "kernels_stride_and_padding"
BORDERS = f"masked_borders {PADDED}"
BLOCKS = f"whole_blocks {BORDERS}"

for mistake, changes, fails, says in (
    (
        "stores without a mask",
        (", mask=(m < N * P * Q)[:, None] & (k < K)[None, :])", ")"),
        BORDERS,
        "The store needs a mask",
    ),
    ("loads beyond the weights", ("mask=real", "mask=(k < K)[None, :]"), BORDERS, "the kernel read outside of x or w"),
    (
        "reads beyond the border",
        ("(h >= 0) & (h < H) & (v >= 0) & (v < W) & ", ""),
        PADDED,
        "the kernel read outside of x",
    ),
    (
        "one block of weights",
        ("range(0, C * R * S, BLOCK)", "range(0, BLOCK, BLOCK)"),
        BLOCKS,
        "Only the first block of the sum",
    ),
    (
        "cuts numbers to whole ones",
        ("tl.dot(a, b", "tl.dot(tl.floor(a), tl.floor(b)"),
        BLOCKS,
        "y after conv_kernel is",
    ),
    ("overwrites the sum", ("acc += ", "acc = "), BLOCKS, "Only the last block of the sum is left"),
    (
        "flips",
        ("+ d[:, None]", "+ (c * R * S + (R - 1 - r) * S + S - 1 - s)[:, None]"),
        BLOCKS,
        "with a flipped kernel",
    ),
    ("ignores stride", ("stride - padding", "1 - padding"), PADDED, "stride is not used"),
    ("ignores padding", (" - padding", ""), PADDED, "All the padding is on one side"),
    (
        "channels last in y",
        ("((n[:, None] * K + k[None, :]) * P + p[:, None]) * Q + q[:, None]", "m[:, None] * K + k[None, :]"),
        BLOCKS,
        "y is written with its channels last",
    ),
    (
        "writes the next block, too",
        (
            "m = tl.program_id(0) // blocks * BLOCK + tl.arange(0, BLOCK)",
            "m = tl.program_id(0) // blocks * BLOCK + tl.arange(0, 2 * BLOCK)",
            "tl.zeros((BLOCK, BLOCK)",
            "tl.zeros((2 * BLOCK, BLOCK)",
        ),
        "masked_borders",
        "Each has a block of 16 pixels",
    ),
    (
        "numbers in a row, not a block",
        (
            "    blocks = tl.cdiv(K, BLOCK)\n    m = tl.program_id(0) // blocks * BLOCK + tl.arange(0, BLOCK)\n"
            "    k = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)\n",
            "    o = tl.program_id(0) * BLOCK * BLOCK + tl.arange(0, BLOCK * BLOCK)\n"
            "    k = tl.where(o < N * K * P * Q, o // (P * Q) % K, K)[:, None]\n"
            "    m = o // (K * P * Q) * (P * Q) + o % (P * Q)\n",
            "tl.zeros((BLOCK, BLOCK)",
            "tl.zeros((BLOCK * BLOCK, 1)",
            "k[None, :]",
            "k",
            "(k < K)[None, :]",
            "(k < K)",
            "+ d[:, None]",
            "+ d[None, :]",
            "(d < C * R * S)[:, None]",
            "(d < C * R * S)[None, :]",
            'tl.dot(a, b, input_precision="ieee")',
            "tl.sum(a * b, 1)[:, None]",
        ),
        "masked_borders",
        "Each has a block of 16 pixels",
    ),
    (
        "loads everything, and chooses afterwards",
        (
            "tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v, mask=inside, other=0.0)",
            "tl.where(inside, tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v), 0.0)",
        ),
        BORDERS,
        "numbers outside of x and w, and uses none of them",
    ),
    (
        "loads what lies beyond the border, and chooses afterwards",
        (
            "tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v, mask=inside, other=0.0)",
            "tl.where(inside, tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v, "
            "mask=(m < N * P * Q)[:, None] & (d < C * R * S)[None, :]), 0.0)",
        ),
        PADDED,
        "numbers outside of x and w, and uses none of them",
    ),
    (
        "a number of Python's",
        ("range(0, C * R * S,", "range(0, int(C * R * S),"),
        BLOCKS,
        "uses `int`, which is neither",
    ),
    (
        "NumPy in the kernel",
        ("    blocks = tl.cdiv", "    import numpy\n\n    blocks = tl.cdiv"),
        BLOCKS,
        "of `conv_kernel` imports `numpy`",
    ),
    ("one block of filters", ("k = tl.program_id(0) % blocks * BLOCK + ", "k = "), BLOCKS, "were never written"),
):
    slip("conv_kernel", mistake, *changes, fails=fails, says=says)
