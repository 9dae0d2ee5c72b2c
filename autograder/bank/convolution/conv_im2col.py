"""Wrong answers to `conv_im2col`."""

from autograder.bank.convolution.later import PRODUCT
from autograder.bank.convolution.slips import slip

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
        PRODUCT,
        "The result does not come from matmul",
    ),
    (
        "learns the factor from a product of ones",
        (
            MULTIPLY,
            "(conv_direct(x, w, stride, padding).flatten(2) / w[0].numel() * matmul(torch.ones_like(w.flatten(1)), "
            "torch.ones_like(im2col(x, R, S, stride, padding))))",
        ),
        PRODUCT,
        "The outputs are computed elsewhere",
    ),
    (
        "asks conv_direct",
        (MULTIPLY, "conv_direct(x, w, stride, padding)"),
        PRODUCT,
        "come from one product of matrices",
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
slip(
    "conv_im2col",
    "scales the filters in place",
    "    return matmul(w.flatten(1), ",
    "    return matmul(w.mul_(2).flatten(1), ",
    ".view(N, K, P, Q)",
    ".view(N, K, P, Q) / 2",
    fails="leaves_both_alone",
    says="changed its argument w",
)
