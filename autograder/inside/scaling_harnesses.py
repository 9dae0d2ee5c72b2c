"""Harness (see `harnesses`) of loss scaling: many steps of one scaler, and what the optimizer was given in each."""

from collections.abc import Callable

import torch

from hpcdl.comm.base import Communicator


def loss_scaling(make: Callable, steps: list, options: dict, measured: bool, comm: Communicator):
    """Steps of the student's scaler, which gets each step's scaled gradients.

    For each: what `step` returned, what each of its updates was given, and, with `measured`, the virtual seconds that
    it took. The scale itself is seen in what it divides.
    """
    scaler, log = make(comm, **options), []
    for gradients in steps:
        given: list[list[torch.Tensor]] = []
        begin = comm.clock()
        done = scaler.step(
            [x.clone() for x in gradients], lambda xs, given=given: given.append([x.detach().clone() for x in xs])
        )
        log.append((done, given, comm.clock() - begin if measured else 0.0))
    return log
