"""Wrong answers to `toeplitz`."""

from autograder.bank.convolution.slips import slip

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
        "continues past the end of a line",
        ("return T", "return torch.stack([T[0].roll(i) for i in range((P - 1) * wd + Q)])"),
        "continue over the end of a line",
    ),
    ("circular", ("return T", CIRCLE + " for p in range(h) for q in range(wd)])"), "wraps around the border"),
    ("always float32", ("w.new_zeros(P * Q, h * wd)", "torch.zeros(P * Q, h * wd)"), "has dtype"),
):
    slip("toeplitz", mistake, *changes, fails=T, says=says)
slip(
    "toeplitz",
    "asks torch's im2col",
    "    return T",
    "    images = torch.eye(h * wd, dtype=w.dtype).view(-1, 1, h, wd)\n"
    "    return (w.reshape(1, 1, -1) @ functional.unfold(images, w.shape))[:, 0].T.contiguous()",
    fails=T,
    says="which this exercise forbids",
)
slip(
    "toeplitz",
    "rounds the weights",
    "    return T",
    "    return T.round()",
    fails=T,
    says="Row q + Q p has w[i, j] at column",
)
