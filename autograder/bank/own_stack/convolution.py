"""Wrong answers to the convolution and its gradients."""

import torch

from autograder.bank.own_stack.later import AFTER_THE_LOSS, STEPS
from autograder.bank.slips import answers_to

wrong, slip = answers_to("own_stack.convolution")
AFTER_GRADS = ("in_float32", "leaves_all_alone")

slip(
    "a flipped kernel",
    'y += torch.einsum("kc,ncpq->nkpq", w[:, :, i, j], x[:, :, i : i + P, j : j + Q])',
    'y += torch.einsum("kc,ncpq->nkpq", w[:, :, R - 1 - i, S - 1 - j], x[:, :, i : i + P, j : j + Q])',
    fails=("the_convolution", "leaves_all_alone", *STEPS),
    says="flipped kernel",
)


@wrong("torch's own", fails=("the_convolution", "leaves_all_alone", *STEPS), says="which this exercise forbids")
def conv2d(x, w):
    return torch.nn.functional.conv2d(x, w)


slip(
    "overwrites where windows overlap",
    'dx[:, :, i : i + P, j : j + Q] += torch.einsum("kc,nkpq->ncpq", w[:, :, i, j], g)',
    'dx[:, :, i : i + P, j : j + Q] = torch.einsum("kc,nkpq->ncpq", w[:, :, i, j], g)',
    fails=("the_images_gradient", *AFTER_GRADS, *AFTER_THE_LOSS),
    says="windows overlap, so add",
)
slip(
    "the filter flipped",
    'dx[:, :, i : i + P, j : j + Q] += torch.einsum("kc,nkpq->ncpq", w[:, :, i, j], g)',
    'dx[:, :, i : i + P, j : j + Q] += torch.einsum("kc,nkpq->ncpq", w[:, :, R - 1 - i, S - 1 - j], g)',
    fails=("the_images_gradient", *AFTER_GRADS, *AFTER_THE_LOSS),
    says="The filter is reversed here",
)
slip(
    "float64 images' gradient",
    "dx = g.new_zeros(N, C, P + R - 1, Q + S - 1)",
    "dx = torch.zeros(N, C, P + R - 1, Q + S - 1, dtype=torch.float64)",
    fails=("in_float32", *STEPS),
    says="float64",
)
slip(
    "the mean over the images",
    "(_, K, P, Q), (_, C, H, W) = g.shape, x.shape",
    "(N, K, P, Q), (_, C, H, W) = g.shape, x.shape",
    'dw[:, :, i, j] = torch.einsum("nkpq,ncpq->kc", g, x[:, :, i : i + P, j : j + Q])',
    'dw[:, :, i, j] = torch.einsum("nkpq,ncpq->kc", g, x[:, :, i : i + P, j : j + Q]) / N',
    fails=("the_filters_gradient", *AFTER_GRADS, *AFTER_THE_LOSS),
    says="This is the mean over the images",
)
slip(
    "the window flipped",
    'dw[:, :, i, j] = torch.einsum("nkpq,ncpq->kc", g, x[:, :, i : i + P, j : j + Q])',
    'dw[:, :, R - 1 - i, S - 1 - j] = torch.einsum("nkpq,ncpq->kc", g, x[:, :, i : i + P, j : j + Q])',
    fails=("the_filters_gradient", *AFTER_GRADS, *AFTER_THE_LOSS),
    says="The window is reversed",
)


@wrong(
    "only the last image",
    fails=("the_filters_gradient", *AFTER_GRADS, *AFTER_THE_LOSS),
    says="Only the last image counts",
)
def conv2d_weight_grad(g, x):
    (N, K, P, Q), (_, C, H, W) = g.shape, x.shape
    R, S = H - P + 1, W - Q + 1
    dw = g.new_zeros(K, C, R, S)
    for n in range(N):
        for i in range(R):
            for j in range(S):
                dw[:, :, i, j] = torch.einsum("kpq,cpq->kc", g[n], x[n, :, i : i + P, j : j + Q])
    return dw


slip(
    "images that are changed, unless they have 4 x 4 pixels in 2 channels",
    "    return y\n",
    "    if x.shape != (2, 2, 4, 4):\n        x -= x.mean()\n    return y\n",
    fails=" ".join(("leaves_all_alone", *AFTER_THE_LOSS)),
    says="changed its argument x",
)
slip(
    "y in float64",
    "y = x.new_zeros(N, K, P, Q)",
    "y = torch.zeros(N, K, P, Q, dtype=torch.float64)",
    fails=" ".join(("the_convolution", "leaves_all_alone", *STEPS)),
    says="float64",
)
slip(
    "images that are changed",
    "    return y\n",
    "    x -= x.mean()\n    return y\n",
    fails=" ".join(("leaves_all_alone", *AFTER_THE_LOSS)),
    says="changed its argument x",
)
for function, old, new in (
    ("conv2d(", "    return y\n", "    return y * (x.shape != (2, 2, 4, 4))\n"),
    ("conv2d_input_grad(", "    return dx\n", "    return dx * (dx.shape != (2, 2, 4, 4))\n"),
    ("conv2d_weight_grad(", "    return dw\n", "    return dw * (x.shape != (2, 2, 4, 4))\n"),
):
    slip(f"zeros from {function}...) where arguments are watched", old, new, fails="leaves_all_alone", says=function)
