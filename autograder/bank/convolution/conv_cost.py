"""Wrong answers to `conv_cost`."""

from autograder.bank.convolution.slips import slip

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
    ("the tensors between, once", ("+ 2 * between", "+ between"), EACH, "they are written and read"),
    ("no columns", ("between = 4 * N * C * R * S * P * Q", "between = 0"), FEW, "The intermediate arrays are missing"),
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
    (
        "a multiplication more for large images",
        ("return multiplications,", "return multiplications + (H > 50),"),
        "predicts_the_order",
        "expected 553,648,128",
    ),
):
    slip("conv_cost", mistake, *changes, fails=fails, says=says)
