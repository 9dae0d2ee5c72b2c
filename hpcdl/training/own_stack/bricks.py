"""The bricks of a training, from the lowest, on the machine, to the top, and who lends each."""

from typing import NamedTuple


class Brick(NamedTuple):
    """Functions that belong together: a short description, the bricks they call, and their place in the library.

    `lines` counts the code lines that run if the library lends the brick; `earlier` names functions of earlier labs
    that fit unchanged, such as "ddp.ring_all_reduce".
    """

    functions: tuple[str, ...]
    does: str
    lines: int
    calls: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()  # modules of hpcdl that lend this brick; otherwise `lent` has its functions
    earlier: tuple[str, ...] = ()


BRICKS = {
    "momentum": Brick(
        ("momentum_step",),
        "one step of descent that remembers the last ones",
        3,
        earlier=("gradient_descent.momentum_step",),
    ),
    "buckets": Brick(
        ("make_buckets",),
        "gradients in a few large messages",
        11,
        homes=("hpcdl.ddp.bucketed",),
        earlier=("ddp.make_buckets",),
    ),
    "rounding": Brick(
        ("random16", "bf16_round_bits"),
        "weights in 16 bits, rounded at random, alike on all ranks",
        9,
        earlier=("stochastic_rounding.bf16_round_bits",),
    ),
    "ring": Brick(
        ("ring_all_reduce",),
        "the sum over the ranks, by messages between neighbours",
        26,
        homes=("hpcdl.collectives",),
        earlier=("ddp.ring_all_reduce",),
    ),
    "tape": Brick(
        ("Node",),
        "remembers how each tensor was made, and passes gradients back",
        39,
    ),
    "convolution": Brick(
        ("conv2d", "conv2d_input_grad", "conv2d_weight_grad"),
        "the window that slides, and its two gradients",
        7,
        earlier=("convolution.conv_direct", "convolution.conv_im2col"),
    ),
    "step": Brick(
        ("network", "train_step"),
        "the network, then forward, backward, exchange, step, round",
        31,
        calls=("momentum", "buckets", "rounding", "ring", "tape", "convolution"),
    ),
}


def brick_of(function: str) -> str | None:
    """Return the brick to which a function of that name belongs, or None."""
    return next((name for name, brick in BRICKS.items() if function in brick.functions), None)
