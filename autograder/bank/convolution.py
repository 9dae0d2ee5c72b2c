"""Wrong answers to lab 05: slips of the pen in its solutions, each with the checks it fails and words of its message.

`conv_im2col` calls the student's own `im2col`, and `conv_winograd` their `winograd_matrices`, so a mistake in one of
those fails their checks too: `fails` names these as `exercise.check`.
"""

from functools import cache

from autograder.authoring import BANK, WrongAnswer
from autograder.authors import build


@cache
def solutions() -> list[str]:
    """The code cells of the solved lab."""
    return [cell.source for cell in build.solved("convolution").cells if cell.cell_type == "code"]


def slip(exercise: str, mistake: str, *changes: str, fails: str, says: str, function: str = "") -> None:
    """Put the solution with `changes` (old, new, old, new, ...) into the bank; `fails` are checks, by spaces."""
    code = next(source for source in solutions() if f"def {function or exercise}(" in source)
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if old not in code:
            raise ValueError(f"{exercise}, {mistake}: the solution has no {old!r} to change; mend the slip")
        code = code.replace(old, new)
    BANK.append(WrongAnswer(f"convolution.{exercise}", mistake, tuple(fails.split()), says, code))


def checks_of(exercise: str, names: str) -> str:
    """The names of checks, written so that another exercise's answer may fail them."""
    return " ".join(f"{exercise}.{name}" for name in names.split())


# conv_direct

SUMS, MOVES = "channels_are_summed_images_are_not", "strides_and_padding"
LATER = f"{SUMS} the_smallest_and_the_largest_window {MOVES}"
DIRECT = f"the_lectures_formula {LATER}"
SLICE = "x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]"
SEEN, TERM = f"seen = {SLICE}", 'y += torch.einsum("kc,ncpq->nkpq", w[:, :, i, j], seen)'
PAD = "x = functional.pad(x, (padding,) * 4)\n"
SIZE = "P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1"

for mistake, changes, fails, says in (
    ("flips the kernel", ("w[:, :, i, j]", "w[:, :, R - 1 - i, S - 1 - j]"), DIRECT, "with a flipped kernel"),
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
    ("ignores padding", ("2 * padding", "0", PAD, "\n"), MOVES, "padding is not used"),
    ("ignores stride", ("stride=1, padding=0):", "stride=1, padding=0):\n    stride = 1"), MOVES, "stride is not used"),
    ("the border goes round", ("(padding,) * 4)", '(padding,) * 4, mode="circular")'), MOVES, "meets the other side"),
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
        "The image was thinned out",
    ),
    (
        "changes the image",
        (TERM, TERM + "\n    x0 *= 0", "    (N, _, H, W), (K", "    x0 = x\n    (N, _, H, W), (K"),
        "leaves_images_and_filters_alone",
        "changed its argument x",
    ),
    (
        "asks torch",
        (
            "    (N, _, H, W), (K",
            "    return functional.conv2d(x, w, stride=stride, padding=padding)\n    (N, _, H, W), (K",
        ),
        f"{DIRECT} leaves_images_and_filters_alone",
        "which this exercise forbids",
    ),
):
    slip("conv_direct", mistake, *changes, fails=fails, says=says)

# im2col, col2im

PLACES = "a_column_for_each_window channels_stand_below_each_other windows_with_stride_and_padding"
PRODUCT = "filters_times_columns any_stride_and_padding one_matrix_product"
ALL = f"{PLACES} {checks_of('conv_im2col', PRODUCT)}"
SHAPE, COLUMN = "columns.view(N, C * r * s, P * Q)", f"columns[:, :, i, j] = {SLICE}"
ADJOINT = "overlaps_are_counted col2im_is_the_adjoint"
BACK = f"{SLICE} += columns[:, :, i, j]"

for mistake, changes, fails, says in (
    (
        "a row for each window",
        (SHAPE, SHAPE + ".mT"),
        f"{ALL} conv_im2col.leaves_both_alone",
        "The matrix is transposed",
    ),
    ("columns run down", (SHAPE, "columns.transpose(4, 5).reshape(N, C * r * s, P * Q)"), ALL, "The columns run down"),
    ("r and s swapped", (SHAPE, "columns.transpose(2, 3).reshape(N, C * r * s, P * Q)"), ALL, "read column by column"),
    (
        "the window turned round",
        ("columns[:, :, i, j] = ", "columns[:, :, r - 1 - i, s - 1 - j] = "),
        ALL,
        "is turned round",
    ),
    (
        "channels last",
        (SHAPE, "columns.permute(0, 2, 3, 1, 4, 5).reshape(N, C * r * s, P * Q)"),
        f"channels_stand_below_each_other {checks_of('conv_im2col', PRODUCT)}",
        "The channel comes last",
    ),
    (
        "windows side by side",
        ("    N, C, H, W = x.shape", "    stride = max(r, s)\n    N, C, H, W = x.shape"),
        f"{ALL} conv_im2col.leaves_both_alone",
        "The windows do not overlap here",
    ),
    (
        "the border goes round",
        ("(padding,) * 4)", '(padding,) * 4, mode="circular")'),
        "windows_with_stride_and_padding conv_im2col.any_stride_and_padding",
        "meets the other side of the image",
    ),
    (
        "asks torch",
        ("    N, C, H, W = x.shape", "    return functional.unfold(x, (r, s), stride=stride, padding=padding)"),
        f"{ALL} leaves_image_and_columns_alone conv_im2col.leaves_both_alone",
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
        "col2im keeps the padding",
        ("return x[:, :, padding : padding + H, padding : padding + W]", "return x"),
        ADJOINT,
        "has shape (2, 1, 9, 8), expected (2, 1, 7, 6)",
    ),
):
    slip("im2col", mistake, *changes, fails=fails, says=says)

MULTIPLY = "matmul(w.flatten(1), im2col(x, R, S, stride, padding))"
for mistake, changes, fails, says in (
    (
        "a product for each image",
        (MULTIPLY, "torch.stack([matmul(w.flatten(1), c) for c in im2col(x, R, S, stride, padding)])"),
        "one_matrix_product",
        "called 4 times for 4 images",
    ),
    (
        "does not use matmul",
        (MULTIPLY, MULTIPLY[6:].replace(", im2col", " @ im2col")),
        "one_matrix_product",
        "never called matmul",
    ),
    (
        "computes elsewhere",
        (MULTIPLY, "(matmul(w.flatten(1), w.flatten(1).mT), conv_direct(x, w, stride, padding))[1]"),
        "one_matrix_product",
        "The result does not come from matmul",
    ),
    ("P and Q swapped", ("view(N, K, P, Q)", "view(N, K, Q, P)"), PRODUCT, "P and Q are swapped"),
    (
        "the filters' channels last",
        ("w.flatten(1)", "w.permute(0, 2, 3, 1).flatten(1)"),
        PRODUCT,
        "with their channels last",
    ),
):
    slip("conv_im2col", mistake, *changes, fails=fails, says=says)

# toeplitz

T = "the_lectures_matrix any_kernel_and_image mostly_zeros its_transpose_goes_back"
CIRCLE = "return torch.stack([functional.pad(w, (0, wd - S, 0, h - R)).roll((p, q), (0, 1)).flatten()"
for mistake, changes, says in (
    ("transposed", ("return T", "return T.T"), "T is transposed"),
    ("flipped", ("= w[i]", "= w[R - 1 - i].flip(0)"), "The kernel is flipped"),
    ("w transposed", ("= w[i]", "= w[:, i]"), "w is transposed"),
    (
        "columns before rows",
        ("return T", "return T.view(-1, h, wd).transpose(1, 2).reshape(-1, h * wd)"),
        "goes along the rows",
    ),
    (
        "goes on over the end of a line",
        ("return T", "return torch.stack([T[0].roll(i) for i in range((P - 1) * wd + Q)])"),
        "go on over the end of a line",
    ),
    ("circular", ("return T", CIRCLE + " for p in range(h) for q in range(wd)])"), "wraps round the border"),
    ("always float32", ("w.new_zeros(P * Q, h * wd)", "torch.zeros(P * Q, h * wd)"), "has dtype"),
):
    slip("toeplitz", mistake, *changes, fails=T, says=says)

# conv_fft

ZEROS, LARGE = "zeros_not_the_other_side", "the_kernel_as_large_as_the_image"
MANY = f"many_channels_and_images {ZEROS} {LARGE}"
FFT = f"a_product_of_spectra odd_sizes {MANY}"
for mistake, changes, fails, says in (
    ("no conjugate", (".conj()", ""), FFT, "The spectrum of w is not conjugated"),
    (
        "true convolution, well cut",
        (".conj()", "", "[..., :P, :Q]", "[..., w.shape[2] - 1 :, w.shape[3] - 1 :]"),
        FFT,
        "with a flipped kernel",
    ),
    (
        "conjugates x",
        ("rfft2(x)", "rfft2(x).conj()", "s=size).conj()", "s=size)"),
        FFT,
        "The wrong spectrum is conjugated",
    ),
    ("circular: not cut", ("[..., :P, :Q]", ""), FFT, "The result is not cut"),
    ("cut at the wrong end", ("[..., :P, :Q]", "[..., -P:, -Q:]"), FFT, "cut at the wrong end"),
    (
        "takes every width for even",
        ("irfft2(spectra, s=size)", "irfft2(spectra)"),
        "odd_sizes",
        "irfft2 took the width for even",
    ),
    ("padding goes round", ("(padding,) * 4)", '(padding,) * 4, mode="circular")'), ZEROS, "meets the other side"),
    (
        "a complex result",
        ("irfft2", "INVERSE", "rfft2", "fft2", "INVERSE", "ifft2"),
        FFT,
        "irfft2 gives a real result",
    ),
    (
        "the first channel only",
        ("rfft2(x)", "rfft2(x[:, :1])", "rfft2(w", "rfft2(w[:, :1]"),
        MANY,
        "Only the first input channel",
    ),
):
    slip("conv_fft", mistake, *changes, fails=fails, says=says)

# winograd_matrices, conv_winograd

TWO = "four_products_for_two_outputs every_tile_and_filter"
EXACT = f"exact_and_of_the_right_size {TWO}"
COUNTS = "sixteen_multiplications each_filter_is_transformed_once"
TILES = f"whole_tiles tiles_that_stick_out larger_tiles_and_filters {COUNTS}"
LAYER = checks_of("conv_winograd", TILES)
ROW, POWERS = "[Fraction(int(k == r - 1)) for k in range(r)]", "[t**k / f for k in range(r)]"
F23 = """half = Fraction(1, 2)
    G = [[1, 0, 0], [half, half, half], [half, -half, half], [0, 0, 1]]
    B_T = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
    return [[1, 1, 1, 0], [0, 1, -1, -1]], G, B_T
"""
for mistake, changes, fails, says in (
    ("floats", (POWERS, "[float(t**k / f) for k in range(r)]"), EXACT, "expected an exact Fraction"),
    (
        "A, not its transpose",
        ("return A_T, G", "return [list(column) for column in zip(*A_T)], G"),
        f"{EXACT} {LAYER}",
        "A_T of winograd_matrices(2, 3) is 4 x 2, expected 2 x 4",
    ),
    (
        "no point at infinity",
        (f"    G.append({ROW})\n    B_T.append(polynomial(points))\n", ""),
        f"{EXACT} {LAYER}",
        "A tile has a = m + r − 1 = 4 points",
    ),
    ("no denominators", (POWERS, "[t**k for k in range(r)]"), f"{TWO} {LAYER}", "F(2, 3) with g ="),
    (
        "all signs turned",
        ("return A_T, G", "return A_T, [[-v for v in row] for row in G]"),
        TWO,
        "Every output has the wrong sign",
    ),
    (
        "flips the filter",
        ("return A_T, G", "return A_T, [row[::-1] for row in G]"),
        f"{TWO} {LAYER}",
        "with a flipped filter",
    ),
    (
        "only F(2, 3)",
        ("points, G, B_T = POINTS", F23 + "    points, G, B_T = POINTS"),
        f"{EXACT} conv_winograd.larger_tiles_and_filters {checks_of('conv_winograd', COUNTS)}",
        "A_T of winograd_matrices(4, 3) is 2 x 4, expected 4 x 6",
    ),
):
    slip("winograd_matrices", mistake, *changes, fails=fails, says=says)

ONCE = "each_filter_is_transformed_once"
V = "V = (B_T @ tiles @ B_T.T).permute(4, 5, 1, 0, 2, 3).reshape(a * a, C, -1)"
PER_TILE = """parts = []
    for t in range(V.shape[2]):
        U = (G @ w @ G.T).permute(2, 3, 0, 1).reshape(a * a, K, C)
        parts.append(matmul(U, V[:, :, t : t + 1]))
    M = torch.cat(parts, 2)"""
STACKED = "matmul(U.expand(V.shape[2], -1, -1, -1), V.permute(2, 0, 1)[..., None]).permute(1, 2, 0, 3)[..., 0].reshape"
FILLED = "functional.pad(x, (0, -Q % m, 0, -P % m))"
for mistake, changes, fails, says in (
    ("transforms the filter for each tile", ("M = matmul(U, V)", PER_TILE), ONCE, "does not depend on the tile"),
    ("stacks a filter for each tile", ("matmul(U, V).view", STACKED), ONCE, "does not depend on the tile"),
    ("drops tiles that stick out", (FILLED, "x"), "tiles_that_stick_out larger_tiles_and_filters", "are missing"),
    ("leaves the surplus outputs", ("[:, :, :P, :Q]", ""), "tiles_that_stick_out larger_tiles_and_filters", "too many"),
    ("tiles not put together", ("Y.transpose(3, 4)", "Y"), TILES, "The tiles are not put together"),
    ("flips the filter", ("G @ w @ G.T", "G @ w.flip(2, 3) @ G.T"), TILES, "with a flipped kernel"),
    (
        "the direct way, counted",
        ("    (N, C, H, W), (K", "    return conv_im2col(x, w, matmul=matmul)\n    (N, C, H, W), (K"),
        COUNTS,
        "as many as the direct way",
    ),
    ("does not use matmul", ("matmul(U, V)", "torch.bmm(U, V)"), COUNTS, "never called matmul"),
    (
        "transforms by matmul too",
        ("(G @ w @ G.T)", "matmul(matmul(G, w), G.T)", "(B_T @ tiles @ B_T.T)", "matmul(matmul(B_T, tiles), B_T.T)"),
        COUNTS,
        "The transforms went through matmul too",
    ),
    ("tiles of 2x2 whatever m is", ("    (N, C, H, W), (K", "    m = 2\n    (N, C, H, W), (K"), COUNTS, "tiles of 4x4"),
):
    slip("conv_winograd", mistake, *changes, fails=fails, says=says)

# conv_cost

FEW, SPECTRA = "direct_and_im2col predicts_the_order", "fouriers_spectra predicts_the_order"
FORMULA = f"{FEW} toeplitzs_matrix"
EACH = f"{FORMULA} winograds_tiles fouriers_spectra"
START = "multiplications, between = N * K * P * Q * C * R * S, 0"
LEAST = "4 * (N * C * H * W + K * C * R * S + N * K * P * Q) + 2 * between"
for mistake, changes, fails, says in (
    (
        "additions counted too",
        ("return multiplications,", "return 2 * multiplications,"),
        EACH,
        "counts the additions too",
    ),
    ("one image", (START, START.replace("N * ", "")), FORMULA, "This is for one image"),
    ("one channel", (START, START.replace("C * ", "")), FORMULA, "The input channels are missing"),
    ("numbers for bytes", (LEAST, f"({LEAST}) // 4"), EACH, "These are numbers: each has 4 bytes"),
    ("what stands between, once", ("+ 2 * between", "+ between"), EACH, "it is written and read"),
    ("no columns", ("between = 4 * N * C * R * S * P * Q", "between = 0"), FEW, "The arrays between are missing"),
    ("no indices", ("(4 + 8 + 8)", "4"), "toeplitzs_matrix", "4 + 8 + 8 bytes each"),
    (
        "tiles rounded down",
        ("-(-P // m) * -(-Q // m)", "(P // m) * (Q // m)"),
        "winograds_tiles",
        "round up",
    ),
    (
        "a product for each output",
        ("between = a * a * tiles", "between = m * m * tiles"),
        "winograds_tiles predicts_the_order",
        "A tile has m² outputs, but (m + 2)² products",
    ),
    (
        "complex products once",
        ("between = 4 * frequencies", "between = frequencies"),
        SPECTRA,
        "A complex product is four",
    ),
    ("the whole spectrum", ("(b // 2 + 1)", "b"), SPECTRA, "The spectrum of a real image is half"),
    (
        "sizes as they are",
        ("1 << (n + border - 1).bit_length()", "n + border"),
        SPECTRA,
        "The sizes are powers of two here",
    ),
):
    slip("conv_cost", mistake, *changes, fails=fails, says=says)

# conv_kernel

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
    ("one block of filters", ("k = tl.program_id(0) % blocks * BLOCK + ", "k = "), BLOCKS, "were never written"),
):
    slip("conv_kernel", mistake, *changes, fails=fails, says=says)
