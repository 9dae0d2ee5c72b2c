"""Whether an answer is the convolution of images with filters; known mistakes are named by what they give."""

from collections.abc import Callable

import torch
from torch.nn import functional

from autograder import checks
from autograder.exercises.convolution.oracles import conv, output

TWO_SIDES = "The padding is left and right only: functional.pad(x, (padding,) * 4) puts zeros on all four sides."


def check_output(got, x, w, stride: int = 1, padding: int = 0, *, name: str, extra: dict | None = None) -> None:
    """`got` is the convolution of x with w; known mistakes are named by their values, else by their shape."""
    mistakes = {**(extra or {}), **wrong_values(x, w, stride, padding)}
    if type(got) is torch.Tensor:
        shape = wrong_shapes(x, w, stride, padding).get(tuple(got.shape))
        if shape and not any(checks.alike(got, made() if callable(made) else made) for made in mistakes.values()):
            mistakes[shape] = got
    checks.close(got, conv(x, w, stride, padding), name=name, why=rule(x, w, stride, padding), mistakes=mistakes)


def rule(x, w, stride: int, padding: int) -> str:
    case = f"x {tuple(x.shape)}, w {tuple(w.shape)}, stride {stride}, padding {padding}"
    step = "" if stride == 1 else f"{stride} "
    return f"{case}: y[n, k, p, q] = Σ w[k, c, i, j] x[n, c, {step}p + i, {step}q + j], over c, i and j."


def wrong_values(x, w, stride: int, padding: int) -> dict:
    """Sentences that name a mistake, and what it gives."""
    k, c, r, s = w.shape
    padded = functional.pad(x, (padding,) * 4)
    mistakes = {
        "This is the convolution with a flipped kernel: the course, like torch, does not flip. "
        "w[i, j] goes with x[p + i, q + j].": lambda: conv(x, w.flip(2, 3), stride, padding),
        "You multiply means and sum over the channels: multiply first, then add up, and divide by nothing.": lambda: (
            conv(x, w, stride, padding) / (r * s)
        ),
    }
    p, q = output(x, w, stride, padding)
    if p == q > 1:
        mistakes["P and Q are swapped: rows first, y is (N, K, P, Q)."] = lambda: conv(x, w, stride, padding).mT
    if c > 1:
        mistakes |= {
            "Only the first input channel counts here: sum over all C of them.": lambda: conv(
                x[:, :1], w[:, :1], stride, padding
            ),
            "Only the last input channel is left: add each channel's part, y += ..., instead of y = ....": lambda: conv(
                x[:, -1:], w[:, -1:], stride, padding
            ),
            "This is the mean over the input channels: the convolution is their sum.": lambda: (
                conv(x, w, stride, padding) / c
            ),
        }
    if len(x) > 1:
        mistakes["This sums over the batch: every image keeps its own outputs; the sum runs over the channels."] = (
            lambda: conv(x, w, stride, padding).sum(0, keepdim=True).expand(len(x), -1, -1, -1)
        )
        mistakes["Every image has the outputs of the first one."] = lambda: conv(x[:1].expand_as(x), w, stride, padding)
    if r == s:
        mistakes["The window is transposed: w[i, j] goes with x[p + i, q + j]; i runs over the R rows."] = lambda: conv(
            x, w.transpose(2, 3), stride, padding
        )
    if c > 1 and r * s > 1:
        mistakes[
            "The filters are read with their channels last: w is (K, C, R, S), and im2col's rows run over c first."
        ] = lambda: conv(x, w.permute(0, 2, 3, 1).reshape(w.shape), stride, padding)
    if k == c > 1:
        mistakes["K and C are swapped: w[k, c] leads from input channel c to output channel k."] = lambda: conv(
            x, w.transpose(0, 1), stride, padding
        )
    if r * s > 1:
        mistakes["Only one place of the window is left: add each place's part, y += ..., instead of y = ...."] = (
            lambda: conv(padded[..., r - 1 :, s - 1 :], w[..., -1:, -1:], stride)[..., :p, :q]
        )
    return mistakes | border_mistakes(x, w, stride, padding)


def border_mistakes(x, w, stride: int, padding: int) -> dict:
    mistakes: dict[str, Callable[..., torch.Tensor]] = {}
    if padding:
        for mode, sentence in (
            ("circular", "The window meets the other side of the image beyond the border: padding is zeros."),
            ("replicate", "The pixels of the border are repeated: padding is zeros."),
            ("reflect", "The image is reflected at its border: padding is zeros."),
        ):
            if mode == "replicate" or padding < min(x.shape[2:]):
                mistakes[sentence] = lambda mode=mode: conv(functional.pad(x, (padding,) * 4, mode=mode), w, stride)
        mistakes[
            "All the padding is on one side: put `padding` rows of zeros above and below, columns left and right."
        ] = lambda: conv(functional.pad(x, (0, 2 * padding, 0, 2 * padding)), w, stride)
        mistakes["The output is padded: zeros go around the image, before the window slides."] = lambda: functional.pad(
            conv(x, w, stride), (padding,) * 4
        )
    if stride > 1:
        p, q = output(x, w, stride, padding)
        mistakes["stride is not used."] = lambda: conv(x, w, 1, padding)[..., :p, :q]
        mistakes |= thinned_mistakes(x, w, stride, padding)
    return mistakes


def thinned_mistakes(x, w, stride: int, padding: int) -> dict:
    """What a window gives that slides over every stride-th pixel."""
    found = {}
    for sentence, thin in (
        (
            "You skipped pixels of the image before the window: it sees all pixels, and moves in larger steps.",
            functional.pad(x, (padding,) * 4)[..., ::stride, ::stride],
        ),
        (
            "You apply stride before padding: first put zeros around the whole image, then move the window in steps.",
            functional.pad(x[..., ::stride, ::stride], (padding,) * 4),
        ),
    ):
        if thin.shape[2] >= w.shape[2] and thin.shape[3] >= w.shape[3]:
            found[sentence] = conv(thin, w)
    return found


def wrong_shapes(x, w, stride: int, padding: int) -> dict:
    """Shapes of known mistakes, and what to say of them."""
    (n, _, h, wd), (k, _, r, s) = x.shape, w.shape
    p, q = output(x, w, stride, padding)

    def size(length, window):
        return (length + 2 * padding - window) // stride + 1

    def shaped(height, width):
        return (n, k, height, width)

    found = {
        shaped(size(h, s), size(wd, r)): "R and S are swapped: w has R rows and S columns, so P goes with H and R.",
        shaped(q, p): "P and Q are swapped: rows first, y is (N, K, P, Q).",
        (k, n, p, q): "N and K are swapped: y is (N, K, P, Q), images first.",
        (n, p, q): "The filters are added up: y has a channel for each of the K filters.",
        (n, 1, p, q): "The filters are added up: y has a channel for each of the K filters.",
        (k, p, q): "The batch is gone: y has an image for each of the N images of x.",
        (1, k, p, q): "The batch is gone: y has an image for each of the N images of x.",
        (p, q): "Images and filters are gone: y is (N, K, P, Q).",
        shaped(p - 1, q - 1): "One row and one column are missing: P = (H + 2·padding − R) // stride + 1.",
        shaped(p + 1, q + 1): "One row and one column too many: P = (H + 2·padding − R) // stride + 1, rounded down.",
        shaped(size(h, r), size(wd, r)): "S is not used: Q = (W + 2·padding − S) // stride + 1.",
        shaped(h, wd): "As large as the image: y has a row for each of the P = H − R + 1 places where the window fits.",
        shaped(
            h + r - 1, wd + s - 1
        ): "There are outputs where the window extends beyond the image: without padding it must fit into it.",
    }
    if padding:
        found[shaped((h - r) // stride + 1, size(wd, s))] = TWO_SIDES
        found[shaped((h - r) // stride + 1, (wd - s) // stride + 1)] = "padding is not used."
        found[shaped((h - r) // stride + 1 + 2 * padding, (wd - s) // stride + 1 + 2 * padding)] = (
            "You apply padding after stride: zeros go around the image, P = (H + 2·padding − R) // stride + 1."
        )
        found[shaped((h + padding - r) // stride + 1, (wd + padding - s) // stride + 1)] = (
            "Put zeros on both sides: P = (H + 2·padding − R) // stride + 1."
        )
    if stride > 1:
        found[shaped(h + 2 * padding - r + 1, wd + 2 * padding - s + 1)] = "stride is not used."
    return {shape: sentence for shape, sentence in found.items() if shape != (n, k, p, q)}
