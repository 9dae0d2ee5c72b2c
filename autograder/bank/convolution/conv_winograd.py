"""Wrong answers to `conv_winograd`."""

from autograder.bank.convolution.later import OTHER_SIZES, TILES, UNPROVED
from autograder.bank.convolution.slips import slip

ONCE = "each_filter_is_transformed_once"
PER_TILE = """parts = []
    for t in range(V.shape[2]):
        U = (G @ w @ G.T).permute(2, 3, 0, 1).reshape(a * a, K, C)
        parts.append(matmul(U, V[:, :, t : t + 1]))
    M = torch.cat(parts, 2)"""
STACKED = "matmul(U.expand(V.shape[2], -1, -1, -1), V.permute(2, 0, 1)[..., None]).permute(1, 2, 0, 3)[..., 0].reshape"
ELSEWHERE = "return conv_direct(x, w) * matmul(torch.ones_like(U), torch.ones_like(V)).max() / C\n    "
FROM_BOTH = "s = x.mean()\n    M = (matmul(U * s, V) / s)"
FILLED = "functional.pad(x, (0, -Q % m, 0, -P % m))"

for mistake, changes, fails, says in (
    ("transforms the filter for each tile", ("M = matmul(U, V)", PER_TILE), ONCE, "does not depend on the tile"),
    ("stacks a filter for each tile", ("matmul(U, V).view", STACKED), ONCE, "does not depend on the tile"),
    ("drops tiles that stick out", (FILLED, "x"), OTHER_SIZES, "The tiles at the border are missing"),
    ("leaves the surplus outputs", ("[:, :, :P, :Q]", ""), OTHER_SIZES, "too many"),
    ("tiles not put together", ("Y.transpose(3, 4)", "Y"), TILES, "The tiles are not joined"),
    ("flips the filter", ("G @ w @ G.T", "G @ w.flip(2, 3) @ G.T"), TILES, "with a flipped kernel"),
    (
        "the direct way, counted",
        ("    (N, C, H, W), (K", "    return conv_im2col(x, w, matmul=matmul)\n    (N, C, H, W), (K"),
        UNPROVED,
        "as many as the direct way",
    ),
    ("does not use matmul", ("matmul(U, V)", "torch.bmm(U, V)"), UNPROVED, "never called matmul"),
    (
        "learns the factor from a product of ones",
        ("M = matmul", ELSEWHERE + "M = matmul"),
        UNPROVED,
        "the outputs are computed elsewhere",
    ),
    (
        "filters scaled by the image",
        ("M = matmul(U, V)", FROM_BOTH),
        UNPROVED,
        "is made of the filters alone",
    ),
    (
        "transforms by matmul too",
        ("(G @ w @ G.T)", "matmul(matmul(G, w), G.T)", "(B_T @ tiles @ B_T.T)", "matmul(matmul(B_T, tiles), B_T.T)"),
        UNPROVED,
        "The transforms went through matmul too",
    ),
    (
        "tiles of 2x2 whatever m is",
        ("    (N, C, H, W), (K", "    m = 2\n    (N, C, H, W), (K"),
        UNPROVED,
        "tiles of 4x4",
    ),
):
    slip("conv_winograd", mistake, *changes, fails=fails, says=says)
