"""Penalties on pieces of weights, which a loss adds outside the model's forward pass."""

from functools import partial

import torch

from hpcdl.ddp.backward_passes import Losses
from hpcdl.ddp.postponed import listen, own
from hpcdl.sharding.unit import Unit


def accept_outside(unit: Unit, i: int, losses: Losses, gradient: torch.Tensor) -> None:
    """Accept the gradient of a piece where the loss only sums over its elements: then each rank has its part of it."""
    terms = losses.current()
    if terms is None or id(unit.shards[i]) not in terms.elementwise:
        raise RuntimeError(
            "the loss uses a parameter outside the model's forward, where this rank has a flat piece of it; compute "
            "that part of the loss in forward"
        )
    unit.begin_penalty(i)


def keep_penalty(unit: Unit, i: int, piece: torch.Tensor) -> None:
    """Keep the gradient that autograd has accumulated in a piece."""
    unit.keep_penalty(i)


def accept_penalties(unit: Unit, i: int, losses: Losses) -> None:
    """Accept gradients of piece i of `unit` from outside its model, if they are right."""
    shard = unit.shards[i]
    listen(shard.register_hook, shard, own(partial(accept_outside, unit, i, losses)))
    listen(shard.register_post_accumulate_grad_hook, shard, own(partial(keep_penalty, unit, i)))
