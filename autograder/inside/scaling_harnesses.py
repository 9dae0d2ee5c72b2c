"""Harness (see `harnesses`) of loss scaling: many steps of one scaler, and what the optimizer was given in each."""

from collections.abc import Callable

import torch

from hpcdl.comm.base import Communicator


def loss_scaling(make: Callable, steps: list, options: dict, measured: bool, comm: Communicator):
    """Steps of the student's scaler, which gets each step's scaled gradients.

    For each: the scale before, what `step` returned, what each of its updates was given, the scale after, and, with
    `measured`, the virtual seconds that it took.
    """
    scaler, log = make(comm, **options), []
    for gradients in steps:
        given: list[list[torch.Tensor]] = []
        before, begin = scaler.scale, comm.clock()
        done = scaler.step(
            [x.clone() for x in gradients], lambda xs, given=given: given.append([x.detach().clone() for x in xs])
        )
        log.append((before, done, given, scaler.scale, comm.clock() - begin if measured else 0.0))
    return log
