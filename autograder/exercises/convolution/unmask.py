"""Which of eight programs are the convolution of exercise 1? Oracle: torch's own in float64."""

import torch
from torch.nn import functional

from autograder.checks.impostors import LineUp, Suspect, whole
from autograder.exercises.unmasking import examines

IMAGES, CHANNELS, FILTERS = 2, 3, 2


def ask(conv, H, W, R, S, stride, padding):
    """Return the output for images and filters of these sizes, which hold distinct whole numbers."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randperm(IMAGES * CHANNELS * H * W, generator=rng).view(IMAGES, CHANNELS, H, W) + 1
    w = torch.randperm(FILTERS * CHANNELS * R * S, generator=rng).view(FILTERS, CHANNELS, R, S) + 1
    return conv(x.double(), w.double(), stride, padding).long().tolist()


def truth(x, w, stride, padding):
    return functional.conv2d(x, w, stride=stride, padding=padding)


def sizes(x, w, stride, padding):
    """Height and width of the output."""
    (H, W), (R, S) = x.shape[2:], w.shape[2:]
    return (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1


def window_by_window(x, w, stride, padding):
    """Each output from its window."""
    P, Q = sizes(x, w, stride, padding)
    R, S = w.shape[2:]
    return over_outputs(functional.pad(x, (padding,) * 4), w, stride, P, Q, R, S)


def over_outputs(x, w, stride, P, Q, R, S):
    y = x.new_zeros(len(x), len(w), P, Q)
    for p in range(P):
        for q in range(Q):
            window = x[:, :, p * stride : p * stride + R, q * stride : q * stride + S]
            y[:, :, p, q] = torch.einsum("ncrs,kcrs->nk", window, w)
    return y


def weight_by_weight(x, w, stride, padding):
    """Each weight with all the pixels that it meets."""
    P, Q = sizes(x, w, stride, padding)
    x, y = functional.pad(x, (padding,) * 4), x.new_zeros(len(x), len(w), P, Q)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            seen = x[:, :, i:, j:][:, :, ::stride, ::stride][:, :, :P, :Q]
            y = y + torch.einsum("kc,ncpq->nkpq", w[:, :, i, j], seen)
    return y


def by_columns(x, w, stride, padding):
    columns = functional.unfold(x, w.shape[2:], stride=stride, padding=padding)
    return (w.flatten(1) @ columns).view(len(x), len(w), *sizes(x, w, stride, padding))


def then_thinned(x, w, stride, padding):
    """At every place, and then every stride-th of them."""
    x = functional.pad(x, (padding,) * 4)
    (R, S), (P, Q) = w.shape[2:], sizes(x, w, 1, 0)
    return over_outputs(x, w, 1, P, Q, R, S)[:, :, ::stride, ::stride]


def turned(x, w, stride, padding):
    return truth(x, w.flip(2, 3), stride, padding)


def square_outputs(x, w, stride, padding):
    P, _ = sizes(x, w, stride, padding)
    R, S = w.shape[2:]
    return over_outputs(functional.pad(x, (padding,) * 4), w, stride, P, P, R, S)


def edges_repeated(x, w, stride, padding):
    return truth(functional.pad(x, (padding,) * 4, mode="replicate"), w, stride, 0)


def windows_that_stick_out(x, w, stride, padding):
    """Rounds the number of places up: zeros are added where the last window wants them."""
    (H, W), (R, S) = x.shape[2:], w.shape[2:]
    more = [-(n + 2 * padding - k) % stride for n, k in ((H, R), (W, S))]
    return truth(functional.pad(x, (padding, padding + more[1], padding, padding + more[0])), w, stride, 0)


def outside(H, W, R, S, stride, padding):
    fits = H + 2 * padding >= R and W + 2 * padding >= S
    return "" if fits else f"the kernel of {R} x {S} is larger than the padded image of {H} x {W}"


line_up = LineUp(
    "unmask_conv",
    truth=truth,
    suspects=(
        Suspect("A", weight_by_weight),
        Suspect("B", turned, "flips the kernel, as in mathematics", "a kernel of more than one weight"),
        Suspect("C", edges_repeated, "pads with the pixels of the edge, not with zeros", "a padding"),
        Suspect("D", window_by_window),
        Suspect("E", then_thinned),
        Suspect("F", square_outputs, "makes outputs as wide as they are high", "an output that is not square"),
        Suspect(
            "G",
            windows_that_stick_out,
            "also takes windows that extend beyond the end",
            "a stride that does not fit the image exactly",
        ),
        Suspect("H", by_columns),
    ),
    fields={
        "H": whole(1, 10),
        "W": whole(1, 10),
        "R": whole(1, 5),
        "S": whole(1, 5),
        "stride": whole(1, 4),
        "padding": whole(0, 3),
    },
    ask=ask,
    outside=outside,
)
exercise = examines(line_up)
